//! Accepted credentials, and their security schemes in OpenAPI, A2A and descriptors.

use crate::agent::{Agent, AuthKind};
use http::HeaderName;
use serde_json::{Value, json};

/// The kinds of credential that the gateway accepts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    /// Header of API keys; `None` if API keys are not accepted.
    pub api_key: Option<HeaderName>,
    /// Whether bearer tokens are accepted.
    pub bearer: bool,
    /// Whether client certificates are accepted.
    pub certificate: bool,
}

/// One kind of credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    ApiKey,
    Bearer,
    Certificate,
}

impl Credentials {
    /// Returns the header of API keys; the default name if none is configured.
    pub(super) fn key_header(&self) -> &str {
        self.api_key.as_ref().map_or("X-API-Key", HeaderName::as_str)
    }

    /// Returns the kinds that an agent, or any agent, accepts; one of them suffices.
    pub(super) fn counting(&self, agent: Option<&Agent>) -> Vec<Kind> {
        let known = [
            (self.api_key.is_some(), Kind::ApiKey),
            (self.bearer, Kind::Bearer),
            (self.certificate, Kind::Certificate),
        ];
        match agent.map_or(AuthKind::Open, |agent| agent.authentication.kind) {
            AuthKind::ApiKey => vec![Kind::ApiKey],
            AuthKind::Bearer => vec![Kind::Bearer],
            AuthKind::Mtls => vec![Kind::Certificate],
            AuthKind::Open => known.into_iter().filter_map(|(counts, kind)| counts.then_some(kind)).collect(),
        }
    }

    /// Returns the security scheme of OpenAPI 3.1 and A2A 0.3.
    pub(super) fn scheme(&self, kind: Kind) -> Value {
        match kind {
            Kind::ApiKey => json!({"type": "apiKey", "in": "header", "name": self.key_header()}),
            Kind::Bearer => json!({"type": "http", "scheme": "bearer"}),
            Kind::Certificate => json!({"type": "mutualTLS"}),
        }
    }

    /// Returns the security scheme of A2A 1.0.
    pub(super) fn scheme_v1(&self, kind: Kind) -> Value {
        match kind {
            Kind::ApiKey => json!({"apiKeySecurityScheme": {"location": "header", "name": self.key_header()}}),
            Kind::Bearer => json!({"httpAuthSecurityScheme": {"scheme": "bearer"}}),
            Kind::Certificate => json!({"mtlsSecurityScheme": {}}),
        }
    }
}

impl Kind {
    /// Returns the scheme's name in documents.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::ApiKey => "api_key",
            Self::Bearer => "oauth2_bearer",
            Self::Certificate => "mtls",
        }
    }

    /// Returns the scheme's name in `agent://` descriptors.
    pub(super) fn agent_uri(self) -> &'static str {
        match self {
            Self::ApiKey => "ApiKey",
            Self::Bearer => "OAuth2",
            Self::Certificate => "MutualTLS",
        }
    }
}

/// Returns the authentication type of AIDIP (R12).
pub(super) fn aidip(kind: AuthKind) -> &'static str {
    match kind {
        AuthKind::ApiKey => "api_key",
        AuthKind::Bearer => "oauth2_bearer",
        AuthKind::Mtls => "mtls",
        AuthKind::Open => "none",
    }
}
