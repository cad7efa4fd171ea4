//! The setting `caller_headers`: header fields that tell agents who calls.

use super::{
    forwarded_headers::is_standard,
    header_filter::{is_condition, is_reserved},
    header_spelling::is_same_field,
};
use crate::values::ConfigDuration;
use http::HeaderName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Maximum number of fields.
const MAX_FIELDS: usize = 16;
/// Maximum number of claims in a token.
const MAX_CLAIMS: usize = 16;
/// Maximum length of the name of a claim, or of the JSON Pointer to it, in bytes.
const MAX_CLAIM_PATH: usize = 256;

/// Header fields that tell agents who calls, by name, such as `X-User`, each with its source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "CallerHeaders")]
#[serde(transparent)]
pub struct CallerHeadersConfig(pub BTreeMap<String, CallerHeaderSource>);

/// What a field tells.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CallerHeaderSource {
    /// A property that the gateway knows of every caller.
    Value(CallerProperty),
    /// A claim of the caller's token, by its name or by a JSON Pointer (RFC 6901): `tenant`, `/realm_access/roles`. A
    /// text, a number, a truth value, or a list of them.
    Claim(String),
    /// A JWT with the caller, signed with `directory.signing_key`, whose public key is at /.well-known/jwks.json. Needs
    /// `directory.external_url`, which is its `iss`.
    Token(CallerTokenConfig),
}

/// A property of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CallerProperty {
    /// The full id, as in grants and logs: `key:team-a`, `oauth:acme/client-7`. Unlike the name, no two methods share it.
    Id,
    /// The id without the prefix of its method: `team-a`.
    Name,
    /// How the caller authenticated: `api_key`, `oauth2_bearer`, `mtls`, or `none`.
    Method,
    /// The groups, separated by commas.
    Groups,
    /// The OAuth scopes, separated by spaces.
    Scopes,
    /// The tier.
    Tier,
}

/// A signed token about the caller.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "CallerToken")]
#[serde(deny_unknown_fields, default)]
pub struct CallerTokenConfig {
    /// How long the token is valid; 10s to 1h. Default 1m.
    pub ttl: ConfigDuration,
    /// Claims of the caller's token that this one repeats, in its member `claims`; at most 16. Default: none.
    pub claims: Vec<String>,
}

impl Default for CallerTokenConfig {
    fn default() -> Self {
        Self { ttl: ConfigDuration::from_secs(60), claims: Vec::new() }
    }
}

impl CallerHeadersConfig {
    /// Returns the claims that the fields tell.
    pub fn claims(&self) -> impl Iterator<Item = &str> {
        self.0.values().flat_map(CallerHeaderSource::claims)
    }

    /// Returns whether a field is a signed token.
    pub fn has_token(&self) -> bool {
        self.0.values().any(|source| matches!(source, CallerHeaderSource::Token(_)))
    }

    /// Returns the valid names.
    pub fn names(&self) -> impl Iterator<Item = HeaderName> {
        self.0.keys().filter_map(|name| name.parse().ok())
    }

    /// Returns every invalid entry, by its path within the settings of an agent.
    pub(in crate::transport) fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.0.len() > MAX_FIELDS {
            problems.push(format!("caller_headers: has {} fields (at most {MAX_FIELDS})", self.0.len()));
        }
        if self.0.values().filter(|source| matches!(source, CallerHeaderSource::Token(_))).count() > 1 {
            problems.push("caller_headers: has several tokens (one field has it)".to_owned());
        }
        let mut seen: Vec<HeaderName> = Vec::new();
        for (text, source) in &self.0 {
            let mut refuse = |why: &str| problems.push(format!("caller_headers.{}: {why}", text.escape_default()));
            match text.parse::<HeaderName>() {
                Err(_) => refuse("is not a header name (write X-User)"),
                Ok(name) => {
                    if let Some(why) = name_problem(name.as_str()) {
                        refuse(why);
                    } else if seen.iter().any(|other| is_same_field(other.as_str(), name.as_str())) {
                        refuse("is the name of another entry too, in another spelling");
                    }
                    seen.push(name);
                }
            }
            if let Some(why) = source.problem() {
                refuse(&why);
            }
        }
        problems
    }
}

impl CallerHeaderSource {
    fn claims(&self) -> impl Iterator<Item = &str> {
        let (claim, of_token) = match self {
            Self::Value(_) => (None, None),
            Self::Claim(path) => (Some(path), None),
            Self::Token(token) => (None, Some(&token.claims)),
        };
        claim.into_iter().chain(of_token.into_iter().flatten()).map(String::as_str)
    }

    fn problem(&self) -> Option<String> {
        let is_valid_path = |path: &str| (1..=MAX_CLAIM_PATH).contains(&path.len()) && !path.contains(char::is_control);
        if let Some(path) = self.claims().find(|path| !is_valid_path(path)) {
            return Some(format!("{path:?} is not the name of a claim (write tenant, or /realm_access/roles)"));
        }
        let Self::Token(token) = self else { return None };
        if token.claims.len() > MAX_CLAIMS {
            return Some(format!("token.claims has {} entries (at most {MAX_CLAIMS})", token.claims.len()));
        }
        let is_in_bounds = (ConfigDuration::from_secs(10)..=ConfigDuration::from_secs(3_600)).contains(&token.ttl);
        (!is_in_bounds).then(|| format!("token.ttl must be 10s to 1h, not {}", token.ttl))
    }
}

/// Fields in which proxies tell a user. Callers' own never pass ([`super::header_filter`]), and agents of the field read
/// them, so that the operator may choose them here.
const IDENTITY_FIELDS: &[&str] = &[
    "remote-user",
    "x-remote-user",
    "x-remote-group",
    "x-authenticated-user",
    "x-webauth-user",
    "x-forwarded-user",
    "x-forwarded-email",
    "x-forwarded-groups",
    "x-forwarded-preferred-username",
    "x-auth-request-user",
    "x-auth-request-email",
    "x-auth-request-groups",
    "x-auth-request-preferred-username",
    "x-amzn-bedrock-agentcore-runtime-user-id",
    "x-agent-user-id",
];

/// Returns why a field with this name, in lower case, cannot tell the caller.
fn name_problem(name: &str) -> Option<&'static str> {
    if name.contains('_') {
        return Some("has an underscore (many web frameworks take it for a hyphen)");
    }
    if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        return Some("has other characters than letters, digits and hyphens");
    }
    if IDENTITY_FIELDS.contains(&name) {
        return None;
    }
    let has_prefix = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
    if is_reserved(name) || is_condition(name) || has_prefix(&["content-", "accept-", "access-control-", "sec-", "if-"])
    {
        return Some("is a field of HTTP itself");
    }
    if is_standard(name)
        || matches!(
            name,
            "origin" | "referer" | "priority" | "allow" | "age" | "location" | "retry-after" | "x-callback-url"
        )
        || has_prefix(&[
            "x-gatepost-",
            "x-envoy-",
            "x-ssl-",
            "x-original-",
            "x-rewrite-",
            "x-http-",
            "x-method-",
            "x-amz",
        ])
    {
        return Some("has another meaning: for HTTP, the gateway, a protocol of agents, or tracing");
    }
    if has_prefix(&["x-forwarded-", "x-auth-request-", "proxy-", "cookie", "set-cookie"])
        || matches!(
            name,
            "authorization"
                | "x-api-key"
                | "api-key"
                | "apikey"
                | "dpop"
                | "x-auth-token"
                | "x-access-token"
                | "x-csrf-token"
                | "x-xsrf-token"
                | "client-cert"
                | "client-cert-chain"
                | "x-client-cert"
                | "x-real-ip"
                | "true-client-ip"
                | "cf-connecting-ip"
                | "x-client-ip"
                | "x-cluster-client-ip"
        )
    {
        return Some("carries a credential or an address (choose a name such as X-User)");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(json: serde_json::Value) -> CallerHeadersConfig {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn fields_that_people_use_for_users_are_valid() {
        let names = ["X-User", "X-Groups", "x-tenant-id", "Remote-User", "X-Forwarded-User", "X-Forwarded-Groups"];
        for name in names {
            let valid = config(serde_json::json!({name: {"value": "id"}}));
            assert_eq!(valid.problems(), Vec::<String>::new(), "{name}");
        }
        let all = config(serde_json::json!({
            "X-User": {"value": "name"}, "X-Tenant": {"claim": "tenant"}, "X-Roles": {"claim": "/realm_access/roles"},
            "X-Caller-Token": {"token": {"ttl": "30s", "claims": ["email"]}},
        }));
        assert_eq!(all.problems(), Vec::<String>::new());
        let mut claims: Vec<&str> = all.claims().collect();
        claims.sort_unstable();
        assert_eq!(claims, ["/realm_access/roles", "email", "tenant"]);
        assert!(all.has_token());
    }

    #[test]
    fn fields_with_another_meaning_are_refused() {
        let names = [
            "Host",
            "Connection",
            "Transfer-Encoding",
            "Upgrade",
            "TE",
            "Content-Type",
            "Content-Length",
            "Content-Foo",
            "Authorization",
            "Proxy-Authorization",
            "Cookie",
            "X-API-Key",
            "X-Request-ID",
            "X-Operation",
            "X-Session-Id",
            "X-Delegation-Chain",
            "X-Request-Timeout",
            "Idempotency-Key",
            "Prefer",
            "traceparent",
            "Mcp-Session-Id",
            "Forwarded",
            "X-Forwarded-For",
            "X-Forwarded-Host",
            "X-Real-IP",
            "Via",
            "Accept",
            "If-Match",
            "Range",
            "Sec-WebSocket-Key",
            "X-User_Id",
            "X.User",
            "X User",
            "",
            "X-Gatepost-User",
            "X-HTTP-Method-Override",
        ];
        for name in names {
            let invalid = config(serde_json::json!({name: {"value": "id"}}));
            assert_eq!(invalid.problems().len(), 1, "{name}: {:?}", invalid.problems());
        }
    }

    #[test]
    fn sources_have_bounds() {
        let of = |json: serde_json::Value| config(json).problems().join("; ");
        assert!(
            of(serde_json::json!({"X-User": {"value": "id"}, "x-user": {"value": "name"}}))
                .contains("another spelling")
        );
        assert!(of(serde_json::json!({"X-T": {"claim": ""}})).contains("not the name of a claim"));
        assert!(of(serde_json::json!({"X-T": {"claim": "a\nb"}})).contains("not the name of a claim"));
        assert!(of(serde_json::json!({"X-T": {"token": {"ttl": "2h"}}})).contains("10s to 1h"));
        assert!(of(serde_json::json!({"X-A": {"token": {}}, "X-B": {"token": {}}})).contains("several tokens"));
        let many: serde_json::Map<_, _> =
            (0..17).map(|at| (format!("X-Field-{at}"), serde_json::json!({"value": "id"}))).collect();
        assert!(of(many.into()).contains("at most 16"));
        for wrong in [
            r#"{"X-User": {"value": "password"}}"#,
            r#"{"X-User": {}}"#,
            r#"{"X-User": {"value": "id", "claim": "sub"}}"#,
        ] {
            assert!(serde_json::from_str::<CallerHeadersConfig>(wrong).is_err(), "{wrong}");
        }
    }
}
