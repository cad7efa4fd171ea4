//! The client of a request in the headers of trusted proxies: `Forwarded` (RFC 7239), or `X-Forwarded-For` with
//! `X-Forwarded-Proto` and `X-Forwarded-Host`. The entries are read from the right, where the nearest proxy wrote: the
//! first that is not a trusted proxy is the client, and what stands left of it is the client's own invention.

use crate::values::is_host_and_port;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// What a trusted proxy says of the client of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardedClient {
    /// The address of the client; that of the nearest proxy if the client is not known.
    pub address: IpAddr,
    /// Whether the client used TLS, if the proxy says so.
    pub is_secure: Option<bool>,
    /// The host that the client requested, if the proxy says so and the host is valid.
    pub host: Option<Box<str>>,
}

/// The node that an entry names (RFC 7239 §6).
#[derive(Debug, PartialEq, Eq)]
enum Node {
    Address(IpAddr),
    /// `unknown`, or an obfuscated identifier.
    Hidden,
}

/// Returns the client that `Forwarded` names; `None` if the header is not valid. `peer` is the proxy that sent it.
pub(super) fn client_from_forwarded(
    headers: &HeaderMap,
    peer: IpAddr,
    is_proxy: impl Fn(IpAddr) -> bool,
) -> Option<ForwardedClient> {
    let mut client = ForwardedClient { address: peer, is_secure: None, host: None };
    for line in headers.get_all(header::FORWARDED).iter().rev() {
        // A quoted string can hold commas, so a line is split from its beginning. A line that is not valid cannot be
        // split at all: its end may lie in a quoted string that the client began.
        for element in split_forwarded(line.to_str().ok()?)?.iter().rev() {
            client.is_secure = element.proto.as_deref().and_then(parse_proto);
            client.host = element.host.as_deref().and_then(parse_host);
            match element.node.as_deref().map(parse_node) {
                Some(node) => match node? {
                    Node::Address(address) => client.address = address,
                    Node::Hidden => return Some(client),
                },
                None => return Some(client),
            }
            if !is_proxy(client.address) {
                return Some(client);
            }
        }
    }
    Some(client)
}

/// Returns the client that `X-Forwarded-For` names; `None` if the header is not valid. `peer` is the proxy that sent it.
pub(super) fn client_from_x_forwarded_for(
    headers: &HeaderMap,
    peer: IpAddr,
    is_proxy: impl Fn(IpAddr) -> bool,
) -> Option<ForwardedClient> {
    let mut client = ForwardedClient {
        address: peer,
        is_secure: last_entry(headers, &X_FORWARDED_PROTO).and_then(parse_proto),
        host: last_entry(headers, &X_FORWARDED_HOST).and_then(parse_host),
    };
    for line in headers.get_all(&X_FORWARDED_FOR).iter().rev() {
        // Only the entries that are read must be valid; bytes left of them are the client's.
        for entry in line.as_bytes().rsplit(|byte| *byte == b',') {
            let entry = entry.trim_ascii();
            if entry.is_empty() {
                continue;
            }
            match parse_node(std::str::from_utf8(entry).ok()?)? {
                Node::Address(address) => client.address = address,
                Node::Hidden => return Some(client),
            }
            if !is_proxy(client.address) {
                return Some(client);
            }
        }
    }
    Some(client)
}

/// Returns the last entry of a list header, which the nearest proxy wrote.
fn last_entry<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let last: &HeaderValue = headers.get_all(name).iter().next_back()?;
    last.to_str().ok()?.rsplit(',').next().map(str::trim)
}

fn parse_proto(text: &str) -> Option<bool> {
    if text.eq_ignore_ascii_case("https") { Some(true) } else { text.eq_ignore_ascii_case("http").then_some(false) }
}

fn parse_host(text: &str) -> Option<Box<str>> {
    is_host_and_port(text.as_bytes()).then(|| text.into())
}

/// Parses a node: an address, in brackets for IPv6, perhaps with a port; `unknown`; or an obfuscated identifier, perhaps
/// with a port. `X-Forwarded-For` has IPv6 addresses without brackets too.
fn parse_node(text: &str) -> Option<Node> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(Node::Address(address.to_canonical()));
    }
    if let Some((address, port)) = text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        let address: Ipv6Addr = address.parse().ok()?;
        let has_valid_port = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
        return has_valid_port.then_some(Node::Address(IpAddr::from(address).to_canonical()));
    }
    let (name, port) = text.split_once(':').map_or((text, None), |(name, port)| (name, Some(port)));
    if !port.is_none_or(is_port) {
        return None;
    }
    if name.eq_ignore_ascii_case("unknown") || is_obfuscated(name) {
        return Some(Node::Hidden);
    }
    name.parse::<Ipv4Addr>().ok().map(|address| Node::Address(address.into()))
}

/// Whether `text` is an obfuscated identifier (RFC 7239 §6.3).
fn is_obfuscated(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    text.strip_prefix('_').is_some_and(|name| !name.is_empty() && name.bytes().all(is_allowed))
}

/// Whether `text` is a port, or an obfuscated one (RFC 7239 §6).
fn is_port(text: &str) -> bool {
    let is_number = (1..=5).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number && text.parse::<u16>().is_ok() || is_obfuscated(text)
}

/// One element of `Forwarded`: what one proxy wrote.
#[derive(Debug, Default)]
struct ForwardedElement {
    node: Option<String>,
    by: Option<String>,
    proto: Option<String>,
    host: Option<String>,
}

impl ForwardedElement {
    /// Stores a parameter; `None` if it occurs twice, which RFC 7239 §4 forbids. Unknown parameters are ignored.
    fn set(&mut self, name: &str, value: String) -> Option<()> {
        let known =
            [("for", &mut self.node), ("by", &mut self.by), ("proto", &mut self.proto), ("host", &mut self.host)];
        match known.into_iter().find(|(known_name, _)| name.eq_ignore_ascii_case(known_name)) {
            Some((_, slot)) => slot.replace(value).is_none().then_some(()),
            None => Some(()),
        }
    }
}

/// Splits a line of `Forwarded` into its elements (RFC 7239 §4); `None` if it is not valid.
fn split_forwarded(line: &str) -> Option<Vec<ForwardedElement>> {
    let mut elements = Vec::new();
    let mut rest = line.trim_matches([' ', '\t']);
    loop {
        let mut element = ForwardedElement::default();
        let mut is_empty = true;
        loop {
            // An element may be empty (RFC 9110 §5.6.1), and so may a parameter.
            if !rest.starts_with([';', ',']) && !rest.is_empty() {
                let (name, after) = rest.split_once('=')?;
                let (value, after) = take_value(after)?;
                if !is_token(name) {
                    return None;
                }
                element.set(name, value)?;
                (rest, is_empty) = (after, false);
            }
            match rest.strip_prefix(';') {
                Some(next) => rest = next,
                None => break,
            }
        }
        if !is_empty {
            elements.push(element);
        }
        rest = rest.trim_start_matches([' ', '\t']);
        match rest.strip_prefix(',') {
            Some(next) => rest = next.trim_start_matches([' ', '\t']),
            None if rest.is_empty() => return Some(elements),
            None => return None,
        }
    }
}

/// Takes a token or a quoted string (RFC 9110 §5.6.4) from the beginning of `text`; returns it unquoted, and the rest.
fn take_value(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([';', ',', ' ', '\t']).unwrap_or(text.len());
        let (value, rest) = text.split_at(end);
        // Some proxies write ports and IPv6 addresses without the quotes that they need.
        let is_value = |byte: u8| is_token_byte(byte) || b":[]".contains(&byte);
        return (!value.is_empty() && value.bytes().all(is_value)).then(|| (value.to_owned(), rest));
    };
    let mut value = String::new();
    let mut characters = quoted.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, quoted.get(at + 1..)?)),
            '\\' => value.push(characters.next()?.1),
            _ => value.push(character),
        }
    }
    None
}

fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(is_token_byte)
}

fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
