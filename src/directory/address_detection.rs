//! Addresses in text: URLs, and hosts without a scheme.

use crate::values::is_loopback_host;
use std::{
    net::{IpAddr, Ipv4Addr},
    ops::Range,
};

/// Domains that only a private network resolves.
const PRIVATE_DOMAINS: &[&str] = &["internal", "local", "lan", "corp", "home", "intranet", "svc", "localhost"];
/// Up to this length, a word may have several addresses without a scheme.
const MAX_WORD_WITH_ADDRESSES: usize = 2048;

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
    let host = host.trim_end_matches('.');
    host.parse::<IpAddr>().is_ok()
        || host.starts_with('[')
        || is_loopback_host(host)
        || !host.contains('.')
        || is_below_private_domain(host)
}

fn is_below_private_domain(host: &str) -> bool {
    PRIVATE_DOMAINS.iter().any(|domain| is_below(host, domain))
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
    // Every address has one of these; most words have none.
    if !word_text.bytes().any(|byte| matches!(byte, b'.' | b':' | b'/')) {
        return None;
    }
    // The end of a sentence is no part of a URL.
    let end = word.start + word_text.trim_end_matches(['.', '!', '?']).len();
    let slashes = word_text.match_indices("//").map(|(slashes, _)| slashes);
    let mut urls = slashes.filter_map(|slashes| find_url(text, word.start..end, slashes));
    match urls.find(|url| is_url(url, own_host)) {
        Some(url) => find_bare_address(text, word.start..url.range.start, own_host).or(Some(url)),
        None => find_bare_address(text, word, own_host),
    }
}

/// Finds an address without a scheme: the whole word, or a part of it between brackets or in `name=value`.
fn find_bare_address<'t>(text: &'t str, word: Range<usize>, own_host: &str) -> Option<Address<'t>> {
    let is_separator = |c: char| matches!(c, '=' | '&' | '[' | ']');
    let whole = text.get(word.clone())?;
    let parts = whole.split(is_separator).scan(word.start, |next, part| {
        let start = std::mem::replace(next, *next + part.len() + 1);
        Some(start..start + part.len())
    });
    let has_parts = whole.contains(is_separator);
    std::iter::once(word.clone()).chain(parts.filter(|_| has_parts)).find_map(|part| {
        let part_text = text.get(part.clone())?;
        // A full stop or a colon after an address belongs to the sentence.
        let trimmed = part_text.trim_start_matches(['@', '=']).trim_end_matches(['.', ':', '!', '?', ']']);
        let address = without_label(trimmed);
        let host = bare_host(address, own_host)?;
        let start = part.start + part_text.find(address)?;
        // A path has separators too. A long word is no text for people; one address in it bounds the time.
        let takes_rest = address.contains(['/', '?', '#']) || word.len() > MAX_WORD_WITH_ADDRESSES;
        let end = if takes_rest {
            word.start + whole.trim_end_matches(['.', ':', '!', '?', ']']).len()
        } else {
            start + address.len()
        };
        Some(Address { range: start..end, host, origin_end: None, is_plain_web: false })
    })
}

/// Returns the IPv4 address of `label:address`; another word stays as it is.
fn without_label(word: &str) -> &str {
    let labelled = word.split_once(':').map(|(_, address)| address);
    labelled.filter(|address| host_of(address).parse::<Ipv4Addr>().is_ok()).unwrap_or(word)
}

fn find_url<'t>(text: &'t str, word: Range<usize>, slashes: usize) -> Option<Address<'t>> {
    let word_text = text.get(word.clone())?;
    let prefix = word_text.get(..slashes)?.as_bytes();
    let is_scheme_char = |byte: &&u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
    let scheme = prefix.strip_suffix(b":").map_or(0, |name| name.iter().rev().take_while(is_scheme_char).count() + 1);
    let start = word.start + slashes - scheme;
    let url = text.get(start..word.end)?;
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
    let is_private = host.contains('.') && is_below_private_domain(host);
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
    fn addresses_within_longer_words_are_found() {
        for (text, address) in [
            ("host=10.0.0.7", "10.0.0.7"),
            ("endpoint=db.inside.example:5432", "db.inside.example:5432"),
            ("a=1&host=10.0.0.7:80&b=2", "10.0.0.7:80"),
            ("[planner.internal]", "planner.internal"),
            ("[planner.internal]:80", "planner.internal"),
            ("[10.0.0.7:80]", "10.0.0.7:80"),
            ("peer=[2001:db8::7]:80", "2001:db8::7"),
            ("10.0.0.7:8080//x", "10.0.0.7:8080//x"),
            ("planner.internal//x", "planner.internal//x"),
            ("address:10.0.0.7:80", "10.0.0.7:80"),
            ("host=10.0.0.7/a?token=b&c.", "10.0.0.7/a?token=b&c"),
            ("x//http://10.0.0.7/y", "http://10.0.0.7/y"),
            ("href=https://a.example/x", "https://a.example/x"),
        ] {
            assert_eq!(found(text), [address], "{text}");
        }
        assert_eq!(found("10.0.0.7//a.example/x"), ["10.0.0.7", "//a.example/x"]);
        assert_eq!(found("a=10.0.0.7&b=planner.internal."), ["10.0.0.7", "planner.internal"]);
    }

    #[test]
    fn the_search_takes_linear_time_for_long_words() {
        let started = std::time::Instant::now();
        for (part, addresses) in [
            ("=.", 0),
            ("[.", 0),
            ("//", 0),
            (":", 0),
            ("a//b", 0),
            (".internal", 1),
            ("a.internal=", 1),
            ("host=10.0.0.7&//", 2),
        ] {
            let text = format!("{}{}", part.repeat(100_000), ".".repeat(100_000));
            assert_eq!(found(&text).len(), addresses, "{part}");
        }
        assert!(started.elapsed() < std::time::Duration::from_secs(20), "{:?}", started.elapsed());
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
            "x=1.5 [note] a[0].b e.g.=x and//or",
        ] {
            assert_eq!(found(text), Vec::<&str>::new(), "{text}");
        }
    }
}
