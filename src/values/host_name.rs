//! Hosts of URLs, `Host` headers and configuration: IP addresses in text, and names of this machine.

use std::net::{IpAddr, Ipv6Addr};

/// Removes the brackets of an IPv6 address: `[2001:db8::1]` becomes `2001:db8::1`. Other hosts stay as they are.
pub fn strip_brackets(host: &str) -> &str {
    host.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')).unwrap_or(host)
}

/// Parses `host` as an IP address: `192.0.2.1`, `2001:db8::1`, or the latter in brackets.
pub fn parse_ip_literal(host: &str) -> Option<IpAddr> {
    strip_brackets(host).parse().ok()
}

/// Returns whether `host`, without a port, is `localhost` or a loopback address: plain text to it does not leave this
/// machine. Other names are never looked up.
pub fn is_loopback_host(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost") || parse_ip_literal(host).is_some_and(|ip| ip.to_canonical().is_loopback())
}

/// Maximum length of a `Host` header or an authority: a name in DNS has 253 bytes at most (RFC 1035 §2.3.4).
const MAX_AUTHORITY_BYTES: usize = 255;

/// Whether `text` is a host, perhaps with a port: `gate.example`, `192.0.2.1:8080`, `[2001:db8::1]:8080`. User
/// information, percent-encoding, zones of IPv6 addresses and more than 255 bytes are refused.
pub fn is_host_and_port(text: &[u8]) -> bool {
    if text.len() > MAX_AUTHORITY_BYTES {
        return false;
    }
    let (is_valid_host, port) = match text {
        [b'[', rest @ ..] => {
            let Some(end) = rest.iter().position(|byte| *byte == b']') else { return false };
            let (address, port) = rest.split_at(end);
            let is_address = std::str::from_utf8(address).is_ok_and(|text| text.parse::<Ipv6Addr>().is_ok());
            (is_address, port.get(1..).unwrap_or_default())
        }
        _ => {
            let (name, port) = text.split_at(text.iter().position(|byte| *byte == b':').unwrap_or(text.len()));
            let is_allowed = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
            (!name.is_empty() && name.iter().all(is_allowed), port)
        }
    };
    let is_valid_port = match port {
        [] => true,
        [b':', digits @ ..] => {
            digits.iter().all(u8::is_ascii_digit)
                && std::str::from_utf8(digits).is_ok_and(|digits| digits.parse::<u16>().is_ok())
        }
        _ => false,
    };
    is_valid_host && is_valid_port
}

/// Returns the host of a `Host` header or an authority, without its port; an IPv6 address keeps its brackets, and one
/// without brackets has no port. Expects a valid authority: of another text it may return any part.
pub fn host_without_port(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port))
            if port.bytes().all(|byte| byte.is_ascii_digit())
                && (!host.contains(':') || (host.starts_with('[') && host.ends_with(']'))) =>
        {
            host
        }
        _ => authority,
    }
}

/// Returns whether a `Host` header or an authority names this machine's loopback interface. This is the guard against
/// DNS rebinding: a web page whose host name resolves to 127.0.0.1 sends its own host name.
pub fn is_loopback_authority(authority: &str) -> bool {
    is_host_and_port(authority.as_bytes()) && is_loopback_host(host_without_port(authority))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_hosts_are_localhost_and_loopback_addresses_in_any_spelling() {
        for host in ["localhost", "LocalHost", "127.0.0.1", "127.9.9.9", "::1", "[::1]", "[::ffff:127.0.0.1]"] {
            assert!(is_loopback_host(host), "{host}");
        }
        for host in
            ["", "localhost.", "localhost.example", "a.localhost", "127.1", "0.0.0.0", "10.0.0.1", "[::2]", "[::1"]
        {
            assert!(!is_loopback_host(host), "{host}");
        }
    }

    #[test]
    fn the_port_of_an_authority_is_removed() {
        for (authority, host) in [
            ("localhost", "localhost"),
            ("localhost:8080", "localhost"),
            ("localhost:", "localhost"),
            ("[::1]:8080", "[::1]"),
            ("[::1]", "[::1]"),
            ("::1", "::1"),
            ("2001:db8::7", "2001:db8::7"),
            ("localhost:80@evil", "localhost:80@evil"),
            ("[::1", "[::1"),
            ("", ""),
            (":80", ""),
        ] {
            assert_eq!(host_without_port(authority), host, "{authority}");
        }
    }

    #[test]
    fn an_authority_of_another_host_is_not_loopback_whatever_surrounds_it() {
        for authority in ["localhost", "LOCALHOST:80", "127.0.0.1:9900", "[::1]:9900", "[::1]"] {
            assert!(is_loopback_authority(authority), "{authority}");
        }
        for authority in [
            "evil.example",
            "evil.example:80",
            "localhost.evil.example",
            "[::1",
            "::1",
            "",
            "[::1].evil.example",
            "[::2]:1",
            "localhost:80@evil",
            "localhost:80@evil:80",
            "user@localhost",
            "localhost:x",
        ] {
            assert!(!is_loopback_authority(authority), "{authority}");
        }
    }

    #[test]
    fn only_a_host_and_a_port_within_the_bound_are_an_authority() {
        let longest = "a".repeat(MAX_AUTHORITY_BYTES);
        for valid in ["a", "gate.example:8443", "192.0.2.1:80", "[2001:db8::1]", "[::1]:65535", "a_b-c~d", &longest] {
            assert!(is_host_and_port(valid.as_bytes()), "{valid}");
        }
        let too_long = "a".repeat(MAX_AUTHORITY_BYTES + 1);
        for invalid in [
            "",
            ":80",
            "a:",
            "a:x",
            "a:65536",
            "a:+1",
            "a:1:2",
            "::1",
            "[::1",
            "[::1]80",
            "[::1%25eth0]",
            "u@a",
            "a%41",
            "localhost:80@evil",
            "a b",
            "a/b",
            "a,b",
            "caf\u{e9}",
            &too_long,
        ] {
            assert!(!is_host_and_port(invalid.as_bytes()), "{invalid}");
        }
    }
}
