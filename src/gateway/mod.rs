//! The path of a call, and the only room that touches a Pingora session or writes a response.
//! `serve` reads like the list in the crate's documentation; each step has a file of its own.

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

/// What a configuration puts in force, all of it at once.
pub struct World {
    /// Who calls.
    pub auth: Arc<Auth>,
    /// The registries that are asked for agents which the catalogue does not have.
    pub lazy: Option<Arc<Lazy<Route>>>,
    /// What is told of the agents.
    pub directory: Arc<Directory>,
    /// Calls that are answered later, and streams that are taken up again; none where that is not wanted.
    pub tasks: Option<Arc<Desk>>,
    /// Calls that are made once.
    pub once: Arc<Once>,
    /// How bodies are checked.
    pub contract: contract::Config,
    /// The error format where the caller prefers none.
    pub format: Format,
    /// The header in which callers show API keys.
    pub key_header: Option<HeaderName>,
    /// Which pages in a browser may call.
    pub cors: Option<Cors>,
    /// How agents are told who called whom before; `None` leaves the callers' word as it is.
    pub delegation: Option<Arc<Delegation>>,
    /// Bytes of a body that is streamed unchecked.
    pub max_stream: Size,
    /// Callers with a WebSocket of their own.
    pub sockets: socket::Config,
    /// Between two keep-alive comments on an idle event stream; zero for none.
    pub stream_keep_alive: Duration,
}

/// The gateway: what is in force, and what outlives every configuration.
pub struct Gateway {
    /// What is in force.
    pub world: ArcSwap<World>,
    /// The agents.
    pub catalogue: Arc<Catalogue<Route>>,
    /// How much.
    pub limits: Arc<Limits>,
    /// The way out.
    pub transport: Transport,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// What is written of each call.
    pub log: Arc<AccessLog>,
    /// The pages that were paired.
    pub paired: Arc<Paired>,
}

impl Gateway {
    /// Counts and logs what broke a contract that is only reported on.
    fn reported(&self, agent: &Agent, side: &'static str, broken: &[Violation]) {
        if let Some(first) = broken.first() {
            self.metrics.count(Event::ContractBroken);
            let told = redact(&first.message);
            tracing::info!(agent = %agent.id, side, count = broken.len(), "a contract is broken at {:?}: {told}", first.pointer);
        }
    }
}

/// Why a step did not finish.
#[derive(Debug)]
enum Stop {
    /// There is something to answer.
    Fault(Fault),
    /// There is nobody to answer.
    Gone,
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

#[cfg(test)]
mod tests;
