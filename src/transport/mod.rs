//! Transports: how the gateway calls upstreams. This module strips the caller's credentials, adds the gateway's,
//! enforces the deadline, and retries only where a retry is safe. It makes no access decision and writes no response.
//!
//! Each kind of transport is one folder here: an implementation of [`Transport`] and an arm of
//! `UpstreamClient::build_transport`. Only HTTP is a variant of [`EndpointTransport`], so that an HTTP call costs no
//! allocation.

mod agent_uri_transport;
mod circuit_breaker;
mod config;
mod failover;
mod headers;
mod http;
mod local;
mod matrix;
mod mqtt;
mod reachability_check;
mod session_affinity;
mod upstream_body;
mod upstream_compiler;
mod upstream_reply;
mod upstream_set;
mod upstream_transport;
mod websocket;

pub use self::http::HttpTarget;
pub use circuit_breaker::BreakerState;
pub use config::{
    CircuitBreakerConfig, TimeoutConfig, TransportConfig, UpstreamCredential, UpstreamMqttConfig, UpstreamTimeouts,
    UpstreamTlsConfig,
};
pub use headers::{HeaderMutations, build_forwarded, filter_reply_headers};
pub use local::{LeaseGrant, LocalRuntimeConfig};
pub use matrix::MatrixConfig;
pub use session_affinity::stable_hash;
pub use upstream_body::{BodyClosed, BodyReceiver, BodySender, RequestBody};
pub use upstream_reply::{BodyPrefix, ReplyBody, UpstreamReply};
pub use upstream_set::{EndpointTransport, UpstreamSet};
pub use upstream_transport::Transport;
pub use websocket::{
    MessageFraming, UpstreamWebSocket, UpstreamWebSocketConfig, WebSocketConnection, WebSocketError, WebSocketEvent,
    WebSocketIo, WebSocketLimits, WebSocketOutcome, WebSocketPeer,
};

use self::{circuit_breaker::BreakerPolicy, http::HttpUpstreamClient, upstream_compiler::BreakerRegistry};
use crate::{fault::Fault, net::AddressPolicy, resolver::UriResolver};
use ::http::{HeaderMap, Method, uri::PathAndQuery};
use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::time::Instant;

/// Proof that a call was admitted. Only one type in `gateway` implements this trait, and only one function there
/// builds that type, so a call that was not admitted cannot be sent.
pub trait Admission: Sync {
    /// The upstream to call.
    fn upstream_set(&self) -> &UpstreamSet;

    /// The deadline of the call, all attempts included.
    fn deadline(&self) -> Instant;

    /// A hash of the caller's session, if it has one: all calls of a session go to one endpoint. See [`stable_hash`].
    fn session_hash(&self) -> Option<u64> {
        None
    }
}

/// A call to an upstream.
#[derive(Debug)]
pub struct UpstreamCall<'a> {
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
    pub body: RequestBody,
    /// The header fields that the gateway adds, replaces and removes.
    pub header_mutations: HeaderMutations<'a>,
    /// The instruction for the agent in natural language, for transports that have a field for it; others ignore it.
    pub instruction: Option<&'a str>,
}

/// The client of all upstreams. It lives as long as the process: upstream sets that are compiled under a new
/// configuration share its connection pools and circuit breakers.
#[derive(Clone, Debug)]
pub struct UpstreamClient {
    http: Arc<HttpUpstreamClient>,
    mqtt: Arc<mqtt::MqttConnections>,
    resolver: Arc<ArcSwapOption<UriResolver>>,
    matrix: Arc<matrix::MatrixAccounts>,
    local: Arc<local::LocalRuntimes>,
    breakers: Arc<Mutex<BreakerRegistry>>,
}

impl UpstreamClient {
    /// Creates a client that connects only to addresses that `policy` permits. Requires a tokio runtime, on which it
    /// spawns its maintenance tasks.
    pub fn new(policy: Arc<AddressPolicy>) -> Self {
        Self {
            mqtt: mqtt::MqttConnections::new(Arc::clone(&policy)),
            http: HttpUpstreamClient::new(policy),
            resolver: Arc::default(),
            matrix: Arc::default(),
            local: local::LocalRuntimes::new(),
            breakers: Arc::default(),
        }
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
        self.mqtt.set_policy(Arc::clone(&policy));
        self.http.set_policy(policy);
    }

    /// Sets where local runtimes register; with `None`, no runtime can register.
    pub fn set_local_runtimes(&self, config: Option<LocalRuntimeConfig>) {
        self.local.set_config(config);
    }

    /// Registers the local runtime `name` or renews its lease. `request_body` is JSON with `socket`, `path` and `ttl`.
    /// Blocks while it checks the socket.
    ///
    /// # Errors
    /// `NotFound` where no runtime may register, `InvalidInput` for a socket that is not trusted.
    pub fn register_local_runtime(&self, name: &str, request_body: &[u8]) -> Result<LeaseGrant, Fault> {
        self.local.grant_lease(name, request_body)
    }

    /// Ends the registration of `name`. Returns whether there was one.
    pub fn deregister_local_runtime(&self, name: &str) -> bool {
        self.local.end_lease(name)
    }

    /// Returns every reason why `settings` cannot be used for any agent, such as missing files and secrets.
    pub fn config_problems(&self, settings: &TransportConfig) -> Vec<String> {
        [
            http::problems(settings),
            mqtt::problems(settings),
            matrix::problems(settings),
            settings.websocket.problems(),
            BreakerPolicy::from_settings(&settings.circuit_breaker).err().unwrap_or_default(),
            upstream_compiler::parse_additional_endpoints(settings, "id").err().unwrap_or_default(),
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
        request: UpstreamCall<'a>,
    ) -> impl Future<Output = Result<UpstreamReply, Fault>> + Send + 'a {
        self.call_with_failover(admitted.upstream_set(), request, admitted.session_hash(), admitted.deadline())
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
        self.open_endpoint_websocket(admitted.upstream_set(), request, admitted.deadline()).await
    }

    /// The number of idle upstream connections.
    pub fn idle_connections(&self) -> usize {
        self.http.idle_connections() + self.local.idle_connections()
    }
}

#[cfg(test)]
mod tests;
