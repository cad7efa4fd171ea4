//! Credential of a source, as configured. Secrets are referenced in the configuration and read once; a source may have
//! its own certificate authority.

use crate::values::{ConfigPath, Secret, SecretRef};
use http::HeaderValue;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Credential of a source: one of `bearer`, `header` and `client_credentials`, and optionally a client certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "SourceCredential")]
#[serde(deny_unknown_fields, default)]
pub struct SourceCredential {
    /// Token for `Authorization: Bearer`. Default: none.
    pub bearer: Option<SecretRef>,
    /// Header to send, such as X-API-Key. Default: none.
    pub header: Option<SourceHeader>,
    /// OAuth 2.0 client credentials (RFC 6749 §4.4). Default: none.
    pub client_credentials: Option<ClientCredentials>,
    /// Client certificate. Default: none.
    pub mtls: Option<SourceMtls>,
}

/// A header of the requests to a source.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "SourceHeader")]
#[serde(deny_unknown_fields)]
pub struct SourceHeader {
    /// Name of the header.
    pub name: String,
    /// Value of the header.
    pub value: SecretRef,
}

/// OAuth 2.0 client credentials.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClientCredentials {
    /// URL of the token endpoint.
    pub token_url: String,
    /// Client id of the gateway.
    pub client_id: String,
    /// Client secret, sent by HTTP Basic authentication.
    pub client_secret: SecretRef,
    /// Requested scopes, separated by spaces. Default: the scopes that the server grants by default.
    #[serde(default)]
    pub scope: Option<String>,
}

/// Client certificate for a source, and the authorities that its server's certificate is verified with.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "SourceMtls")]
#[serde(deny_unknown_fields)]
pub struct SourceMtls {
    /// Certificate chain in PEM, leaf first.
    pub certificate: ConfigPath,
    /// Private key in PEM.
    pub key: ConfigPath,
    /// Certificate authorities in PEM to trust instead of the system's. Default: the system's.
    #[serde(default)]
    pub ca: Option<ConfigPath>,
}

pub(in crate::net) fn bearer_value(token: &Secret) -> Result<HeaderValue, String> {
    sensitive_value(&format!("Bearer {}", token.expose()))
}

pub(super) fn sensitive_value(text: &str) -> Result<HeaderValue, String> {
    let mut value =
        HeaderValue::try_from(text).map_err(|_| "contains characters that a header cannot contain".to_owned())?;
    value.set_sensitive(true);
    Ok(value)
}

impl SourceMtls {
    /// Loads the certificate with its key, and the certificate authorities to trust.
    pub(in crate::net) fn load(&self) -> Result<(reqwest::Identity, Vec<reqwest::Certificate>), Vec<String>> {
        let read = |name: &str, path: &ConfigPath| {
            std::fs::read(path)
                .map_err(|error| vec![format!("mtls.{name}: {} cannot be read ({error})", path.display())])
        };
        let mut pem = read("certificate", &self.certificate)?;
        pem.push(b'\n');
        pem.extend(read("key", &self.key)?);
        let identity = reqwest::Identity::from_pem(&pem).map_err(|_| {
            vec![format!("mtls.certificate: {} and mtls.key are not a pair in PEM", self.certificate.display())]
        })?;
        let Some(ca) = &self.ca else { return Ok((identity, Vec::new())) };
        let bundle = reqwest::Certificate::from_pem_bundle(&read("ca", ca)?).unwrap_or_default();
        if bundle.is_empty() {
            return Err(vec![format!("mtls.ca: {} contains no certificate in PEM", ca.display())]);
        }
        Ok((identity, bundle))
    }
}
