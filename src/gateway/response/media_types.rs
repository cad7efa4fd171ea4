//! The media types of replies, as far as they decide how a reply is forwarded.

use crate::{
    fault::{Fault, FaultCode},
    values::{AcceptHeader, FailureUnit},
};
use http::{HeaderMap, header};

/// Returns whether a reply is an event stream.
pub(in crate::gateway) fn is_event_stream(headers: &HeaderMap) -> bool {
    media_type_essence(headers).eq_ignore_ascii_case(b"text/event-stream")
}

/// Returns whether a reply is a sequence of messages, and not one body that a schema can describe.
pub(in crate::gateway) fn is_message_sequence(headers: &HeaderMap) -> bool {
    const SEQUENCES: [&[u8]; 5] = [
        b"text/event-stream",
        b"application/x-ndjson",
        b"application/ndjson",
        b"application/jsonl",
        b"application/json-seq",
    ];
    let essence = media_type_essence(headers);
    SEQUENCES.iter().any(|media| essence.eq_ignore_ascii_case(media))
}

/// Returns in which units a reply may report failures while it is forwarded; `None` for a single body.
pub(in crate::gateway) fn failure_unit(headers: &HeaderMap) -> Option<FailureUnit> {
    if !is_message_sequence(headers) {
        return None;
    }
    Some(if is_event_stream(headers) { FailureUnit::Event } else { FailureUnit::Line })
}

/// Returns whether a client names the media type of a reply, and does not only accept any.
pub(in crate::gateway) fn is_media_type_requested(request: &HeaderMap, reply: &HeaderMap) -> bool {
    let media = std::str::from_utf8(media_type_essence(reply)).unwrap_or_default();
    AcceptHeader::from_headers(request).exact_quality_of(media).is_some_and(|quality| quality > 0)
}

/// Returns the fault for a stream of messages that the caller did not ask for, where the agent's output is validated: a
/// message of a stream is not the output that the schema describes, and would pass unchecked.
pub(in crate::gateway) fn unrequested_stream() -> Fault {
    let fault = Fault::new(FaultCode::AgentError, "The agent answered with a stream that was not requested");
    fault.with_setting("contract.output")
}

/// Returns whether a body has a coding, although the gateway asks agents for none.
pub(in crate::gateway) fn has_content_coding(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_ENCODING).is_some_and(|coding| coding != "identity")
}

/// Returns the media type without parameters; it is case-insensitive (RFC 9110 §8.3.1).
pub(super) fn media_type_essence(headers: &HeaderMap) -> &[u8] {
    let media = headers.get(header::CONTENT_TYPE).map(|media| media.as_bytes());
    media.and_then(|media| media.split(|byte| *byte == b';').next()).unwrap_or_default().trim_ascii()
}
