//! CORS for web pages as callers (R88): the allowed origins, and preflight responses (Fetch, "CORS protocol").
//! Credentialed requests (cookies, TLS client certificates) are never allowed, and there is no wildcard origin.

use crate::values::{ConfigDuration, host_without_port, shown_url, strip_brackets};
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Request headers that pages may send.
const ALLOWED_HEADERS: &str = "Accept, Authorization, Content-Type, Idempotency-Key, If-Match, If-None-Match, \
    Last-Event-ID, Prefer, X-API-Key, X-Agent-Version, X-Callback-Url, X-Delegation-Chain, X-Operation, \
    X-Request-ID, X-Request-Timeout, X-Session-ID, X-Task-ID, A2A-Version, MCP-Protocol-Version, Mcp-Session-Id, \
    Traceparent, Tracestate, X-Amzn-Bedrock-AgentCore-Runtime-Session-Id, OpenAI-Beta, OpenAI-Organization, \
    OpenAI-Project, X-Stainless-Arch, X-Stainless-Helper-Method, X-Stainless-Lang, X-Stainless-OS, \
    X-Stainless-Package-Version, X-Stainless-Poll-Helper, X-Stainless-Retry-Count, X-Stainless-Runtime, \
    X-Stainless-Runtime-Version, X-Stainless-Timeout";

/// Response headers that pages may read besides the CORS-safelisted ones.
const EXPOSED_HEADERS: &str = "X-Request-ID, X-Session-ID, X-Task-ID, X-Agent-Version, RateLimit, RateLimit-Policy, \
    Retry-After, Location, ETag, Link, WWW-Authenticate, Deprecation, Sunset, Mcp-Session-Id, Preference-Applied, \
    Idempotent-Replayed, X-Amzn-Bedrock-AgentCore-Runtime-Session-Id, X-Should-Retry";

/// Methods that pages may use.
const ALLOWED_METHODS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE";

/// Which web pages may call. Without this section the gateway sends no CORS headers, and no page reaches an agent on
/// this machine (agent+unix, agent+local).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "Cors")]
#[serde(deny_unknown_fields)]
pub struct CorsConfig {
    /// Origins of the pages, exactly as browsers send them: `https://app.example.org` or `http://localhost:5173`. There
    /// is no wildcard. Required, unless `allowed_hosts` is set. Default: none.
    #[serde(default)]
    pub allowed_origins: Vec<String>,
    /// Request headers that pages may send besides those that the gateway uses. Default: none.
    #[serde(default)]
    pub allowed_headers: Vec<String>,
    /// How long a browser may cache a preflight response; at most 24h. Default 10m.
    #[serde(default = "default_max_age")]
    pub max_age: ConfigDuration,
    /// Host names by which callers reach agents on this machine (agent+unix, agent+local) over plain HTTP, besides
    /// localhost, IP addresses and the host of `directory.external_url`. Other names are refused as DNS rebinding.
    /// Default: none.
    #[serde(default)]
    pub allowed_hosts: Vec<String>,
    /// Whether a page can exchange a pairing code that an operator created (POST /pairing on the admin listener) for
    /// its own API key (POST /pair). The page's caller name is `browser:` and its origin. Default: disabled.
    #[serde(default)]
    pub pairing: Option<PairingConfig>,
}

/// Pairing of web pages.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PairingConfig {
    /// How long a page's key is valid; 1m to 30d. Without `state`, keys also end with the process. Default 8h.
    pub ttl: ConfigDuration,
}

impl Default for PairingConfig {
    fn default() -> Self {
        Self { ttl: ConfigDuration::from_secs(8 * 3600) }
    }
}

fn default_max_age() -> ConfigDuration {
    ConfigDuration::from_secs(600)
}

/// The compiled CORS configuration.
#[derive(Debug)]
pub struct CorsPolicy {
    origins: Vec<HeaderValue>,
    allowed_headers: HeaderValue,
    max_age: HeaderValue,
    local_hosts: Vec<String>,
    /// How long a page's key is valid; `None` if pairing is disabled.
    pub(in crate::gateway) pairing_key_ttl: Option<std::time::Duration>,
}

impl CorsPolicy {
    /// Compiles `config`.
    ///
    /// # Errors
    /// Every problem, by its key.
    pub fn build(config: &CorsConfig) -> std::result::Result<Self, Vec<String>> {
        let mut problems = Vec::new();
        if config.allowed_origins.is_empty() && config.allowed_hosts.is_empty() {
            problems.push("allowed_origins: is empty (list at least one origin, or remove the section)".to_owned());
        }
        for (index, origin) in config.allowed_origins.iter().enumerate().filter(|(_, origin)| !is_valid_origin(origin))
        {
            problems.push(format!(
                "allowed_origins[{index}]: '{}' is invalid (write https://host or http://host:port)",
                shown_url(origin)
            ));
        }
        for (index, name) in config.allowed_headers.iter().enumerate() {
            if name.parse::<HeaderName>().is_err() {
                problems.push(format!("allowed_headers[{index}]: '{name}' is not a header name"));
            }
        }
        if config.max_age.get().as_secs() > 86_400 {
            problems.push("max_age: is out of bounds (at most 24h)".to_owned());
        }
        let key_ttl = config.pairing.as_ref().map(|pairing| pairing.ttl.get());
        if key_ttl.is_some_and(|key_ttl| !(60..=30 * 86_400).contains(&key_ttl.as_secs())) {
            problems.push("pairing.ttl: is out of bounds (1m to 30d)".to_owned());
        }
        let allowed_headers =
            config.allowed_headers.iter().fold(ALLOWED_HEADERS.to_owned(), |all, name| format!("{all}, {name}"));
        let allowed_headers =
            HeaderValue::from_str(&allowed_headers).map_err(|why| problems.push(format!("allowed_headers: {why}")));
        let origins = config.allowed_origins.iter().filter_map(|origin| HeaderValue::from_str(origin).ok()).collect();
        let local_hosts = config.allowed_hosts.clone();
        let max_age = HeaderValue::from(config.max_age.get().as_secs());
        match (allowed_headers, problems.is_empty()) {
            (Ok(allowed_headers), true) => {
                Ok(Self { origins, allowed_headers, max_age, local_hosts, pairing_key_ttl: key_ttl })
            }
            _ => Err(problems),
        }
    }

    /// Returns the origin of the page that sent the request, if it is allowed.
    pub(in crate::gateway) fn allowed_origin(&self, headers: &HeaderMap) -> Option<&HeaderValue> {
        let mut values = headers.get_all(header::ORIGIN).iter();
        let (Some(origin), None) = (values.next(), values.next()) else { return None };
        self.origins.iter().find(|allowed| *allowed == origin)
    }

    /// Returns whether callers reach agents on this machine by the name `host`, which may have a port.
    pub(super) fn is_allowed_host(&self, host: &str) -> bool {
        let name = strip_brackets(host_without_port(host));
        let is_allowed = |allowed: &String| allowed.eq_ignore_ascii_case(host) || allowed.eq_ignore_ascii_case(name);
        self.local_hosts.iter().any(is_allowed)
    }

    /// Returns whether pages of `origin` may call.
    pub(super) fn is_allowed_origin(&self, origin: &str) -> bool {
        self.origins.iter().any(|allowed| *allowed == origin)
    }

    /// Returns the method that a preflight request asks for; `None` for all other requests, and for pages that are not
    /// allowed.
    pub(in crate::gateway) fn preflight_method(&self, method: &Method, headers: &HeaderMap) -> Option<Method> {
        self.allowed_origin(headers).filter(|_| *method == Method::OPTIONS)?;
        headers.get(header::ACCESS_CONTROL_REQUEST_METHOD)?.to_str().ok()?.parse().ok()
    }

    /// Returns the headers of a preflight response, besides those of every response.
    pub(in crate::gateway) fn preflight_headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(ALLOWED_METHODS));
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, self.allowed_headers.clone());
        headers.insert(header::ACCESS_CONTROL_MAX_AGE, self.max_age.clone());
        headers
    }
}

/// Sets the CORS response headers for the page of `origin`, or removes them. Replaces those that an agent sent.
pub(in crate::gateway) fn set_cors_headers(headers: &mut HeaderMap, origin: Option<&HeaderValue>) {
    let replaced = [
        header::ACCESS_CONTROL_ALLOW_ORIGIN,
        header::ACCESS_CONTROL_ALLOW_CREDENTIALS,
        header::ACCESS_CONTROL_EXPOSE_HEADERS,
    ];
    for name in replaced {
        headers.remove(name);
    }
    headers.append(header::VARY, HeaderValue::from_static("Origin"));
    if let Some(origin) = origin {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED_HEADERS));
    }
}

/// Whether `text` is a scheme, a host and optionally a port, in lower case, as browsers send them.
fn is_valid_origin(text: &str) -> bool {
    let Some((scheme, host)) = text.split_once("://") else { return false };
    let is_alphanumeric = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let has_no_default_port =
        !matches!((scheme, host.rsplit_once(':')), ("https", Some((_, "443"))) | ("http", Some((_, "80"))));
    !scheme.is_empty()
        && scheme.bytes().all(|b| is_alphanumeric(b) || b"+-.".contains(&b))
        && !host.is_empty()
        && host.bytes().all(|b| is_alphanumeric(b) || b"-._:[]".contains(&b))
        && has_no_default_port
}
