//! Accepted credentials, and their security schemes in OpenAPI, A2A and descriptors.

use crate::agent::{Agent, AuthenticationType};
use http::HeaderName;
use serde_json::{Value, json};

/// The kinds of credential that the gateway accepts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AcceptedCredentials {
    /// Header of API keys; `None` if API keys are not accepted.
    pub api_key_header: Option<HeaderName>,
    /// Whether bearer tokens are accepted.
    pub bearer: bool,
    /// Whether client certificates are accepted.
    pub certificate: bool,
}

/// One kind of credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CredentialKind {
    ApiKey,
    Bearer,
    Certificate,
}

impl AcceptedCredentials {
    /// Returns the header of API keys; the default name if none is configured.
    pub(super) fn api_key_header_name(&self) -> &str {
        self.api_key_header.as_ref().map_or("X-API-Key", HeaderName::as_str)
    }

    /// Returns the kinds that an agent, or any agent, accepts; one of them suffices.
    pub(super) fn accepted_kinds(&self, agent: Option<&Agent>) -> Vec<CredentialKind> {
        let accepted = [
            (self.api_key_header.is_some(), CredentialKind::ApiKey),
            (self.bearer, CredentialKind::Bearer),
            (self.certificate, CredentialKind::Certificate),
        ];
        match agent.map_or(AuthenticationType::Open, |agent| agent.authentication.kind) {
            AuthenticationType::ApiKey => vec![CredentialKind::ApiKey],
            AuthenticationType::Bearer => vec![CredentialKind::Bearer],
            AuthenticationType::Mtls => vec![CredentialKind::Certificate],
            AuthenticationType::Open => {
                accepted.into_iter().filter_map(|(is_accepted, kind)| is_accepted.then_some(kind)).collect()
            }
        }
    }

    /// Returns the security scheme of OpenAPI 3.1 and A2A 0.3.
    pub(super) fn openapi_scheme(&self, kind: CredentialKind) -> Value {
        match kind {
            CredentialKind::ApiKey => json!({"type": "apiKey", "in": "header", "name": self.api_key_header_name()}),
            CredentialKind::Bearer => json!({"type": "http", "scheme": "bearer"}),
            CredentialKind::Certificate => json!({"type": "mutualTLS"}),
        }
    }

    /// Returns the security scheme of A2A 1.0.
    pub(super) fn a2a_v1_scheme(&self, kind: CredentialKind) -> Value {
        match kind {
            CredentialKind::ApiKey => {
                json!({"apiKeySecurityScheme": {"location": "header", "name": self.api_key_header_name()}})
            }
            CredentialKind::Bearer => json!({"httpAuthSecurityScheme": {"scheme": "bearer"}}),
            CredentialKind::Certificate => json!({"mtlsSecurityScheme": {}}),
        }
    }
}

impl CredentialKind {
    /// Returns the scheme's name in documents.
    pub(super) fn scheme_name(self) -> &'static str {
        match self {
            Self::ApiKey => "api_key",
            Self::Bearer => "oauth2_bearer",
            Self::Certificate => "mtls",
        }
    }

    /// Returns the scheme's name in `agent://` descriptors.
    pub(super) fn descriptor_name(self) -> &'static str {
        match self {
            Self::ApiKey => "ApiKey",
            Self::Bearer => "OAuth2",
            Self::Certificate => "MutualTLS",
        }
    }
}

/// Returns the authentication type of AIDIP (R12).
pub(super) fn aidip_auth_type(kind: AuthenticationType) -> &'static str {
    match kind {
        AuthenticationType::ApiKey => "api_key",
        AuthenticationType::Bearer => "oauth2_bearer",
        AuthenticationType::Mtls => "mtls",
        AuthenticationType::Open => "none",
    }
}
