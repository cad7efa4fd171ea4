//! Step 10: the call to the agent, with the caller's body pumped towards it while the caller is watched.
//! [`Admitted`] is asked for by every way out of here.

use super::{
    Gateway, Stop,
    admit::Admitted,
    body::{Incoming, Pace, too_large},
    input::Input,
    listen::{self, Left},
};
use crate::{
    fault::{Code, Fault, Result},
    transport::{Body, Feed, Passage, Reply, Request},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, header};
use pingora_core::protocols::http::ServerSession;
use std::time::Duration;

impl Gateway {
    /// Sends one input and waits for the head of the answer.
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
        self.transport.call(admitted, request)
    }

    /// Sends the call's input, streaming it where it was not read, until the agent begins to answer or the
    /// caller leaves. An agent may answer while the caller still sends: what is left comes back as a pump.
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
            Input::Batch(_) => return Err(Fault::new(Code::Internal, "a batch has no single body").into()),
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

/// What the agent is told besides the body.
#[derive(Clone, Copy)]
pub(super) struct Told<'a> {
    /// The call's id.
    pub(super) id: &'a str,
    /// The caller's fields; what may not pass is left out by the transport.
    pub(super) headers: &'a HeaderMap,
    pub(super) passage: Passage<'a>,
    /// What it is to do, where that is no part of the input.
    pub(super) instruction: Option<&'a str>,
}

/// What is sent, apart from the admission.
pub(super) struct Sending<'t, 'p> {
    pub(super) told: Told<'t>,
    pub(super) input: Input,
    pub(super) pace: Pace<'p>,
    /// Bytes that an unchecked body may have.
    pub(super) most: usize,
}

/// Moves the caller's body to the agent, no faster than the agent takes it; once that is done, it watches
/// whether the caller is still there.
pub(super) struct Pump<'a> {
    feed: Option<(Feed, Pace<'a>)>,
    waiting: Option<Waiting>,
    left: usize,
    most: usize,
    caller: Caller,
}

/// What is known of the caller once its body has been moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Caller {
    Waits,
    /// It sends nothing more, as one that has left.
    Silent,
    /// It was silent, and written to: only a reset says more.
    Probed,
}

/// How long a caller that has stopped sending is left alone before it is written to.
const SILENCE: Duration = Duration::from_secs(1);

/// What was read and not yet handed over.
enum Waiting {
    Part(Bytes),
    End,
}

impl Pump<'_> {
    /// A pump with nothing to move.
    pub(super) fn done() -> Self {
        Self { feed: None, waiting: None, left: 0, most: 0, caller: Caller::Waits }
    }

    /// Moves one part. Nothing is lost when this is dropped half-way. An agent that stops listening is no
    /// failure here: its answer says why.
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

    /// Watches a caller that has nothing more to send.
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

    /// Whether the caller has stopped sending after all it had to send: it may have left.
    pub(super) fn is_silent(&self) -> bool {
        self.caller != Caller::Waits
    }

    /// Whether all of the caller's body has been moved.
    pub(super) fn is_done(&self) -> bool {
        self.feed.is_none()
    }
}

/// The fields that say the body is JSON, for inputs that are not the caller's own body.
pub(super) fn as_json(headers: &mut HeaderMap) {
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
}
