//! Redaction of agents' error messages: which of them a caller may read (R41, R117, R132, R133).

/// Maximum length of an agent's message in characters; a longer one is withheld.
const MAX_PUBLIC_CHARS: usize = 300;

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
    "select ",
    "password",
    "secret",
    "token",
    "api key",
    "api_key",
    "apikey",
    "bearer ",
    "authorization",
    "0x",
    ".py",
    ".rs",
    ".js",
    ".java",
    ".go:",
    "node_modules",
    "line ",
    "undefined",
    "nullpointer",
    "segfault",
    "connection refused",
    "econn",
];

/// Returns `text` if it reads like a sentence for the caller: one short line without paths, addresses, code or anything
/// that looks like a credential. For `None`, the caller gets a general message instead.
pub fn public_message(text: &str) -> Option<&str> {
    let text = text.trim();
    if text.is_empty() || text.chars().count() > MAX_PUBLIC_CHARS || text.chars().any(char::is_control) {
        return None;
    }
    let lower = text.to_ascii_lowercase();
    if INTERNAL_WORDS.iter().any(|word| lower.contains(word)) {
        return None;
    }
    let suspicious = |word: &str| is_path(word) || is_address(word) || is_opaque(word);
    (!text.split(|c: char| c.is_whitespace() || "'\"`()[]{}<>,;=".contains(c)).any(suspicious)).then_some(text)
}

/// Matches `/srv/app`, `C:\app`, `https://…`, but not a JSON Pointer such as `/name`.
fn is_path(word: &str) -> bool {
    word.contains("://") || word.contains('\\') || word.contains("::") || word.matches('/').count() > 1
}

/// Matches `10.0.0.7`, `db:5432`, `a@b.example`.
fn is_address(word: &str) -> bool {
    let port =
        word.rsplit_once(':').is_some_and(|(_, port)| port.len() > 1 && port.bytes().all(|b| b.is_ascii_digit()));
    let dotted =
        word.trim_end_matches('.').split('.').count() == 4 && word.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    port || dotted || word.contains('@') || word.ends_with(".internal") || word.ends_with(".local")
}

/// Matches a long mix of letters and digits: a key, a hash, an id.
fn is_opaque(word: &str) -> bool {
    word.len() >= 20 && word.bytes().any(|b| b.is_ascii_digit()) && word.bytes().any(|b| b.is_ascii_alphabetic())
}
