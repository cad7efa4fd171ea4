//! Parser of agents' error bodies in their common formats: AIDIP's object, problem+json, FastAPI's `detail`, GraphQL's
//! `errors`, a plain string, a plain text. Redacts messages and pointers that reveal the agent's internals.

use super::{agent_response::AgentResponse, error_details::ErrorDetails, public_text::public_text};
use crate::fault::{FaultCode, Violation};
use serde_json::{Map, Value};
use std::borrow::Cow;

/// Maximum violations that are passed on to the caller.
const MAX_VIOLATIONS: usize = 20;

/// Format of an error body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ErrorBodyFormat {
    /// Not a known format: HTML, an empty body, another JSON document.
    #[default]
    Unknown,
    /// `{"error": {"code", "message"}}` (R36).
    AidipError,
    /// `application/problem+json` (R90).
    Problem,
    /// `{"detail": …}`
    Detail,
    /// `{"error": "…"}`, `{"message": "…"}`, `{"errors": […]}`: API gateways and routers in front of an agent send these
    /// too.
    PlainMessage,
}

/// A parsed error body.
#[derive(Debug, Default)]
pub(super) struct ParsedErrorBody {
    pub(super) format: ErrorBodyFormat,
    /// The gateway's code, if the agent names one.
    pub(super) code: Option<FaultCode>,
    /// The code or type of the error in the agent's own words.
    pub(super) agent_code: Option<String>,
    message: Option<String>,
    pub(super) violations: Vec<Violation>,
}

impl ParsedErrorBody {
    /// Parses the error of a response, whose body is `body` if it is a JSON object.
    pub(super) fn of_response(response: &AgentResponse<'_>, body: Option<&Map<String, Value>>) -> Self {
        let error = body.map(Self::parse).unwrap_or_default();
        match (response.error_details, body) {
            (ErrorDetails::Pointer(pointer), Some(body)) => {
                Self { message: text_at(body, pointer).map(str::to_owned), ..error }
            }
            (ErrorDetails::None | ErrorDetails::Pointer(_), _) => Self { message: None, ..error },
            (ErrorDetails::Message | ErrorDetails::All, Some(_)) => error,
            (ErrorDetails::Message | ErrorDetails::All, None) => {
                Self { message: response.plain_text().map(str::to_owned), ..error }
            }
        }
    }

    /// Parses an error body; the result is empty if the format is unknown.
    pub(super) fn parse(body: &Map<String, Value>) -> Self {
        let text = |name: &str| body.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        if let Some(error) = body.get("error").or_else(|| body.get("__error__")) {
            match error {
                Value::Object(error) => return Self::parse_error_object(error),
                Value::String(message) if !message.is_empty() => {
                    let message = text("message").or_else(|| text("error_description")).unwrap_or(message);
                    return Self {
                        format: ErrorBodyFormat::PlainMessage,
                        code: text("code").and_then(parse_code),
                        agent_code: text("code").map(str::to_owned),
                        message: Some(message.to_owned()),
                        ..Self::default()
                    };
                }
                _ => {}
            }
        }
        if let Some(parsed) = Self::parse_detail(body) {
            return parsed;
        }
        let errors = body.get("errors").and_then(Value::as_array);
        if let Some(title) = text("title") {
            let message = Some(text("detail").unwrap_or(title).to_owned());
            let violations = errors.map(|errors| parse_violations(errors)).unwrap_or_default();
            return Self {
                format: ErrorBodyFormat::Problem,
                code: problem_code(body),
                agent_code: text("code").map(str::to_owned),
                message,
                violations,
            };
        }
        let first = errors.and_then(|errors| errors.first()?.get("message")?.as_str());
        let code = top_level_code(body);
        match first.or_else(|| text("message")) {
            Some(message) => Self {
                format: ErrorBodyFormat::PlainMessage,
                code,
                message: Some(message.to_owned()),
                ..Self::default()
            },
            None => Self { code: code.or_else(|| problem_code(body)), ..Self::default() },
        }
    }

    /// Parses FastAPI's `detail`: a sentence, a list of violations, or an object that the agent's author defined.
    fn parse_detail(body: &Map<String, Value>) -> Option<Self> {
        let format = ErrorBodyFormat::Detail;
        match body.get("detail")? {
            Value::Array(items) => Some(Self { format, violations: parse_violations(items), ..Self::default() }),
            // With a title it is the detail of a problem document.
            Value::String(message) if !body.contains_key("title") => {
                Some(Self { format, code: problem_code(body), message: Some(message.clone()), ..Self::default() })
            }
            Value::Object(detail) => Some(Self { format, ..Self::parse_error_object(detail) }),
            _ => None,
        }
    }

    fn parse_error_object(error: &Map<String, Value>) -> Self {
        let text = |name: &str| error.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        let message = text("message").or_else(|| text("detail")).or_else(|| text("error")).map(str::to_owned);
        let code = text("code").or_else(|| text("type")).and_then(parse_code);
        let details = error.get("details").and_then(Value::as_array);
        let violations = details.map(|details| parse_details(details)).unwrap_or_default();
        let is_recognized = message.is_some() || text("code").is_some();
        Self {
            format: if is_recognized { ErrorBodyFormat::AidipError } else { ErrorBodyFormat::Unknown },
            code,
            agent_code: ["code", "type", "status"].iter().find_map(|name| text(name)).map(str::to_owned),
            message,
            violations,
        }
    }

    /// Returns the agent's message, unless it reveals internals that a caller must not read.
    pub(super) fn public_message(&self) -> Option<Cow<'_, str>> {
        public_text(self.message.as_deref()?)
    }

    /// Returns whether the error is about the credential of the request, and so about that of the gateway.
    pub(super) fn is_about_credential(&self) -> bool {
        let speaks_of_it = |text: &String| {
            let lower = text.to_ascii_lowercase();
            let words = ["authenti", "authoriz", "authoris", "credential", "api key", "api_key", "token", "forbidden"];
            words.iter().any(|word| lower.contains(word))
        };
        self.agent_code.iter().chain(&self.message).any(speaks_of_it)
    }
}

/// Returns the gateway's code that a body names beside its message (`{"success": false, "code": …, "message": …}`).
pub(super) fn top_level_code(body: &Map<String, Value>) -> Option<FaultCode> {
    let names = ["code", "error_code", "errorCode"];
    names.iter().find_map(|name| body.get(*name)?.as_str()).and_then(parse_code)
}

/// Returns the gateway's code that a problem document names (RFC 9457): its member `code`, else the end of its type's
/// URI, else its title.
fn problem_code(body: &Map<String, Value>) -> Option<FaultCode> {
    let text = |name: &str| body.get(name).and_then(Value::as_str);
    let type_name = || text("type")?.trim_end_matches('/').rsplit(['/', '#', ':']).next();
    let named = text("code").and_then(parse_code);
    named.or_else(|| type_name().and_then(parse_code)).or_else(|| text("title").and_then(parse_code))
}

/// Parses one of the gateway's codes, in any spelling: `InvalidInput`, `invalid_input`, `INVALID-INPUT`.
fn parse_code(text: &str) -> Option<FaultCode> {
    let letters =
        |text: &str| text.bytes().filter(u8::is_ascii_alphanumeric).map(|b| b.to_ascii_lowercase()).collect::<Vec<_>>();
    let code_letters = letters(text);
    FaultCode::ALL.iter().copied().find(|code| letters(code.row().name) == code_letters)
}

/// Parses the details of an error: violations, or messages of `google.rpc`, of which only `BadRequest` is about the
/// input; `DebugInfo` has stack traces.
fn parse_details(details: &[Value]) -> Vec<Violation> {
    if details.iter().all(|detail| detail.get("@type").is_none()) {
        return parse_violations(details);
    }
    let lists = details.iter().filter_map(|detail| detail.get("fieldViolations")?.as_array());
    let fields = lists.flatten().filter_map(Value::as_object).take(MAX_VIOLATIONS);
    fields.filter_map(parse_violation).collect()
}

/// Parses a list of violations: FastAPI's `{loc, msg}`, problem+json's `{pointer, detail}`, or AIDIP's.
fn parse_violations(items: &[Value]) -> Vec<Violation> {
    items.iter().filter_map(Value::as_object).take(MAX_VIOLATIONS).filter_map(parse_violation).collect()
}

fn parse_violation(item: &Map<String, Value>) -> Option<Violation> {
    let text = |names: &[&str]| names.iter().find_map(|name| item.get(*name)?.as_str());
    let pointer = match item.get("loc") {
        Some(Value::Array(parts)) => pointer_from_loc(parts),
        _ => {
            let path = text(&["pointer", "path", "field", "instancePath"]).unwrap_or_default();
            let path = path.strip_prefix('#').unwrap_or(path);
            if path.is_empty() || path.starts_with('/') {
                path.to_owned()
            } else {
                format!("/{}", escape_pointer_token(path))
            }
        }
    };
    let message = text(&["msg", "message", "detail", "description", "reason"])?;
    if pointer.len() > 256 || pointer.chars().any(char::is_control) {
        return None;
    }
    // A pointer that reveals internals is dropped; the message is kept.
    let is_internal = pointer.split('/').skip(1).any(|token| !token.is_empty() && public_text(token).is_none());
    let pointer = if is_internal { String::new() } else { pointer };
    let message = public_text(message).map_or_else(|| "is not valid".to_owned(), Cow::into_owned);
    Some(Violation::new(pointer, message))
}

/// Converts FastAPI's `["body", "items", 0]` to `/items/0`; the first element names the part of the request.
fn pointer_from_loc(parts: &[Value]) -> String {
    let is_request_part = |part: &Value| matches!(part.as_str(), Some("body" | "query" | "path" | "header" | "cookie"));
    let parts = match parts {
        [first, rest @ ..] if is_request_part(first) => rest,
        parts => parts,
    };
    let mut pointer = String::new();
    for part in parts {
        pointer.push('/');
        match part {
            Value::String(name) => pointer.push_str(&escape_pointer_token(name)),
            Value::Number(at) => pointer.push_str(&at.to_string()),
            _ => {}
        }
    }
    pointer
}

/// Returns the text at a JSON Pointer.
fn text_at<'b>(body: &'b Map<String, Value>, pointer: &str) -> Option<&'b str> {
    let tokens = pointer.strip_prefix('/')?;
    let (first, rest) = tokens.split_at(tokens.find('/').unwrap_or(tokens.len()));
    body.get(&first.replace("~1", "/").replace("~0", "~"))?.pointer(rest)?.as_str()
}

/// Escapes a JSON Pointer token (RFC 6901 §3).
fn escape_pointer_token(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}
