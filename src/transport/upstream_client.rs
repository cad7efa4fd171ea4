//! The client of all upstreams.

use super::{
    admission::Admission,
    circuit_breaker::BreakerPolicy,
    circuit_breaker_registry::BreakerRegistry,
    config::TransportConfig,
    failover::{self, FailoverCall},
    local::{LeaseGrant, LocalRuntimeConfig},
    transport_kind::TransportBuilder as _,
    transport_kinds::TransportKinds,
    tunnel_failover,
    upstream_compiler::{UpstreamCompiler, parse_additional_endpoints},
    upstream_reply::UpstreamReply,
    upstream_set::UpstreamSet,
    upstream_transport::UpstreamCall,
    websocket::{TunnelOutcome, WebSocketOutcome},
};
use crate::{agent::Agent, fault::Fault, net::AddressPolicy, resolver::UriResolver, telemetry::Metrics};
use arc_swap::ArcSwapOption;
use std::sync::Arc;

/// The client of all upstreams. It lives as long as the process: upstream sets that are compiled under a new
/// configuration share its connection pools and circuit breakers.
#[derive(Clone, Debug)]
pub struct UpstreamClient {
    pub(super) kinds: Arc<TransportKinds>,
    pub(super) breakers: Arc<BreakerRegistry>,
    resolver: Arc<ArcSwapOption<UriResolver>>,
}

impl UpstreamClient {
    /// Creates a client that connects only to addresses that `policy` permits. Requires a tokio runtime, on which it
    /// spawns its maintenance tasks.
    pub fn new(policy: Arc<AddressPolicy>) -> Self {
        let resolver = Arc::default();
        Self { kinds: TransportKinds::new(&policy, &resolver), breakers: Arc::default(), resolver }
    }

    /// Sets the metrics of the brokers of agents. Each agent's own metrics come with its calls.
    pub fn set_metrics(&self, metrics: &Arc<Metrics>) {
        self.kinds.set_metrics(metrics);
    }

    /// Sets the resolver of `agent://` names. Without a resolver, agents that have only a name are unavailable.
    pub fn set_resolver(&self, resolver: Arc<UriResolver>) {
        self.resolver.store(Some(resolver));
    }

    /// The resolver in force.
    pub fn resolver(&self) -> Option<Arc<UriResolver>> {
        self.resolver.load_full()
    }

    /// Replaces the address policy. Connections that were opened under the old policy serve no further call.
    pub fn set_address_policy(&self, policy: Arc<AddressPolicy>) {
        self.kinds.set_address_policy(&policy);
    }

    /// Sets where local runtimes register; with `None`, no runtime can register.
    pub fn set_local_runtimes(&self, config: Option<LocalRuntimeConfig>) {
        self.kinds.local_runtimes().set_config(config);
    }

    /// Registers the local runtime `name` or renews its lease. `request_body` is JSON with `socket`, `path` and `ttl`.
    /// Blocks while it checks the socket.
    ///
    /// # Errors
    /// `NotFound` where no runtime may register, `InvalidInput` for a socket that is not trusted.
    pub fn register_local_runtime(&self, name: &str, request_body: &[u8]) -> Result<LeaseGrant, Fault> {
        self.kinds.local_runtimes().grant_lease(name, request_body)
    }

    /// Ends the registration of `name`. Returns whether there was one.
    pub fn deregister_local_runtime(&self, name: &str) -> bool {
        self.kinds.local_runtimes().end_lease(name)
    }

    /// Returns every reason why `settings` cannot be used for any agent, such as missing files and secrets.
    pub fn config_problems(&self, settings: &TransportConfig) -> Vec<String> {
        [
            settings.timeouts.problems(),
            self.kinds.problems(settings),
            BreakerPolicy::from_settings(&settings.circuit_breaker).err().unwrap_or_default(),
            parse_additional_endpoints(settings, "id").err().unwrap_or_default(),
        ]
        .concat()
    }

    /// Compiles the upstream set of `agent`. Reads the files and secrets that `settings` name.
    ///
    /// # Errors
    /// Every reason why the agent cannot be called as configured, each prefixed with its field.
    pub fn compile_upstream_set(&self, agent: &Agent, settings: &TransportConfig) -> Result<UpstreamSet, Vec<String>> {
        UpstreamCompiler { transports: &*self.kinds, breakers: &self.breakers, settings }.compile(agent)
    }

    /// Makes the call and waits for the head of the reply.
    ///
    /// # Errors
    /// The upstream cannot be reached, does not reply in time, or does not speak HTTP; or its circuit breaker is open.
    pub fn call<'a>(
        &'a self,
        admitted: &'a impl Admission,
        request: UpstreamCall<'a>,
    ) -> impl Future<Output = Result<UpstreamReply, Fault>> + Send + 'a {
        let (upstream, session, deadline) = (admitted.upstream_set(), admitted.session_hash(), admitted.deadline());
        FailoverCall { upstream, session, deadline }.send(request)
    }

    /// Opens the agent's own WebSocket. Returns `None` where the agent has no WebSocket and takes calls instead.
    ///
    /// # Errors
    /// The upstream cannot be reached, or does not complete the handshake in time; or its circuit breaker is open.
    pub async fn open_websocket(
        &self,
        admitted: &impl Admission,
        request: UpstreamCall<'_>,
    ) -> Result<Option<WebSocketOutcome>, Fault> {
        failover::open_primary_websocket(admitted.upstream_set(), request, admitted.deadline()).await
    }

    /// Opens a tunnel to a WebSocket of the agent's own API, whose frames pass as they are.
    ///
    /// # Errors
    /// The upstream cannot be reached, or does not complete the handshake in time; or its circuit breaker is open.
    pub async fn open_tunnel(
        &self,
        admitted: &impl Admission,
        request: UpstreamCall<'_>,
    ) -> Result<TunnelOutcome, Fault> {
        let (upstream, session, deadline) = (admitted.upstream_set(), admitted.session_hash(), admitted.deadline());
        tunnel_failover::open_tunnel(FailoverCall { upstream, session, deadline }, request).await
    }

    /// Whether any endpoint of the upstream accepts connections now. Transports that cannot tell count as reachable.
    pub async fn is_reachable(&self, upstream: &UpstreamSet) -> bool {
        upstream.is_reachable().await
    }

    /// The number of idle upstream connections.
    pub fn idle_connections(&self) -> usize {
        self.kinds.idle_connections()
    }
}
