//! Transports: how the gateway calls upstreams. This module strips the caller's credentials, adds the gateway's,
//! enforces the deadline, and retries only where a retry is safe. It makes no access decision and writes no response.
//!
//! Each kind of transport is one folder here: an implementation of [`Transport`] and an arm of
//! `UpstreamClient::build_transport`. Only HTTP is a variant of [`EndpointTransport`], so that an HTTP call costs no
//! allocation.

mod body;
mod breaker;
mod ends;
mod headers;
mod http;
mod leads;
mod local;
mod matrix;
mod mqtt;
mod named;
mod reach;
mod reply;
mod session;
mod settings;
mod tries;
mod way;
mod websocket;

pub use self::http::Target;
pub use body::{Body, Closed, Feed, Intake};
pub use breaker::Standing;
pub use ends::{Lead, Route};
pub use headers::{Passage, forwarded, incoming_headers};
pub use local::{Leased, LocalConfig};
pub use matrix::MatrixSettings;
pub use reply::{Beginning, Reply, ReplyBody};
pub use session::hash;
pub use settings::{Bounds, BreakerSettings, Credential, MqttLogin, Settings, Timeouts, Tls};
pub use way::Way;
pub use websocket::{Came, Frames, Io, Leg, LegBounds, Lost, Opened, Peer, Socket, UpstreamWebSocketConfig};

use self::{breaker::Rules, http::Http, leads::Breakers};
use crate::{fault::Fault, names::Resolver, net::AddressPolicy};
use ::http::{HeaderMap, Method, uri::PathAndQuery};
use arc_swap::ArcSwapOption;
use std::sync::{Arc, Mutex};
use tokio::time::Instant;

/// Proof that a call was admitted. Only one type in `gateway` implements this trait, and only one function there
/// builds that type, so a call that was not admitted cannot be sent.
pub trait Admission: Sync {
    /// The upstream to call.
    fn route(&self) -> &Route;

    /// The deadline of the call, all attempts included.
    fn deadline(&self) -> Instant;

    /// A hash of the caller's session, if it has one: all calls of a session go to one endpoint. See [`stable_hash`].
    fn session(&self) -> Option<u64> {
        None
    }
}

/// A call to an upstream.
#[derive(Debug)]
pub struct Request<'a> {
    /// The call's id, for transports that carry it outside of header fields.
    pub id: &'a str,
    /// The operation's name; empty for the agent's default operation.
    pub operation: &'a str,
    /// The method.
    pub method: Method,
    /// Path and query, if they differ from those of the agent's endpoint.
    pub path: Option<PathAndQuery>,
    /// The caller's header fields, unfiltered; the transport strips the fields that must not cross.
    pub headers: &'a HeaderMap,
    /// The body.
    pub body: Body,
    /// The header fields that the gateway adds, replaces and removes.
    pub passage: Passage<'a>,
    /// The instruction for the agent in natural language, for transports that have a field for it; others ignore it.
    pub instruction: Option<&'a str>,
}

/// The client of all upstreams. It lives as long as the process: upstream sets that are compiled under a new
/// configuration share its connection pools and circuit breakers.
#[derive(Clone, Debug)]
pub struct Transport {
    http: Arc<Http>,
    mqtt: Arc<mqtt::Mqtt>,
    names: Arc<ArcSwapOption<Resolver>>,
    matrix: Arc<matrix::Matrix>,
    local: Arc<local::Local>,
    breakers: Arc<Mutex<Breakers>>,
}

impl Transport {
    /// Creates a client that connects only to addresses that `policy` permits. Requires a tokio runtime, on which it
    /// spawns its maintenance tasks.
    pub fn new(policy: Arc<AddressPolicy>) -> Self {
        Self {
            mqtt: mqtt::Mqtt::new(Arc::clone(&policy)),
            http: Http::new(policy),
            names: Arc::default(),
            matrix: Arc::default(),
            local: local::Local::new(),
            breakers: Arc::default(),
        }
    }

    /// Sets the resolver of `agent://` names. Without a resolver, agents that have only a name are unavailable.
    pub fn set_names(&self, names: Arc<Resolver>) {
        self.names.store(Some(names));
    }

    /// The resolver in force.
    pub fn names(&self) -> Option<Arc<Resolver>> {
        self.names.load_full()
    }

    /// Replaces the address policy. Connections that were opened under the old policy serve no further call.
    pub fn set_policy(&self, policy: Arc<AddressPolicy>) {
        self.mqtt.set_policy(Arc::clone(&policy));
        self.http.set_policy(policy);
    }

    /// Sets where local runtimes register; with `None`, no runtime can register.
    pub fn set_local(&self, config: Option<LocalConfig>) {
        self.local.configure(config);
    }

    /// Registers the local runtime `name` or renews its lease. `wanted` is JSON with `socket`, `path` and `ttl`.
    /// Blocks while it checks the socket.
    ///
    /// # Errors
    /// `NotFound` where no runtime may register, `InvalidInput` for a socket that is not trusted.
    pub fn lease(&self, name: &str, wanted: &[u8]) -> Result<Leased, Fault> {
        self.local.lease(name, wanted)
    }

    /// Ends the registration of `name`. Returns whether there was one.
    pub fn release(&self, name: &str) -> bool {
        self.local.release(name)
    }

    /// Returns every reason why `settings` cannot be used for any agent, such as missing files and secrets.
    pub fn check(&self, settings: &Settings) -> Vec<String> {
        [
            http::problems(settings),
            mqtt::problems(settings),
            matrix::problems(settings),
            settings.websocket.problems(),
            Rules::of(&settings.circuit_breaker).err().unwrap_or_default(),
            leads::further(settings, "id").err().unwrap_or_default(),
        ]
        .concat()
    }

    /// Makes the call and waits for the head of the reply.
    ///
    /// # Errors
    /// The upstream cannot be reached, does not reply in time, or does not speak HTTP; or its circuit breaker is open.
    pub fn call<'a>(
        &'a self,
        admitted: &'a impl Admission,
        request: Request<'a>,
    ) -> impl Future<Output = Result<Reply, Fault>> + Send + 'a {
        self.at_ends(admitted.route(), request, (admitted.session(), admitted.deadline()))
    }

    /// Opens the agent's own WebSocket. Returns `None` where the agent has no WebSocket and takes calls instead.
    ///
    /// # Errors
    /// The upstream cannot be reached, or does not complete the handshake in time; or its circuit breaker is open.
    pub async fn socket(&self, admitted: &impl Admission, request: Request<'_>) -> Result<Option<Opened>, Fault> {
        self.socket_at(admitted.route(), request, admitted.deadline()).await
    }

    /// The number of idle upstream connections.
    pub fn idle(&self) -> usize {
        self.http.idle() + self.local.idle()
    }
}

#[cfg(test)]
mod tests;
