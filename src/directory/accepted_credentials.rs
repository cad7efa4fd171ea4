//! Accepted credentials, and their security schemes in OpenAPI, A2A and descriptors.

use crate::{
    agent::{Agent, AuthenticationMethod, SecurityScheme},
    auth::AcceptedCredential,
};
use http::{HeaderName, header};
use serde_json::{Value, json};

/// Header of API keys in documents of a gateway that accepts none.
const DEFAULT_KEY_HEADER: &str = "X-API-Key";

/// The credentials that the gateway accepts, one for each authentication method.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AcceptedCredentials(pub Vec<AcceptedCredential>);

impl AcceptedCredentials {
    /// Returns the methods that an agent, or any agent, accepts; one of them suffices.
    pub(super) fn accepted_methods(&self, agent: Option<&Agent>) -> Vec<AuthenticationMethod> {
        match agent.map(|agent| agent.authentication.method) {
            None | Some(AuthenticationMethod::Anonymous) => self.0.iter().map(|credential| credential.method).collect(),
            Some(required) => vec![required],
        }
    }

    /// Returns the request header fields with credentials, for `Vary`.
    pub(super) fn header_list(&self) -> String {
        let mut names: Vec<&str> =
            self.headers().filter(|name| **name != header::AUTHORIZATION).map(HeaderName::as_str).collect();
        if names.is_empty() {
            names.push(DEFAULT_KEY_HEADER);
        }
        format!("Authorization, {}", names.join(", "))
    }

    /// Returns the security scheme of OpenAPI 3.1 and A2A 0.3.
    pub(super) fn openapi_scheme(&self, method: AuthenticationMethod) -> Value {
        method.security_scheme().map_or(Value::Null, |scheme| match scheme {
            SecurityScheme::HeaderKey => json!({"type": "apiKey", "in": "header", "name": self.header_of(method)}),
            SecurityScheme::Http(name) => json!({"type": "http", "scheme": name}),
            SecurityScheme::MutualTls => json!({"type": "mutualTLS"}),
        })
    }

    /// Returns the security scheme of A2A 1.0.
    pub(super) fn a2a_v1_scheme(&self, method: AuthenticationMethod) -> Value {
        method.security_scheme().map_or(Value::Null, |scheme| match scheme {
            SecurityScheme::HeaderKey => {
                json!({"apiKeySecurityScheme": {"location": "header", "name": self.header_of(method)}})
            }
            SecurityScheme::Http(name) => json!({"httpAuthSecurityScheme": {"scheme": name}}),
            SecurityScheme::MutualTls => json!({"mtlsSecurityScheme": {}}),
        })
    }

    /// Returns the header field that carries the credential of `method`; the default name if the method is off.
    pub(super) fn header_of(&self, method: AuthenticationMethod) -> &str {
        let credential = self.0.iter().find(|credential| credential.method == method);
        let header = credential.and_then(|credential| credential.header.as_ref());
        header.map_or(DEFAULT_KEY_HEADER, HeaderName::as_str)
    }

    fn headers(&self) -> impl Iterator<Item = &HeaderName> {
        self.0.iter().filter_map(|credential| credential.header.as_ref())
    }
}
