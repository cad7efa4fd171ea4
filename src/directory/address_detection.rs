//! Addresses in text: URLs, and hosts without a scheme.

use crate::values::is_loopback_host;
use std::{net::IpAddr, ops::Range};

/// Endings of names that only a private network resolves.
const PRIVATE_SUFFIXES: &[&str] = &[".internal", ".local", ".lan", ".corp", ".home", ".intranet", ".svc", ".localhost"];

/// An address within a text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Address<'t> {
    pub(super) range: Range<usize>,
    pub(super) host: &'t str,
    /// The end of scheme and authority, for a URL with both.
    pub(super) origin_end: Option<usize>,
    /// Whether the address is a web page's: `http` or `https`, without port and userinfo.
    is_plain_web: bool,
}

impl Address<'_> {
    /// Returns whether the address is one on the internet that a link may lead to.
    pub(super) fn is_public_link(&self) -> bool {
        self.is_plain_web && !is_private_host(self.host)
    }
}

/// Returns whether only a private network, or this machine, resolves the name; an IP address counts as private.
pub(super) fn is_private_host(host: &str) -> bool {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    host.parse::<IpAddr>().is_ok()
        || host.starts_with('[')
        || is_loopback_host(&host)
        || !host.contains('.')
        || PRIVATE_SUFFIXES.iter().any(|suffix| host.ends_with(suffix))
}

/// Finds the first address in `text` at or after `position`. `own_host` is the agent's, whose name alone is an address.
pub(super) fn find_address<'t>(text: &'t str, position: usize, own_host: &str) -> Option<Address<'t>> {
    let mut start = position;
    loop {
        let rest = text.get(start..)?;
        start += rest.find(|c: char| !is_delimiter(c))?;
        let rest = text.get(start..)?;
        let word = rest.get(..rest.find(is_delimiter).unwrap_or(rest.len()))?;
        let end = start + word.len();
        if let Some(address) = find_in_word(text, start..end, own_host) {
            return Some(address);
        }
        start = end;
    }
}

fn is_delimiter(c: char) -> bool {
    c.is_whitespace() || c.is_control() || "\"'`<>(){}|\\^,;".contains(c)
}

fn find_in_word<'t>(text: &'t str, word: Range<usize>, own_host: &str) -> Option<Address<'t>> {
    let word_text = text.get(word.clone())?;
    if let Some(slashes) = word_text.find("//") {
        return find_url(text, word, slashes).filter(|url| is_url(url, own_host));
    }
    // A full stop or a colon after an address belongs to the sentence.
    let trimmed = word_text.trim_start_matches(['@', '=']).trim_end_matches(['.', ':', '!', '?', ']']);
    let start = word.end - word_text.trim_start_matches(['@', '=']).len();
    let host = bare_host(trimmed, own_host)?;
    Some(Address { range: start..start + trimmed.len(), host, origin_end: None, is_plain_web: false })
}

fn find_url<'t>(text: &'t str, word: Range<usize>, slashes: usize) -> Option<Address<'t>> {
    let word_text = text.get(word.clone())?;
    let prefix = word_text.get(..slashes)?.as_bytes();
    let is_scheme_char = |byte: &&u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
    let scheme = prefix.strip_suffix(b":").map_or(0, |name| name.iter().rev().take_while(is_scheme_char).count() + 1);
    let start = word.start + slashes - scheme;
    let url = text.get(start..word.end)?;
    let url = url.trim_end_matches(['.', '!', '?']);
    let authority_start = scheme + 2;
    let authority = url.get(authority_start..)?;
    let authority = authority.get(..authority.find(['/', '?', '#']).unwrap_or(authority.len()))?;
    let origin_end = start + authority_start + authority.len();
    let is_web = matches!(url.get(..scheme)?.to_ascii_lowercase().as_str(), "http:" | "https:");
    let host = host_of(authority);
    Some(Address {
        range: start..start + url.len(),
        host,
        origin_end: (scheme > 1).then_some(origin_end),
        is_plain_web: is_web && host.len() == authority.len(),
    })
}

/// Returns whether a word with `//` is a URL: one with a scheme, or one without whose authority is a host.
fn is_url(url: &Address<'_>, own_host: &str) -> bool {
    let is_host = url.host.contains('.') || url.host.starts_with('[') || is_loopback_host(url.host);
    url.origin_end.is_some() || is_host || (!url.host.is_empty() && url.host.eq_ignore_ascii_case(own_host))
}

/// Returns the host of `host:port`, `user@host` and `[address]:port`, without a final dot.
fn host_of(authority: &str) -> &str {
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let end = match host.strip_prefix('[') {
        Some(rest) => rest.find(']').map_or(host.len(), |at| at + 2),
        None => host.find(':').unwrap_or(host.len()),
    };
    host.get(..end).unwrap_or(host).trim_end_matches('.')
}

/// Returns the host of a word without a scheme, if the word can be nothing but an address.
fn bare_host<'w>(word: &'w str, own_host: &str) -> Option<&'w str> {
    if word.parse::<std::net::Ipv6Addr>().is_ok_and(|address| !address.is_unspecified()) {
        return Some(word);
    }
    let authority = word.get(..word.find(['/', '?', '#']).unwrap_or(word.len()))?;
    let has_path = authority.len() < word.len();
    let host = host_of(authority);
    let port = authority.rsplit_once(':').map_or("", |(_, port)| port);
    let has_port = (2..=5).contains(&port.len()) && port.bytes().all(|byte| byte.is_ascii_digit());
    let is_name = |name: &str| {
        name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_'))
            && name.bytes().any(|byte| byte.is_ascii_alphabetic())
    };
    let is_ip = host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
    let ends_in_word = host.rsplit('.').next().is_some_and(|label| {
        label.len() > 1 && label.bytes().all(|byte| byte.is_ascii_alphabetic()) && label.len() < host.len()
    });
    let is_own = own_host.contains('.') && is_below(host, own_host);
    let is_private =
        host.contains('.') && PRIVATE_SUFFIXES.iter().any(|suffix| host.to_ascii_lowercase().ends_with(suffix));
    let is_address = is_ip
        || is_own
        || (is_private && is_name(host))
        || (is_name(host) && has_port && (ends_in_word || is_loopback_host(host) || port.len() >= 4))
        || (is_name(host) && has_path && ends_in_word);
    is_address.then_some(host)
}

/// Returns whether `host` is `domain` or a name below it.
pub(super) fn is_below(host: &str, domain: &str) -> bool {
    let (host, domain) = (host.as_bytes(), domain.as_bytes());
    let Some(before) = host.len().checked_sub(domain.len()) else { return false };
    let (subdomain, end) = host.split_at(before);
    !domain.is_empty() && end.eq_ignore_ascii_case(domain) && (subdomain.is_empty() || subdomain.ends_with(b"."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<&str> {
        let (mut position, mut found) = (0, Vec::new());
        while let Some(address) = find_address(text, position, "own.example") {
            found.push(&text[address.range.clone()]);
            position = address.range.end;
        }
        found
    }

    #[test]
    fn urls_and_hosts_without_a_scheme_are_found() {
        for address in [
            "https://a.example/x?y#z",
            "HTTP://user:pw@10.0.0.7:9/b",
            "http://x@[::1]:1/",
            "agent://planner/x",
            "mqtts://broker/agents/a",
            "file:///srv/agent",
            "//a.example/x",
            "10.0.0.7",
            "203.0.113.7:8000/x",
            "[2001:db8::7]:80",
            "2001:db8::7",
            "db.inside.example:5432",
            "db:5432",
            "localhost:80",
            "api.inside.example/a2a",
            "planner.internal",
            "own.example",
            "sub.OWN.example",
        ] {
            for text in [address.to_owned(), format!("at {address}."), format!("({address}), then")] {
                assert_eq!(found(&text), [address], "{text}");
            }
        }
    }

    #[test]
    fn words_that_only_look_like_addresses_are_not_found() {
        for text in [
            "// a comment",
            "and/or text/plain application/vnd.api+json",
            "Node.js 1.2.3-beta",
            "at 12:30, ratio 16:9, step:10",
            "a@b",
            "urn:agent:x",
            "e.g. this",
            "",
            "/name",
            "#/$defs/text",
        ] {
            assert_eq!(found(text), Vec::<&str>::new(), "{text}");
        }
    }
}
