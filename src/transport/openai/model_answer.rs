//! The result of a call, made of a complete answer of the model.

use super::{
    completion::Completion, json_reply::json_reply, model_operation::ModelOperation, server_error::ServerError,
};
use crate::{
    fault::{Fault, FaultCode, Result},
    transport::UpstreamReply,
    values::json,
};
use http::{HeaderMap, StatusCode};
use serde_json::json;

/// The longest answer of a server, in bytes of JSON.
pub(super) const MAX_ANSWER: usize = 4 << 20;

/// Returns the reply for a complete answer of the server.
///
/// # Errors
/// The answer is no chat completion, is incomplete, or is not JSON where it must be.
pub(super) fn to_reply(body: &[u8], operation: &ModelOperation, credential_sent: bool) -> Result<UpstreamReply> {
    let unreadable = || Fault::new(FaultCode::AgentError, "The agent's answer is not a chat completion");
    let completion = Completion::parse(body).ok_or_else(unreadable)?;
    if completion.is_error() {
        return Ok(ServerError::parse(body, StatusCode::OK).into_reply(&HeaderMap::new(), credential_sent));
    }
    let choice = completion.choice().ok_or_else(unreadable)?;
    if let Some(refusal) = choice.refusal() {
        return Ok(ServerError::refusal(refusal).into_reply(&HeaderMap::new(), credential_sent));
    }
    if let Some(reason) = choice.finish_reason() {
        reason.check()?;
    }
    let no_text = || Fault::new(FaultCode::AgentError, "The agent's answer has no text");
    let text = choice.text().ok_or_else(no_text)?;
    let body = if operation.answers_with_json {
        check_json(&text)?;
        text.trim().to_owned()
    } else {
        match completion.usage() {
            Some(usage) => json!({"output": text, "usage": usage.to_json()}),
            None => json!({"output": text}),
        }
        .to_string()
    };
    Ok(json_reply(StatusCode::OK, body, credential_sent))
}

/// Checks that the text is exactly one JSON value.
fn check_json(text: &str) -> Result<()> {
    let invalid = |why: json::StrictJsonError| {
        let fault = Fault::new(FaultCode::AgentError, "The agent's answer is not valid JSON");
        fault.with_detail(why).with_setting("agents.rules[].endpoint.output")
    };
    json::parse(text.as_bytes(), json::MAX_DEPTH).map(drop).map_err(invalid)
}
