//! Agents by `agent://` name. A call resolves the name, caches the result for its lifetime, and calls the resulting
//! endpoint over the matching transport with the agent's own settings. Concurrent calls share one resolution. A failed
//! resolution is never blamed on the caller. A remote document may name only HTTP and WebSocket endpoints: the other
//! transports use an account of the gateway or sockets of this machine.

use super::{
    config::TransportConfig,
    endpoint_probe::{ProbeFailure, ReachedEndpoint},
    endpoint_transport::EndpointTransport,
    timeouts::{UpstreamTimeouts, deadline_fault},
    transport_kind::{TransportBuilder, TransportKind, unsuitable_endpoint},
    upstream_reply::UpstreamReply,
    upstream_transport::{Transport, UpstreamCall},
};
use crate::{
    agent::{Agent, AgentEndpoint, AgentUri, EndpointAccess},
    fault::{Blame, CallProgress, Fault, FaultCode},
    resolver::UriResolver,
};
use arc_swap::ArcSwapOption;
use std::{
    sync::{Arc, Weak},
    time::{Duration, Instant},
};
use tokio::sync::Mutex;

/// How long the last good result is used while the name cannot be resolved again.
const MAX_STALE: Duration = Duration::from_secs(600);

/// How long to wait before the next attempt to resolve the name then.
const STALE_RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// Builds the transports to agents by their names.
#[derive(Debug)]
pub(super) struct AgentUriTransports {
    /// Builds the transports to the endpoints to which the names resolve.
    builder: Weak<dyn TransportBuilder>,
    resolver: Arc<ArcSwapOption<UriResolver>>,
}

impl AgentUriTransports {
    pub(super) fn new(builder: Weak<dyn TransportBuilder>, resolver: Arc<ArcSwapOption<UriResolver>>) -> Self {
        Self { builder, resolver }
    }
}

impl TransportKind for AgentUriTransports {
    fn build_transport(&self, agent: &Agent, settings: &TransportConfig) -> Result<EndpointTransport, Vec<String>> {
        let AgentEndpoint::AgentUri(uri) = &agent.endpoint else { return Err(unsuitable_endpoint(&agent.endpoint)) };
        let builder =
            self.builder.upgrade().ok_or_else(|| vec!["endpoint: the upstream client has ended".to_owned()])?;
        // The endpoint to which the name resolves may be of any kind.
        let problems = builder.problems(settings);
        if !problems.is_empty() {
            return Err(problems);
        }
        Ok(EndpointTransport::Other(Arc::new(AgentUriTransport {
            uri: uri.clone(),
            agent: agent.clone(),
            settings: settings.clone(),
            timeouts: UpstreamTimeouts::from(&settings.timeouts),
            builder,
            resolver: Arc::clone(&self.resolver),
            cached: ArcSwapOption::empty(),
            resolving: Mutex::default(),
        })))
    }
}

/// The transport to an agent by its `agent://` name.
#[derive(Debug)]
struct AgentUriTransport {
    uri: AgentUri,
    /// The agent's record, for the transport of the resolved endpoint.
    agent: Agent,
    settings: TransportConfig,
    timeouts: UpstreamTimeouts,
    builder: Arc<dyn TransportBuilder>,
    resolver: Arc<ArcSwapOption<UriResolver>>,
    cached: ArcSwapOption<ResolvedTransport>,
    /// Held by the call that resolves the name; holds the time and fault of the last failed resolution.
    resolving: Mutex<Option<(Instant, Fault)>>,
}

/// The transport of the endpoint to which the name resolved last.
#[derive(Debug)]
struct ResolvedTransport {
    fresh_until: Instant,
    resolved_at: Instant,
    transport: EndpointTransport,
}

impl AgentUriTransport {
    async fn resolve_transport(&self, deadline: tokio::time::Instant) -> Result<EndpointTransport, Fault> {
        let call_start = Instant::now();
        if let Some(transport) = self.cached_transport(call_start) {
            return Ok(transport);
        }
        let late = |_| {
            deadline_fault("the agent's name was not resolved before the call's deadline")
                .with_progress(CallProgress::NotSent)
        };
        tokio::time::timeout_at(deadline, self.resolve_once(call_start)).await.map_err(late).flatten()
    }

    /// Returns the cached transport if it is fresh for a call that began at `call_start`.
    fn cached_transport(&self, call_start: Instant) -> Option<EndpointTransport> {
        let cached = self.cached.load();
        // A result obtained after the call began is current, however short its lifetime is.
        cached
            .as_ref()
            .filter(|resolved| resolved.fresh_until > call_start || resolved.resolved_at >= call_start)
            .map(|resolved| resolved.transport.clone())
    }

    /// Resolves the name, or waits for the call that is resolving it and takes its result, so that the calls of one
    /// agent use one permit of the resolver.
    async fn resolve_once(&self, call_start: Instant) -> Result<EndpointTransport, Fault> {
        let mut last_failure = self.resolving.lock().await;
        if let Some(transport) = self.cached_transport(call_start) {
            return Ok(transport);
        }
        if let Some((_, fault)) = last_failure.as_ref().filter(|(at, _)| *at >= call_start) {
            return Err(fault.clone());
        }
        let (outcome, now) = (self.resolve().await, Instant::now());
        match (outcome, self.cached.load_full()) {
            (Ok(resolved), _) => {
                let transport = resolved.transport.clone();
                self.cached.store(Some(Arc::new(resolved)));
                Ok(transport)
            }
            (Err(fault), Some(previous)) if previous.resolved_at + MAX_STALE > now => {
                tracing::warn!(agent = %self.agent.id, "agent name not resolved, using the last endpoint: {fault}");
                let (resolved_at, transport) = (previous.resolved_at, previous.transport.clone());
                self.cached.store(Some(Arc::new(ResolvedTransport {
                    fresh_until: now + STALE_RETRY_INTERVAL,
                    resolved_at,
                    transport: transport.clone(),
                })));
                Ok(transport)
            }
            (Err(fault), _) => {
                // The agent was not called, so failover is safe. An overloaded gateway proves nothing about the endpoint.
                let fault = if fault.code() == FaultCode::Overloaded {
                    fault
                } else {
                    fault.with_progress(CallProgress::NotSent)
                };
                *last_failure = Some((now, fault.clone()));
                Err(fault)
            }
        }
    }

    async fn resolve(&self) -> Result<ResolvedTransport, Fault> {
        let no_resolver =
            || Fault::new(FaultCode::AgentUnavailable, NAME_UNRESOLVABLE).with_detail("no resolver is configured");
        let resolver = self.resolver.load_full().ok_or_else(no_resolver)?;
        let resolved = resolver.resolve_agent_endpoint(&self.uri).await.map_err(remove_caller_blame)?;
        let unusable = |reason: String| {
            let detail = format!("{} resolves to {}: {reason}", self.uri, resolved.endpoint);
            Fault::new(FaultCode::AgentError, "The agent's name resolves to an address that cannot be called")
                .with_detail(detail)
        };
        let endpoint: AgentEndpoint = resolved.endpoint.parse().map_err(unusable)?;
        match endpoint.scheme().access() {
            EndpointAccess::Network => {}
            EndpointAccess::Resolution => return Err(unusable("is another agent:// name".to_owned())),
            // The author of a remote document must not use the gateway's accounts or receive their secrets, and an agent
            // that is not the operator's must not use the operator's map for that.
            EndpointAccess::MessageBroker | EndpointAccess::GatewayAccount | EndpointAccess::ThisMachine => {
                if !resolved.is_operator_defined() || !self.agent.source.is_operator() {
                    return Err(unusable("only the operator's map may name an endpoint of this kind".to_owned()));
                }
            }
        }
        let agent = self.agent.with_endpoint(endpoint);
        let transport =
            self.builder.build_transport(&agent, &self.settings).map_err(|errors| unusable(errors.join("; ")))?;
        let fresh_until = resolved.expires.unwrap_or_else(|| resolver.default_expiry());
        Ok(ResolvedTransport { fresh_until, resolved_at: Instant::now(), transport })
    }
}

/// The message to callers while the name cannot be resolved.
const NAME_UNRESOLVABLE: &str = "The agent's name cannot be resolved now";

/// Replaces a fault that blames the caller: the record names the agent, and the caller only named the record.
fn remove_caller_blame(fault: Fault) -> Fault {
    let detail = fault.to_string();
    match fault.code() {
        FaultCode::Overloaded | FaultCode::AgentError | FaultCode::Timeout => fault,
        code if code.row().blame == Blame::Caller && code != FaultCode::NotFound => {
            Fault::new(FaultCode::AgentError, "The agent's name resolves to an address that cannot be called")
                .with_detail(detail)
        }
        _ => Fault::new(FaultCode::AgentUnavailable, NAME_UNRESOLVABLE).with_detail(detail),
    }
}

#[async_trait::async_trait]
impl Transport for AgentUriTransport {
    fn timeouts(&self) -> &UpstreamTimeouts {
        &self.timeouts
    }

    async fn is_reachable(&self) -> bool {
        match self.resolve_transport(tokio::time::Instant::now() + self.timeouts.connect).await {
            Ok(transport) => transport.is_reachable().await,
            Err(_) => false,
        }
    }

    async fn probe(&self, deadline: tokio::time::Instant) -> Result<ReachedEndpoint, ProbeFailure> {
        let unresolvable = |fault: Fault| ProbeFailure::Unresolvable(fault.log_message().to_owned());
        self.resolve_transport(deadline).await.map_err(unresolvable)?.probe(deadline).await
    }

    async fn call(&self, request: UpstreamCall<'_>, deadline: tokio::time::Instant) -> Result<UpstreamReply, Fault> {
        let transport = self.resolve_transport(deadline).await?;
        let result = transport.call(request, deadline).await;
        let is_unavailable = |fault: &Fault| {
            fault.code() == FaultCode::AgentUnavailable || fault.progress() == Some(CallProgress::NotSent)
        };
        if result.as_ref().is_err_and(is_unavailable) {
            // The agent may have moved: the next call resolves the name again.
            self.cached.rcu(|cached| {
                let now = Instant::now();
                cached.as_ref().map(|cached| {
                    Arc::new(ResolvedTransport {
                        fresh_until: cached.fresh_until.min(now),
                        resolved_at: cached.resolved_at,
                        transport: cached.transport.clone(),
                    })
                })
            });
        }
        result
    }
}
