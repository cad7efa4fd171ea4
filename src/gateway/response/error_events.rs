//! Errors that an agent reports within an event stream: `event: error`, and a JSON-RPC response with an error. The stream
//! passes as it is; the call is recorded as a failure of the agent.

use crate::fault::{Fault, FaultCode};
use memchr::memmem::Finder;
use serde_json::Value;
use std::sync::LazyLock;

/// Both forms contain this word; most events do not, and are not parsed.
static ERROR_WORD: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("error"));
/// Other protocols have members of this name too, and their events are not parsed.
static JSON_RPC_MEMBER: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"jsonrpc\""));

/// Returns the failure that one of these events reports. `events` are whole events.
pub(in crate::gateway) fn find_error_event(events: &[u8]) -> Option<Fault> {
    ERROR_WORD.find(events)?;
    let (mut name, mut data) = (None, Vec::new());
    for line in events.split(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            if let Some(detail) = describe_error(name, &data) {
                let fault = Fault::new(FaultCode::AgentError, "The agent reports an error in its stream");
                return Some(fault.with_detail(detail));
            }
            (name, data) = (None, Vec::new());
        } else if let Some(value) = field(line, b"event") {
            name = Some(value);
        } else if let Some(value) = field(line, b"data") {
            data.extend_from_slice(value);
        }
    }
    None
}

/// Returns the value of a line with the field `name`, without the space before it.
fn field<'l>(line: &'l [u8], name: &[u8]) -> Option<&'l [u8]> {
    let value = line.strip_prefix(name)?.strip_prefix(b":")?;
    Some(value.strip_prefix(b" ").unwrap_or(value))
}

fn describe_error(name: Option<&[u8]>, data: &[u8]) -> Option<String> {
    if name == Some(b"error") {
        return Some(format!("the agent sent an error event, data: {} bytes", data.len()));
    }
    ERROR_WORD.find(data)?;
    JSON_RPC_MEMBER.find(data)?;
    let message: Value = serde_json::from_slice(data).ok()?;
    let error = message.get("error").filter(|error| error.is_object())?;
    if message.get("jsonrpc")? != "2.0" {
        return None;
    }
    let code = error.get("code").and_then(Value::as_i64).unwrap_or_default();
    Some(format!("the agent sent a JSON-RPC error in its stream, error: {code}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_event_and_a_json_rpc_error_are_failures() {
        for events in [
            "event: error\ndata: {\"message\":\"boom\"}\n\n",
            "data: a\n\nevent:error\ndata:x\n\ndata: b\n\n",
            "event: error\r\ndata: x\r\n\r\n",
            "id: 1\nevent: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32000,\"message\":\"m\"}}\n\n",
        ] {
            let fault = find_error_event(events.as_bytes()).unwrap_or_else(|| panic!("{events}"));
            assert_eq!(fault.code(), FaultCode::AgentError);
            assert!(!fault.to_string().contains("boom"), "{fault}");
        }
    }

    #[test]
    fn text_that_mentions_an_error_is_no_failure() {
        for events in [
            "data: an error occurred\n\n",
            "event: message\ndata: {\"error\":{\"code\":1}}\n\n",
            "data: {\"error\":{\"code\":1},\"method\":\"jsonrpc\"}\n\n",
            "data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"text\":\"error\"}}\n\n",
            "event: errors\ndata: x\n\n",
            ": error\n\n",
            "event: error\ndata: cut off",
            "",
        ] {
            assert!(find_error_event(events.as_bytes()).is_none(), "{events}");
        }
    }
}
