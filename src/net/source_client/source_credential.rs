//! Credential of a source, as configured. Secrets are referenced in the configuration and read once; a source may have
//! its own certificate authority.

use crate::values::{ConfigPath, PemContent, Secret, SecretRef, parse_pem, parse_private_key_of};
use http::HeaderValue;
use rustls_pki_types::CertificateDer;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::Path;

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
        let place = |name: &str, why: String| vec![format!("mtls.{name}: {why}")];
        let (mut pem, key) = (read("certificate", &self.certificate)?, read("key", &self.key)?);
        // The errors of the client do not say what is wrong.
        parse_pem::<CertificateDer<'_>>(&self.certificate, &pem, PemContent::Certificates)
            .map_err(|why| place("certificate", why))?;
        parse_private_key_of(&self.key, &key).map_err(|why| place("key", why))?;
        pem.push(b'\n');
        pem.extend(key);
        let identity = reqwest::Identity::from_pem(&pem).map_err(|_| {
            vec![format!("mtls.certificate: {} and mtls.key are not a pair in PEM", self.certificate.display())]
        })?;
        let Some(ca) = &self.ca else { return Ok((identity, Vec::new())) };
        let authorities = parse_authorities(ca, &read("ca", ca)?).map_err(|why| place("ca", why))?;
        Ok((identity, authorities))
    }
}

/// Parses the certificate authorities that a PEM file has.
///
/// # Errors
/// What is wrong with the file, without any of its text.
pub(in crate::net) fn parse_authorities(path: &Path, pem: &[u8]) -> Result<Vec<reqwest::Certificate>, String> {
    let certificates = parse_pem::<CertificateDer<'_>>(path, pem, PemContent::Certificates)?;
    let authorities = certificates.iter().map(|certificate| reqwest::Certificate::from_der(certificate));
    let unusable = |_| format!("{} has a certificate that cannot be used", path.display());
    authorities.collect::<Result<_, _>>().map_err(unusable)
}
