//! Mailboxes of SMTP (RFC 5321), and internationalised ones (RFC 6531).

use super::hostname;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Maximum length of the part before the at sign (RFC 5321, section 4.5.3.1.1).
const MAX_LOCAL_PART_BYTES: usize = 64;
/// Maximum length of a mailbox, in code points.
pub(super) const MAX_LENGTH: usize = MAX_LOCAL_PART_BYTES + 1 + hostname::MAX_LENGTH;
/// The tag of an IPv6 address.
const IPV6_TAG: &str = "IPv6:";

/// Returns whether `text` is a mailbox in ASCII.
pub(super) fn is_valid(text: &str) -> bool {
    text.is_ascii() && is_mailbox(text, hostname::is_valid)
}

/// Returns whether `text` is a mailbox that may have characters of other scripts.
pub(super) fn is_valid_internationalized(text: &str) -> bool {
    is_mailbox(text, hostname::is_valid_internationalized)
}

fn is_mailbox(text: &str, is_domain: fn(&str) -> bool) -> bool {
    // A domain has no at sign; a quoted local part may have some.
    let Some((local_part, domain)) = text.rsplit_once('@') else { return false };
    local_part.len() <= MAX_LOCAL_PART_BYTES && is_local_part(local_part) && is_domain_or_address(domain, is_domain)
}

fn is_local_part(local_part: &str) -> bool {
    match local_part.strip_prefix('"') {
        Some(rest) => rest.strip_suffix('"').is_some_and(is_quoted_text),
        None => local_part.split('.').all(|atom| !atom.is_empty() && atom.chars().all(is_atom_character)),
    }
}

/// Returns whether the text may be between quotation marks: `*QcontentSMTP`.
fn is_quoted_text(text: &str) -> bool {
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        let is_valid = match character {
            '\\' => characters.next().is_some_and(|escaped| matches!(escaped, ' '..='~')),
            '"' => false,
            ' '..='~' => true,
            _ => !character.is_ascii(),
        };
        if !is_valid {
            return false;
        }
    }
    true
}

/// Returns whether the character is `atext`, or not in ASCII.
fn is_atom_character(character: char) -> bool {
    match character {
        '(' | ')' | '<' | '>' | '[' | ']' | ':' | ';' | '@' | '\\' | ',' | '.' | '"' => false,
        '!'..='~' => true,
        _ => !character.is_ascii(),
    }
}

fn is_domain_or_address(domain: &str, is_domain: fn(&str) -> bool) -> bool {
    let Some(address) = domain.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) else {
        return is_domain(domain);
    };
    match address.split_at_checked(IPV6_TAG.len()) {
        Some((tag, address)) if tag.eq_ignore_ascii_case(IPV6_TAG) => address.parse::<Ipv6Addr>().is_ok(),
        _ => address.parse::<Ipv4Addr>().is_ok(),
    }
}
