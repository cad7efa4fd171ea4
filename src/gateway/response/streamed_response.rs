//! Streamed replies: event streams with keep-alive comments and a well-formed end, and all other bodies byte for byte
//! (R43).

use super::{
    error_events::ErrorEventDetector, event_boundaries::EventSplitter, media_types::is_event_stream,
    reply_validation::ReplyValidator,
};
use crate::{
    fault::Fault,
    gateway::{
        admission::Admitted,
        call::{CallError, CallState},
        exchange::Exchange,
        route::is_json_content,
        upstream::BodyPump,
    },
    http_server::{BodyState, ResponseHead, ServeOutcome},
    transport::UpstreamReply,
};
use bytes::Bytes;
use http::{HeaderValue, Version, header};
use std::time::Duration;

/// A reply that is streamed to the caller.
pub(in crate::gateway) struct StreamedResponse<'r, 'a> {
    pub(in crate::gateway) exchange: &'r mut Exchange<'a>,
    pub(in crate::gateway) admitted: &'r Admitted,
    pub(in crate::gateway) reply: UpstreamReply,
    pub(in crate::gateway) pump: BodyPump,
}

/// The next thing that happens on a stream.
enum StreamEvent {
    Chunk(Bytes),
    Idle,
    End,
    Failed(Fault),
    CallerGone,
}

impl StreamedResponse<'_, '_> {
    /// Writes the head, then the reply as it arrives.
    pub(in crate::gateway) async fn run(mut self, mut head: ResponseHead) -> ServeOutcome {
        let status = head.status.as_u16();
        let mut events = is_event_stream(&self.reply.headers).then(EventSplitter::default);
        if events.is_some()
            && head.headers.remove(header::CONTENT_LENGTH).is_some()
            && self.exchange.session.head().version == Version::HTTP_11
        {
            // Keep-alive comments would break the length. At least one agent framework sends it with event streams.
            head.headers.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        // The request body has been read, even if the agent has not received all of it yet.
        if self.pump.is_body_sent() || self.exchange.session.body_state() != BodyState::Pending {
            self.exchange.session.prepare_keep_alive(self.exchange.connection).await;
        } else {
            // The rest of the request body is for the agent, so the connection closes after this call.
            self.exchange.session.close_after_response();
        }
        if self.exchange.start_stream(head).await.is_err() {
            return ServeOutcome::Aborted;
        }
        self.exchange.call.can_append_event = events.is_some();
        let mut recorder = self.output_recorder();
        let mut detector = ErrorEventDetector::new(self.admitted.operation().declared_members);
        loop {
            let event = self.next_event(events.as_ref()).await;
            let (bytes, is_last) = match event {
                StreamEvent::Chunk(bytes) => {
                    recorder.push(&bytes);
                    (events.as_mut().map_or(bytes.clone(), |events| events.push(bytes)), false)
                }
                StreamEvent::Idle => (Bytes::from_static(b": keep-alive\n\n"), false),
                StreamEvent::End => (events.as_mut().map(EventSplitter::take_rest).unwrap_or_default(), true),
                StreamEvent::CallerGone => {
                    self.exchange.call.state = CallState::CallerGone(status);
                    return ServeOutcome::Aborted;
                }
                StreamEvent::Failed(fault) => return self.exchange.end_response(status, fault).await,
            };
            if events.is_some() && !self.exchange.call.has_agent_error() {
                // What is left at the end is not a complete event.
                let found = if is_last { detector.finish() } else { detector.push(&bytes) };
                self.exchange.call.record_agent_error(found);
            }
            // A part that is written by half must not be followed by an event.
            self.exchange.call.can_append_event = false;
            if !self.write_part(bytes, is_last).await {
                self.exchange.call.state = CallState::CallerGone(status);
                return ServeOutcome::Aborted;
            }
            if is_last {
                self.report_violations(recorder).await;
                self.exchange.call.state = CallState::Answered(status);
                return ServeOutcome::Complete;
            }
            self.exchange.call.can_append_event = events.as_ref().is_some_and(EventSplitter::can_append_event);
        }
    }

    /// Writes a part of the body; returns whether the caller is still there.
    async fn write_part(&mut self, bytes: Bytes, is_last: bool) -> bool {
        self.exchange.call.stats.bytes_out += bytes.len() as u64;
        (bytes.is_empty() && !is_last) || self.exchange.session.write_body(bytes, is_last).await.is_ok()
    }

    /// Waits for the agent, forwards the rest of the request body, and detects that the caller left.
    async fn next_event(&mut self, events: Option<&EventSplitter>) -> StreamEvent {
        let keep_alive = self.exchange.config.sse_keep_alive_interval;
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
                result = self.pump.advance(self.exchange.session) => match result {
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
        let contract_config = &self.exchange.config.contract;
        let is_json = is_json_content(self.reply.headers.get(header::CONTENT_TYPE));
        let is_recorded = is_json && self.admitted.operation().contract.output.is_some();
        OutputRecorder {
            max_bytes: if is_recorded { contract_config.max_body_size.get() } else { 0 },
            bytes: Vec::new(),
        }
    }

    /// Reports the contract violations of a reply that has been written.
    async fn report_violations(&self, recorder: OutputRecorder) {
        if recorder.max_bytes == 0 {
            return;
        }
        let Exchange { gateway, config, .. } = &*self.exchange;
        let validator = ReplyValidator { gateway, contract_config: &config.contract, admitted: self.admitted };
        // The result is ignored: an enforced contract is validated before the reply is written.
        let _ = validator.check_output(&recorder.bytes.into()).await;
    }
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
}
