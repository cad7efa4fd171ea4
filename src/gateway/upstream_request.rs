//! Step 11: the call to the agent. Streams the request body to the agent while watching the caller. Every function that
//! sends takes an [`Admitted`].

use super::{
    CallError, Gateway,
    admission::Admitted,
    http_server::{self, CallerSignal},
    incoming_body::{BodyTimeout, IncomingBody, body_too_large},
    input_validation::CallInput,
    overload_control,
};
use crate::{
    fault::{Fault, FaultCode, Result},
    transport::{BodySender, HeaderMutations, RequestBody, UpstreamCall, UpstreamReply},
};
use bytes::Bytes;
use futures_util::FutureExt;
use http::{HeaderMap, HeaderValue, Method, header};
use pingora_core::protocols::http::ServerSession;
use std::time::Duration;

impl Gateway {
    /// Sends one input and waits for the head of the reply.
    pub(super) fn send_upstream<'a>(
        &'a self,
        admitted: &'a Admitted,
        upstream_head: UpstreamHead<'a>,
        body: RequestBody,
    ) -> impl Future<Output = Result<UpstreamReply>> + Send + 'a {
        let UpstreamHead { call_id: id, headers, forwarding: header_mutations, instruction } = upstream_head;
        let operation = &admitted.operation().name;
        let request = UpstreamCall {
            id,
            operation,
            method: Method::POST,
            path: admitted.version().and_then(|version| version.path.clone()),
            headers,
            body,
            header_mutations,
            instruction,
        };
        let (sample, streamed) = (admitted.start_latency_sample(), matches!(request.body, RequestBody::Stream(_)));
        let result = self.transport.call(admitted, request);
        result.inspect(move |result| overload_control::record_latency_sample(self, admitted, sample, streamed, result))
    }

    /// Sends the call's input until the agent starts to reply or the caller leaves; an input that was not buffered is
    /// streamed. The agent may reply before the body is complete: the returned pump sends the rest.
    pub(super) async fn send_with_body<'p>(
        &self,
        session: &mut ServerSession,
        admitted: &Admitted,
        request: OutgoingRequest<'_, 'p>,
    ) -> std::result::Result<(UpstreamReply, BodyPump<'p>), CallError> {
        let OutgoingRequest { head: upstream_head, input, body_timeout, max_body } = request;
        let (body, mut pump) = match input {
            CallInput::Complete(bytes) => (RequestBody::from(bytes), BodyPump::without_body()),
            CallInput::Streamed(first) if first.is_empty() && session.is_body_empty() => {
                (RequestBody::Empty, BodyPump::without_body())
            }
            CallInput::Streamed(first) => {
                let length = IncomingBody::new(session, body_timeout).content_length();
                if length.is_some_and(|length| length > max_body as u64) {
                    return Err(body_too_large(max_body).into());
                }
                let (sender, body) = RequestBody::channel(length);
                let Some(remaining) = max_body.checked_sub(first.len()) else {
                    return Err(body_too_large(max_body).into());
                };
                let first_part = (!first.is_empty()).then_some(PendingPart::Chunk(first));
                (
                    body,
                    BodyPump {
                        sender: Some((sender, body_timeout)),
                        pending: first_part,
                        remaining,
                        max_body,
                        ..BodyPump::without_body()
                    },
                )
            }
            CallInput::Batch(_) => return Err(Fault::new(FaultCode::Internal, "A batch has no single body").into()),
        };
        tokio::pin! {
            let call = self.send_upstream(admitted, upstream_head, body);
        }
        loop {
            tokio::select! {
                biased;
                reply = &mut call => return Ok((reply?, pump)),
                result = pump.advance(session) => result?,
            }
        }
    }
}

/// What the agent receives besides the body.
#[derive(Clone, Copy)]
pub(super) struct UpstreamHead<'a> {
    /// The call id.
    pub(super) call_id: &'a str,
    /// The caller's headers; the transport removes those that must not pass.
    pub(super) headers: &'a HeaderMap,
    pub(super) forwarding: HeaderMutations<'a>,
    /// The instruction, if it is not a part of the input.
    pub(super) instruction: Option<&'a str>,
}

/// A request to the agent, without the admission.
pub(super) struct OutgoingRequest<'t, 'p> {
    pub(super) head: UpstreamHead<'t>,
    pub(super) input: CallInput,
    pub(super) body_timeout: BodyTimeout<'p>,
    /// The most bytes of a body that is not validated.
    pub(super) max_body: usize,
}

/// Sends the caller's body to the agent, with back-pressure; after the body it watches whether the caller is still
/// connected.
pub(super) struct BodyPump<'a> {
    sender: Option<(BodySender, BodyTimeout<'a>)>,
    pending: Option<PendingPart>,
    remaining: usize,
    max_body: usize,
    caller_state: CallerState,
}

/// The state of the caller's connection after the whole body was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallerState {
    Connected,
    /// The caller has closed its sending side: it awaits the response, or has disconnected.
    HalfClosed,
    /// A half-closed caller was probed: a reset will show if it has disconnected.
    Probed,
}

/// How long a caller may be half-closed before it is probed.
const PROBE_DELAY: Duration = Duration::from_secs(1);

/// The part of the body that was read from the caller and not yet sent.
enum PendingPart {
    Chunk(Bytes),
    End,
}

impl BodyPump<'_> {
    /// Returns a pump without a body.
    pub(super) fn without_body() -> Self {
        Self { sender: None, pending: None, remaining: 0, max_body: 0, caller_state: CallerState::Connected }
    }

    /// Reads or sends one chunk. Cancel-safe. An agent that stops reading is not a failure here: its reply states why.
    pub(super) async fn advance(&mut self, session: &mut ServerSession) -> std::result::Result<(), CallError> {
        let Some((sender, timeout)) = &self.sender else {
            return self.watch_caller(session).await;
        };
        if self.pending.is_none() {
            self.pending = match IncomingBody::new(session, *timeout).chunk().await? {
                None => Some(PendingPart::End),
                Some(bytes) if bytes.len() > self.remaining => return Err(body_too_large(self.max_body).into()),
                Some(bytes) => {
                    self.remaining -= bytes.len();
                    (!bytes.is_empty()).then_some(PendingPart::Chunk(bytes))
                }
            };
        } else if sender.wait_for_capacity().await.is_err() {
            self.sender = None;
        } else {
            match self.pending.take() {
                Some(PendingPart::Chunk(bytes)) => sender.send_reserved(bytes),
                _ => {
                    sender.finish_reserved();
                    self.sender = None;
                }
            }
        }
        Ok(())
    }

    /// Watches a caller that has sent its whole body.
    async fn watch_caller(&mut self, session: &mut ServerSession) -> std::result::Result<(), CallError> {
        self.caller_state = match self.caller_state {
            CallerState::Connected => match http_server::wait_for_caller_signal(session).await {
                CallerSignal::Disconnected => return Err(CallError::CallerGone),
                CallerSignal::HalfClosed => CallerState::HalfClosed,
            },
            CallerState::HalfClosed => {
                tokio::select! {
                    () = http_server::wait_for_disconnect(session) => return Err(CallError::CallerGone),
                    () = tokio::time::sleep(PROBE_DELAY) => {}
                }
                http_server::probe_caller(session).await;
                CallerState::Probed
            }
            CallerState::Probed => {
                http_server::wait_for_disconnect(session).await;
                return Err(CallError::CallerGone);
            }
        };
        Ok(())
    }

    /// Returns whether the caller has half-closed its side, so that it may have left.
    pub(super) fn is_caller_half_closed(&self) -> bool {
        self.caller_state != CallerState::Connected
    }

    /// Returns whether the whole body was sent.
    pub(super) fn is_body_sent(&self) -> bool {
        self.sender.is_none()
    }
}

/// Sets the headers of a JSON body, for inputs that are not the caller's own body.
pub(super) fn set_json_headers(headers: &mut HeaderMap) {
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
}
