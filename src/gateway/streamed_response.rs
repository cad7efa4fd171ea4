//! Streamed replies: event streams with keep-alive comments and a well-formed end, and all other bodies byte for byte
//! (R43).

use super::{
    CallError,
    call::{Call, CallState},
    event_boundaries::EventSplitter,
    http_server::{self, ServeOutcome},
    responder::Responder,
    upstream_request::BodyPump,
};
use crate::{fault::Fault, transport::UpstreamReply};
use bytes::Bytes;
use http::{HeaderMap, header};
use pingora_core::protocols::http::ServerSession;
use pingora_http::ResponseHeader;
use std::time::Duration;

/// A reply that is streamed to the caller.
pub(super) struct StreamedResponse<'a> {
    pub(super) responder: &'a Responder<'a>,
    pub(super) reply: UpstreamReply,
    pub(super) pump: BodyPump<'a>,
}

/// The next thing that happens on a stream.
enum StreamEvent {
    Chunk(Bytes),
    Idle,
    End,
    Failed(Fault),
    CallerGone,
}

impl StreamedResponse<'_> {
    pub(super) async fn run(
        mut self,
        session: &mut ServerSession,
        call: &mut Call,
        mut head: ResponseHeader,
    ) -> ServeOutcome {
        let status = head.status.as_u16();
        let mut events = is_event_stream(&self.reply.headers).then(EventSplitter::default);
        if events.is_some()
            && head.remove_header(&header::CONTENT_LENGTH).is_some()
            && session.req_header().version == http::Version::HTTP_11
        {
            // Keep-alive comments would break the length. At least one agent framework sends it with event streams.
            let _ = head.insert_header(header::TRANSFER_ENCODING, "chunked");
        }
        // The request body has been read, even if the agent has not received all of it yet.
        match self.pump.is_body_sent() || session.is_body_done() {
            true => http_server::prepare_keep_alive(session, self.responder.connection).await,
            // The rest of the request body is for the agent, so the connection closes after this call.
            false => session.set_keepalive(None),
        }
        http_server::disable_write_buffering(session);
        session.set_write_timeout(Some(self.responder.connection.limits.body_idle_timeout.get()));
        if session.write_response_header(Box::new(head)).await.is_err() {
            call.state = CallState::CallerGone(status);
            return ServeOutcome::Aborted;
        }
        let mut recorder = self.output_recorder();
        loop {
            let event = self.next_event(session, events.as_ref()).await;
            let (bytes, is_last) = match event {
                StreamEvent::Chunk(bytes) => {
                    recorder.push(&bytes);
                    (events.as_mut().map_or(bytes.clone(), |events| events.push(bytes)), false)
                }
                StreamEvent::Idle => (Bytes::from_static(b": keep-alive\n\n"), false),
                StreamEvent::End => (events.as_mut().map(EventSplitter::take_rest).unwrap_or_default(), true),
                StreamEvent::CallerGone => {
                    call.state = CallState::CallerGone(status);
                    return ServeOutcome::Aborted;
                }
                StreamEvent::Failed(fault) => return end_failed_stream(session, call, events, status, fault).await,
            };
            call.stats.bytes_out += bytes.len() as u64;
            if (is_last || !bytes.is_empty()) && session.write_response_body(bytes, is_last).await.is_err() {
                call.state = CallState::CallerGone(status);
                return ServeOutcome::Aborted;
            }
            if is_last {
                recorder.report(self.responder);
                call.state = CallState::Answered(status);
                return ServeOutcome::Complete;
            }
        }
    }

    /// Waits for the agent, forwards the rest of the request body, and detects that the caller left.
    async fn next_event(&mut self, session: &mut ServerSession, events: Option<&EventSplitter>) -> StreamEvent {
        let keep_alive = self.responder.config.sse_keep_alive_interval;
        let sends_comments = events.is_some_and(EventSplitter::is_between_events) && !keep_alive.is_zero();
        let idle = tokio::time::sleep(if sends_comments { keep_alive } else { Duration::from_secs(86_400) });
        tokio::pin!(idle);
        loop {
            tokio::select! {
                biased;
                chunk = self.reply.body.next_chunk() => return match chunk {
                    Some(Ok(bytes)) => StreamEvent::Chunk(bytes),
                    Some(Err(fault)) => StreamEvent::Failed(fault),
                    None => StreamEvent::End,
                },
                () = &mut idle, if sends_comments => return StreamEvent::Idle,
                result = self.pump.advance(session) => match result {
                    // The write of a comment fails if a half-closed caller has disconnected.
                    Ok(()) if sends_comments && self.pump.is_caller_half_closed() => return StreamEvent::Idle,
                    Ok(()) => {}
                    Err(CallError::CallerGone) => return StreamEvent::CallerGone,
                    Err(CallError::Fault(fault)) => return StreamEvent::Failed(fault),
                },
            }
        }
    }

    /// Returns a recorder of the reply, for an output contract whose violations are reported but not enforced.
    fn output_recorder(&self) -> OutputRecorder {
        let contract_config = &self.responder.config.contract;
        let is_json = super::route::is_json_content(self.reply.headers.get(header::CONTENT_TYPE));
        let is_recorded = is_json && self.responder.admitted.operation().contract.output.is_some();
        OutputRecorder {
            max_bytes: if is_recorded { contract_config.max_body_size.get() } else { 0 },
            bytes: Vec::new(),
        }
    }
}

/// Returns whether a reply is an event stream.
pub(super) fn is_event_stream(headers: &HeaderMap) -> bool {
    media_type_essence(headers).eq_ignore_ascii_case(b"text/event-stream")
}

/// Returns whether a reply is a sequence of messages, and not one body that a schema can describe.
pub(super) fn is_message_sequence(headers: &HeaderMap) -> bool {
    const SEQUENCES: [&[u8]; 5] = [
        b"text/event-stream",
        b"application/x-ndjson",
        b"application/ndjson",
        b"application/jsonl",
        b"application/json-seq",
    ];
    SEQUENCES.iter().any(|media| media_type_essence(headers).eq_ignore_ascii_case(media))
}

/// Returns the media type without parameters; it is case-insensitive (RFC 9110 §8.3.1).
fn media_type_essence(headers: &HeaderMap) -> &[u8] {
    let media = headers.get(header::CONTENT_TYPE).map(|media| media.as_bytes());
    media.and_then(|media| media.split(|byte| *byte == b';').next()).unwrap_or_default().trim_ascii()
}

/// Ends a stream that its agent broke off: with an error event if the stream is between events, else by aborting the
/// connection, so that the client does not take a truncated body for a complete one.
async fn end_failed_stream(
    session: &mut ServerSession,
    call: &mut Call,
    events: Option<EventSplitter>,
    status: u16,
    fault: Fault,
) -> ServeOutcome {
    let mut outcome = ServeOutcome::Aborted;
    if events.is_some_and(|events| events.can_append_event()) {
        let event = Bytes::from(fault.to_event(call.id(), call.json_rpc_id().as_ref()));
        call.stats.bytes_out += event.len() as u64;
        if session.write_response_body(event, true).await.is_ok() {
            outcome = ServeOutcome::Complete;
        }
    }
    call.state = CallState::FailedMidResponse(status, fault);
    outcome
}

/// A copy of a reply, up to a bound.
struct OutputRecorder {
    max_bytes: usize,
    bytes: Vec<u8>,
}

impl OutputRecorder {
    fn push(&mut self, bytes: &[u8]) {
        if self.bytes.len() + bytes.len() <= self.max_bytes {
            self.bytes.extend_from_slice(bytes);
        } else {
            self.max_bytes = 0;
        }
    }

    fn report(self, responder: &Responder<'_>) {
        if self.max_bytes > 0 {
            responder.report_violations(&self.bytes);
        }
    }
}
