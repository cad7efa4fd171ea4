//! The transport to local runtimes: HTTP over the socket at which a runtime is registered when a call is made.

use super::{
    local_runtimes::{LocalRuntimes, not_running_fault},
    runtime_folder::RuntimeAddress,
};
use crate::{
    agent::{Agent, AgentEndpoint, AgentId},
    fault::Fault,
    net::AddressPolicy,
    transport::{
        config::TransportConfig,
        endpoint_probe::{ProbeFailure, ReachedEndpoint},
        endpoint_transport::EndpointTransport,
        http::{self, HttpTarget, HttpUpstreamClient},
        timeouts::UpstreamTimeouts,
        transport_kind::{TransportKind, unsuitable_endpoint},
        upstream_reply::UpstreamReply,
        upstream_transport::{Transport, UpstreamCall},
    },
    values::Glob,
};
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::time::Instant;

/// Builds the transports to local runtimes.
#[derive(Debug)]
pub(in crate::transport) struct LocalTransports {
    runtimes: Arc<LocalRuntimes>,
    /// A client of its own: each socket is verified here, and the address policy for documents does not apply.
    http: Arc<HttpUpstreamClient>,
}

impl LocalTransports {
    /// Requires a tokio runtime.
    pub(in crate::transport) fn new() -> Self {
        let any_path: Vec<Glob> = "/*".parse().into_iter().collect();
        let policy = AddressPolicy::default().with_unix_sockets(any_path);
        Self { runtimes: Arc::default(), http: HttpUpstreamClient::new(Arc::new(policy)) }
    }

    /// The runtimes that registered.
    pub(in crate::transport) fn runtimes(&self) -> &LocalRuntimes {
        &self.runtimes
    }

    /// The number of idle connections to runtimes.
    pub(in crate::transport) fn idle_connections(&self) -> usize {
        self.http.idle_connections()
    }
}

impl TransportKind for LocalTransports {
    /// Builds the transport to the runtime whether it is running or not.
    fn build_transport(&self, agent: &Agent, settings: &TransportConfig) -> Result<EndpointTransport, Vec<String>> {
        let AgentEndpoint::Local(name) = &agent.endpoint else { return Err(unsuitable_endpoint(&agent.endpoint)) };
        if !self.runtimes.is_configured() {
            return Err(vec![
                "endpoint: names a local runtime, but none may register (add a section 'local_runtimes')".into(),
            ]);
        }
        // A placeholder address, so that all other settings are validated now.
        self.http.build_target(&AgentEndpoint::Unix { socket: "/".into(), path: "/".to_owned() }, settings)?;
        Ok(EndpointTransport::Other(Arc::new(LocalRuntimeTransport {
            runtimes: Arc::clone(&self.runtimes),
            http: Arc::clone(&self.http),
            name: name.clone(),
            settings: settings.clone(),
            timeouts: UpstreamTimeouts::from(&settings.timeouts),
            last: Mutex::default(),
        })))
    }
}

/// The transport to one local runtime.
#[derive(Debug)]
struct LocalRuntimeTransport {
    runtimes: Arc<LocalRuntimes>,
    http: Arc<HttpUpstreamClient>,
    name: AgentId,
    settings: TransportConfig,
    timeouts: UpstreamTimeouts,
    /// The address and target of the last call: connections are reused while the address is unchanged.
    last: Mutex<Option<(RuntimeAddress, Arc<HttpTarget>)>>,
}

impl LocalRuntimeTransport {
    fn target(&self, address: RuntimeAddress) -> Result<Arc<HttpTarget>, Fault> {
        let mut last = self.last.lock();
        if let Some((last_address, target)) = &*last
            && *last_address == address
        {
            return Ok(Arc::clone(target));
        }
        let endpoint = AgentEndpoint::Unix { socket: address.socket.clone(), path: address.path.clone() };
        let target = self.http.build_target(&endpoint, &self.settings);
        let target = target.map_err(|errors| not_running_fault(&errors.join("; ")))?;
        *last = Some((address, Arc::clone(&target)));
        Ok(target)
    }
}

#[async_trait::async_trait]
impl Transport for LocalRuntimeTransport {
    fn timeouts(&self) -> &UpstreamTimeouts {
        &self.timeouts
    }

    async fn is_reachable(&self) -> bool {
        let target = self.runtimes.find_runtime(&self.name).await.and_then(|address| self.target(address));
        match target {
            Ok(target) => http::is_reachable(&target).await,
            Err(_) => false,
        }
    }

    async fn probe(&self, deadline: Instant) -> Result<ReachedEndpoint, ProbeFailure> {
        let target = self.runtimes.find_runtime(&self.name).await.and_then(|address| self.target(address));
        let unregistered = |fault: Fault| ProbeFailure::Unreachable(fault.log_message().to_owned());
        let target = target.map_err(unregistered)?;
        http::probe_connection(&target, deadline).await
    }

    async fn call(&self, request: UpstreamCall<'_>, deadline: Instant) -> Result<UpstreamReply, Fault> {
        let target = self.target(self.runtimes.find_runtime(&self.name).await?)?;
        http::call_with_retry(&target, request, deadline).await
    }
}
