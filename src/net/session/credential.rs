//! What the gateway shows to a source that it reads from, as it is written and as it is held.
//! Secrets are named in the configuration and read once; a source's certificate authority is its own.

use super::token::Tokens;
use crate::{
    net::Client,
    unit::{FilePath, Secret, SecretRef},
};
use http::{HeaderName, HeaderValue};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the gateway shows to a source: one of `bearer`, `header` and `client_credentials`, and a certificate besides
/// or alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "SourceCredential")]
#[serde(deny_unknown_fields, default)]
pub struct Credential {
    /// A token for `Authorization: Bearer`. Default: none.
    pub bearer: Option<SecretRef>,
    /// A field of the request, such as X-API-Key. Default: none.
    pub header: Option<Header>,
    /// Tokens by OAuth 2.0's client credentials (RFC 6749 §4.4). Default: none.
    pub client_credentials: Option<ClientCredentials>,
    /// A client certificate. Default: none.
    pub mtls: Option<Mtls>,
}

/// A field of the request.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "SourceHeader")]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: SecretRef,
}

/// Where tokens come from, and for whom.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClientCredentials {
    /// The token endpoint.
    pub token_url: String,
    /// The gateway's name there.
    pub client_id: String,
    /// Its secret, shown by HTTP Basic.
    pub client_secret: SecretRef,
    /// The scopes asked for, with spaces between. Default: what the server grants by itself.
    #[serde(default)]
    pub scope: Option<String>,
}

/// A client certificate, and who is believed in return.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "SourceMtls")]
#[serde(deny_unknown_fields)]
pub struct Mtls {
    /// The chain in PEM, leaf first.
    pub certificate: FilePath,
    /// Its private key in PEM.
    pub key: FilePath,
    /// Certificate authorities in PEM, believed instead of the system's. Default: the system's.
    #[serde(default)]
    pub ca: Option<FilePath>,
}

/// What is added to each request that goes to the source itself.
#[derive(Debug)]
pub(super) enum Login {
    Nothing,
    Field(HeaderName, HeaderValue),
    Tokens(Box<Tokens>),
}

impl Login {
    /// # Errors
    /// Every part that cannot be used, by its path in the credential.
    pub(super) fn load(from: &Credential, client: &Client) -> Result<Self, Vec<String>> {
        match (&from.bearer, &from.header, &from.client_credentials) {
            (None, None, None) => Ok(Self::Nothing),
            (Some(bearer), None, None) => {
                let value = bearer.load().and_then(|token| bearer_value(&token));
                let value = value.map_err(|why| vec![format!("bearer: {why}")])?;
                Ok(Self::Field(http::header::AUTHORIZATION, value))
            }
            (None, Some(header), None) => field(header).map_err(|why| vec![format!("header.{why}")]),
            (None, None, Some(from)) => {
                let within = |whys: Vec<String>| whys.iter().map(|why| format!("client_credentials.{why}")).collect();
                Tokens::load(from, client).map(Box::new).map(Self::Tokens).map_err(within)
            }
            _ => Err(vec!["bearer: only one of bearer, header and client_credentials can be shown".to_owned()]),
        }
    }
}

fn field(header: &Header) -> Result<Login, String> {
    let name = HeaderName::try_from(header.name.as_str()).map_err(|_| "name: is not the name of a field".to_owned())?;
    let own = ["host", "content-length", "transfer-encoding", "connection", "te", "upgrade"];
    if own.contains(&name.as_str()) {
        return Err(format!("name: '{name}' is written by the gateway itself"));
    }
    let secret = header.value.load().map_err(|why| format!("value: {why}"))?;
    Ok(Login::Field(name, sensitive(secret.expose()).map_err(|why| format!("value: {why}"))?))
}

pub(in crate::net) fn bearer_value(token: &Secret) -> Result<HeaderValue, String> {
    sensitive(&format!("Bearer {}", token.expose()))
}

fn sensitive(text: &str) -> Result<HeaderValue, String> {
    let mut value = HeaderValue::try_from(text).map_err(|_| "holds characters that no field may hold".to_owned())?;
    value.set_sensitive(true);
    Ok(value)
}

impl Mtls {
    /// The certificate with its key, and the authorities that are believed.
    pub(super) fn load(&self) -> Result<(reqwest::Identity, Vec<reqwest::Certificate>), Vec<String>> {
        let read = |name: &str, path: &FilePath| {
            std::fs::read(path).map_err(|why| vec![format!("mtls.{name}: {} cannot be read ({why})", path.display())])
        };
        let mut pem = read("certificate", &self.certificate)?;
        pem.push(b'\n');
        pem.extend(read("key", &self.key)?);
        let identity = reqwest::Identity::from_pem(&pem).map_err(|_| {
            vec![format!("mtls.certificate: {} and its key are no pair in PEM", self.certificate.display())]
        })?;
        let Some(ca) = &self.ca else { return Ok((identity, Vec::new())) };
        let bundle = reqwest::Certificate::from_pem_bundle(&read("ca", ca)?).unwrap_or_default();
        match bundle.is_empty() {
            true => Err(vec![format!("mtls.ca: {} holds no certificate in PEM", ca.display())]),
            false => Ok((identity, bundle)),
        }
    }
}
