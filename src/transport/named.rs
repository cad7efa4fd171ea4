//! Agents by `agent://` name. A call resolves the name, caches the result for its lifetime, and calls the resulting
//! endpoint over the matching transport with the agent's own settings. Concurrent calls share one resolution. A failed
//! resolution is never blamed on the caller. A remote document may name only HTTP and WebSocket endpoints: the other
//! transports use an account of the gateway or sockets of this machine.

use super::{Bounds, Lead, Reply, Request, Settings, Transport, Way};
use crate::{
    agent::{Agent, AgentUri, Endpoint},
    fault::{Blame, Code, Fault, Reach},
};
use arc_swap::ArcSwapOption;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::Mutex;

/// How long the last good result is used while the name cannot be resolved again.
const STALE: Duration = Duration::from_secs(600);

/// How long to wait before the next attempt to resolve the name then.
const AGAIN: Duration = Duration::from_secs(5);

/// The transport to an agent by its `agent://` name.
#[derive(Debug)]
pub(super) struct Named {
    uri: AgentUri,
    /// The agent's record, for the transport of the resolved endpoint.
    agent: Agent,
    settings: Settings,
    bounds: Bounds,
    transport: Transport,
    led: ArcSwapOption<Led>,
    /// Held by the call that resolves the name; holds the time and fault of the last failed resolution.
    asking: Mutex<Option<(Instant, Fault)>>,
}

/// The transport of the endpoint to which the name resolved last.
#[derive(Debug)]
struct Led {
    until: Instant,
    asked: Instant,
    lead: Lead,
}

impl Named {
    pub(super) fn new(uri: &AgentUri, agent: &Agent, settings: &Settings, transport: &Transport) -> Arc<Self> {
        Arc::new(Self {
            uri: uri.clone(),
            agent: agent.clone(),
            settings: settings.clone(),
            bounds: Bounds::from(&settings.timeouts),
            transport: transport.clone(),
            led: ArcSwapOption::empty(),
            asking: Mutex::default(),
        })
    }

    async fn lead(&self, deadline: tokio::time::Instant) -> Result<Lead, Fault> {
        let came = Instant::now();
        if let Some(lead) = self.known(came) {
            return Ok(lead);
        }
        let late =
            |_| Fault::new(Code::Timeout, "The agent's name could not be resolved in time").reached(Reach::Nowhere);
        tokio::time::timeout_at(deadline, self.ask(came)).await.map_err(late).flatten()
    }

    /// Returns the cached transport, for a call that began at `came`.
    fn known(&self, came: Instant) -> Option<Lead> {
        let led = self.led.load();
        // A result obtained after the call began is current, however short its lifetime is.
        led.as_ref().filter(|led| led.until > came || led.asked >= came).map(|led| led.lead.clone())
    }

    /// Resolves the name, or waits for the call that is resolving it and takes its result: the calls of one agent use
    /// one slot of the resolver.
    async fn ask(&self, came: Instant) -> Result<Lead, Fault> {
        let mut failed = self.asking.lock().await;
        if let Some(lead) = self.known(came) {
            return Ok(lead);
        }
        if let Some((_, fault)) = failed.as_ref().filter(|(at, _)| *at >= came) {
            return Err(fault.clone());
        }
        let (resolved, now) = (self.resolve().await, Instant::now());
        match (resolved, self.led.load_full()) {
            (Ok(led), _) => {
                let lead = led.lead.clone();
                self.led.store(Some(Arc::new(led)));
                Ok(lead)
            }
            (Err(fault), Some(led)) if led.asked + STALE > now => {
                tracing::warn!(agent = %self.agent.id, "agent name not resolved, last endpoint kept: {fault}");
                let (asked, lead) = (led.asked, led.lead.clone());
                self.led.store(Some(Arc::new(Led { until: now + AGAIN, asked, lead: lead.clone() })));
                Ok(lead)
            }
            (Err(fault), _) => {
                // The agent was not called, so failover is safe. An overloaded gateway says nothing of this endpoint.
                let fault = if fault.code() == Code::Overloaded { fault } else { fault.reached(Reach::Nowhere) };
                *failed = Some((now, fault.clone()));
                Err(fault)
            }
        }
    }

    async fn resolve(&self) -> Result<Led, Fault> {
        let none = || Fault::new(Code::AgentUnavailable, UNAVAILABLE).detail("no resolver is configured");
        let names = self.transport.names().ok_or_else(none)?;
        let resolved = names.locate(&self.uri).await.map_err(not_the_callers)?;
        let unusable = |why: String| {
            let told = format!("{} resolves to {}: {why}", self.uri, resolved.endpoint);
            Fault::new(Code::AgentError, "The agent's name resolves to an address that cannot be called").detail(told)
        };
        let endpoint: Endpoint = resolved.endpoint.parse().map_err(unusable)?;
        match endpoint {
            Endpoint::Http(_) | Endpoint::WebSocket(_) => {}
            Endpoint::Name(_) => return Err(unusable("is another agent:// name".to_owned())),
            _ if resolved.is_operators_word() => {}
            // The author of a remote document must not use the gateway's accounts or receive their secrets.
            _ => return Err(unusable("only the operator's map may name an endpoint of this kind".to_owned())),
        }
        let agent = Agent { endpoint, ..self.agent.clone() };
        let lead = self.transport.lead(&agent, &self.settings).map_err(|whys| unusable(whys.join("; ")))?;
        let until = resolved.until.unwrap_or_else(|| names.usual());
        Ok(Led { until, asked: Instant::now(), lead })
    }
}

const UNAVAILABLE: &str = "The agent's name cannot be resolved now";

/// Replaces a fault that blames the caller: the record names the agent, and the caller only named the record.
fn not_the_callers(fault: Fault) -> Fault {
    let detail = fault.to_string();
    match fault.code() {
        Code::Overloaded | Code::AgentError | Code::Timeout => fault,
        code if code.row().blame == Blame::Caller && code != Code::NotFound => {
            Fault::new(Code::AgentError, "The agent's name resolves to an address that cannot be called").detail(detail)
        }
        _ => Fault::new(Code::AgentUnavailable, UNAVAILABLE).detail(detail),
    }
}

#[async_trait::async_trait]
impl Way for Named {
    fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    async fn reaches(&self) -> bool {
        match self.lead(tokio::time::Instant::now() + self.bounds.connect).await {
            Ok(lead) => self.transport.reaches_along(&lead).await,
            Err(_) => false,
        }
    }

    async fn call(&self, request: Request<'_>, deadline: tokio::time::Instant) -> Result<Reply, Fault> {
        let lead = self.lead(deadline).await?;
        let called = self.transport.along(&lead, request, deadline).await;
        let gone = |fault: &Fault| fault.code() == Code::AgentUnavailable || fault.reach() == Some(Reach::Nowhere);
        if called.as_ref().is_err_and(gone) {
            // The agent may have moved: the next call resolves the name again.
            self.led.rcu(|led| {
                let now = Instant::now();
                led.as_ref()
                    .map(|led| Arc::new(Led { until: led.until.min(now), asked: led.asked, lead: led.lead.clone() }))
            });
        }
        called
    }
}
