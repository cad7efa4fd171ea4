//! The path of a call, and the only module that touches a Pingora session or writes a response. The list in the
//! crate's documentation names the file of each step; `request_handler` runs the steps in that order.

mod admission;
mod background_call;
mod batch;
mod call;
mod content_negotiation;
mod cors;
mod delegation;
mod directory_handler;
mod event_boundaries;
pub mod http_server;
mod idempotent_call;
mod incoming_body;
mod input_validation;
mod mqtt_bridge_agents;
mod mqtt_bridge_invoker;
mod overload_control;
mod path_router;
mod pipeline;
mod prefer;
mod preflight_and_pairing;
mod reply_validation;
mod request_handler;
mod request_head;
pub mod request_validation;
mod requested_version;
mod respond_async;
mod responder;
mod response_headers;
mod response_normalization;
mod response_writer;
mod resumable_stream;
mod route;
mod streamed_response;
mod subrequest;
mod task_handler;
mod upstream_request;
pub mod websocket;

pub use cors::{CorsConfig, CorsPolicy, PairingConfig};
pub use delegation::{DelegationConfig, DelegationPolicy};
pub use mqtt_bridge_agents::MqttBridge;
pub use route::{AgentRouteCompiler, Route, RouteRule};

use crate::{
    agent::Agent,
    auth::{Authorizer, BrowserPairings},
    contract,
    directory::AgentDirectory,
    fault::{ErrorFormat, Fault, Violation},
    idempotency::IdempotencyKeys,
    limit::CallLimiter,
    registry::{Catalogue, OnDemandCatalogue},
    task::TaskManager,
    telemetry::{AccessLog, Event, Metrics, redact},
    transport::UpstreamClient,
    values::ByteSize,
};
use arc_swap::ArcSwap;
use http::HeaderName;
use std::{sync::Arc, time::Duration};

/// Everything that one configuration puts into force. Immutable; a reload swaps the whole snapshot.
pub struct ConfigSnapshot {
    /// Authentication and authorisation.
    pub auth: Arc<Authorizer>,
    /// Registries that are queried on demand for agents that the catalogue does not hold.
    pub on_demand_registries: Option<Arc<OnDemandCatalogue<Route>>>,
    /// The discovery API and documents.
    pub directory: Arc<AgentDirectory>,
    /// Tasks: calls that are answered asynchronously, and resumable streams. `None` disables both.
    pub tasks: Option<Arc<TaskManager>>,
    /// Stored responses by idempotency key.
    pub idempotency: Arc<IdempotencyKeys>,
    /// How bodies are validated.
    pub contract: contract::ContractConfig,
    /// The error format for callers whose `Accept` prefers none.
    pub error_format: ErrorFormat,
    /// The header in which callers send API keys.
    pub api_key_header: Option<HeaderName>,
    /// The web pages whose scripts may call agents; `None` disables CORS.
    pub cors: Option<CorsPolicy>,
    /// Signed delegation chains; `None` passes the callers' own headers through.
    pub delegation: Option<Arc<DelegationPolicy>>,
    /// The most bytes of a body that is streamed without validation.
    pub max_streamed_body_size: ByteSize,
    /// Callers' WebSockets.
    pub websockets: websocket::CallerWebSocketConfig,
    /// The interval between keep-alive comments on an idle event stream; zero sends none.
    pub sse_keep_alive_interval: Duration,
}

/// The gateway: the current config snapshot, and the state that outlives every configuration.
pub struct Gateway {
    /// The current config snapshot.
    pub config: ArcSwap<ConfigSnapshot>,
    /// The agents, as routes.
    pub catalogue: Arc<Catalogue<Route>>,
    /// Rate limits, quotas, concurrency limits and load shedding.
    pub limits: Arc<CallLimiter>,
    /// The transport to the agents.
    pub transport: UpstreamClient,
    /// The metrics.
    pub metrics: Arc<Metrics>,
    /// The access log.
    pub access_log: Arc<AccessLog>,
    /// The pairing codes and the API keys of paired web pages.
    pub browser_pairings: Arc<BrowserPairings>,
}

impl Gateway {
    /// Counts and logs violations of a contract that is not enforced.
    fn report_contract_violations(&self, agent: &Agent, side: &'static str, violations: &[Violation]) {
        if let Some(first) = violations.first() {
            self.metrics.record_event(Event::ContractViolated);
            let message = redact(&first.message);
            tracing::info!(agent = %agent.id, side, count = violations.len(), "contract violated at {:?}: {message}", first.pointer);
        }
    }
}

/// Why a step ended the call early.
#[derive(Debug)]
enum CallError {
    /// The call failed; the caller receives the fault.
    Fault(Fault),
    /// The caller is gone, so no response is written.
    CallerGone,
}

impl From<Fault> for CallError {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

#[cfg(test)]
mod tests;
