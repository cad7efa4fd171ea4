//! Hosts of URLs, `Host` headers and configuration: IP addresses in text, and names of this machine.

use std::net::IpAddr;

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

/// Returns the host of a `Host` header or an authority, without its port; an IPv6 address keeps its brackets.
pub fn host_without_port(authority: &str) -> &str {
    let port_search_start = if authority.starts_with('[') { authority.find(']').unwrap_or_default() } else { 0 };
    let port = authority.get(port_search_start..).and_then(|rest| rest.find(':'));
    port.and_then(|port| authority.get(..port_search_start + port)).unwrap_or(authority)
}

/// Returns whether a `Host` header or an authority names this machine's loopback interface. This is the guard against
/// DNS rebinding: a web page whose host name resolves to 127.0.0.1 sends its own host name.
pub fn is_loopback_authority(authority: &str) -> bool {
    is_loopback_host(host_without_port(authority))
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
            ("[::1", "["),
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
        ] {
            assert!(!is_loopback_authority(authority), "{authority}");
        }
    }
}
