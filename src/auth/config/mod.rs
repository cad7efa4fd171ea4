//! What an operator writes under `auth`: which credentials count, and where they are checked.
//! Who may call which agent stands under `access`.

mod bearer;

pub use bearer::{Algorithm, Bearer, Claims, Introspection, Issuer};

use crate::unit::{FilePath, SecretRef};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The credentials that count. A kind that is left out counts nowhere.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "Auth")]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The realm in `WWW-Authenticate`: letters, digits, spaces, dots, dashes. Default: gatepost.
    pub realm: String,
    /// API keys. A caller is known as `key:` and the name in its key's line.
    pub api_keys: Option<ApiKeys>,
    /// OAuth 2.0 bearer tokens. A caller is known as `oauth:` and its name in the token.
    pub bearer: Option<Bearer>,
    /// Client certificates. A caller is known as `cert:` and its name in the certificate.
    pub mtls: Option<Mtls>,
}

impl Default for Config {
    fn default() -> Self {
        Self { realm: "gatepost".to_owned(), api_keys: None, bearer: None, mtls: None }
    }
}

/// API keys, as `gatepost key new` makes them; only their hashes are stored.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ApiKeys {
    /// The request header that holds the key. Default: X-API-Key.
    pub header: String,
    /// A secret that the hashes are made with (HMAC-SHA256), so that a stolen file cannot be tested
    /// against. A change makes all keys invalid. Default: none, plain SHA-256.
    pub pepper: Option<SecretRef>,
    /// Files with one key a line, in JSON; read again when they change. Default: none.
    pub files: Vec<FilePath>,
    /// Keys written here, in the form of the files' lines. Default: none.
    pub keys: Vec<StoredKey>,
}

impl Default for ApiKeys {
    fn default() -> Self {
        Self { header: "X-API-Key".to_owned(), pepper: None, files: Vec::new(), keys: Vec::new() }
    }
}

/// A key as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StoredKey {
    /// The public part that the key is found by: 12 letters or digits.
    pub prefix: String,
    /// The hash of the whole key: 64 hexadecimal digits.
    pub hash: String,
    /// The caller's name, without `key:`. Several keys may have one caller.
    pub caller: String,
    /// The groups that the caller is in. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// The caller's tier, which limits may refer to. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
    /// When the key stops to count, as in RFC 3339. Default: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
    /// Whether the key is switched off. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub disabled: bool,
    /// When the key was made, for people to read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
}

/// Client certificates, which the listener has verified.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Mtls {
    /// Where the caller's name is; the first that the certificate has counts. Default: san_uri, san_dns,
    /// subject_cn.
    pub caller_from: Vec<CertificateName>,
    /// What is known of callers, by their name without `cert:`. Others are callers without groups.
    pub callers: BTreeMap<String, CertificateCaller>,
}

impl Default for Mtls {
    fn default() -> Self {
        let caller_from = vec![CertificateName::SanUri, CertificateName::SanDns, CertificateName::SubjectCn];
        Self { caller_from, callers: BTreeMap::new() }
    }
}

/// A name in a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CertificateName {
    /// The first DNS name among the subject's alternative names.
    SanDns,
    /// The first URI among them, such as a SPIFFE id.
    SanUri,
    /// The first e-mail address among them.
    SanEmail,
    /// The subject's common name.
    SubjectCn,
    /// The whole subject, such as `CN=a, O=b`.
    Subject,
    /// The SHA-256 of the certificate, in lower-case hexadecimal digits.
    Fingerprint,
}

/// What is known of the caller behind a certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CertificateCaller {
    /// The groups that the caller is in. Default: none.
    pub groups: Vec<String>,
    /// The caller's tier, which limits may refer to. Default: none.
    pub tier: Option<String>,
}
