//! Header filtering: which header fields cross the gateway, in both directions (RFC 9110 §7.6.1).
//! Credentials and hop-by-hop fields never cross. Of a caller's other fields those pass that [`forwarded_headers`] lists;
//! of an agent's, those that [`header_filter`] does not list.

mod caller_header_names;
mod caller_headers_config;
mod forwarded_headers;
mod header_filter;
mod header_spelling;

pub(super) use caller_header_names::CallerHeaderNames;
pub use caller_headers_config::{CallerHeaderSource, CallerHeadersConfig, CallerProperty, CallerTokenConfig};
pub(super) use forwarded_headers::ForwardedHeaders;
use header_filter::{is_condition, is_reserved, is_stripped_from_reply};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use std::{borrow::Cow, fmt::Write as _, net::IpAddr, time::Duration};

/// What the gateway changes in a caller's header fields for one call.
#[derive(Clone, Copy, Debug, Default)]
pub struct HeaderMutations<'a> {
    /// The value of `Forwarded`, as [`build_forwarded`] writes it. `None` hides the caller's address.
    pub forwarded: Option<&'a HeaderValue>,
    /// The header fields that carry callers' credentials; they are stripped.
    pub credential_headers: &'a [HeaderName],
    /// Fields that the gateway sets for this call, such as `X-Request-ID`; they replace the caller's.
    pub set: &'a [(HeaderName, HeaderValue)],
    /// Fields that tell the agent who calls, for transports with header fields. A caller's own never pass, whether these
    /// are set or not.
    pub caller_headers: &'a [(HeaderName, HeaderValue)],
    /// Whether conditions and ranges pass, because the agent's reply passes as it is.
    pub passes_conditions: bool,
    /// Fields of the caller that pass besides those of the settings, because the operation has them as parameters. Each
    /// is one that [`forwarded_header_problem`] permits.
    pub parameters: &'a [HeaderName],
}

/// The header fields that the gateway sets for every call to one agent, and those that it takes from callers.
#[derive(Debug)]
pub(super) struct GatewayHeaders {
    pub(super) host: HeaderValue,
    pub(super) credential: Option<(HeaderName, HeaderValue)>,
    /// Which of the caller's fields the agent receives.
    pub(super) forwarded: ForwardedHeaders,
    /// The fields that tell the agent who calls, which it never receives from the caller.
    pub(super) caller_headers: CallerHeaderNames,
}

/// The remaining time of the call, in milliseconds with their unit: `29500ms`.
const X_REQUEST_TIMEOUT: HeaderName = HeaderName::from_static("x-request-timeout");

/// For a caller whose address is hidden (RFC 7239 §6.2).
const FORWARDED_UNKNOWN: HeaderValue = HeaderValue::from_static("for=unknown");

/// Builds the header fields for the agent: the caller's end-to-end fields, then the gateway's own.
pub(super) fn build_request_headers(
    caller: &HeaderMap,
    gateway: &GatewayHeaders,
    mutations: &HeaderMutations<'_>,
    remaining: Duration,
) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(caller.len() + 4);
    // `Host` is written first: agents that log the first header line see the intended host.
    headers.append(header::HOST, gateway.host.clone());
    let connection_options = ConnectionOptions::from_headers(caller);
    for (name, value) in caller {
        if (gateway.forwarded.contains(name)
            || mutations.parameters.contains(name)
            || (mutations.passes_conditions && is_condition(name.as_str())))
            && !connection_options.contains(name.as_str())
            && !gateway.caller_headers.contains(name)
            && !mutations.credential_headers.contains(name)
        {
            headers.append(name, value.clone());
        }
    }
    // The gateway reads replies to validate and normalise them, so it requests no compression.
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    headers.insert(header::FORWARDED, mutations.forwarded.cloned().unwrap_or(FORWARDED_UNKNOWN));
    // RFC 9110 §7.6.3: a gateway adds itself to `Via` towards the upstream.
    headers.append(header::VIA, HeaderValue::from_static("1.1 gatepost"));
    let mut timeout = String::with_capacity(16);
    timeout.push_str(itoa::Buffer::new().format(remaining.as_millis()));
    timeout.push_str("ms");
    if let Ok(value) = HeaderValue::try_from(timeout) {
        headers.insert(X_REQUEST_TIMEOUT, value);
    }
    for (name, value) in mutations.set.iter().chain(mutations.caller_headers) {
        headers.insert(name, value.clone());
    }
    if let Some((name, value)) = &gateway.credential {
        headers.insert(name, value.clone());
    }
    headers
}

/// The connection options: fields that `Connection` names, which apply to one hop only.
struct ConnectionOptions<'a>(Vec<&'a str>);

impl<'a> ConnectionOptions<'a> {
    fn from_headers(headers: &'a HeaderMap) -> Self {
        let values = headers.get_all(header::CONNECTION).into_iter().filter_map(|value| value.to_str().ok());
        let names = values.flat_map(|value| value.split(',')).map(str::trim);
        // Most requests contain one of these two, and neither is the name of an end-to-end field.
        Self(
            names
                .filter(|name| !name.eq_ignore_ascii_case("keep-alive") && !name.eq_ignore_ascii_case("close"))
                .collect(),
        )
    }

    fn contains(&self, name: &str) -> bool {
        self.0.iter().any(|option| option.eq_ignore_ascii_case(name))
    }
}

/// Builds `Forwarded` (RFC 7239) for a caller at `peer`, over TLS or not, that requested `host`. The caller's own
/// statements about its origin are not trusted.
pub fn build_forwarded(peer: IpAddr, secure: bool, host: Option<&str>) -> HeaderValue {
    let mut text = String::with_capacity(96);
    let _ = match peer.to_canonical() {
        IpAddr::V4(ip) => write!(text, "for={ip}"),
        // RFC 7239 §6: brackets and colons are not token characters.
        IpAddr::V6(ip) => write!(text, "for=\"[{ip}]\""),
    };
    text.push_str(if secure { ";proto=https" } else { ";proto=http" });
    if let Some(host) = host.filter(|host| host.len() <= 255) {
        let _ = write!(text, ";host={}", quote_unless_token(host));
    }
    HeaderValue::try_from(text).unwrap_or(FORWARDED_UNKNOWN)
}

/// Returns a token unchanged, and anything else as a quoted string (RFC 9110 §5.6.2, §5.6.4).
fn quote_unless_token(text: &str) -> Cow<'_, str> {
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

/// Returns why a caller's field with this name can reach no agent; `None` if it can.
pub fn forwarded_header_problem(name: &str) -> Option<String> {
    ForwardedHeaders::problem_of(name)
}

/// Whether two names of header fields, in any case, are one for some servers: `X-User` and `X_User`.
pub fn is_same_header(one: &str, other: &str) -> bool {
    header_spelling::is_same_field(&one.to_ascii_lowercase(), &other.to_ascii_lowercase())
}

/// Whether the gateway may send its credential to agents in the header `name`.
pub(super) fn may_carry_credential(name: &HeaderName) -> bool {
    !is_reserved(name.as_str())
}

/// Selects the agent's end-to-end fields. Content-Length is left out: the response writer knows the length.
/// `Location` is kept for a resource that was created (201) or is pending (202), and only as a relative reference,
/// which names no host; `Retry-After` is kept with 202, where it says when to poll.
pub fn filter_reply_headers(agent: &HeaderMap, status: StatusCode) -> HeaderMap {
    let connection_options = ConnectionOptions::from_headers(agent);
    // Extra capacity for the fields that the gateway adds for its callers.
    let mut headers = HeaderMap::with_capacity(agent.len() + 7);
    for (name, value) in agent {
        if !is_stripped_from_reply(name.as_str()) && !connection_options.contains(name.as_str()) {
            headers.append(name, value.clone());
        }
    }
    if matches!(status, StatusCode::CREATED | StatusCode::ACCEPTED)
        && let Some(location) = agent.get(header::LOCATION).filter(|location| is_relative(location))
    {
        headers.insert(header::LOCATION, location.clone());
    }
    if status == StatusCode::ACCEPTED
        && let Some(wait) = agent.get(header::RETRY_AFTER)
    {
        headers.insert(header::RETRY_AFTER, wait.clone());
    }
    headers
}

/// Selects the fields of a reply to a request for the agent's own API: as [`filter_reply_headers`], with ranges, the time
/// until the next try, and `named`. References to resources are left out, because they name the agent's server.
pub fn filter_api_reply_headers(agent: &HeaderMap, named: &[HeaderName]) -> HeaderMap {
    let mut headers = filter_reply_headers(agent, StatusCode::OK);
    let further = [header::ACCEPT_RANGES, header::CONTENT_RANGE, header::RETRY_AFTER];
    for name in further.iter().chain(named) {
        if let Some(value) = agent.get(name).filter(|_| !headers.contains_key(name)) {
            headers.insert(name, value.clone());
        }
    }
    headers
}

/// Whether the location has neither a scheme nor an authority (RFC 3986 §4.2).
fn is_relative(location: &HeaderValue) -> bool {
    let Ok(text) = location.to_str() else {
        return false;
    };
    let first = text.split(['/', '?', '#']).next().unwrap_or_default();
    !text.is_empty() && !text.starts_with("//") && !first.contains(':') && !text.contains('\\')
}

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");

/// Returns how long the agent keeps the connection (`Keep-Alive: timeout=5`), less one second in which a request may be
/// in transit.
pub(in crate::transport) fn parse_keep_alive(agent: &HeaderMap) -> Option<Duration> {
    let text = agent.get(KEEP_ALIVE)?.to_str().ok()?;
    let secs = text.split(',').find_map(|part| part.trim().strip_prefix("timeout="))?;
    Some(Duration::from_secs(secs.trim().parse::<u32>().ok()?.saturating_sub(1).into()))
}
