//! Agents over WebSocket (R51, R80, RFC 6455): a call is one connection, one message and the reply to it; a caller that
//! uses a WebSocket gets a connection to the agent's WebSocket. The handshake is HTTP's, and so are addresses, TLS and
//! credentials. A connection serves one call only, so that a late message cannot reach another call.

mod answer;
mod ask;
mod leg;
mod lost;
mod settings;

pub use leg::{Came, Io, Leg, LegBounds};
pub use lost::{Lost, Peer};
use settings::Pick;
pub use settings::{Frames, UpstreamWebSocketConfig};

use super::{
    Bounds, Reply, ReplyBody, Request, Way,
    http::{Http, Offer, Switched, Target},
};
use crate::{
    agent::Agent,
    fault::{Code, Fault},
};
use ::http::{HeaderMap, HeaderValue, StatusCode, header};
use answer::{Answers, Part, is_failure};
use ask::Wants;
use bytes::Bytes;
use settings::Manner;
use std::{collections::HashSet, fmt, sync::Arc};
use tokio::{
    sync::mpsc,
    time::{Instant, timeout_at},
};

/// The maximum number of chunks queued for the caller.
const QUEUE: usize = 4;

/// The outcome of opening an agent's WebSocket.
#[derive(Debug)]
pub enum Opened {
    /// The WebSocket is open.
    Socket(Box<Socket>),
    /// The agent refused the handshake with an ordinary reply.
    Refused(Reply),
}

/// An agent's WebSocket, for a caller that uses a WebSocket.
#[derive(Debug)]
pub struct Socket {
    /// The connection.
    pub leg: Leg,
    /// The subprotocol that the agent chose.
    pub protocol: Option<HeaderValue>,
    /// The framing of messages.
    pub frames: Frames,
    /// Whether the caller's messages are validated; `None` validates them where there is a schema.
    pub check: Option<bool>,
}

/// The transport to one agent.
pub(super) struct AgentSocket {
    http: Arc<Http>,
    target: Arc<Target>,
    manner: Manner,
    /// Operations whose output schema declares a member `error`: there it is data.
    declare_error: HashSet<Box<str>>,
}

pub(super) fn way(http: &Arc<Http>, agent: &Agent, settings: &super::Settings) -> Result<Arc<dyn Way>, Vec<String>> {
    let target = http.target(agent, settings)?;
    let declaring = agent.operations.iter().filter(|operation| operation.declares_error());
    let declare_error = declaring.map(|operation| (&*operation.name).into()).collect();
    Ok(Arc::new(AgentSocket {
        http: Arc::clone(http),
        target,
        manner: Manner::from(&settings.websocket),
        declare_error,
    }))
}

impl fmt::Debug for AgentSocket {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("WebSocket").field("target", &self.target).field("manner", &self.manner).finish_non_exhaustive()
    }
}

#[async_trait::async_trait]
impl Way for AgentSocket {
    fn bounds(&self) -> &Bounds {
        self.target.bounds()
    }

    async fn reaches(&self) -> bool {
        self.http.reaches(&self.target).await
    }

    async fn call(&self, request: Request<'_>, deadline: Instant) -> Result<Reply, Fault> {
        let Request { id, operation, headers, body, passage, .. } = request;
        let late = |_| Fault::new(Code::Timeout, "The request body did not arrive in time").status(408);
        let input = timeout_at(deadline, body.whole(self.manner.max_message)).await.map_err(late)??;
        let message = ask::message(self.manner.frames, (id, operation), &input)?;
        let wants = Wants::of(headers, &input);
        let offer = Offer { headers, passage, protocols: None, lasting: false };
        let mut leg = match self.http.switch(&self.target, offer, deadline).await? {
            Switched::Refused(reply) => return Ok(reply),
            Switched::Open(io, _) => self.leg(io).await,
        };
        leg.text(message);
        leg.flush().await.map_err(|lost| lost.fault())?;
        let answers = Answers::new(leg, self.manner.clone(), (id, *self.bounds(), deadline));
        match wants {
            Wants::Document => self.document(answers).await,
            wants => self.stream(answers, wants, operation).await,
        }
    }

    fn has_socket(&self) -> bool {
        true
    }

    async fn socket(&self, request: Request<'_>, deadline: Instant) -> Option<Result<Opened, Fault>> {
        let Request { headers, passage, .. } = request;
        let protocols = headers.get(header::SEC_WEBSOCKET_PROTOCOL);
        let offer = Offer { headers, passage, protocols, lasting: true };
        let switched = self.http.switch(&self.target, offer, deadline).await;
        Some(match switched {
            Err(fault) => Err(fault),
            Ok(Switched::Refused(reply)) => Ok(Opened::Refused(reply)),
            Ok(Switched::Open(io, protocol)) => Ok(Opened::Socket(Box::new(Socket {
                leg: self.leg(io).await,
                protocol,
                frames: self.manner.frames,
                check: self.manner.check,
            }))),
        })
    }
}

impl AgentSocket {
    async fn leg(&self, io: Box<dyn Io>) -> Leg {
        let Manner { max_message, ping, pong, .. } = self.manner;
        let bounds = LegBounds { max_message, ping, pong, write: self.bounds().idle };
        Leg::new(io, Peer::Agent, Vec::new(), bounds).await
    }

    /// Reads one document, by the framing: the only message, a line, or the response.
    async fn document(&self, mut answers: Answers) -> Result<Reply, Fault> {
        let last = self.manner.document == Pick::Last;
        let mut kept = None;
        let reply = loop {
            match answers.part().await? {
                // A notification is not a reply.
                Part::One(Some(_), _) => {}
                Part::One(None, line) if last => kept = Some(line),
                Part::One(None, line) | Part::Last(line) => break reply(StatusCode::OK, Wants::Document, line.into()),
                Part::Failure(status, told) => break reply(status, Wants::Document, told.into()),
                Part::End => break reply(StatusCode::OK, Wants::Document, kept.ok_or_else(unanswered)?.into()),
            }
            if answers.is_too_much() {
                return Err(Fault::new(Code::AgentError, "The agent sent too many messages without a reply"));
            }
        };
        // The agent is told that the reply is complete; the call does not wait for the closing handshake.
        tokio::spawn(answers.leg.end(Some((1000, ""))));
        Ok(reply)
    }

    /// Streams every message as it arrives. Awaits the first one, because a failure is then a reply of its own.
    async fn stream(&self, mut answers: Answers, wants: Wants, operation: &str) -> Result<Reply, Fault> {
        let declares_error = self.declare_error.contains(operation);
        let first = match answers.part().await? {
            Part::Failure(status, told) => return Ok(reply(status, Wants::Document, told.into())),
            Part::End => return Err(unanswered()),
            Part::One(_, part) | Part::Last(part) if !declares_error && is_failure(&part) => {
                return Ok(reply(StatusCode::OK, Wants::Document, part.into()));
            }
            first => first,
        };
        let (pieces, body) = mpsc::channel(QUEUE);
        let pump = Pump { answers, wants, declares_error, pieces };
        tokio::spawn(pump.run(first));
        Ok(reply(StatusCode::OK, wants, ReplyBody::pieces(body)))
    }
}

fn unanswered() -> Fault {
    Fault::new(Code::AgentError, "The agent closed the connection without a reply")
}

fn reply(status: StatusCode, form: Wants, body: ReplyBody) -> Reply {
    let mut headers = HeaderMap::with_capacity(1);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(form.media()));
    Reply { status, headers, body }
}

/// Forwards messages at the caller's pace, until the reply ends, its time is over, or the caller leaves.
struct Pump {
    answers: Answers,
    wants: Wants,
    declares_error: bool,
    pieces: Pieces,
}

impl Pump {
    async fn run(mut self, first: Part) {
        let mut next = Ok(first);
        let farewell = loop {
            let (name, data, last) = match next {
                Ok(Part::One(name, data)) => (name, data, false),
                Ok(Part::Last(data)) => (None, data, true),
                Ok(Part::End) => break (1000, ""),
                Ok(Part::Failure(_, told)) => break fail(&self.pieces, failed(&told)).await,
                Err(fault) => break fail(&self.pieces, fault).await,
            };
            if !self.declares_error && is_failure(&data) {
                break fail(&self.pieces, failed(&data)).await;
            }
            let piece = piece(self.wants, name.as_deref(), &data);
            if self.pieces.send(Ok(piece)).await.is_err() {
                break (1001, "");
            }
            if last {
                break (1000, "");
            }
            next = tokio::select! {
                biased;
                () = self.pieces.closed() => break (1001, ""),
                part = self.answers.part() => part,
            };
        };
        drop(self.pieces);
        self.answers.leg.end(Some(farewell)).await;
    }
}

type Pieces = mpsc::Sender<Result<Bytes, Fault>>;

async fn fail(pieces: &Pieces, fault: Fault) -> (u16, &'static str) {
    // A caller that has left needs no reason.
    drop(pieces.send(Err(fault)).await);
    (1000, "")
}

/// The fault of a failure within a stream; the agent's words go to the log (R41).
fn failed(told: &[u8]) -> Fault {
    let told: String = String::from_utf8_lossy(told).chars().take(2048).collect();
    Fault::new(Code::AgentError, "The agent failed").detail(told)
}

/// Encodes a message in the caller's format.
fn piece(wants: Wants, name: Option<&str>, data: &[u8]) -> Bytes {
    let text = String::from_utf8_lossy(data);
    if wants == Wants::Lines {
        return Bytes::from(format!("{}\n", text.replace(['\r', '\n'], " ")));
    }
    let mut event = String::with_capacity(text.len() + 32);
    let plain = |c: char| c.is_ascii_alphanumeric() || "._/-".contains(c);
    // The event name `error` is reserved for the gateway's own event at the end of a stream.
    if let Some(name) = name.filter(|name| *name != "error" && name.len() <= 64 && name.chars().all(plain)) {
        event.push_str("event: ");
        event.push_str(name);
        event.push('\n');
    }
    for line in text.split(['\r', '\n']).filter(|line| !line.is_empty()) {
        event.push_str("data: ");
        event.push_str(line);
        event.push('\n');
    }
    event.push('\n');
    Bytes::from(event)
}

#[cfg(test)]
mod tests;
