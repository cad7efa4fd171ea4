//! Configuration of authentication: which credentials are accepted and how they are checked.
//! Authorisation is configured under `access`.

mod bearer_config;

pub use bearer_config::{BearerConfig, ClaimMappingConfig, IntrospectionConfig, IssuerConfig};

use crate::values::{ConfigPath, SecretRef};
use http::HeaderName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How callers authenticate. A method that is left out is off.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "Auth")]
#[serde(deny_unknown_fields, default)]
pub struct AuthConfig {
    /// Realm in `WWW-Authenticate`: 1 to 64 letters, digits, spaces, dots or dashes. Default: gatepost.
    pub realm: String,
    /// API keys. The caller's id is `key:` and the name that is stored with the key.
    pub api_keys: Option<ApiKeysConfig>,
    /// OAuth 2.0 bearer tokens. The caller's id is `oauth:` and the name in the token.
    pub bearer: Option<BearerConfig>,
    /// Client certificates. The caller's id is `cert:`, the kind of the name, and the name in the certificate.
    pub mtls: Option<MtlsConfig>,
}

impl Default for AuthConfig {
    fn default() -> Self {
        Self { realm: "gatepost".to_owned(), api_keys: None, bearer: None, mtls: None }
    }
}

/// API keys, as `gatepost key new` generates them; only their hashes are stored.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ApiKeysConfig {
    /// Request header that carries the key. Default: X-API-Key.
    pub header: String,
    /// Secret for the hashes (HMAC-SHA256): without the secret, a stolen key file cannot be tested against guesses. A
    /// changed pepper invalidates every key. Default: none, plain SHA-256.
    pub pepper: Option<SecretRef>,
    /// Files with one JSON object per key and line, which `gatepost key new` appends; reloaded when they change.
    /// Default: none.
    pub files: Vec<ConfigPath>,
    /// Keys in the configuration, each with the members of a line of a key file. Default: none.
    pub keys: Vec<StoredApiKey>,
    /// Whether `Authorization: Bearer` carries keys as well, as clients of OpenAI's API send them: a value that begins with
    /// `gp_` is a key, anything else a token. Default false.
    pub accept_bearer: bool,
}

impl Default for ApiKeysConfig {
    fn default() -> Self {
        Self { header: "X-API-Key".to_owned(), pepper: None, files: Vec::new(), keys: Vec::new(), accept_bearer: false }
    }
}

impl ApiKeysConfig {
    /// Returns the header, if its name is valid.
    pub fn header_name(&self) -> Option<HeaderName> {
        HeaderName::try_from(&self.header).ok()
    }
}

/// A key as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StoredApiKey {
    /// Public part of the key, which is its identifier: 12 letters or digits.
    pub prefix: String,
    /// Hash of the whole key: 64 hexadecimal digits.
    pub hash: String,
    /// Name of the caller, without `key:`. Several keys may belong to one caller.
    pub caller: String,
    /// Groups of the caller. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// Tier of the caller, which limits may refer to. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
    /// Time at which the key expires, in RFC 3339. Default: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
    /// Whether the key is disabled. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub disabled: bool,
    /// Time at which the key was created; informational.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
}

/// Client certificates, verified by the listener.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MtlsConfig {
    /// Names that become the caller's name, in order of preference; the first that the certificate has is used.
    /// Default: san_uri, san_dns, subject_cn.
    pub caller_from: Vec<CertificateName>,
    /// Groups and tiers of callers, by id without `cert:`, such as `spiffe://example.com/team-a` or `dns:robot.example`.
    /// Other callers have no groups and no tier. Default: none.
    pub callers: BTreeMap<String, CertificateCallerConfig>,
}

impl Default for MtlsConfig {
    fn default() -> Self {
        let caller_from = vec![CertificateName::SanUri, CertificateName::SanDns, CertificateName::SubjectCn];
        Self { caller_from, callers: BTreeMap::new() }
    }
}

/// A name in a certificate. The id of the caller carries the kind of the name, so that a name of one kind never passes for
/// a name of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CertificateName {
    /// First DNS name among the subject's alternative names: `cert:dns:NAME`.
    SanDns,
    /// First URI among the subject's alternative names: `cert:spiffe://…` for a SPIFFE id, `cert:uri:URI` for others.
    SanUri,
    /// First e-mail address among the subject's alternative names: `cert:email:ADDRESS`.
    SanEmail,
    /// Common name of the subject: `cert:cn:NAME`.
    SubjectCn,
    /// The whole subject, such as `cert:subject:CN=a, O=b`.
    Subject,
    /// SHA-256 of the certificate, in lower-case hexadecimal digits: `cert:sha256:DIGITS`.
    Fingerprint,
}

impl CertificateName {
    /// Beginnings of qualified names: a SPIFFE id, or the kind of the name.
    pub(super) const QUALIFIERS: [&str; 7] =
        [Self::SPIFFE_SCHEME, "uri:", "dns:", "email:", "cn:", "subject:", "sha256:"];

    /// Beginning of a SPIFFE id, which needs no further qualifier: no other kind begins like it.
    const SPIFFE_SCHEME: &str = "spiffe://";

    /// Returns `name` with its kind, which follows `cert:` in the id of the caller.
    pub(super) fn qualify(self, name: &str) -> String {
        let kind = match self {
            Self::SanUri if name.starts_with(Self::SPIFFE_SCHEME) => "",
            Self::SanUri => "uri:",
            Self::SanDns => "dns:",
            Self::SanEmail => "email:",
            Self::SubjectCn => "cn:",
            Self::Subject => "subject:",
            Self::Fingerprint => "sha256:",
        };
        format!("{kind}{name}")
    }

    /// Returns whether `text` begins with a SPIFFE id or with the kind of a name.
    pub(super) fn is_qualified(text: &str) -> bool {
        Self::QUALIFIERS.iter().any(|qualifier| text.starts_with(qualifier))
    }
}

/// Attributes of a caller with a client certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CertificateCallerConfig {
    /// Groups of the caller. Default: none.
    pub groups: Vec<String>,
    /// Tier of the caller, which limits may refer to. Default: none.
    pub tier: Option<String>,
}
