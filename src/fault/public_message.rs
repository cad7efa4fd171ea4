//! Public messages: which error messages of agents a caller may read (R41, R117, R132, R133).

/// Maximum length of an agent's message in characters; a longer message is withheld.
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

/// Returns `text` if it is suitable for the caller: one short line without paths, addresses, code or credentials. With
/// `None`, the caller gets a general message.
pub fn public_message(text: &str) -> Option<&str> {
    let text = text.trim();
    if text.is_empty() || text.chars().count() > MAX_PUBLIC_CHARS || text.chars().any(char::is_control) {
        return None;
    }
    let lower = text.to_ascii_lowercase();
    if INTERNAL_WORDS.iter().any(|word| lower.contains(word)) {
        return None;
    }
    let is_internal = |word: &str| is_path(word) || is_address(word) || is_opaque(word);
    (!text.split(|c: char| c.is_whitespace() || "'\"`()[]{}<>,;=".contains(c)).any(is_internal)).then_some(text)
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

/// Matches a long mix of letters and digits, such as a key, a hash or an id.
fn is_opaque(word: &str) -> bool {
    word.len() >= 20 && word.bytes().any(|b| b.is_ascii_digit()) && word.bytes().any(|b| b.is_ascii_alphabetic())
}
