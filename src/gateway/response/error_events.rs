//! Failures that an agent reports within an event stream (R40): `event: error` and a JSON-RPC response with an error
//! anywhere, and a last event whose data would be a failure as a body. Earlier events may be reports on the way to a
//! result. The stream passes as it is; the call is recorded as a failure of the agent.

use crate::{
    agent::{DeclaredMembers, MemberScan, reports_failure, scan_members},
    fault::{Fault, FaultCode},
    values::ServerSentEvent,
};
use bytes::Bytes;
use memchr::memmem::Finder;
use serde_json::{Map, Value};
use std::sync::LazyLock;

/// Both forms of an earlier event contain this word; most events do not, and are not parsed.
static ERROR_WORD: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("error"));
static DATA_FIELD: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("data"));
/// Other protocols have members named `error` too, and their events are not parsed.
static JSON_RPC_MEMBER: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"jsonrpc\""));

/// The data with which many agents end a stream.
const END_MARKER: &[u8] = b"[DONE]";

/// Detects the failures that an agent reports in one event stream.
#[derive(Debug, Default)]
pub(in crate::gateway) struct ErrorEventDetector {
    /// The members of the operation's output that are data.
    declared: DeclaredMembers,
    /// The last chunk with an event whose data may be a failure.
    last_events: KeptEvents,
}

/// A copy of a chunk that was passed on. A short chunk is a small part of the buffer into which it was read, and would
/// keep that alive for as long as the stream is silent.
#[derive(Debug)]
enum KeptEvents {
    Copied(Vec<u8>),
    Shared(Bytes),
}

/// The longest chunk that is copied.
const MAX_COPIED_EVENTS: usize = 2 << 10;

impl Default for KeptEvents {
    fn default() -> Self {
        Self::Copied(Vec::new())
    }
}

impl KeptEvents {
    fn keep(&mut self, events: &Bytes) {
        match self {
            _ if events.len() > MAX_COPIED_EVENTS => *self = Self::Shared(events.clone()),
            Self::Copied(copy) => {
                copy.clear();
                copy.extend_from_slice(events);
            }
            Self::Shared(_) => *self = Self::Copied(events.to_vec()),
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Copied(copy) => copy,
            Self::Shared(events) => events,
        }
    }
}

impl ErrorEventDetector {
    pub(in crate::gateway) fn new(declared: DeclaredMembers) -> Self {
        Self { declared, last_events: KeptEvents::default() }
    }

    /// Returns the failure that one of these events reports as an error event or as a JSON-RPC error. `events` are whole
    /// events.
    pub(in crate::gateway) fn push(&mut self, events: &Bytes) -> Option<Fault> {
        if has_data(events) {
            self.last_events.keep(events);
        }
        ERROR_WORD.find(events)?;
        ServerSentEvent::read_complete(events).find_map(|event| describe_error(&event)).map(agent_error)
    }

    /// Returns the failure that the last event of the stream reports.
    pub(in crate::gateway) fn finish(&self) -> Option<Fault> {
        let data = ServerSentEvent::read_complete(self.last_events.bytes()).filter_map(|event| event.data);
        let data = data.filter(|data| !data.is_empty() && !is_end_marker(data)).last()?;
        describe_failure(&data, self.declared).map(agent_error)
    }
}

/// Returns whether a chunk has an event with data other than an end marker.
fn has_data(chunk: &[u8]) -> bool {
    // Lines of other fields and comments are passed over.
    DATA_FIELD.find_iter(chunk).any(|at| {
        let begins_line =
            at.checked_sub(1).and_then(|at| chunk.get(at)).is_none_or(|byte| matches!(byte, b'\n' | b'\r'));
        let line = chunk.get(at..).filter(|_| begins_line).and_then(|rest| lines(rest).next());
        line.and_then(|line| field(line, b"data")).is_some_and(|data| !data.is_empty() && !is_end_marker(data))
    })
}

fn is_end_marker(data: &[u8]) -> bool {
    data.trim_ascii_end() == END_MARKER
}

fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut start = 0;
    let ends = memchr::memchr2_iter(b'\n', b'\r', bytes).chain([bytes.len()]);
    ends.filter_map(move |end| bytes.get(std::mem::replace(&mut start, end + 1)..end))
}

/// Returns the value of a line with the field `name`, without the space before it.
fn field<'l>(line: &'l [u8], name: &[u8]) -> Option<&'l [u8]> {
    let value = line.strip_prefix(name)?.strip_prefix(b":")?;
    Some(value.strip_prefix(b" ").unwrap_or(value))
}

fn describe_error(event: &ServerSentEvent) -> Option<String> {
    let data = event.data.as_deref().unwrap_or_default();
    if event.name.as_deref() == Some(b"error") {
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

fn describe_failure(data: &[u8], declared: DeclaredMembers) -> Option<String> {
    if scan_members(data) != MemberScan::ErrorMember {
        return None;
    }
    let message: Map<String, Value> = serde_json::from_slice(data).ok()?;
    let is_json_rpc = message.get("jsonrpc").is_some_and(|version| version == "2.0");
    (!is_json_rpc && reports_failure(&message, declared))
        .then(|| format!("the agent reported a failure in its stream, data: {} bytes", data.len()))
}

fn agent_error(detail: String) -> Fault {
    Fault::new(FaultCode::AgentError, "The agent reports an error in its stream").with_detail(detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the failure that a stream of these chunks reports.
    fn find_failure(chunks: &[&str], declared: DeclaredMembers) -> Option<Fault> {
        let mut detector = ErrorEventDetector::new(declared);
        let found = chunks.iter().find_map(|chunk| detector.push(&Bytes::copy_from_slice(chunk.as_bytes())));
        found.or_else(|| detector.finish())
    }

    #[test]
    fn r40_an_error_event_a_json_rpc_error_and_a_reported_failure_are_failures() {
        for events in [
            "event: error\ndata: {\"message\":\"boom\"}\n\n",
            "data: a\n\nevent:error\ndata:x\n\ndata: b\n\n",
            "event: error\r\ndata: x\r\n\r\n",
            "event: error\rdata: x\r\r",
            "\u{feff}event: error\ndata: x\n\n",
            "data: {\"success\":false}\r\r",
            "id: 1\nevent: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32000,\"message\":\"m\"}}\n\n",
            "data: {\"success\":false,\"message\":\"boom\"}\n\n",
            "data: {\"n\":1}\n\ndata: {\"status\":\"failed\",\ndata: \"message\":\"boom\"}\n\n",
            "data: {\"error\":{\"code\":\"x\",\"message\":\"boom\"}}\n\n",
            "data: {\"success\":false}\n\ndata: [DONE]\n\n",
            "data: {\"success\":false}\n\n: ping\n\n",
        ] {
            let fault = find_failure(&[events], DeclaredMembers::default()).unwrap_or_else(|| panic!("{events}"));
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
            assert!(find_failure(&[events], DeclaredMembers::default()).is_none(), "{events}");
        }
        let declared = DeclaredMembers::of_schema(&serde_json::json!({"properties": {"success": {}}}));
        assert!(find_failure(&["data: {\"success\":false}\n\n"], declared).is_none());
    }

    #[test]
    fn r40_a_failure_in_an_earlier_event_is_none_if_the_stream_goes_on() {
        let retried =
            "data: {\"type\":\"tool_result\",\"status\":\"error\",\"message\":\"search timed out, retrying\"}\n\n";
        let result = "data: {\"result\":{\"answer\":42}}\n\n";
        let find = |chunks: &[&str]| find_failure(chunks, DeclaredMembers::default());
        assert!(find(&[retried, result]).is_none());
        assert!(find(&[&format!("{retried}{result}")]).is_none());
        assert!(find(&[retried, result, "data: [DONE]\n\n"]).is_none());
        for rest in [
            &[][..],
            &["data: [DONE]\n\n"],
            &[": keep-alive\n\n", ": keep-alive\n\n"],
            &["id: 3\ndata: [DONE]\n\n", ""],
            &[": a\n: b\n\n"],
            &["retry: 3000\n\n"],
            &["id: 4\nretry: 3000\n\n: keep-alive\n\n"],
            &["event: done\ndata: [DONE]\n\n"],
            &["event: done\r\ndata:[DONE] \r\n\r\n"],
            &["data: [DONE]\n\n: keep-alive\n\n", "event: done\ndata:\n\n"],
        ] {
            let chunks = [&[result, retried], rest].concat();
            assert!(find(&chunks).is_some(), "{rest:?}");
        }
    }

    #[test]
    fn a_short_event_does_not_keep_the_buffer_into_which_it_was_read() {
        let mut detector = ErrorEventDetector::default();
        let report = b"data: {\"success\":false}\n\n";
        let mut buffer = Bytes::from([&report[..], &[b' '; 8192]].concat());
        let events = buffer.split_to(report.len());
        assert!(detector.push(&events).is_none());
        drop(buffer);
        assert!(events.is_unique(), "the detector keeps a copy");
        assert!(detector.finish().is_some());
        let long = Bytes::from([b"data: ", &[b'x'; 8192][..], b"\n\n"].concat());
        assert!(detector.push(&long).is_none());
        assert!(!long.is_unique(), "a long chunk is shared, not copied");
        assert!(detector.finish().is_none());
        assert!(detector.push(&events).is_none());
        assert!(long.is_unique() && detector.finish().is_some());
    }

    #[test]
    fn lines_end_at_each_line_feed_and_carriage_return() {
        for text in ["", "a", "\n", "a\nb", "a\r\nb\r\r", "\n\n", "data: x\n\n"] {
            let expected: Vec<&[u8]> = text.as_bytes().split(|byte| matches!(byte, b'\n' | b'\r')).collect();
            assert_eq!(lines(text.as_bytes()).collect::<Vec<_>>(), expected, "{text:?}");
        }
    }
}
