//! Header filtering: which header fields cross the gateway, in both directions (RFC 9110 §7.6.1).
//! Credentials and hop-by-hop fields never cross; fields that are not listed here are end-to-end and pass.

mod names;
mod reply;

pub use reply::incoming_headers;
pub(super) use reply::keeps_alive_for;

use http::{HeaderMap, HeaderName, HeaderValue, header};
use names::{ours, stays_here};
use std::{borrow::Cow, fmt::Write as _, net::IpAddr, time::Duration};

/// What the gateway changes in a caller's header fields for one call.
#[derive(Clone, Copy, Debug, Default)]
pub struct Passage<'a> {
    /// The value of `Forwarded`, as [`build_forwarded`] writes it. `None` hides the caller's address.
    pub forwarded: Option<&'a HeaderValue>,
    /// The header in which callers send API keys, besides `X-API-Key`; it is stripped.
    pub key_header: Option<&'a HeaderName>,
    /// Fields that the gateway sets for this call, such as `X-Request-ID`; they replace the caller's.
    pub fields: &'a [(HeaderName, HeaderValue)],
}

/// The header fields that the gateway sets for every call to one agent.
#[derive(Debug)]
pub(super) struct Own {
    pub(super) host: HeaderValue,
    pub(super) credential: Option<(HeaderName, HeaderValue)>,
}

/// The remaining time of the call, in milliseconds with their unit: `29500ms`.
const TIMEOUT: HeaderName = HeaderName::from_static("x-request-timeout");

/// For a caller whose address is hidden (RFC 7239 §6.2).
const UNKNOWN: HeaderValue = HeaderValue::from_static("for=unknown");

/// Builds the header fields for the agent: the caller's end-to-end fields, then the gateway's own.
pub(super) fn outgoing_headers(caller: &HeaderMap, own: &Own, passage: &Passage<'_>, left: Duration) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(caller.len() + 4);
    // `Host` is written first: agents that log the first header line see the intended host.
    headers.append(header::HOST, own.host.clone());
    let nominated = Nominated::of(caller);
    for (name, value) in caller {
        if !stays_here(name.as_str()) && !nominated.has(name.as_str()) && passage.key_header != Some(name) {
            headers.append(name, value.clone());
        }
    }
    // The gateway must be able to read a reply to check and normalise it, so it asks for no compression.
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    headers.insert(header::FORWARDED, passage.forwarded.cloned().unwrap_or(UNKNOWN));
    // RFC 9110 §7.6.3: a gateway adds itself to `Via` towards the upstream.
    headers.append(header::VIA, HeaderValue::from_static("1.1 gatepost"));
    let mut text = String::with_capacity(16);
    text.push_str(itoa::Buffer::new().format(left.as_millis()));
    text.push_str("ms");
    if let Ok(left) = HeaderValue::try_from(text) {
        headers.insert(TIMEOUT, left);
    }
    for (name, value) in passage.fields {
        headers.insert(name, value.clone());
    }
    if let Some((name, value)) = &own.credential {
        headers.insert(name, value.clone());
    }
    headers
}

/// The connection options: fields that `Connection` names, which apply to one hop only.
struct Nominated<'a>(Vec<&'a str>);

impl<'a> Nominated<'a> {
    fn of(headers: &'a HeaderMap) -> Self {
        let values = headers.get_all(header::CONNECTION).into_iter().filter_map(|value| value.to_str().ok());
        let names = values.flat_map(|value| value.split(',')).map(str::trim);
        // Most requests contain one of these two, and neither is the name of an end-to-end field.
        Self(
            names
                .filter(|name| !name.eq_ignore_ascii_case("keep-alive") && !name.eq_ignore_ascii_case("close"))
                .collect(),
        )
    }

    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|nominated| nominated.eq_ignore_ascii_case(name))
    }
}

/// Builds `Forwarded` (RFC 7239) for a caller at `peer`, over TLS or not, that requested `host`. The caller's own
/// statements about its origin are not trusted.
pub fn forwarded(peer: IpAddr, secure: bool, host: Option<&str>) -> HeaderValue {
    let mut text = String::with_capacity(96);
    let _ = match peer.to_canonical() {
        IpAddr::V4(ip) => write!(text, "for={ip}"),
        // RFC 7239 §6: brackets and colons are not token characters.
        IpAddr::V6(ip) => write!(text, "for=\"[{ip}]\""),
    };
    text.push_str(if secure { ";proto=https" } else { ";proto=http" });
    if let Some(host) = host.filter(|host| host.len() <= 255) {
        let _ = write!(text, ";host={}", quoted(host));
    }
    HeaderValue::try_from(text).unwrap_or(UNKNOWN)
}

/// Returns a token unchanged, and anything else as a quoted string (RFC 9110 §5.6.2, §5.6.4).
fn quoted(text: &str) -> Cow<'_, str> {
    let is_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    if !text.is_empty() && text.bytes().all(is_token) {
        return text.into();
    }
    let mut inner = String::with_capacity(text.len() + 2);
    inner.push('"');
    for c in text.chars().filter(|c| (' '..='~').contains(c)) {
        if matches!(c, '"' | '\\') {
            inner.push('\\');
        }
        inner.push(c);
    }
    inner.push('"');
    inner.into()
}

/// Whether the gateway may send its credential to agents in the header `name`.
pub(super) fn may_carry_credential(name: &HeaderName) -> bool {
    !ours(name.as_str())
}
