//! Streamed replies: event streams with keep-alive comments and a well-formed end, and all other bodies byte for byte
//! (R43).

use super::{
    Stop,
    call::{Call, Stage},
    events::Events,
    forward::Pump,
    listen::{self, Outcome},
    reply::Out,
};
use crate::{fault::Fault, transport::Reply};
use bytes::Bytes;
use http::{HeaderMap, header};
use pingora_core::protocols::http::ServerSession;
use pingora_http::ResponseHeader;
use std::time::Duration;

/// A reply that is streamed to the caller.
pub(super) struct Onward<'a> {
    pub(super) out: &'a Out<'a>,
    pub(super) reply: Reply,
    pub(super) pump: Pump<'a>,
}

/// The next thing that happens on a stream.
enum Came {
    Chunk(Bytes),
    Idle,
    End,
    Died(Fault),
    Gone,
}

impl Onward<'_> {
    pub(super) async fn run(
        mut self,
        session: &mut ServerSession,
        call: &mut Call,
        mut head: ResponseHeader,
    ) -> Outcome {
        let status = head.status.as_u16();
        let mut events = is_events(&self.reply.headers).then(Events::default);
        if events.is_some()
            && head.remove_header(&header::CONTENT_LENGTH).is_some()
            && session.req_header().version == http::Version::HTTP_11
        {
            // Keep-alive comments would break the length; one real server sends it with an event stream.
            let _ = head.insert_header(header::TRANSFER_ENCODING, "chunked");
        }
        // The request body has been read, even if the agent has not received all of it yet.
        match self.pump.is_done() || session.is_body_done() {
            true => listen::before_answer(session, self.out.connection).await,
            // The rest of the request body is for the agent, so the connection closes after this call.
            false => session.set_keepalive(None),
        }
        listen::write_through(session);
        session.set_write_timeout(Some(self.out.connection.limits.body_idle_timeout.get()));
        if session.write_response_header(Box::new(head)).await.is_err() {
            call.stage = Stage::Gone(status);
            return Outcome::Aborted;
        }
        let mut seen = self.tee();
        loop {
            let came = self.next(session, events.as_ref()).await;
            let (bytes, ends) = match came {
                Came::Chunk(bytes) => {
                    seen.push(&bytes);
                    (events.as_mut().map_or(bytes.clone(), |events| events.push(bytes)), false)
                }
                Came::Idle => (Bytes::from_static(b": keep-alive\n\n"), false),
                Came::End => (events.as_mut().map(Events::rest).unwrap_or_default(), true),
                Came::Gone => {
                    call.stage = Stage::Gone(status);
                    return Outcome::Aborted;
                }
                Came::Died(fault) => return die(session, call, events, (status, fault)).await,
            };
            call.count.bytes_out += bytes.len() as u64;
            if (ends || !bytes.is_empty()) && session.write_response_body(bytes, ends).await.is_err() {
                call.stage = Stage::Gone(status);
                return Outcome::Aborted;
            }
            if ends {
                seen.check(self.out);
                call.stage = Stage::Answered(status);
                return Outcome::Complete;
            }
        }
    }

    /// Waits for the agent, forwards the rest of the request body, and detects that the caller left.
    async fn next(&mut self, session: &mut ServerSession, events: Option<&Events>) -> Came {
        let keep_alive = self.out.world.stream_keep_alive;
        let comments = events.is_some_and(Events::between) && !keep_alive.is_zero();
        let idle = tokio::time::sleep(if comments { keep_alive } else { Duration::from_secs(86_400) });
        tokio::pin!(idle);
        loop {
            tokio::select! {
                biased;
                chunk = self.reply.body.chunk() => return match chunk {
                    Some(Ok(bytes)) => Came::Chunk(bytes),
                    Some(Err(fault)) => Came::Died(fault),
                    None => Came::End,
                },
                () = &mut idle, if comments => return Came::Idle,
                moved = self.pump.step(session) => match moved {
                    // Writing a comment finds out whether a silent caller is still connected.
                    Ok(()) if comments && self.pump.is_silent() => return Came::Idle,
                    Ok(()) => {}
                    Err(Stop::Gone) => return Came::Gone,
                    Err(Stop::Fault(fault)) => return Came::Died(fault),
                },
            }
        }
    }

    /// Returns a recorder of the reply, for an output contract that is reported but not enforced.
    fn tee(&self) -> Seen {
        let rules = &self.out.world.contract;
        let json = super::route::looks_like_json(self.reply.headers.get(header::CONTENT_TYPE));
        let wanted = json && self.out.admitted.operation().contract.output.is_some();
        Seen { most: if wanted { rules.max_body.get() } else { 0 }, bytes: Vec::new() }
    }
}

/// Returns whether a reply is an event stream.
pub(super) fn is_events(headers: &HeaderMap) -> bool {
    essence(headers).eq_ignore_ascii_case(b"text/event-stream")
}

/// Returns whether a reply is a sequence of messages, and not one body that a schema can describe.
pub(super) fn is_sequence(headers: &HeaderMap) -> bool {
    const SEQUENCES: [&[u8]; 5] = [
        b"text/event-stream",
        b"application/x-ndjson",
        b"application/ndjson",
        b"application/jsonl",
        b"application/json-seq",
    ];
    SEQUENCES.iter().any(|media| essence(headers).eq_ignore_ascii_case(media))
}

/// Returns the media type without parameters; it is case-insensitive (RFC 9110 §8.3.1).
fn essence(headers: &HeaderMap) -> &[u8] {
    let media = headers.get(header::CONTENT_TYPE).map(|media| media.as_bytes());
    media.and_then(|media| media.split(|byte| *byte == b';').next()).unwrap_or_default().trim_ascii()
}

/// Ends a stream that its agent broke off: with an error event if the stream is between events, else by aborting the
/// connection, so that the client does not take a truncated body for a complete one.
async fn die(
    session: &mut ServerSession,
    call: &mut Call,
    events: Option<Events>,
    (status, fault): (u16, Fault),
) -> Outcome {
    let mut outcome = Outcome::Aborted;
    if events.is_some_and(|events| events.may_end_with_ours()) {
        let event = Bytes::from(fault.event(call.id(), call.rpc_id().as_ref()));
        call.count.bytes_out += event.len() as u64;
        if session.write_response_body(event, true).await.is_ok() {
            outcome = Outcome::Complete;
        }
    }
    call.stage = Stage::Broken(status, fault);
    outcome
}

/// A copy of a reply, up to a bound.
struct Seen {
    most: usize,
    bytes: Vec<u8>,
}

impl Seen {
    fn push(&mut self, bytes: &[u8]) {
        if self.bytes.len() + bytes.len() <= self.most {
            self.bytes.extend_from_slice(bytes);
        } else {
            self.most = 0;
        }
    }

    fn check(self, out: &Out<'_>) {
        if self.most > 0 {
            out.report(&self.bytes);
        }
    }
}
