//! Pages in a browser as callers (R88): which origins may read what they ask for (Fetch, "CORS protocol"), which may
//! reach agents of this machine, and the key that a page gets for a code. No credentials of the browser's own (cookies,
//! certificates) are ever asked for, and no origin is allowed by a wildcard.

use crate::{
    fault::{Code, Fault, Result},
    unit::Span,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// Fields of a request that a page may set.
const ASKED: &str = "Accept, Authorization, Content-Type, Idempotency-Key, If-Match, If-None-Match, Last-Event-ID, Prefer, \
                     X-API-Key, X-Agent-Version, X-Callback-Url, X-Delegation-Chain, X-Operation, X-Request-ID, \
                     X-Request-Timeout, X-Session-ID, X-Task-ID, A2A-Version, MCP-Protocol-Version, Mcp-Session-Id, \
                     Traceparent, Tracestate";

/// Fields of an answer that a page may read besides those that every page may.
const TOLD: &str = "X-Request-ID, X-Session-ID, X-Task-ID, X-Agent-Version, RateLimit, RateLimit-Policy, Retry-After, \
                    Location, ETag, Link, WWW-Authenticate, Deprecation, Sunset, Mcp-Session-Id, Preference-Applied, \
                    Idempotent-Replayed";

/// Methods of the gateway's paths.
const METHODS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE";

/// Which pages in a browser may call. Without this section the gateway tells browsers nothing, and no page reaches an
/// agent of this machine (agent+unix, agent+local).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "Cors")]
#[serde(deny_unknown_fields)]
pub struct CorsConfig {
    /// The pages' origins, exactly as browsers tell them: `https://app.example.org` or `http://localhost:5173`. There is no
    /// wildcard. At least one.
    #[schemars(length(min = 1))]
    pub origins: Vec<String>,
    /// Further header fields that pages may set. Default: none besides those that the gateway knows.
    #[serde(default)]
    pub headers: Vec<String>,
    /// How long a browser may remember what it was told of a path; at most 24h. Default 10m.
    #[serde(default = "max_age")]
    pub max_age: Span,
    /// Names besides localhost, 127.0.0.1 and `[::1]` by which callers on this machine reach agents of this machine
    /// (agent+unix, agent+local); any other name was turned to this machine by somebody else. Default: none.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// Whether a page gets a key of its own for a code that an operator made (POST /pairing on the admin listener, then
    /// POST /pair). It is known as `browser:` and its origin. Default: no page does.
    #[serde(default)]
    pub pairing: Option<Pairing>,
}

/// How pages are paired.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Pairing {
    /// How long a page's key holds; 1m to 30d. It ends with the process, too. Default 8h.
    pub lifetime: Span,
}

impl Default for Pairing {
    fn default() -> Self {
        Self { lifetime: Span::secs(8 * 3600) }
    }
}

fn max_age() -> Span {
    Span::secs(600)
}

/// The pages that may call, ready to be asked.
#[derive(Debug)]
pub struct Cors {
    origins: Vec<HeaderValue>,
    asked: HeaderValue,
    max_age: HeaderValue,
    hosts: Vec<String>,
    /// How long a page's key holds, where pages get one.
    pub(super) pairing: Option<std::time::Duration>,
}

impl Cors {
    /// Checks `config`.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn build(config: &CorsConfig) -> std::result::Result<Self, Vec<String>> {
        let mut problems = Vec::new();
        if config.origins.is_empty() {
            problems.push("origins: names no origin (leave the section out, then)".to_owned());
        }
        for (at, origin) in config.origins.iter().enumerate().filter(|(_, origin)| !is_origin(origin)) {
            problems.push(format!("origins[{at}]: '{origin}' is no origin (write https://host or http://host:port)"));
        }
        for (at, name) in config.headers.iter().enumerate() {
            if name.parse::<HeaderName>().is_err() {
                problems.push(format!("headers[{at}]: '{name}' is no name of a header field"));
            }
        }
        if config.max_age.get().as_secs() > 86_400 {
            problems.push("max_age: is out of bounds (at most 24h)".to_owned());
        }
        let lifetime = config.pairing.as_ref().map(|pairing| pairing.lifetime.get());
        if lifetime.is_some_and(|lifetime| !(60..=30 * 86_400).contains(&lifetime.as_secs())) {
            problems.push("pairing.lifetime: is out of bounds (1m to 30d)".to_owned());
        }
        let asked = config.headers.iter().fold(ASKED.to_owned(), |all, name| format!("{all}, {name}"));
        let asked = HeaderValue::from_str(&asked).map_err(|why| problems.push(format!("headers: {why}")));
        let origins = config.origins.iter().filter_map(|origin| HeaderValue::from_str(origin).ok()).collect();
        let hosts = config.hosts.iter().map(|host| host.to_ascii_lowercase()).collect();
        let max_age = HeaderValue::from(config.max_age.get().as_secs());
        match (asked, problems.is_empty()) {
            (Ok(asked), true) => Ok(Self { origins, asked, max_age, hosts, pairing: lifetime }),
            _ => Err(problems),
        }
    }

    /// The origin of the page that asks, if it is one that may.
    pub(super) fn origin(&self, headers: &HeaderMap) -> Option<&HeaderValue> {
        let mut told = headers.get_all(header::ORIGIN).iter();
        let (Some(origin), None) = (told.next(), told.next()) else { return None };
        self.origins.iter().find(|known| *known == origin)
    }

    /// What a browser asks before it lets the page ask, and for which method; `None` for every other request, and for
    /// pages that may not.
    pub(super) fn preflight(&self, method: &Method, headers: &HeaderMap) -> Option<Method> {
        self.origin(headers).filter(|_| *method == Method::OPTIONS)?;
        headers.get(header::ACCESS_CONTROL_REQUEST_METHOD)?.to_str().ok()?.parse().ok()
    }

    /// The fields of the answer to that, besides those of every answer.
    pub(super) fn permission(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(METHODS));
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, self.asked.clone());
        headers.insert(header::ACCESS_CONTROL_MAX_AGE, self.max_age.clone());
        headers
    }
}

/// Writes for the page of `origin`, or for none, that it may read the answer. An agent has no say in this.
pub(super) fn share(headers: &mut HeaderMap, origin: Option<&HeaderValue>) {
    let own = [
        header::ACCESS_CONTROL_ALLOW_ORIGIN,
        header::ACCESS_CONTROL_ALLOW_CREDENTIALS,
        header::ACCESS_CONTROL_EXPOSE_HEADERS,
    ];
    for name in own {
        headers.remove(name);
    }
    headers.append(header::VARY, HeaderValue::from_static("Origin"));
    if let Some(origin) = origin {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(TOLD));
    }
}

/// Keeps pages that nobody has named away from agents of this machine (`near`), and with them whoever turned a name of
/// theirs to this machine (DNS rebinding). `peer` is the caller's address.
pub(super) fn guard(cors: Option<&Cors>, near: bool, headers: &HeaderMap, peer: IpAddr) -> Result<()> {
    if !near {
        return Ok(());
    }
    let refuse = |detail: &str| {
        Err(Fault::new(Code::PermissionDenied, "this agent is not for pages of this origin").detail(detail))
    };
    let page = headers.contains_key(header::ORIGIN) || is_foreign(headers);
    match cors {
        None if page => refuse("pages reach no agent of this machine (the configuration has no section cors)"),
        Some(cors) if page && cors.origin(headers).is_none() => refuse("the origin is not listed under cors.origins"),
        Some(cors) if peer.to_canonical().is_loopback() => match headers.get(header::HOST) {
            Some(host) if !host.to_str().is_ok_and(|host| cors.is_own(host)) => {
                refuse("Host is no name of this machine (list it under cors.hosts if it is)")
            }
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

/// Whether a page elsewhere had a browser ask: an image or a link tells no origin, but that (Fetch Metadata,
/// "Sec-Fetch-Site").
fn is_foreign(headers: &HeaderMap) -> bool {
    headers.get("sec-fetch-site").is_some_and(|site| site != "none" && site != "same-origin")
}

impl Cors {
    fn is_own(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        let name = match host.strip_prefix('[') {
            Some(rest) => rest.split_once(']').map_or("", |(address, _)| address),
            None => host.split_once(':').map_or(&*host, |(name, _)| name),
        };
        name == "localhost"
            || name.parse().is_ok_and(|address: IpAddr| address.is_loopback())
            || self.hosts.iter().any(|known| *known == host || *known == name)
    }
}

/// A scheme, a host and perhaps a port, in lower case, as browsers write them.
fn is_origin(text: &str) -> bool {
    let Some((scheme, host)) = text.split_once("://") else { return false };
    let word = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let usual = !matches!((scheme, host.rsplit_once(':')), ("https", Some((_, "443"))) | ("http", Some((_, "80"))));
    !scheme.is_empty()
        && scheme.bytes().all(|b| word(b) || b"+-.".contains(&b))
        && !host.is_empty()
        && host.bytes().all(|b| word(b) || b"-._:[]".contains(&b))
        && usual
}
