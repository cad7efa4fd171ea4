//! Parser of agents' error bodies in their common formats: AIDIP's object, problem+json, FastAPI's `detail`, GraphQL's
//! `errors`, a plain string. Redacts messages and pointers that reveal the agent's internals.

use crate::fault::{Code, Violation, public_text};
use serde_json::{Map, Value};

/// Maximum violations that are passed on to the caller.
const MOST: usize = 20;

/// Format of an error body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Shape {
    /// Not a known format: HTML, an empty body, another JSON document.
    #[default]
    None,
    /// `{"error": {"code", "message"}}` (R36).
    Error,
    /// `application/problem+json` (R90).
    Problem,
    /// `{"detail": …}`
    Detail,
    /// `{"error": "…"}`, `{"message": "…"}`, `{"errors": […]}`: also sent by API gateways and routers in front of an
    /// agent.
    Loose,
}

/// A parsed error body.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) shape: Shape,
    /// The gateway's code, if the agent names one.
    pub(super) code: Option<Code>,
    words: Option<String>,
    pub(super) violations: Vec<Violation>,
}

impl Told {
    /// Parses an error body; the result is empty if the format is unknown.
    pub(super) fn read(body: &Map<String, Value>) -> Self {
        let text = |name: &str| body.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        if let Some(error) = body.get("error").or_else(|| body.get("__error__")) {
            match error {
                Value::Object(error) => return Self::object(error),
                Value::String(words) if !words.is_empty() => {
                    let words = text("message").or_else(|| text("error_description")).unwrap_or(words);
                    let code = text("code").and_then(code);
                    return Self { shape: Shape::Loose, code, words: Some(words.to_owned()), ..Self::default() };
                }
                _ => {}
            }
        }
        if let Some(told) = Self::detail(body) {
            return told;
        }
        let errors = body.get("errors").and_then(Value::as_array);
        if let Some(title) = text("title") {
            let words = Some(text("detail").unwrap_or(title).to_owned());
            let violations = errors.map(|errors| violations(errors)).unwrap_or_default();
            return Self { shape: Shape::Problem, code: text("code").and_then(code), words, violations };
        }
        let first = errors.and_then(|errors| errors.first()?.get("message")?.as_str());
        match first.or_else(|| text("message")) {
            Some(words) => Self { shape: Shape::Loose, words: Some(words.to_owned()), ..Self::default() },
            None => Self::default(),
        }
    }

    /// Parses FastAPI's `detail`: a sentence, a list of violations, or an object that the agent's author defined.
    fn detail(body: &Map<String, Value>) -> Option<Self> {
        let shape = Shape::Detail;
        match body.get("detail")? {
            Value::Array(items) => Some(Self { shape, violations: violations(items), ..Self::default() }),
            // With a title it is the detail of a problem document.
            Value::String(words) if !body.contains_key("title") => {
                Some(Self { shape, words: Some(words.clone()), ..Self::default() })
            }
            Value::Object(detail) => Some(Self { shape, ..Self::object(detail) }),
            _ => None,
        }
    }

    fn object(error: &Map<String, Value>) -> Self {
        let text = |name: &str| error.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        let words = text("message").or_else(|| text("detail")).or_else(|| text("error")).map(str::to_owned);
        let code = text("code").or_else(|| text("type")).and_then(code);
        let details = error.get("details").and_then(Value::as_array);
        let violations = details.map(|details| violations(details)).unwrap_or_default();
        let told = words.is_some() || text("code").is_some();
        Self { shape: if told { Shape::Error } else { Shape::None }, code, words, violations }
    }

    /// Returns the agent's message, unless it reveals internals that a caller must not read.
    pub(super) fn public_words(&self) -> Option<&str> {
        public_text(self.words.as_deref()?)
    }
}

/// Parses one of the gateway's codes, in any spelling: `InvalidInput`, `invalid_input`, `INVALID-INPUT`.
fn code(text: &str) -> Option<Code> {
    let letters =
        |text: &str| text.bytes().filter(u8::is_ascii_alphanumeric).map(|b| b.to_ascii_lowercase()).collect::<Vec<_>>();
    let wanted = letters(text);
    Code::ALL.iter().copied().find(|code| letters(code.row().name) == wanted)
}

/// Parses a list of violations: FastAPI's `{loc, msg}`, problem+json's `{pointer, detail}`, or AIDIP's.
fn violations(items: &[Value]) -> Vec<Violation> {
    items.iter().filter_map(Value::as_object).take(MOST).filter_map(violation).collect()
}

fn violation(item: &Map<String, Value>) -> Option<Violation> {
    let text = |names: &[&str]| names.iter().find_map(|name| item.get(*name)?.as_str());
    let pointer = match item.get("loc") {
        Some(Value::Array(parts)) => pointer(parts),
        _ => {
            let place = text(&["pointer", "path", "field", "instancePath"]).unwrap_or_default();
            let place = place.strip_prefix('#').unwrap_or(place);
            if place.is_empty() || place.starts_with('/') { place.to_owned() } else { format!("/{}", escaped(place)) }
        }
    };
    let words = text(&["msg", "message", "detail", "reason"])?;
    if pointer.len() > 256 || pointer.chars().any(char::is_control) {
        return None;
    }
    // A pointer that reveals internals is dropped; the message is kept.
    let inside = pointer.split('/').skip(1).any(|step| !step.is_empty() && public_text(step).is_none());
    let pointer = if inside { String::new() } else { pointer };
    Some(Violation { pointer, message: public_text(words).unwrap_or("is not valid").to_owned() })
}

/// Converts FastAPI's `["body", "items", 0]` to `/items/0`; the first element names the part of the request.
fn pointer(parts: &[Value]) -> String {
    let place = |part: &Value| matches!(part.as_str(), Some("body" | "query" | "path" | "header" | "cookie"));
    let parts = match parts {
        [first, rest @ ..] if place(first) => rest,
        all => all,
    };
    let mut pointer = String::new();
    for part in parts {
        pointer.push('/');
        match part {
            Value::String(name) => pointer.push_str(&escaped(name)),
            Value::Number(at) => pointer.push_str(&at.to_string()),
            _ => {}
        }
    }
    pointer
}

/// Escapes a JSON Pointer token (RFC 6901 §3).
fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}
