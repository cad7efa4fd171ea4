//! What an operator writes of bearer tokens: issuers, introspection, what claims mean.

use crate::unit::{SecretRef, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Bearer tokens (RFC 6750).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Bearer {
    /// The issuers whose JWTs count. Default: none.
    pub issuers: Vec<Issuer>,
    /// Where tokens that are not JWTs are asked about (RFC 7662). Default: such tokens are refused.
    pub introspection: Option<Introspection>,
    /// Verified tokens remembered at most; 1 to 10,000,000. Default: 100000.
    pub token_cache_size: u64,
    /// How long a verified token is remembered at most, which is also how long a key that its issuer
    /// withdrew may go on to count; up to 1h. Default: 5m.
    pub token_cache_for: Span,
}

impl Default for Bearer {
    fn default() -> Self {
        let (token_cache_size, token_cache_for) = (100_000, Span::secs(300));
        Self { issuers: Vec::new(), introspection: None, token_cache_size, token_cache_for }
    }
}

/// An issuer of JWTs.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Issuer {
    /// The exact text of the `iss` claim.
    pub issuer: String,
    /// This issuer's word in its callers' ids: `oauth:LABEL/name`. Required where tokens come from more
    /// than one place, because two of them may use one name. Default: none, `oauth:name`.
    #[serde(default)]
    pub label: Option<String>,
    /// The audiences that mean this gateway: one of them must be in `aud`. At least one.
    pub audience: Vec<String>,
    /// The signature algorithms that count. At least one; a token's own word is never enough.
    pub algorithms: Vec<Algorithm>,
    /// Where the issuer's keys are. Default: as its discovery document says.
    #[serde(default)]
    pub jwks_url: Option<String>,
    /// Where the discovery document is. Default: /.well-known/openid-configuration under the issuer.
    #[serde(default)]
    pub discovery_url: Option<String>,
    /// How far clocks may differ; up to 5m. Default: 30s.
    #[serde(default = "leeway")]
    pub leeway: Span,
    /// Values of the header's `typ` that count; `JWT` stands for no `typ` too. Default: at+jwt, JWT.
    #[serde(default = "types")]
    pub types: Vec<String>,
    /// How often the keys are fetched; 10s to 1d. Default: 10m.
    #[serde(default = "keys_refresh")]
    pub keys_refresh: Span,
    /// The least time between two fetches that unknown keys cause; 1s to 1h. Default: 30s.
    #[serde(default = "refetch_after")]
    pub refetch_after: Span,
    /// How long keys count after the last good fetch; then tokens are answered 503. Default: 1d.
    #[serde(default = "keys_stale_after")]
    pub keys_stale_after: Span,
    /// What the token's claims mean.
    #[serde(default)]
    pub claims: Claims,
}

/// How callers are read from claims. A name, or a JSON Pointer such as `/realm_access/roles`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Claims {
    /// Where the caller's name is; the first that is there counts. Default: client_id, azp, sub.
    pub caller: Vec<String>,
    /// Where its groups are: an array of strings, or one string. Default: groups.
    pub groups: String,
    /// Where its tier is. Default: nowhere.
    pub tier: Option<String>,
}

impl Default for Claims {
    fn default() -> Self {
        let caller = ["client_id", "azp", "sub"].map(str::to_owned).to_vec();
        Self { caller, groups: "groups".to_owned(), tier: None }
    }
}

/// An introspection endpoint (RFC 7662).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Introspection {
    /// The endpoint's URL.
    pub endpoint: String,
    /// The name by which the gateway is known there.
    pub client_id: String,
    /// The gateway's secret there.
    pub client_secret: SecretRef,
    /// This endpoint's word in its callers' ids, as with issuers; the same one as the issuer's that it speaks
    /// for. Default: none.
    #[serde(default)]
    pub label: Option<String>,
    /// The only issuer that may be named in an answer. Default: any, or none.
    #[serde(default)]
    pub issuer: Option<String>,
    /// The audiences that mean this gateway: one of them must be in an answer's `aud`. Default: none,
    /// the endpoint alone decides whether a token is meant for this gateway (RFC 7662 §4).
    #[serde(default)]
    pub audience: Vec<String>,
    /// How long an answer counts at most, which is also how long a revoked token may go on to count;
    /// up to 1h. Default: 60s.
    #[serde(default = "answer_for")]
    pub cache_for: Span,
    /// How far clocks may differ; up to 5m. Default: 30s.
    #[serde(default = "leeway")]
    pub leeway: Span,
    /// What the answer's members mean.
    #[serde(default)]
    pub claims: Claims,
}

/// A signature algorithm (RFC 7518, RFC 8037, RFC 9864). There is no symmetric one, and no `none`; ES512 is not
/// offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "their names are their documentation")]
pub enum Algorithm {
    RS256,
    RS384,
    RS512,
    PS256,
    PS384,
    PS512,
    ES256,
    ES384,
    EdDSA,
    Ed25519,
}

fn leeway() -> Span {
    Span::secs(30)
}

fn types() -> Vec<String> {
    vec!["at+jwt".to_owned(), "JWT".to_owned()]
}

fn keys_refresh() -> Span {
    Span::secs(600)
}

fn refetch_after() -> Span {
    Span::secs(30)
}

fn keys_stale_after() -> Span {
    Span::secs(86_400)
}

fn answer_for() -> Span {
    Span::secs(60)
}
