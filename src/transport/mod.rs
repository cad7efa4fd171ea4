//! The one way out: how an agent is reached. It strips the caller's credentials, adds the gateway's,
//! keeps the call within its time, and tries again only where that is safe.
//! It decides nothing about who may call, and writes no answer.
//!
//! A kind of transport is a folder here, an implementation of [`Way`] and an arm of `Transport::lead`; HTTP alone is
//! a variant of [`Lead`], so that it costs no allocation.

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
pub use websocket::{Came, Frames, Io, Leg, LegBounds, Lost, Opened, Peer, Settings as WebSocketSettings, Socket};

use self::{breaker::Rules, http::Http, leads::Breakers};
use crate::{fault::Fault, names::Resolver, net::AddressPolicy};
use ::http::{HeaderMap, Method, uri::PathAndQuery};
use arc_swap::ArcSwapOption;
use std::sync::{Arc, Mutex};
use tokio::time::Instant;

/// The proof that a call was admitted. `gateway` has the one type that implements it and the one
/// function that makes it, so what was not admitted cannot be sent.
pub trait Admission: Sync {
    /// Where the call goes.
    fn route(&self) -> &Route;

    /// When its time is over, all tries together.
    fn deadline(&self) -> Instant;

    /// What stands for the caller's session, where it has one: its calls go to one endpoint. See [`hash`].
    fn session(&self) -> Option<u64> {
        None
    }
}

/// A call for an agent.
#[derive(Debug)]
pub struct Request<'a> {
    /// The call's id, for peers that take it elsewhere than in a field.
    pub id: &'a str,
    /// The operation's name; empty for the implied one.
    pub operation: &'a str,
    /// The method.
    pub method: Method,
    /// Path and query, where they are not those of the agent's endpoint.
    pub path: Option<PathAndQuery>,
    /// The caller's fields as they came; what may not pass is left out here.
    pub headers: &'a HeaderMap,
    /// The body.
    pub body: Body,
    /// What the agent is told about the caller.
    pub passage: Passage<'a>,
    /// What the agent is to do, in words, for kinds that have room for it; nothing elsewhere.
    pub instruction: Option<&'a str>,
}

/// Every connection to agents. One for the life of the process: routes made under another
/// configuration share its pools, and what is known of their endpoints.
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
    /// A transport that reaches what `policy` permits. Needs a tokio runtime, in which it keeps house.
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

    /// Puts whoever resolves names in force; without one, agents that only have a name are not available.
    pub fn set_names(&self, names: Arc<Resolver>) {
        self.names.store(Some(names));
    }

    /// Whoever resolves names now.
    pub fn names(&self) -> Option<Arc<Resolver>> {
        self.names.load_full()
    }

    /// Puts another policy in force; connections made under the old one are not used for another call.
    pub fn set_policy(&self, policy: Arc<AddressPolicy>) {
        self.mqtt.set_policy(Arc::clone(&policy));
        self.http.set_policy(policy);
    }

    /// Puts in force where runtimes of this machine register; none do without it.
    pub fn set_local(&self, config: Option<LocalConfig>) {
        self.local.configure(config);
    }

    /// Registers the runtime `name` for a while, or renews that: `wanted` is JSON with `socket`, `path` and `ttl`.
    /// Blocks for a look at the socket.
    ///
    /// # Errors
    /// `NotFound` where none may register, `InvalidInput` for a socket that cannot be believed.
    pub fn lease(&self, name: &str, wanted: &[u8]) -> Result<Leased, Fault> {
        self.local.lease(name, wanted)
    }

    /// Ends a registration; whether there was one.
    pub fn release(&self, name: &str) -> bool {
        self.local.release(name)
    }

    /// What keeps `settings` from being used for any agent: files and secrets that are not there.
    pub fn check(&self, settings: &Settings) -> Vec<String> {
        [
            http::problems(settings),
            mqtt::problems(settings),
            matrix::problems(settings),
            settings.websocket.problems(),
            Rules::of(&settings.breaker).err().unwrap_or_default(),
            leads::further(settings, "id").err().unwrap_or_default(),
        ]
        .concat()
    }

    /// Makes the call and waits for the head of the answer.
    ///
    /// # Errors
    /// The agent cannot be reached, does not answer in time, or does not speak HTTP; or it has failed so often that
    /// it is left alone.
    pub fn call<'a>(
        &'a self,
        admitted: &'a impl Admission,
        request: Request<'a>,
    ) -> impl Future<Output = Result<Reply, Fault>> + Send + 'a {
        self.at_ends(admitted.route(), request, (admitted.session(), admitted.deadline()))
    }

    /// Opens the agent's own WebSocket for a caller who has one. `None`: the agent has none, and takes calls.
    ///
    /// # Errors
    /// The agent cannot be reached, or does not shake hands in time; or it has failed so often that it is left alone.
    pub async fn socket(&self, admitted: &impl Admission, request: Request<'_>) -> Result<Option<Opened>, Fault> {
        self.socket_at(admitted.route(), request, admitted.deadline()).await
    }

    /// Connections to agents that no call is using.
    pub fn idle(&self) -> usize {
        self.http.idle() + self.local.idle()
    }
}

#[cfg(test)]
mod tests;
