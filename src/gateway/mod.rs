//! The path of a call, and the only module that touches a Pingora session or writes a response.
//! `request_handler` reads like the list in the crate's documentation; each step has its own file.

mod accept;
mod admit;
mod asks;
mod batch;
mod body;
mod bridge;
mod call;
mod cors;
mod delegation;
mod errand;
mod events;
mod fields;
mod follow;
mod forward;
pub mod hygiene;
mod input;
mod judge;
mod keyed;
mod later;
pub mod listen;
mod load;
mod local;
mod normalise;
mod pair;
mod pipeline;
mod prefer;
mod reply;
mod route;
mod serve;
pub mod socket;
mod stream;
mod target;
mod tasks;
mod versions;
mod work;

pub use bridge::Bridge;
pub use cors::{Cors, CorsConfig, Pairing};
pub use delegation::{Config as DelegationConfig, Delegation};
pub use route::{Route, RouteRule, Routes};

use crate::{
    agent::Agent,
    auth::{Auth, Paired},
    contract,
    directory::Directory,
    fault::{Fault, Format, Violation},
    limit::Limits,
    once::Once,
    registry::{Catalogue, Lazy},
    task::Desk,
    telemetry::{AccessLog, Event, Metrics, redact},
    transport::Transport,
    unit::Size,
};
use arc_swap::ArcSwap;
use http::HeaderName;
use std::{sync::Arc, time::Duration};

/// Everything that one configuration puts into force. Immutable; a reload swaps the whole snapshot.
pub struct World {
    /// Authentication and authorisation.
    pub auth: Arc<Auth>,
    /// Registries that are queried on demand for agents that the catalogue does not hold.
    pub lazy: Option<Arc<Lazy<Route>>>,
    /// The discovery API and documents.
    pub directory: Arc<Directory>,
    /// Tasks: calls that are answered asynchronously, and resumable streams. `None` disables both.
    pub tasks: Option<Arc<Desk>>,
    /// Stored answers by idempotency key.
    pub once: Arc<Once>,
    /// How bodies are validated.
    pub contract: contract::Config,
    /// The error format for callers whose `Accept` prefers none.
    pub format: Format,
    /// The header in which callers send API keys.
    pub key_header: Option<HeaderName>,
    /// The web pages whose scripts may call; `None` disables CORS.
    pub cors: Option<Cors>,
    /// Signed delegation chains; `None` passes the callers' own headers through.
    pub delegation: Option<Arc<Delegation>>,
    /// The most bytes of a body that is streamed without validation.
    pub max_stream: Size,
    /// Callers' WebSockets.
    pub sockets: socket::Config,
    /// The interval between keep-alive comments on an idle event stream; zero sends none.
    pub stream_keep_alive: Duration,
}

/// The gateway: the current config snapshot, and the state that outlives every configuration.
pub struct Gateway {
    /// The current config snapshot.
    pub world: ArcSwap<World>,
    /// The agents, as routes.
    pub catalogue: Arc<Catalogue<Route>>,
    /// Rate limits, quotas, concurrency limits and load shedding.
    pub limits: Arc<Limits>,
    /// The transport to the agents.
    pub transport: Transport,
    /// The metrics.
    pub metrics: Arc<Metrics>,
    /// The access log.
    pub log: Arc<AccessLog>,
    /// The web pages that are paired.
    pub paired: Arc<Paired>,
}

impl Gateway {
    /// Counts and logs violations of a contract that is not enforced.
    fn reported(&self, agent: &Agent, side: &'static str, broken: &[Violation]) {
        if let Some(first) = broken.first() {
            self.metrics.count(Event::ContractBroken);
            let message = redact(&first.message);
            tracing::info!(agent = %agent.id, side, count = broken.len(), "contract violated at {:?}: {message}", first.pointer);
        }
    }
}

/// Why a step ended the call early.
#[derive(Debug)]
enum Stop {
    /// The call failed; the caller receives the fault.
    Fault(Fault),
    /// The caller is gone, so no response is written.
    Gone,
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

#[cfg(test)]
mod tests;
