//! Errors that an agent reports within an event stream: `event: error`, a JSON-RPC response with an error, and data that
//! would be a failure as a body (R40). The stream passes as it is; the call is recorded as a failure of the agent.

use crate::{
    agent::{DeclaredMembers, MemberScan, reports_failure, scan_members},
    fault::{Fault, FaultCode},
};
use memchr::memmem::Finder;
use serde_json::{Map, Value};
use std::sync::LazyLock;

/// Every form contains one of these words; most events do not, and are not parsed.
static FAILURE_WORDS: LazyLock<[Finder<'static>; 3]> =
    LazyLock::new(|| [Finder::new("error"), Finder::new("fail"), Finder::new("false")]);

/// Returns the failure that one of these events reports. `events` are whole events; `declared` are the members of the
/// operation's output that are data.
pub(in crate::gateway) fn find_error_event(events: &[u8], declared: DeclaredMembers) -> Option<Fault> {
    if !FAILURE_WORDS.iter().any(|word| word.find(events).is_some()) {
        return None;
    }
    let (mut name, mut data) = (None, Vec::new());
    for line in events.split(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            if let Some(detail) = describe_error(name, &data, declared) {
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

fn describe_error(name: Option<&[u8]>, data: &[u8], declared: DeclaredMembers) -> Option<String> {
    if name == Some(b"error") {
        return Some(format!("the agent sent an error event, data: {} bytes", data.len()));
    }
    if scan_members(data) != MemberScan::ErrorMember {
        return None;
    }
    let message: Map<String, Value> = serde_json::from_slice(data).ok()?;
    if message.get("jsonrpc").is_some_and(|version| version == "2.0") {
        let error = message.get("error").filter(|error| error.is_object())?;
        let code = error.get("code").and_then(Value::as_i64).unwrap_or_default();
        return Some(format!("the agent sent a JSON-RPC error in its stream, error: {code}"));
    }
    reports_failure(&message, declared)
        .then(|| format!("the agent reported a failure in its stream, data: {} bytes", data.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r40_an_error_event_a_json_rpc_error_and_a_reported_failure_are_failures() {
        for events in [
            "event: error\ndata: {\"message\":\"boom\"}\n\n",
            "data: a\n\nevent:error\ndata:x\n\ndata: b\n\n",
            "event: error\r\ndata: x\r\n\r\n",
            "id: 1\nevent: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32000,\"message\":\"m\"}}\n\n",
            "data: {\"success\":false,\"message\":\"boom\"}\n\n",
            "data: {\"n\":1}\n\ndata: {\"status\":\"failed\",\ndata: \"message\":\"boom\"}\n\n",
            "data: {\"error\":{\"code\":\"x\",\"message\":\"boom\"}}\n\n",
        ] {
            let fault =
                find_error_event(events.as_bytes(), DeclaredMembers::default()).unwrap_or_else(|| panic!("{events}"));
            assert_eq!(fault.code(), FaultCode::AgentError);
            assert!(!fault.to_string().contains("boom"), "{fault}");
        }
    }

    #[test]
    fn r33_text_that_mentions_an_error_is_no_failure() {
        for events in [
            "data: an error occurred\n\n",
            "event: message\ndata: {\"error\":{\"code\":1}}\n\n",
            "data: {\"error\":{\"code\":1},\"method\":\"jsonrpc\"}\n\n",
            "data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"text\":\"error\"}}\n\n",
            "event: errors\ndata: x\n\n",
            ": error\n\n",
            "event: error\ndata: cut off",
            "data: {\"success\":false,\"score\":0.5}\n\n",
            "data: {\"text\":\"it failed, an error\"}\n\n",
            "data: [{\"success\":false}]\n\n",
            "",
        ] {
            assert!(find_error_event(events.as_bytes(), DeclaredMembers::default()).is_none(), "{events}");
        }
        let declared = DeclaredMembers::of_schema(&serde_json::json!({"properties": {"success": {}}}));
        assert!(find_error_event(b"data: {\"success\":false}\n\n", declared).is_none());
    }
}
