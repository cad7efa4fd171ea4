//! Parses an agent's message in its room as a reply: the call that it relates to, and an output, an error or a text.
//! Edits and progress reports are not replies.

use crate::{fault::FaultCode, transport::UpstreamReply};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde_json::{Map, Value, json};

/// The key of a structured reply in an event's content.
const REPLY_KEY: &str = "gatepost.answer";

/// A message that may be a reply.
#[derive(Clone, Debug)]
pub(super) struct RoomMessage {
    pub(super) sender: String,
    /// The id of the event that it answers.
    pub(super) in_reply_to: Option<String>,
    /// The token of the call that it names.
    pub(super) call: Option<String>,
    pub(super) content: ReplyContent,
}

/// The content of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ReplyContent {
    /// JSON.
    Output(Bytes),
    /// A failure, with the agent's code and message.
    Error(Option<String>, String),
}

impl RoomMessage {
    /// Parses an event of a room's timeline; `None` where it is not a message or not a reply.
    pub(super) fn parse(event: &Value) -> Option<Self> {
        if event.get("type")? != "m.room.message" {
            return None;
        }
        let sender = event.get("sender")?.as_str()?.to_owned();
        let content = event.get("content")?.as_object()?;
        let relation = content.get("m.relates_to");
        let is_edit = relation.and_then(|relation| relation.get("rel_type")) == Some(&Value::from("m.replace"));
        if is_edit || content.contains_key("m.new_content") {
            return None;
        }
        let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
        let related_event = text(relation.and_then(|relation| relation.get("event_id")));
        // A reply within a thread answers the event it replies to, while the thread may begin with another call; except
        // for the fallback for clients without threads (Matrix specification, "Fallback for unthreaded clients").
        let is_fallback = relation.and_then(|relation| relation.get("is_falling_back")) == Some(&Value::Bool(true));
        let replied_event = text(relation.and_then(|relation| relation.pointer("/m.in_reply_to/event_id")));
        let in_reply_to = if is_fallback { related_event.or(replied_event) } else { replied_event.or(related_event) };
        let structured = content.get(REPLY_KEY).and_then(Value::as_object);
        let call = text(structured.and_then(|structured| structured.get("call")));
        let reply_content = match structured {
            Some(structured) => parse_structured(structured)?,
            None => parse_text(content)?,
        };
        (call.is_some() || in_reply_to.is_some()).then_some(Self { sender, in_reply_to, call, content: reply_content })
    }
}

/// Parses the structured form: `output`, its JSON as `output_json`, or `error`.
fn parse_structured(structured: &Map<String, Value>) -> Option<ReplyContent> {
    if let Some(error) = structured.get("error") {
        return Some(parse_error(error));
    }
    if let Some(text) = structured.get("output_json").and_then(Value::as_str) {
        let is_json = serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
        let output = || ReplyContent::Output(Bytes::copy_from_slice(text.as_bytes()));
        return Some(if is_json { output() } else { ReplyContent::Error(None, "output_json is not JSON".to_owned()) });
    }
    Some(ReplyContent::Output(structured.get("output")?.to_string().into()))
}

/// Parses an error: `code` and `message`, or the members of problem details (R93).
fn parse_error(error: &Value) -> ReplyContent {
    let text = |names: [&str; 3]| names.iter().find_map(|name| error.get(*name)?.as_str()).map(str::to_owned);
    let code = text(["code", "type", "errcode"]);
    let message = text(["message", "detail", "title"]).or_else(|| error.as_str().map(str::to_owned));
    ReplyContent::Error(code, message.unwrap_or_default())
}

/// Parses the text form of chat clients: the text, or the JSON that it contains.
fn parse_text(content: &Map<String, Value>) -> Option<ReplyContent> {
    if !matches!(content.get("msgtype")?.as_str()?, "m.text" | "m.notice") {
        return None;
    }
    let body = content.get("body")?.as_str()?;
    let body = strip_quote(body).trim();
    let is_json = body.starts_with(['{', '[']) && serde_json::from_str::<serde::de::IgnoredAny>(body).is_ok();
    Some(ReplyContent::Output(if is_json {
        Bytes::copy_from_slice(body.as_bytes())
    } else {
        json!({ "text": body }).to_string().into()
    }))
}

/// Strips the quote with which older clients begin a reply: lines after `> `, then an empty line.
fn strip_quote(body: &str) -> &str {
    let mut rest = body;
    while rest.starts_with("> ") {
        rest = rest.split_once('\n').map_or("", |(_, after)| after);
    }
    if rest.is_empty() { body } else { rest }
}

impl From<ReplyContent> for UpstreamReply {
    /// Builds the reply in the form of an agent over HTTP, so that the same checks apply.
    fn from(content: ReplyContent) -> Self {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let (status, body) = match content {
            ReplyContent::Output(body) => (StatusCode::OK, body),
            ReplyContent::Error(code, message) => {
                let status = code.as_deref().map_or(StatusCode::BAD_GATEWAY, status_for_code);
                let error =
                    json!({"error": {"code": code.unwrap_or_else(|| "AgentError".to_owned()), "message": message}});
                (status, Bytes::from(error.to_string()))
            }
        };
        Self { status, headers, body: body.into(), credential_sent: false }
    }
}

/// Maps an agent's error code to an HTTP status. An agent in a room cannot refuse a caller's credential.
fn status_for_code(code: &str) -> StatusCode {
    let normalize =
        |text: &str| text.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
    let normalized = normalize(code);
    let code = FaultCode::ALL.iter().find(|code| normalize(code.row().name) == normalized);
    let status = code.map(|code| code.row().status);
    let allowed = status.filter(|status| !matches!(status, 401 | 403 | 405 | 500));
    allowed.and_then(|status| StatusCode::from_u16(status).ok()).unwrap_or(StatusCode::BAD_GATEWAY)
}
