//! Redaction of secrets in untrusted text before it is logged (R131, R133): credentials by their format or by the name
//! before them, userinfo and queries of URLs, email addresses. When in doubt, it removes too much.

use std::{borrow::Cow, ops::Range};

const REDACTED: &str = "[redacted]";

/// Substrings of names whose values are secret; compared in lower case, without `-` and `_`.
const SECRET_NAME_PARTS: &[&str] = &[
    "password",
    "passwd",
    "passphrase",
    "pwd",
    "secret",
    "token",
    "apikey",
    "accesskey",
    "privatekey",
    "authorization",
    "credential",
    "cookie",
    "signature",
    "sessionid",
    "clientassertion",
];

/// Prefixes of well-known secret formats, with the minimum length of such a word.
const SECRET_PREFIXES: &[(&str, usize)] = &[
    ("gp_", 12),
    ("eyJ", 12),
    ("sk-", 12),
    ("sk_", 12),
    ("pk_", 12),
    ("ghp_", 12),
    ("gho_", 12),
    ("ghs_", 12),
    ("github_pat_", 20),
    ("glpat-", 12),
    ("xox", 14),
    ("AKIA", 16),
    ("AIza", 20),
    ("hf_", 16),
    ("syt_", 16),
];

/// Minimum length of a secret that is recognised by its format.
const MIN_SECRET_LEN: usize = 12;

/// Returns `text` without its secrets; borrows it if there are none.
pub fn redact(text: &str) -> Cow<'_, str> {
    if is_single_harmless_word(text) {
        return Cow::Borrowed(text);
    }
    let mut clean = String::new();
    let mut at = 0;
    while let Some(secret) = find_next_secret(text, at) {
        clean.push_str(text.get(at..secret.start).unwrap_or_default());
        clean.push_str(REDACTED);
        at = secret.end;
    }
    if at == 0 {
        return Cow::Borrowed(text);
    }
    clean.push_str(text.get(at..).unwrap_or_default());
    Cow::Owned(clean)
}

/// Whether `text` is one word without any sign of a secret, as most ids and paths are. Decided in one pass.
fn is_single_harmless_word(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'/' | b'.' | b'_' | b'-');
    text.bytes().fold(true, |all, b| all & plain(b))
        && !text.starts_with('-')
        && (text.len() < MIN_SECRET_LEN || !text.split('/').any(has_secret_prefix))
}

/// Finds the next secret at or after `from`, never empty. Examines each character a bounded number of times.
fn find_next_secret(text: &str, from: usize) -> Option<Range<usize>> {
    let mut at = from;
    loop {
        let rest = text.get(at..)?;
        let start = at + rest.find(|c: char| !is_separator(c))?;
        let rest = text.get(start..)?;
        let end = start + rest.find(is_separator).unwrap_or(rest.len());
        let word = text.get(start..end)?;
        // A word that begins with @ follows the userinfo of a URL that was just redacted.
        let authority = word.find("://").map(|at| at + 3).or_else(|| word.starts_with('@').then_some(1));
        let (secret, then) = match authority {
            Some(authority) => find_in_url(text, start + authority),
            None => (find_in_word(text, start..end), end),
        };
        if secret.is_some() {
            return secret;
        }
        at = then;
    }
}

/// Whether `c` separates words. A word holds a token, a name, a URL up to its query, or an address.
fn is_separator(c: char) -> bool {
    !matches!(c, 'a'..='z' | 'A'..='Z' | '0'..='9' | '_' | '-' | '.' | '+' | '/' | '~' | '@' | ':')
        && !matches!(c, '%' | '!' | '*' | '#' | '$' | '^' | '\\')
        && !c.is_alphanumeric()
}

fn find_in_word(text: &str, word: Range<usize>) -> Option<Range<usize>> {
    let this = text.get(word.clone())?;
    if this.starts_with("-----BEGIN") {
        let block = text.get(word.start..)?;
        let last = block.find("-----END").unwrap_or(block.len());
        let line = block.get(last..).and_then(|rest| rest.find('\n'));
        return Some(word.start..line.map_or(text.len(), |line| word.start + last + line));
    }
    find_by_name(text, &word).or_else(|| find_by_auth_scheme(text, &word)).or_else(|| find_by_format(this, word.start))
}

/// Matches `name=value`, `name: value`, `"name": "value"`, and these forms inside a JSON string.
fn find_by_name(text: &str, word: &Range<usize>) -> Option<Range<usize>> {
    let this = text.get(word.clone())?;
    let name = this.split(':').next().unwrap_or(this);
    let rest = text.get(word.start + name.len()..)?;
    let sign = rest.trim_start_matches(['"', '\'', '\\', ' ', ']']);
    let value = sign.strip_prefix("=>").or_else(|| sign.strip_prefix([':', '=']))?;
    if !is_secret_name(name) {
        return None;
    }
    let bare = value.trim_start_matches([' ', '\t']);
    if sign.starts_with(": ") && is_prose(name, bare) {
        return None;
    }
    let escaped = bare.starts_with('\\');
    let bare = bare.trim_start_matches('\\');
    let from = text.len() - bare.len();
    let secret = match bare.chars().next().filter(|c| "\"'`".contains(*c)) {
        Some(quote) => from + 1..from + 1 + quoted_len(bare.get(1..)?, quote, escaped),
        // The values of these fields have several words, up to the end of the line.
        None if is_whole_line_field(name) => from..from + bare.find(['\n', '\r', '"', '\'']).unwrap_or(bare.len()),
        None => from..from + bare.find(|c: char| c.is_whitespace() || ",;&)}]\"'<>".contains(c)).unwrap_or(bare.len()),
    };
    let done = text.get(secret.start..).is_some_and(|rest| rest.starts_with(REDACTED));
    (!secret.is_empty() && !done).then_some(secret)
}

/// Returns the length of the quoted text. In a JSON string a backslash precedes the closing quote, elsewhere none may.
fn quoted_len(text: &str, quote: char, escaped: bool) -> usize {
    let mut backslash = None;
    for (at, c) in text.char_indices() {
        match (c == quote, backslash) {
            (true, Some(before)) if escaped => return before,
            (true, None) if !escaped => return at,
            _ => backslash = (c == '\\' && (backslash.is_none() || escaped)).then_some(at),
        }
    }
    text.len()
}

fn is_whole_line_field(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    lower.ends_with("authorization") || lower.ends_with("cookie")
}

/// Whether the value is prose: `token: expired` is a sentence, not a secret.
fn is_prose(name: &str, value: &str) -> bool {
    let word = value.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
    ["token", "signature", "credential"].iter().any(|noun| name.eq_ignore_ascii_case(noun))
        && !word.is_empty()
        && word.bytes().all(|b| b.is_ascii_lowercase())
}

fn is_secret_name(name: &str) -> bool {
    if name.len() < 3 || name.len() > 64 {
        return false;
    }
    let plain: String = name.chars().filter(|c| !"-_.".contains(*c)).map(|c| c.to_ascii_lowercase()).collect();
    // Model APIs count tokens; these counts are not secrets.
    !plain.ends_with("tokens") && SECRET_NAME_PARTS.iter().any(|part| plain.contains(part))
}

/// Matches `Bearer …`, `Basic …` (RFC 9110 §11.4).
fn find_by_auth_scheme(text: &str, word: &Range<usize>) -> Option<Range<usize>> {
    let this = text.get(word.clone())?;
    if !["bearer", "basic", "digest", "dpop"].iter().any(|scheme| this.eq_ignore_ascii_case(scheme)) {
        return None;
    }
    let rest = text.get(word.end..)?;
    let token = rest.trim_start_matches(' ');
    let length = token.find(|c: char| c.is_whitespace() || ",;\"'".contains(c)).unwrap_or(token.len());
    let plain = token.bytes().take(length).all(|b| b.is_ascii_lowercase()) && !this.eq_ignore_ascii_case("bearer");
    let start = text.len() - token.len();
    (start > word.end && length > 0 && !plain && !token.starts_with(REDACTED)).then_some(start..start + length)
}

/// Matches a secret by its format or an email address, also after a `/` or `:` within the word.
fn find_by_format(word: &str, start: usize) -> Option<Range<usize>> {
    let mut at = 0;
    for part in word.split(['/', ':']) {
        if has_secret_prefix(part) || is_email_address(part) {
            return Some(start + at..start + at + part.len());
        }
        at += part.len() + 1;
    }
    None
}

fn has_secret_prefix(part: &str) -> bool {
    part.len() >= MIN_SECRET_LEN
        && SECRET_PREFIXES.iter().any(|(beginning, least)| part.len() >= *least && part.starts_with(beginning))
}

fn is_email_address(word: &str) -> bool {
    let Some((name, host)) = word.split_once('@') else {
        return false;
    };
    let (_, top) = host.trim_end_matches('.').rsplit_once('.').unwrap_or_default();
    !name.is_empty() && top.len() > 1 && top.bytes().all(|b| b.is_ascii_alphabetic())
}

/// Finds the userinfo, or the query and fragment, of the URL whose authority begins at `start`; also returns where the
/// URL ends.
fn find_in_url(text: &str, start: usize) -> (Option<Range<usize>>, usize) {
    let rest = text.get(start..).unwrap_or_default();
    let url = rest.split(|c: char| c.is_whitespace() || "\"'<>`".contains(c)).next().unwrap_or_default();
    let end = start + url.len();
    let path = url.find(['/', '?', '#']).unwrap_or(url.len());
    let user = url.get(..path).and_then(|authority| authority.rfind('@'));
    if let Some(user) = user.filter(|at| *at > 0 && url.get(..*at) != Some(REDACTED)) {
        return (Some(start..start + user), end);
    }
    let query = url.find(['?', '#']).map_or(url.len(), |at| at + 1);
    if let Some(secret) = url.get(path..query).and_then(|text| find_by_format(text, start + path)) {
        return (Some(secret.start..end), end);
    }
    let query = (query < url.len() && url.get(query..) != Some(REDACTED)).then_some(start + query..end);
    (query, end)
}
