//! Errors of servers. What the gateway or its operator caused (the key, the model, a parameter, the balance of the account)
//! is not the caller's fault, whatever status the server gives it; what the input caused is.

use super::json_reply::json_reply;
use crate::transport::UpstreamReply;
use http::{HeaderMap, StatusCode, header};
use serde_json::{Map, Value, json};

/// Codes and types of errors that the input of a call caused.
const INPUT_CODES: &[&str] = &[
    "context_length_exceeded",
    "exceed_context_size_error",
    "string_above_max_length",
    "array_above_max_length",
    "content_filter",
    "content_policy_violation",
    "invalid_prompt",
];

/// Words with which servers without codes say that the conversation is too long.
const TOO_LONG_WORDS: &[&str] =
    &["context length", "context window", "context size", "maximum context", "prompt is too long", "input is too long"];

/// Codes and types of errors about the account at the server.
const ACCOUNT_CODES: &[&str] = &["insufficient_quota", "billing_hard_limit_reached", "billing_not_active"];

/// The longest error that is read, in bytes.
pub(super) const MAX_ERROR: usize = 64 << 10;

/// An error of a server.
#[derive(Debug)]
pub(super) struct ServerError {
    status: StatusCode,
    code: Option<String>,
    message: Option<String>,
    is_about_input: bool,
    is_about_account: bool,
}

impl Default for ServerError {
    /// An error of which nothing is known.
    fn default() -> Self {
        let status = StatusCode::BAD_GATEWAY;
        Self { status, code: None, message: None, is_about_input: false, is_about_account: false }
    }
}

impl ServerError {
    /// Reads the error in a body. Servers have it in `error`, at the top, as `detail`, or in a list.
    pub(super) fn parse(body: &[u8], status: StatusCode) -> Self {
        let body = body.get(..=MAX_ERROR).map_or(body, |_| &[]);
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let body = body.get(0).unwrap_or(&body);
        let error = match body.get("error") {
            Some(Value::Object(error)) => Self::from_members(error),
            Some(Value::String(message)) => Self { message: Some(message.clone()), ..Self::default() },
            _ => body.as_object().map(Self::from_members).unwrap_or_default(),
        };
        if status.is_success() { error } else { Self { status, ..error } }
    }

    fn from_members(error: &Map<String, Value>) -> Self {
        let text = |name: &str| error.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        let named = named_status(error);
        let has_code =
            |codes: &[&str]| ["code", "type"].iter().any(|name| text(name).is_some_and(|code| codes.contains(&code)));
        let names_input = text("param")
            .is_some_and(|param| param.starts_with("messages[") || param.starts_with("messages."))
            || names_messages(error.get("detail"));
        let message = text("message").or_else(|| text("detail")).map(str::to_owned);
        let is_too_long = message.as_ref().is_some_and(|message| {
            let message = message.to_ascii_lowercase();
            TOO_LONG_WORDS.iter().any(|words| message.contains(words))
        });
        Self {
            // A success with an error in its body may name the status that it should have had.
            status: named.unwrap_or(StatusCode::BAD_GATEWAY),
            code: text("code").filter(|_| named.is_none()).or_else(|| text("type")).map(str::to_owned),
            is_about_input: has_code(INPUT_CODES) || names_input || is_too_long,
            is_about_account: has_code(ACCOUNT_CODES),
            message,
        }
    }

    /// Returns the error for a model that refuses to answer.
    pub(super) fn refusal(message: String) -> Self {
        Self {
            status: StatusCode::UNPROCESSABLE_ENTITY,
            code: Some("refusal".to_owned()),
            message: Some(message),
            is_about_input: true,
            is_about_account: false,
        }
    }

    /// Returns the error as the reply of an agent, which the gateway maps to a fault and redacts. `headers` are those of
    /// the server, of which the delay until the next try is kept.
    pub(super) fn into_reply(self, headers: &HeaderMap, credential_sent: bool) -> UpstreamReply {
        let status = self.reply_status();
        // The message of a rate limit names the operator's account.
        let message = self.message.filter(|_| status != StatusCode::TOO_MANY_REQUESTS);
        // The status as the server gave it, for the log.
        let original = (status != self.status).then(|| self.status.as_u16().into());
        let code = self.code.map(Value::String).or(original).unwrap_or_default();
        let body = json!({"error": {"code": code, "message": message}}).to_string();
        let mut reply = json_reply(status, body, credential_sent);
        if let Some(delay) = headers.get(header::RETRY_AFTER) {
            reply.headers.insert(header::RETRY_AFTER, delay.clone());
        }
        reply
    }

    /// Returns the status that an agent with a contract of its own would give the error.
    fn reply_status(&self) -> StatusCode {
        match self.status.as_u16() {
            400 | 422 if self.is_about_input => self.status,
            401 | 403 => StatusCode::UNAUTHORIZED,
            429 if self.is_about_account => StatusCode::BAD_GATEWAY,
            408 | 413 | 429 => self.status,
            400..=499 => StatusCode::BAD_GATEWAY,
            // Not registered; servers that are overloaded send it.
            529 => StatusCode::SERVICE_UNAVAILABLE,
            _ => self.status,
        }
    }

    /// Returns what the log says of an error that ends a stream.
    pub(super) fn log_detail(&self) -> String {
        let code = self.code.as_deref().filter(|code| is_identifier(code)).unwrap_or("none");
        format!("the server reported an error in its stream (status {}, code {code})", self.status.as_u16())
    }
}

/// Returns the status that an error has as its code, as a number or as its digits.
fn named_status(error: &Map<String, Value>) -> Option<StatusCode> {
    let code = match error.get("code")? {
        Value::Number(code) => u16::try_from(code.as_u64()?).ok()?,
        code => code.as_str()?.parse().ok()?,
    };
    StatusCode::from_u16(code).ok().filter(|status| status.is_client_error() || status.is_server_error())
}

/// Returns whether the violations that FastAPI reports are in the messages.
fn names_messages(detail: Option<&Value>) -> bool {
    let is_in_messages = |violation: &Value| {
        let place = violation.get("loc").and_then(Value::as_array);
        place.is_some_and(|place| place.iter().any(|part| part == "messages"))
    };
    let violations = detail.and_then(Value::as_array);
    violations.is_some_and(|violations| !violations.is_empty() && violations.iter().all(is_in_messages))
}

/// Returns whether a code is one, and no sentence.
fn is_identifier(code: &str) -> bool {
    code.len() <= 64 && code.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}
