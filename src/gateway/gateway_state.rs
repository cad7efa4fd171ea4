//! The gateway: the configuration in force, and the state that outlives every configuration.

use super::{
    admission::ShadowRules,
    api::{ApiHosts, OpenApiSources},
    caller_identity::CallerTokenSigner,
    cors::CorsPolicy,
    delegation::DelegationPolicy,
    route::Route,
    websocket::CallerWebSocketConfig,
};
use crate::{
    audit::AuditLog,
    auth::{Authorizer, BrowserPairings, NewPairingCode, RevocationList},
    contract::{self, CheckScheduler},
    directory::AgentDirectory,
    explain::RecentDecisions,
    fault::{CallProgress, ErrorFormat, Fault, FaultCode, Violation},
    idempotency::IdempotencyKeys,
    limit::CallLimiter,
    registry::{Catalogue, OnDemandCatalogue},
    task::TaskManager,
    telemetry::{AccessLog, Event, Metrics, ShadowRule, redact},
    trace::Tracer,
    transport::{HeaderMutations, UpstreamClient},
    values::ByteSize,
};
use arc_swap::ArcSwap;
use http::{HeaderName, HeaderValue};
use std::{
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

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
    /// Signs the tokens that tell agents who calls; `None` if no agent is told by a token.
    pub caller_tokens: Option<Arc<CallerTokenSigner>>,
    /// The most bytes of a body that is streamed without validation.
    pub max_streamed_body_size: ByteSize,
    /// Callers' WebSockets.
    pub websockets: CallerWebSocketConfig,
    /// The interval between keep-alive comments on an idle event stream; zero sends none.
    pub sse_keep_alive_interval: Duration,
    /// Rules in shadow mode; `None` judges none.
    pub shadow: Option<ShadowRules>,
    /// The OpenAPI documents of agents' own APIs.
    pub openapi: OpenApiSources,
    /// Hosts at which the root is an agent's own API.
    pub api_hosts: ApiHosts,
    /// Traces; `None` records none, and passes the callers' own context through.
    pub tracer: Option<Arc<Tracer>>,
}

impl ConfigSnapshot {
    /// Returns what changes in a caller's header fields: no credential of a caller passes.
    pub(super) fn header_mutations<'a>(
        &'a self,
        forwarded: &'a HeaderValue,
        set: &'a [(HeaderName, HeaderValue)],
    ) -> HeaderMutations<'a> {
        let credential_headers = self.auth.credential_headers();
        HeaderMutations { forwarded: Some(forwarded), credential_headers, set, ..HeaderMutations::default() }
    }
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
    /// The audit log; `None` records no changes.
    pub audit_log: Option<Arc<AuditLog>>,
    /// The threads for checks that take long.
    pub check_scheduler: CheckScheduler,
    /// The pairing codes and the API keys of paired web pages.
    pub browser_pairings: Arc<BrowserPairings>,
    /// The revoked API keys and tokens.
    pub revocations: Arc<RevocationList>,
    /// The recent refusals.
    pub recent_decisions: RecentDecisions,
    /// When the drain of the gateway ends, once it stops.
    pub drain_end: OnceLock<Instant>,
}

impl Gateway {
    /// Creates a code with which one page can be paired.
    ///
    /// # Errors
    /// `NotFound` if pairing is disabled, or the faults of [`BrowserPairings::create_code`].
    pub async fn create_pairing_code(&self) -> Result<NewPairingCode, Fault> {
        let is_enabled = self.config.load().cors.as_ref().is_some_and(|cors| cors.pairing_key_ttl.is_some());
        if !is_enabled {
            let message = "Pairing is disabled (the configuration has no cors.pairing)";
            return Err(Fault::new(FaultCode::NotFound, message));
        }
        self.browser_pairings.create_code().await
    }

    /// Sets how long calls in flight may take from now on.
    pub fn begin_drain(&self, timeout: Duration) {
        // A time beyond the clock never comes.
        if let Some(end) = Instant::now().checked_add(timeout) {
            self.drain_end.get_or_init(|| end);
        }
    }

    /// Returns whether the drain has ended, so that calls that end now are cut off by the gateway. Messages of WebSockets,
    /// steps of pipelines and tasks of the MQTT bridge are dropped then.
    pub(super) fn is_drain_over(&self) -> bool {
        self.drain_end.get().is_some_and(|end| Instant::now() >= *end)
    }

    /// Counts a call that the end of the drain cuts off, and returns its fault.
    pub(super) fn cut_off_call(&self) -> Fault {
        self.metrics.record_event(Event::CallCutOff);
        Fault::new(FaultCode::Overloaded, "The gateway was stopped before the call ended")
            .with_detail("the call was cut off at shutdown.drain_timeout")
            .with_progress(CallProgress::PossiblySent)
    }

    /// Counts and logs violations of a contract that is not enforced.
    pub(super) fn report_contract_violations(&self, route: &Route, side: ShadowRule, violations: &[Violation]) {
        if let Some(first) = violations.first() {
            self.metrics.record_event(Event::ContractViolated);
            route.metrics.record_shadow_denial(side);
            let message = redact(&first.message);
            tracing::info!(agent = %route.agent.id, side = side.name(), count = violations.len(), "contract violated at {:?}: {message}", first.pointer);
        }
    }
}
