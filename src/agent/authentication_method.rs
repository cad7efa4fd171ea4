//! Authentication methods: the one table of their names. Agents' documents, configuration problems, logs, metrics and
//! the directory's documents take every name from here; `auth` implements the methods.

/// Prefix of the ids of paired browser pages, which authenticate with API keys of their own kind.
pub const BROWSER_ID_PREFIX: &str = "browser:";

/// How a caller proves its identity, and what an agent requires of its callers (`authentication.type`, R12).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AuthenticationMethod {
    /// An API key.
    ApiKey,
    /// An OAuth 2.0 bearer token (RFC 6750).
    Bearer,
    /// A client certificate (mutual TLS).
    Mtls,
    /// No credential. An agent with this method accepts any credential that the gateway accepts, and callers without a
    /// credential if a grant names `anonymous`.
    #[default]
    Anonymous,
}

/// Security scheme by which a document describes a method (OpenAPI 3.1, A2A).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecurityScheme {
    /// A key in a header field.
    HeaderKey,
    /// A scheme of `Authorization` (RFC 9110 §11.4), such as `bearer`.
    Http(&'static str),
    /// A client certificate.
    MutualTls,
}

/// One row of the table.
struct MethodRow {
    document_type: &'static str,
    label: &'static str,
    phrase: &'static str,
    caller_id_prefix: &'static str,
    descriptor_scheme: &'static str,
    security_scheme: Option<SecurityScheme>,
    has_scopes: bool,
}

impl AuthenticationMethod {
    /// Every method, in the order of the table.
    pub const ALL: [Self; 4] = [Self::ApiKey, Self::Bearer, Self::Mtls, Self::Anonymous];

    /// The table.
    const fn row(self) -> &'static MethodRow {
        match self {
            Self::ApiKey => &MethodRow {
                document_type: "api_key",
                label: "key",
                phrase: "an API key",
                caller_id_prefix: "key:",
                descriptor_scheme: "ApiKey",
                security_scheme: Some(SecurityScheme::HeaderKey),
                has_scopes: false,
            },
            Self::Bearer => &MethodRow {
                document_type: "oauth2_bearer",
                label: "bearer",
                phrase: "a bearer token",
                caller_id_prefix: "oauth:",
                descriptor_scheme: "OAuth2",
                security_scheme: Some(SecurityScheme::Http("bearer")),
                has_scopes: true,
            },
            Self::Mtls => &MethodRow {
                document_type: "mtls",
                label: "certificate",
                phrase: "a client certificate",
                caller_id_prefix: "cert:",
                descriptor_scheme: "MutualTLS",
                security_scheme: Some(SecurityScheme::MutualTls),
                has_scopes: false,
            },
            Self::Anonymous => &MethodRow {
                document_type: "none",
                label: "anonymous",
                phrase: "a credential",
                caller_id_prefix: "",
                descriptor_scheme: "",
                security_scheme: None,
                has_scopes: false,
            },
        }
    }

    /// Returns the method of this `authentication.type`.
    pub fn from_document_type(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.document_type() == name)
    }

    /// Returns the name in agents' documents (`authentication.type`), and the name of the security scheme in documents
    /// that describe the gateway.
    pub const fn document_type(self) -> &'static str {
        self.row().document_type
    }

    /// Returns the name in logs, and the caller class in metrics.
    pub const fn label(self) -> &'static str {
        self.row().label
    }

    /// Returns the method's credential with its article, for messages: `an API key`.
    pub const fn phrase(self) -> &'static str {
        self.row().phrase
    }

    /// Returns the prefix of callers' ids, such as `key:`; empty without a credential.
    pub const fn caller_id_prefix(self) -> &'static str {
        self.row().caller_id_prefix
    }

    /// Returns the scheme's name in `agent://` descriptors; empty without a credential.
    pub const fn descriptor_scheme(self) -> &'static str {
        self.row().descriptor_scheme
    }

    /// Returns the security scheme; `None` without a credential.
    pub const fn security_scheme(self) -> Option<SecurityScheme> {
        self.row().security_scheme
    }

    /// Returns whether credentials have OAuth scopes, which an agent may require.
    pub const fn has_scopes(self) -> bool {
        self.row().has_scopes
    }

    /// Returns whether an agent with this method accepts a caller that used `method`.
    pub fn accepts(self, method: Self) -> bool {
        self == Self::Anonymous || self == method
    }
}
