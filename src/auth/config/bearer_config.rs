//! Configuration of bearer tokens: issuers, introspection, claims.

use crate::{
    signing::SignatureAlgorithm,
    values::{ConfigDuration, Glob, SecretRef},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Bearer tokens (RFC 6750).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BearerConfig {
    /// Issuers whose JWTs are accepted. Default: none.
    pub issuers: Vec<IssuerConfig>,
    /// Endpoint that introspects tokens that are not JWTs (RFC 7662). Default: such tokens are refused.
    pub introspection: Option<IntrospectionConfig>,
    /// Maximum number of cached verified tokens; 1 to 10000000. Default: 100000.
    pub max_cached_tokens: u64,
    /// How long a verified token is cached, and thus how long a token that is signed with a withdrawn key may remain
    /// valid; 1s to 1h. Default: 5m.
    pub token_cache_ttl: ConfigDuration,
}

impl Default for BearerConfig {
    fn default() -> Self {
        Self {
            issuers: Vec::new(),
            introspection: None,
            max_cached_tokens: 100_000,
            token_cache_ttl: ConfigDuration::from_secs(300),
        }
    }
}

/// An issuer of JWTs.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IssuerConfig {
    /// Exact text of the `iss` claim.
    pub issuer: String,
    /// Label of this issuer in the ids, groups and tiers of its callers, `oauth:LABEL/NAME`: 1 to 64 of A-Z a-z 0-9 . _
    /// -. Required with several sources of tokens, because two of them may use the same name. Default: none,
    /// `oauth:NAME`.
    #[serde(default)]
    pub label: Option<String>,
    /// Audiences of this gateway: `aud` must contain one of them. At least one.
    pub audience: Vec<String>,
    /// Accepted signature algorithms. At least one; the `alg` of the token alone is never trusted.
    pub algorithms: Vec<SignatureAlgorithm>,
    /// URL of the issuer's key set. Default: taken from its discovery document.
    #[serde(default)]
    pub jwks_url: Option<String>,
    /// URL of the discovery document. Default: /.well-known/openid-configuration under the issuer.
    #[serde(default)]
    pub discovery_url: Option<String>,
    /// Tolerated clock skew; at most 5m. Default: 30s.
    #[serde(default = "default_leeway")]
    pub leeway: ConfigDuration,
    /// Accepted values of the header's `typ`; `JWT` also accepts a token without `typ`. Default: at+jwt, JWT.
    #[serde(default = "default_token_types")]
    pub token_types: Vec<String>,
    /// How often the keys are fetched; 1s to 1d. Default: 10m.
    #[serde(default = "default_jwks_refresh_interval")]
    pub jwks_refresh_interval: ConfigDuration,
    /// Minimum time between two fetches caused by unknown key ids; 1s to 1h. A token with such an id waits for the next
    /// fetch, if that is at most 5s away. Default: 5s.
    #[serde(default = "default_min_jwks_refetch_interval")]
    pub min_jwks_refetch_interval: ConfigDuration,
    /// How long keys are used after the last successful fetch; afterwards calls with a token get 503. At least
    /// `jwks_refresh_interval`. Default: 1d.
    #[serde(default = "default_max_jwks_staleness")]
    pub max_jwks_staleness: ConfigDuration,
    /// Mapping of the token's claims to callers.
    #[serde(default)]
    pub claims: ClaimMappingConfig,
}

impl IssuerConfig {
    /// Returns the label of the issuer in metrics.
    pub fn metric_label(&self) -> &str {
        self.label.as_deref().unwrap_or(&self.issuer)
    }
}

/// Mapping of claims to callers. Each is a claim's name, or a JSON Pointer such as `/realm_access/roles`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ClaimMappingConfig {
    /// Claims with the caller's name; the first that is present is used. Default: client_id, azp, sub.
    pub caller: Vec<String>,
    /// Claim with the groups: an array of strings, or one string. A group counts as `LABEL/GROUP`, with the label of the
    /// token source. Without a label, only the groups in `allowed_groups` count. Default: groups.
    pub groups: String,
    /// Groups, or patterns, that also count by their plain name, which grants may share with API keys, certificates and
    /// other token sources. `*` lets the issuer claim every group without a slash; a name with a slash needs a pattern
    /// with one. Default: none.
    pub allowed_groups: Vec<Glob>,
    /// Claim with the tier. The tier counts as `LABEL/TIER`, unless it is in `allowed_tiers`. Default: none.
    pub tier: Option<String>,
    /// Tiers, or patterns, that count by their plain name. Default: none.
    pub allowed_tiers: Vec<Glob>,
}

impl Default for ClaimMappingConfig {
    fn default() -> Self {
        let caller = ["client_id", "azp", "sub"].map(str::to_owned).to_vec();
        Self { caller, groups: "groups".to_owned(), allowed_groups: Vec::new(), tier: None, allowed_tiers: Vec::new() }
    }
}

/// An introspection endpoint (RFC 7662).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IntrospectionConfig {
    /// URL of the endpoint.
    pub endpoint: String,
    /// Client id of the gateway at the endpoint.
    pub client_id: String,
    /// Client secret of the gateway at the endpoint.
    pub client_secret: SecretRef,
    /// Label of this endpoint in the ids of its callers, as for issuers. An endpoint of a listed issuer has the label
    /// of that issuer. Default: none.
    #[serde(default)]
    pub label: Option<String>,
    /// The only issuer that a response may name. Default: null, any or none.
    #[serde(default)]
    pub issuer: Option<String>,
    /// Audiences of this gateway: `aud` in the response must contain one of them. Default: none; the endpoint alone
    /// decides whether a token is meant for this gateway (RFC 7662 §4).
    #[serde(default)]
    pub audience: Vec<String>,
    /// How long a response is cached, and thus how long a revoked token may remain valid; at most 1h. Default: 1m.
    #[serde(default = "default_cache_ttl")]
    pub cache_ttl: ConfigDuration,
    /// Tolerated clock skew; at most 5m. Default: 30s.
    #[serde(default = "default_leeway")]
    pub leeway: ConfigDuration,
    /// Mapping of the response's members to callers.
    #[serde(default)]
    pub claims: ClaimMappingConfig,
}

fn default_leeway() -> ConfigDuration {
    ConfigDuration::from_secs(30)
}

fn default_token_types() -> Vec<String> {
    vec!["at+jwt".to_owned(), "JWT".to_owned()]
}

fn default_jwks_refresh_interval() -> ConfigDuration {
    ConfigDuration::from_secs(600)
}

fn default_min_jwks_refetch_interval() -> ConfigDuration {
    ConfigDuration::from_secs(5)
}

fn default_max_jwks_staleness() -> ConfigDuration {
    ConfigDuration::from_secs(86_400)
}

fn default_cache_ttl() -> ConfigDuration {
    ConfigDuration::from_secs(60)
}
