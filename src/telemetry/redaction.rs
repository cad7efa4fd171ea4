//! Redaction of secrets in untrusted text before it is logged (R131, R133): credentials by their format or by the name
//! before them, userinfo and queries of URLs, and email addresses. In doubt, text is redacted.

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

/// The words that follow "bearer" in prose.
const PROSE_AFTER_BEARER: &[&str] = &["token", "tokens", "authentication", "credential", "credentials"];

/// Minimum length of a secret that is recognised by its format.
const MIN_SECRET_LEN: usize = 12;

/// Returns `text` with its secrets replaced by `[redacted]`; borrows `text` if it has none.
pub fn redact(text: &str) -> Cow<'_, str> {
    if is_single_harmless_word(text) {
        return Cow::Borrowed(text);
    }
    let mut redacted = String::new();
    let mut position = 0;
    while let Some(secret) = find_next_secret(text, position) {
        redacted.push_str(text.get(position..secret.start).unwrap_or_default());
        redacted.push_str(REDACTED);
        position = secret.end;
    }
    if position == 0 {
        return Cow::Borrowed(text);
    }
    redacted.push_str(text.get(position..).unwrap_or_default());
    Cow::Owned(redacted)
}

/// Returns whether `text` is one word without any sign of a secret, like most ids and paths. Needs one pass.
fn is_single_harmless_word(text: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'/' | b'.' | b'_' | b'-');
    text.bytes().fold(true, |all_plain, b| all_plain & is_plain(b))
        && !text.starts_with('-')
        && (text.len() < MIN_SECRET_LEN || !text.split('/').any(has_secret_prefix))
}

/// Finds the next secret at or after `start_position`, which is never empty. Examines each character a bounded number
/// of times.
fn find_next_secret(text: &str, start_position: usize) -> Option<Range<usize>> {
    let mut position = start_position;
    loop {
        let rest = text.get(position..)?;
        let start = position + rest.find(|c: char| !is_separator(c))?;
        let rest = text.get(start..)?;
        let end = start + rest.find(is_separator).unwrap_or(rest.len());
        let word = text.get(start..end)?;
        // A word that begins with @ follows the redacted userinfo of a URL.
        let authority = word.find("://").map(|index| index + 3).or_else(|| word.starts_with('@').then_some(1));
        let (secret, next_position) = match authority {
            Some(authority) => find_in_url(text, start + authority),
            None => (find_in_word(text, start..end), end),
        };
        if secret.is_some() {
            return secret;
        }
        position = next_position;
    }
}

/// Returns whether `c` separates words. A word is a token, a name, a URL up to its query, or an address.
fn is_separator(c: char) -> bool {
    !matches!(c, 'a'..='z' | 'A'..='Z' | '0'..='9' | '_' | '-' | '.' | '+' | '/' | '~' | '@' | ':')
        && !matches!(c, '%' | '!' | '*' | '#' | '$' | '^' | '\\')
        && !c.is_alphanumeric()
}

fn find_in_word(text: &str, word: Range<usize>) -> Option<Range<usize>> {
    let word_text = text.get(word.clone())?;
    if word_text.starts_with("-----BEGIN") {
        let block = text.get(word.start..)?;
        let end_marker = block.find("-----END").unwrap_or(block.len());
        let line_end = block.get(end_marker..).and_then(|rest| rest.find('\n'));
        return Some(word.start..line_end.map_or(text.len(), |line_end| word.start + end_marker + line_end));
    }
    find_by_name(text, &word)
        .or_else(|| find_by_auth_scheme(text, &word))
        .or_else(|| find_by_format(word_text, word.start))
}

/// Matches `name=value`, `name: value`, `"name": "value"`, and these forms inside a JSON string.
fn find_by_name(text: &str, word: &Range<usize>) -> Option<Range<usize>> {
    let word_text = text.get(word.clone())?;
    let name = word_text.split(':').next().unwrap_or(word_text);
    let rest = text.get(word.start + name.len()..)?;
    let separator = rest.trim_start_matches(['"', '\'', '\\', ' ', ']']);
    let value = separator.strip_prefix("=>").or_else(|| separator.strip_prefix([':', '=']))?;
    if !is_secret_name(name) {
        return None;
    }
    let unquoted = value.trim_start_matches([' ', '\t']);
    if separator.starts_with(": ") && is_prose(name, unquoted) {
        return None;
    }
    let escaped = unquoted.starts_with('\\');
    let unquoted = unquoted.trim_start_matches('\\');
    let value_start = text.len() - unquoted.len();
    let secret = match unquoted.chars().next().filter(|c| "\"'`".contains(*c)) {
        Some(quote) => value_start + 1..value_start + 1 + quoted_len(unquoted.get(1..)?, quote, escaped),
        // The values of these fields have several words, up to the end of the line.
        None if is_whole_line_field(name) => {
            value_start..value_start + unquoted.find(['\n', '\r', '"', '\'']).unwrap_or(unquoted.len())
        }
        None => {
            value_start
                ..value_start
                    + unquoted.find(|c: char| c.is_whitespace() || ",;&)}]\"'<>".contains(c)).unwrap_or(unquoted.len())
        }
    };
    let is_redacted = text.get(secret.start..).is_some_and(|rest| rest.starts_with(REDACTED));
    (!secret.is_empty() && !is_redacted).then_some(secret)
}

/// Returns the length of the quoted text. With `escaped`, as in a JSON string, a backslash precedes the closing quote;
/// otherwise a quote after a backslash does not close.
fn quoted_len(text: &str, quote: char, escaped: bool) -> usize {
    let mut backslash = None;
    for (index, c) in text.char_indices() {
        match (c == quote, backslash) {
            (true, Some(before)) if escaped => return before,
            (true, None) if !escaped => return index,
            _ => backslash = (c == '\\' && (backslash.is_none() || escaped)).then_some(index),
        }
    }
    text.len()
}

fn is_whole_line_field(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    lower.ends_with("authorization") || lower.ends_with("cookie")
}

/// Returns whether the value is prose: `token: expired` is a sentence and not a secret.
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
    let normalized: String = name.chars().filter(|c| !"-_.".contains(*c)).map(|c| c.to_ascii_lowercase()).collect();
    // The token counts of model APIs are not secrets.
    !normalized.ends_with("tokens") && SECRET_NAME_PARTS.iter().any(|part| normalized.contains(part))
}

/// Matches `Bearer …`, `Basic …` (RFC 9110 §11.4).
fn find_by_auth_scheme(text: &str, word: &Range<usize>) -> Option<Range<usize>> {
    let scheme_word = text.get(word.clone())?;
    if !["bearer", "basic", "digest", "dpop"].iter().any(|scheme| scheme_word.eq_ignore_ascii_case(scheme)) {
        return None;
    }
    let rest = text.get(word.end..)?;
    let token = rest.trim_start_matches(' ');
    let length = token.find(|c: char| c.is_whitespace() || ",;\"'".contains(c)).unwrap_or(token.len());
    let first_word = token.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
    let is_plain_word = if scheme_word.eq_ignore_ascii_case("bearer") {
        // Prose about the scheme: "the bearer token (RFC 6750) is missing". No credential is one of these words.
        PROSE_AFTER_BEARER.contains(&first_word) && first_word.len() == length
    } else {
        token.bytes().take(length).all(|b| b.is_ascii_lowercase())
    };
    let start = text.len() - token.len();
    (start > word.end && length > 0 && !is_plain_word && !token.starts_with(REDACTED)).then_some(start..start + length)
}

/// Matches an email address, or a secret by its format, also after a `/` or `:` within the word.
fn find_by_format(word: &str, start: usize) -> Option<Range<usize>> {
    let mut offset = 0;
    for part in word.split(['/', ':']) {
        if has_secret_prefix(part) || is_email_address(part) {
            return Some(start + offset..start + offset + part.len());
        }
        offset += part.len() + 1;
    }
    None
}

fn has_secret_prefix(part: &str) -> bool {
    part.len() >= MIN_SECRET_LEN
        && SECRET_PREFIXES.iter().any(|(prefix, min_len)| part.len() >= *min_len && part.starts_with(prefix))
}

fn is_email_address(word: &str) -> bool {
    let Some((name, host)) = word.split_once('@') else {
        return false;
    };
    let (_, top_level_domain) = host.trim_end_matches('.').rsplit_once('.').unwrap_or_default();
    !name.is_empty() && top_level_domain.len() > 1 && top_level_domain.bytes().all(|b| b.is_ascii_alphabetic())
}

/// Finds the userinfo, or the query and fragment, of the URL whose authority begins at `start`. Also returns the end of
/// the URL.
fn find_in_url(text: &str, start: usize) -> (Option<Range<usize>>, usize) {
    let rest = text.get(start..).unwrap_or_default();
    let url = rest.split(|c: char| c.is_whitespace() || "\"'<>`".contains(c)).next().unwrap_or_default();
    let end = start + url.len();
    let path = url.find(['/', '?', '#']).unwrap_or(url.len());
    let userinfo_end = url.get(..path).and_then(|authority| authority.rfind('@'));
    if let Some(userinfo_end) = userinfo_end.filter(|index| *index > 0 && url.get(..*index) != Some(REDACTED)) {
        return (Some(start..start + userinfo_end), end);
    }
    let query = url.find(['?', '#']).map_or(url.len(), |index| index + 1);
    if let Some(secret) = url.get(path..query).and_then(|text| find_by_format(text, start + path)) {
        return (Some(secret.start..end), end);
    }
    let query = (query < url.len() && url.get(query..) != Some(REDACTED)).then_some(start + query..end);
    (query, end)
}
