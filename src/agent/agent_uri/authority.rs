//! Authorities of `agent://` names: a host, a DID (R48), or the address format of a transport without hosts.

use super::{
    allowed_characters::{UriPart, validate_chars},
    uri_parse_error::UriParseError,
};
use crate::agent::endpoint_scheme::{AddressSyntax, EndpointScheme};
use std::{
    fmt,
    net::{Ipv4Addr, Ipv6Addr},
};

/// Maximum length in bytes of a DID or of a transport's own address.
const MAX_ADDRESS_LEN: usize = 512;
/// Maximum length of a host in bytes (RFC 1035 §2.3.4).
const MAX_HOST_LEN: usize = 253;

/// The authority of an `agent://` name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AgentUriAuthority {
    /// A host, with a port if the name contains one.
    Host {
        /// The host in lower case; an IPv6 address in brackets.
        host: Box<str>,
        /// 1 to 65535.
        port: Option<u16>,
    },
    /// A decentralised identifier as written: `did:method:…`.
    Did(Box<str>),
    /// The address format of a transport without hosts; empty for unix sockets.
    TransportAddress(Box<str>),
}

impl AgentUriAuthority {
    pub(super) fn parse(text: &str, protocol: Option<&str>) -> Result<Self, UriParseError> {
        let error = |offset, why| Err(UriParseError { offset, reason: why });
        if protocol.and_then(EndpointScheme::from_name_transport).is_some_and(has_own_address_format) {
            validate_chars(text, UriPart::TransportAddress)?;
            return match text.len() {
                0..=MAX_ADDRESS_LEN => Ok(Self::TransportAddress(text.into())),
                _ => error(MAX_ADDRESS_LEN, "the address is too long (at most 512 bytes)"),
            };
        }
        if let Some(offset) = text.find('@') {
            return error(offset, "userinfo is not allowed: a name contains no user or password");
        }
        if text.is_empty() {
            return error(0, "the host is missing");
        }
        // A host with a port has at most one colon, and a DID has at least two.
        if text.starts_with("did:") && text.matches(':').count() > 1 {
            return validate_did(text).map(|()| Self::Did(text.into()));
        }
        let (host, port) = split_host_port(text)?;
        let offset = text.len() - port.map_or(0, str::len);
        let port = port
            .map(|port| parse_port(port).ok_or(UriParseError { offset, reason: "the port is not from 1 to 65535" }))
            .transpose()?;
        validate_host(host)?;
        Ok(Self::Host { host: host.to_ascii_lowercase().into(), port })
    }

    /// Returns the host without its port, the host of a `did:web`, or any other authority unchanged.
    pub fn host_name(&self) -> &str {
        match self {
            Self::Host { host, .. } => host,
            Self::Did(did) => {
                let web_host = did.strip_prefix("did:web:").and_then(|rest| rest.split([':', '%']).next());
                web_host.unwrap_or(did)
            }
            Self::TransportAddress(text) => text,
        }
    }

    /// Returns `host` or `host:port`; `None` if the authority is not a host.
    pub fn host_and_port(&self) -> Option<String> {
        matches!(self, Self::Host { .. }).then(|| self.to_string())
    }
}

impl fmt::Display for AgentUriAuthority {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host { host, port: Some(port) } => write!(formatter, "{host}:{port}"),
            Self::Host { host: text, port: None } | Self::Did(text) | Self::TransportAddress(text) => {
                formatter.write_str(text)
            }
        }
    }
}

/// Whether names of the scheme have no host: Unix sockets have no authority, and Matrix has users and rooms.
fn has_own_address_format(scheme: EndpointScheme) -> bool {
    match scheme.syntax() {
        AddressSyntax::UnixSocket | AddressSyntax::MatrixRoom => true,
        AddressSyntax::HttpUrl
        | AddressSyntax::WebSocketUrl
        | AddressSyntax::TopicUrl
        | AddressSyntax::RuntimeName
        | AddressSyntax::AgentUri => false,
    }
}

/// Validates `did:method:specific-id` (DID Core §3.1).
fn validate_did(text: &str) -> Result<(), UriParseError> {
    let error = |offset, why| Err(UriParseError { offset, reason: why });
    if text.len() > MAX_ADDRESS_LEN {
        return error(MAX_ADDRESS_LEN, "the DID is too long (at most 512 bytes)");
    }
    validate_chars(text, UriPart::TransportAddress)?;
    let is_id_char = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:%".contains(&byte);
    if let Some(offset) = text.bytes().position(|byte| !is_id_char(byte)) {
        return error(offset, "this character is not allowed in a DID");
    }
    let mut parts = text.split(':').skip(1);
    let method = parts.next().unwrap_or_default();
    if method.is_empty() || !method.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()) {
        return error(4, "the method of a DID must be lower-case letters and digits");
    }
    if parts.any(str::is_empty) { error(4, "a DID must have no empty part") } else { Ok(()) }
}

/// Splits host and port; the colons of an IPv6 address are inside brackets.
fn split_host_port(text: &str) -> Result<(&str, Option<&str>), UriParseError> {
    let Some(rest) = text.strip_prefix('[') else {
        return Ok(text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))));
    };
    let end =
        rest.find(']').ok_or(UriParseError { offset: 0, reason: "the bracket of an IPv6 address is not closed" })? + 2;
    let (host, port_part) = text.split_at(end);
    match port_part.strip_prefix(':') {
        Some(port) => Ok((host, Some(port))),
        None if port_part.is_empty() => Ok((host, None)),
        None => Err(UriParseError { offset: end, reason: "only a port may follow the closing bracket" }),
    }
}

/// Parses a port in its only accepted spelling: digits without leading zeros.
fn parse_port(port: &str) -> Option<u16> {
    let is_canonical = !port.starts_with('0') && port.bytes().all(|byte| byte.is_ascii_digit());
    port.parse().ok().filter(|_| is_canonical)
}

/// Refuses a host that two parsers could interpret differently.
fn validate_host(host: &str) -> Result<(), UriParseError> {
    let error = |offset, why| Err(UriParseError { offset, reason: why });
    if let Some(ipv6) = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        return match ipv6.parse::<Ipv6Addr>() {
            Ok(_) => Ok(()),
            Err(_) => error(1, "the text in brackets is not an IPv6 address (zones are not allowed)"),
        };
    }
    if host.is_empty() {
        return error(0, "the host is missing");
    }
    if host.len() > MAX_HOST_LEN {
        return error(MAX_HOST_LEN, "the host is too long (at most 253 bytes)");
    }
    let is_host_char = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if let Some(offset) = host.bytes().position(|byte| !is_host_char(byte)) {
        return error(offset, "a host must be letters, digits, hyphens and dots (other scripts as xn--…)");
    }
    let mut offset = 0;
    for label in host.split('.') {
        if !(1..=63).contains(&label.len()) {
            return error(offset, "each label of a host must have 1 to 63 characters");
        }
        offset += label.len() + 1;
    }
    // URL parsers read 127.1, 0x7f000001 and 017700000001 as IPv4 addresses; other parsers do not.
    let last_label = host.rsplit('.').next().unwrap_or_default();
    let is_hexadecimal = last_label.get(..2).is_some_and(|prefix| prefix.eq_ignore_ascii_case("0x"));
    let is_numeric = is_hexadecimal || last_label.bytes().all(|byte| byte.is_ascii_digit());
    if is_numeric && host.parse::<Ipv4Addr>().is_err() {
        error(0, "a host that ends in a number must be an IPv4 address (four numbers without leading zeros)")
    } else {
        Ok(())
    }
}
