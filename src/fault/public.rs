//! What an agent said of a failure, as far as a caller may read it (R41, R117, R132, R133).

/// Characters of an agent's message that may pass.
const LONGEST: usize = 300;

/// Words that speak of an agent's inside rather than of the caller's request.
const INSIDE: &[&str] = &[
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

/// `text`, if it reads like a sentence for the caller: one line, short, and without paths, addresses,
/// code or anything that looks like a credential. `None` means: say something general instead.
pub fn public_text(text: &str) -> Option<&str> {
    let text = text.trim();
    if text.is_empty() || text.chars().count() > LONGEST || text.chars().any(char::is_control) {
        return None;
    }
    let lower = text.to_ascii_lowercase();
    if INSIDE.iter().any(|word| lower.contains(word)) {
        return None;
    }
    let suspicious = |word: &str| is_path(word) || is_address(word) || is_opaque(word);
    (!text.split(|c: char| c.is_whitespace() || "'\"`()[]{}<>,;=".contains(c)).any(suspicious)).then_some(text)
}

/// `/srv/app`, `C:\app`, `https://…`; a JSON Pointer's single `/name` is no path.
fn is_path(word: &str) -> bool {
    word.contains("://") || word.contains('\\') || word.contains("::") || word.matches('/').count() > 1
}

/// `10.0.0.7`, `db:5432`, `a@b.example`.
fn is_address(word: &str) -> bool {
    let port =
        word.rsplit_once(':').is_some_and(|(_, port)| port.len() > 1 && port.bytes().all(|b| b.is_ascii_digit()));
    let dotted =
        word.trim_end_matches('.').split('.').count() == 4 && word.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    port || dotted || word.contains('@') || word.ends_with(".internal") || word.ends_with(".local")
}

/// A long run of letters and digits mixed: a key, a hash, an id.
fn is_opaque(word: &str) -> bool {
    word.len() >= 20 && word.bytes().any(|b| b.is_ascii_digit()) && word.bytes().any(|b| b.is_ascii_alphabetic())
}
