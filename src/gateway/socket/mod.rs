//! WebSockets of callers (R43, R80, R82). An upgrade request is authenticated, authorised and limited like any call,
//! and a refusal is an ordinary response; only then is the connection upgraded. An agent with a WebSocket receives the
//! messages unchanged; for any other agent each message is a call. A WebSocket is one call in log and metrics, recorded
//! when it closes.

mod calls;
mod config;
mod handshake;
mod message;
mod relay;
mod ruling;
mod stream;

pub use config::Config;
pub(super) use handshake::is_asked;

use super::{
    Gateway, Stop,
    admit::{Admitted, Shown},
    asks::{deadline, told_by_us},
    call::{Call, Stage},
    fields::{head_of, tell},
    input,
    judge::Judge,
    listen::{self, Connection, Outcome, Tunnel},
    serve::{Serving, host},
    target::Invoke,
    versions,
};
use crate::{
    fault::{Code, Fault, Result},
    limit::Standing,
    transport::{Body, Io, Leg, LegBounds, Lost, Opened, Passage, Peer, Reply, Request, Socket},
};
use handshake::Handshake;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use pingora_core::protocols::http::ServerSession;
use pingora_http::RequestHeader;
use std::{sync::Arc, time::Duration};
use tokio::{task::JoinHandle, time::Instant};

/// The state of an open WebSocket.
pub(super) struct Sitting {
    gateway: Arc<Gateway>,
    connection: Arc<Connection>,
    call: Call,
    /// The credentials and the other headers of the handshake.
    headers: HeaderMap,
    forwarded: HeaderValue,
    agent: String,
    operation: Option<String>,
    config: Config,
    until: Instant,
    /// The task that closes the agent's side.
    parting: Option<JoinHandle<()>>,
}

/// Why a WebSocket session ends.
enum End {
    /// One side closed in order, or a time limit was reached; with the close frame for the caller.
    Order(Option<(u16, &'static str)>),
    /// The caller's connection is lost.
    Caller(Lost),
    /// The agent's connection is lost; the caller has been told.
    Agent(Fault),
}

impl Serving<'_> {
    /// Handles an upgrade request (steps 5 to 11), and upgrades the connection.
    pub(super) async fn socket(
        &self,
        session: &mut ServerSession,
        call: &mut Call,
        Asked { agent, version, operation }: Asked,
    ) -> std::result::Result<Outcome, Stop> {
        let Self { gateway, world, connection } = self;
        let head = session.req_header().clone();
        let handshake = Handshake::read(&head, &world.sockets, world.key_header.as_ref())?;
        let headers = &handshake.headers;
        let shown = Shown { headers, peer: connection.certificate(), address: connection.peer.ip() };
        let mut entry = gateway.enter(world, call, &agent, shown).await?;
        let named = input::named(&entry.known.route, operation.as_deref(), headers)?;
        let declared = head.uri.query().is_some() && versions::declared(&entry.known.route, named);
        let asked = versions::Asked::of(version.as_deref(), head.uri.query(), headers, declared)?;
        entry.known.version = entry.known.route.versions.choose(&asked)?;
        let stated =
            entry.known.version.as_ref().filter(|_| asked.is_stated()).and_then(|version| version.label.clone());
        if let Some(operation) = named {
            call.operates(operation);
        }
        let until = deadline(call, &entry.known.route, headers)?;
        let standing = entry.known.standing;
        let admitted = entry.admit(named.unwrap_or_default(), until);
        let forwarded = connection.forwarded(host(&head));
        let opened = tokio::select! {
            biased;
            opened = self.open(call, &admitted, (&head, headers, &forwarded)) => opened?,
            () = listen::gone(session) => return Err(Stop::Gone),
        };
        admitted.rests();
        let socket = match opened {
            None => None,
            Some(Opened::Socket(socket)) => Some(socket),
            Some(Opened::Refused(reply)) => return Err(self.refusal(&admitted, reply).await.into()),
        };
        let protocol = handshake.chosen(socket.as_ref().and_then(|socket| socket.protocol.clone()));
        self.switch(session, call, &admitted, (&handshake.accept, protocol, standing)).await?;
        let sitting = Sitting {
            gateway: Arc::clone(gateway),
            connection: Arc::clone(connection),
            call: call.go_on(),
            headers: lasting(handshake.headers, stated),
            forwarded,
            agent,
            operation,
            config: world.sockets.clone(),
            until: Instant::now() + world.sockets.max_connection_age.get(),
            parting: None,
        };
        // Without a WebSocket of the agent each message is a call, which acquires its own concurrency permit.
        let place = socket.map(|socket| (socket, admitted));
        Ok(Outcome::Switched(Tunnel::new(move |io, early| Box::pin(sitting.run(io, early, place)))))
    }

    /// Opens the agent's own WebSocket, if the agent has one.
    async fn open(
        &self,
        call: &Call,
        admitted: &Admitted,
        (head, headers, forwarded): (&RequestHeader, &HeaderMap, &HeaderValue),
    ) -> Result<Option<Opened>> {
        let fields = told_by_us(call, admitted, head);
        let request = Request {
            id: call.id(),
            operation: &admitted.operation().name,
            method: Method::GET,
            path: admitted.version().and_then(|version| version.path.clone()),
            headers,
            body: Body::Empty,
            passage: Passage {
                forwarded: Some(forwarded),
                key_header: self.world.key_header.as_ref(),
                fields: &fields,
            },
            instruction: None,
        };
        self.gateway.transport.socket(admitted, request).await
    }

    /// Returns the fault for an agent's refusal of the handshake.
    async fn refusal(&self, admitted: &Admitted, mut reply: Reply) -> Fault {
        let judge = Judge { gateway: self.gateway, rules: &self.world.contract, admitted };
        let passed = judge.whole(&mut reply).await;
        passed.err().unwrap_or_else(|| Fault::new(Code::AgentError, "The agent did not open a WebSocket"))
    }

    /// Writes the 101 response, after which the connection no longer carries HTTP.
    async fn switch(
        &self,
        session: &mut ServerSession,
        call: &Call,
        admitted: &Admitted,
        (accept, protocol, standing): (&str, Option<HeaderValue>, Option<Standing>),
    ) -> std::result::Result<(), Stop> {
        let mut headers = HeaderMap::with_capacity(8);
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        if let Ok(accept) = HeaderValue::from_str(accept) {
            headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
        }
        if let Some(protocol) = protocol {
            headers.insert(header::SEC_WEBSOCKET_PROTOCOL, protocol);
        }
        tell(&mut headers, call, standing.as_ref());
        let version = admitted.version().and_then(|version| version.label.clone());
        headers.extend(version.map(|version| (versions::FIELD, version)));
        for (name, value) in &admitted.agent().fields {
            headers.append(name, value.clone());
        }
        listen::write_through(session);
        session.set_write_timeout(Some(self.connection.limits.body_idle_timeout.get()));
        let head = head_of(StatusCode::SWITCHING_PROTOCOLS, headers);
        session.write_response_header(Box::new(head)).await.map_err(|_| Stop::Gone)
    }
}

impl Sitting {
    /// Runs the session until it ends, and records how it ended.
    async fn run(mut self, io: Box<dyn Io>, early: Vec<u8>, place: Option<(Box<Socket>, Admitted)>) {
        let bounds = LegBounds {
            max_message: self.config.max_message_size.get(),
            ping: self.config.ping_interval.get(),
            pong: self.config.pong_timeout.get(),
            write: self.connection.limits.body_idle_timeout.get(),
        };
        let mut caller = Leg::new(io, Peer::Caller, early, bounds).await;
        let end = match place {
            Some((socket, admitted)) => self.relay(&mut caller, *socket, &admitted).await,
            None => self.calls(&mut caller).await,
        };
        (self.call.count.bytes_in, self.call.count.bytes_out) = (caller.received, caller.sent);
        let (stage, farewell) = match end {
            End::Order(farewell) => (Stage::Answered(101), farewell),
            End::Caller(Lost::Gone) => (Stage::Gone(101), None),
            End::Caller(lost) => (Stage::Broken(101, blamed(&lost)), lost.farewell()),
            End::Agent(fault) => (Stage::Broken(101, fault), Some((1011, "The agent failed"))),
        };
        self.call.stage = stage;
        caller.end(farewell).await;
        if let Some(parting) = self.parting.take()
            && self.connection.draining()
        {
            // The process is about to exit: wait until the agent's side is closed too.
            drop(parting.await);
        }
    }

    /// Returns when the session ends by idle timeout or lifetime, and the close frame for that.
    fn over(&self, since: Instant) -> (Instant, (u16, &'static str)) {
        let idle = since + self.config.idle_timeout.get();
        if idle < self.until { (idle, (1001, "Idle timeout")) } else { (self.until, (1001, "Lifetime exceeded")) }
    }
}

/// The close frame for callers when the gateway shuts down.
const GOING: (u16, &str) = (1001, "The gateway is shutting down");

/// The longest timer, in case the clock is set far ahead.
const FAR: Duration = Duration::from_secs(3600);

/// Returns the fault for the log when a caller's connection was lost by the caller's doing.
fn blamed(lost: &Lost) -> Fault {
    let code = match lost {
        Lost::TooLarge => Code::PayloadTooLarge,
        Lost::Silent | Lost::Slow => return Fault::new(Code::Timeout, "The caller did not answer").status(408),
        _ => Code::InvalidInput,
    };
    Fault::new(code, "The caller violated the WebSocket protocol").detail(format_args!("{lost:?}"))
}

/// The target of an upgrade request, owned because the request head is borrowed.
pub(super) struct Asked {
    agent: String,
    version: Option<String>,
    operation: Option<String>,
}

impl From<&Invoke<'_>> for Asked {
    fn from(invoke: &Invoke<'_>) -> Self {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        Self { agent: invoke.agent.to_owned(), version: owned(invoke.version), operation: owned(invoke.operation) }
    }
}

/// Returns the headers of the handshake that apply to every message: the requested version as a header, and no
/// idempotency key, because one key cannot belong to several calls.
fn lasting(mut headers: HeaderMap, version: Option<HeaderValue>) -> HeaderMap {
    headers.remove("idempotency-key");
    if let Some(version) = version {
        headers.insert(versions::FIELD, version);
    }
    headers
}

#[cfg(test)]
mod tests;
