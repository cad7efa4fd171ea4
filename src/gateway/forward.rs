//! Step 11: the call to the agent. Streams the request body to the agent while watching the caller. Every function that
//! sends takes [`Admitted`].

use super::{
    Gateway, Stop,
    admit::Admitted,
    body::{Incoming, Pace, too_large},
    input::Input,
    listen::{self, Left},
    load,
};
use crate::{
    fault::{Code, Fault, Result},
    transport::{Body, Feed, Passage, Reply, Request},
};
use bytes::Bytes;
use futures_util::FutureExt;
use http::{HeaderMap, HeaderValue, Method, header};
use pingora_core::protocols::http::ServerSession;
use std::time::Duration;

impl Gateway {
    /// Sends one input and waits for the head of the reply.
    pub(super) fn send<'a>(
        &'a self,
        admitted: &'a Admitted,
        told: Told<'a>,
        body: Body,
    ) -> impl Future<Output = Result<Reply>> + Send + 'a {
        let Told { id, headers, passage, instruction } = told;
        let operation = &admitted.operation().name;
        let request = Request {
            id,
            operation,
            method: Method::POST,
            path: admitted.version().and_then(|version| version.path.clone()),
            headers,
            body,
            passage,
            instruction,
        };
        let (question, streamed) = (admitted.asks(), matches!(request.body, Body::Stream(_)));
        let made = self.transport.call(admitted, request);
        made.inspect(move |made| load::learn(self, admitted, (question, streamed), made))
    }

    /// Sends the call's input until the agent starts to reply or the caller leaves; an input that was not buffered is
    /// streamed. The agent may reply before the body is complete: the returned pump sends the rest.
    pub(super) async fn exchange<'p>(
        &self,
        session: &mut ServerSession,
        admitted: &Admitted,
        sending: Sending<'_, 'p>,
    ) -> std::result::Result<(Reply, Pump<'p>), Stop> {
        let Sending { told, input, pace, most } = sending;
        let (body, mut pump) = match input {
            Input::Whole(bytes) => (Body::from(bytes), Pump::done()),
            Input::Stream(first) if first.is_empty() && session.is_body_empty() => (Body::Empty, Pump::done()),
            Input::Stream(first) => {
                let length = Incoming::new(session, pace).length();
                if length.is_some_and(|length| length > most as u64) {
                    return Err(too_large(most).into());
                }
                let (feed, body) = Body::stream(length);
                let Some(left) = most.checked_sub(first.len()) else {
                    return Err(too_large(most).into());
                };
                let waiting = (!first.is_empty()).then_some(Waiting::Part(first));
                (body, Pump { feed: Some((feed, pace)), waiting, left, most, ..Pump::done() })
            }
            Input::Batch(_) => return Err(Fault::new(Code::Internal, "A batch has no single body").into()),
        };
        tokio::pin! {
            let call = self.send(admitted, told, body);
        }
        loop {
            tokio::select! {
                biased;
                reply = &mut call => return Ok((reply?, pump)),
                moved = pump.step(session) => moved?,
            }
        }
    }
}

/// What the agent receives besides the body.
#[derive(Clone, Copy)]
pub(super) struct Told<'a> {
    /// The call id.
    pub(super) id: &'a str,
    /// The caller's headers; the transport removes those that must not pass.
    pub(super) headers: &'a HeaderMap,
    pub(super) passage: Passage<'a>,
    /// The instruction, if it is not a part of the input.
    pub(super) instruction: Option<&'a str>,
}

/// A request to the agent, without the admission.
pub(super) struct Sending<'t, 'p> {
    pub(super) told: Told<'t>,
    pub(super) input: Input,
    pub(super) pace: Pace<'p>,
    /// The most bytes of a body that is not validated.
    pub(super) most: usize,
}

/// Sends the caller's body to the agent, with back-pressure; after the body it watches whether the caller is still
/// connected.
pub(super) struct Pump<'a> {
    feed: Option<(Feed, Pace<'a>)>,
    waiting: Option<Waiting>,
    left: usize,
    most: usize,
    caller: Caller,
}

/// What is known of the caller after its body was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Caller {
    Waits,
    /// The caller's side is half-closed, as it also is when the caller has left.
    Silent,
    /// A probe was written to a half-closed caller: only a reset shows that it has left.
    Probed,
}

/// How long a caller may be half-closed before it is probed.
const SILENCE: Duration = Duration::from_secs(1);

/// What was read from the caller and not yet sent.
enum Waiting {
    Part(Bytes),
    End,
}

impl Pump<'_> {
    /// Returns a pump without a body.
    pub(super) fn done() -> Self {
        Self { feed: None, waiting: None, left: 0, most: 0, caller: Caller::Waits }
    }

    /// Moves one chunk. Cancel-safe. An agent that stops reading is not a failure here: its reply says why.
    pub(super) async fn step(&mut self, session: &mut ServerSession) -> std::result::Result<(), Stop> {
        let Some((feed, pace)) = &self.feed else {
            return self.watch(session).await;
        };
        if self.waiting.is_none() {
            self.waiting = match Incoming::new(session, *pace).chunk().await? {
                None => Some(Waiting::End),
                Some(bytes) if bytes.len() > self.left => return Err(too_large(self.most).into()),
                Some(bytes) => {
                    self.left -= bytes.len();
                    (!bytes.is_empty()).then_some(Waiting::Part(bytes))
                }
            };
        } else if feed.ready().await.is_err() {
            self.feed = None;
        } else {
            match self.waiting.take() {
                Some(Waiting::Part(bytes)) => feed.put(bytes),
                _ => {
                    feed.end();
                    self.feed = None;
                }
            }
        }
        Ok(())
    }

    /// Watches a caller that has sent its whole body.
    async fn watch(&mut self, session: &mut ServerSession) -> std::result::Result<(), Stop> {
        self.caller = match self.caller {
            Caller::Waits => match listen::left(session).await {
                Left::Gone => return Err(Stop::Gone),
                Left::Silent => Caller::Silent,
            },
            Caller::Silent => {
                tokio::select! {
                    () = listen::gone(session) => return Err(Stop::Gone),
                    () = tokio::time::sleep(SILENCE) => {}
                }
                listen::probe(session).await;
                Caller::Probed
            }
            Caller::Probed => {
                listen::gone(session).await;
                return Err(Stop::Gone);
            }
        };
        Ok(())
    }

    /// Returns whether the caller has half-closed its side, so that it may have left.
    pub(super) fn is_silent(&self) -> bool {
        self.caller != Caller::Waits
    }

    /// Returns whether the whole body was sent.
    pub(super) fn is_done(&self) -> bool {
        self.feed.is_none()
    }
}

/// Sets the headers of a JSON body, for inputs that are not the caller's own body.
pub(super) fn as_json(headers: &mut HeaderMap) {
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
}
