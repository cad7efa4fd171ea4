//! Public messages: which error messages of agents a caller may read (R41, R117, R132, R133). A sentence that names a
//! path, an address, a key or a person is left out; a text that looks like a stack trace, a query or code is withheld.

use super::personal_numbers::redact_personal_numbers;
use std::borrow::Cow;

/// Maximum length of an agent's message in characters; a longer message is withheld.
const MAX_PUBLIC_CHARS: usize = 500;

/// Words that indicate internals of the agent rather than a problem of the caller's request.
const INTERNAL_WORDS: &[&str] = &[
    "traceback",
    "exception",
    "stack",
    "panic",
    "errno",
    "internal",
    "localhost",
    "sqlstate",
    "sqlite",
    "postgres",
    "mysql",
    "insert into",
    "delete from",
    "at or near",
    "violates ",
    "password",
    "secret",
    "api key",
    "api_key",
    "apikey",
    "bearer ",
    "authorization",
    "0x",
    ".go:",
    "node_modules",
    "undefined",
    "nullpointer",
    "segfault",
    "connection refused",
    "econn",
];

/// Endings of words that name a file with code.
const CODE_FILES: &[&str] = &[".py", ".rs", ".js", ".ts", ".java", ".go", ".rb", ".php", ".cs", ".cpp"];

/// Words after `token` that speak about a number of tokens or the state of a token, and never are the token.
const WORDS_AFTER_TOKEN: &[&str] = &[
    "limit", "limits", "count", "counts", "budget", "window", "length", "quota", "usage", "rate", "per", "size", "is",
    "was", "has", "expired", "required", "missing", "and", "or", "in", "for", "of", "at",
];

/// Returns the part of `text` that is suitable for the caller: sentences without paths, addresses, code or credentials.
/// With `None`, the caller gets a general message.
pub fn public_message(text: &str) -> Option<Cow<'_, str>> {
    let text = text.trim();
    if text.is_empty() || text.chars().count() > MAX_PUBLIC_CHARS || text.chars().any(char::is_control) {
        return None;
    }
    let lower = text.to_ascii_lowercase();
    if INTERNAL_WORDS.iter().any(|word| lower.contains(word)) || is_query(&lower) || names_line_of_code(&lower) {
        return None;
    }
    let mut public: Vec<&str> = sentences(text).collect();
    let all = public.len();
    public.retain(|sentence| !names_internals(sentence));
    // What is left of a longer text must still be a message.
    if public.is_empty() {
        return None;
    }
    let kept = if public.len() == all { Cow::Borrowed(text) } else { Cow::Owned(public.join(" ")) };
    Some(match redact_personal_numbers(&kept) {
        Cow::Borrowed(_) => kept,
        Cow::Owned(redacted) => Cow::Owned(redacted),
    })
}

/// Splits a text after each full stop, exclamation or question mark that a space follows.
fn sentences(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let ends = [". ", "! ", "? "];
        let end = ends.iter().filter_map(|end| rest.find(end)).min().map_or(rest.len(), |at| at + 1);
        let (sentence, after) = rest.split_at(end);
        rest = after.trim_start();
        Some(sentence)
    })
}

fn names_internals(sentence: &str) -> bool {
    let is_internal = |word: &str| is_path(word) || is_address(word) || is_opaque(word) || is_code_file(word);
    sentence.split(|c: char| c.is_whitespace() || "'\"`()[]{}<>,;=".contains(c)).any(is_internal)
        || names_token(&sentence.to_ascii_lowercase())
}

/// Matches the words of an SQL query together: `select` alone is English.
fn is_query(lower: &str) -> bool {
    let has = |word: &str| lower.contains(word);
    (has("select ") && has(" from ")) || (has("update ") && has(" set ")) || has("drop table")
}

/// Matches `line 12`, but not the place in an input, `line 3 column 5`.
fn names_line_of_code(lower: &str) -> bool {
    lower.match_indices("line ").any(|(at, word)| {
        let rest = lower.get(at + word.len()..).unwrap_or_default();
        let number = rest.bytes().take_while(u8::is_ascii_digit).count();
        let after = rest.get(number..).unwrap_or_default().trim_start_matches([',', ' ', ':']);
        number > 0 && !after.starts_with("column") && !after.starts_with("col ")
    })
}

/// Matches `main.py` and `app.js:12`, but neither `.py` nor `data.json`.
fn is_code_file(word: &str) -> bool {
    let name = word.split(':').next().unwrap_or_default().trim_end_matches('.').to_ascii_lowercase();
    CODE_FILES.iter().any(|ending| name.len() > ending.len() && name.ends_with(ending))
}

/// Matches a `token` that is followed by anything but a word about tokens; `tokens` are counted and are no secret.
fn names_token(lower: &str) -> bool {
    let words: Vec<&str> =
        lower.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == '-')).filter(|word| !word.is_empty()).collect();
    words.iter().enumerate().any(|(at, word)| {
        let is_token = word.ends_with("token");
        is_token && words.get(at + 1).is_some_and(|next| !WORDS_AFTER_TOKEN.contains(next))
    })
}

/// Matches `/srv/app`, `C:\app`, `https://…`, but not a JSON Pointer such as `/name`.
fn is_path(word: &str) -> bool {
    word.contains("://") || word.contains('\\') || word.contains("::") || word.matches('/').count() > 1
}

/// Matches `10.0.0.7`, `db:5432`, `a@b.example`.
fn is_address(word: &str) -> bool {
    let has_port =
        word.rsplit_once(':').is_some_and(|(_, port)| port.len() > 1 && port.bytes().all(|b| b.is_ascii_digit()));
    let is_ipv4 =
        word.trim_end_matches('.').split('.').count() == 4 && word.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    has_port || is_ipv4 || word.contains('@') || word.ends_with(".internal") || word.ends_with(".local")
}

/// Matches `2026-11-23T10:00:00Z`.
fn is_time(word: &str) -> bool {
    word.contains('T') && word.bytes().all(|b| b.is_ascii_digit() || b"TZ:.+-".contains(&b))
}

/// Matches a long mix of letters and digits, such as a key, a hash or an id.
fn is_opaque(word: &str) -> bool {
    word.len() >= 20
        && !is_time(word)
        && word.bytes().any(|b| b.is_ascii_digit())
        && word.bytes().any(|b| b.is_ascii_alphabetic())
}
