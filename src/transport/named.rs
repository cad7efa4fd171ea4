//! Agents by name: where an `agent://` name leads is asked when a call is made, kept as long as the answer holds, and
//! then called through whichever transport that is, with the agent's own settings. However many calls wait for it, a
//! name is asked for once. What cannot be resolved is never the caller's fault. A document elsewhere leads to HTTP and
//! WebSockets only: everything else speaks with an account of the gateway's, or on its own machine.

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

/// How long the last good answer stands in where a name cannot be resolved again.
const STALE: Duration = Duration::from_secs(600);

/// How soon it is asked again then.
const AGAIN: Duration = Duration::from_secs(5);

/// The way to an agent by its name.
#[derive(Debug)]
pub(super) struct Named {
    uri: AgentUri,
    /// The agent, for the transport that its name leads to.
    agent: Agent,
    settings: Settings,
    bounds: Bounds,
    transport: Transport,
    led: ArcSwapOption<Led>,
    /// Held by the call that asks; what the last one to fail was told, and when.
    asking: Mutex<Option<(Instant, Fault)>>,
}

/// Where the name led the last time.
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
            |_| Fault::new(Code::Timeout, "the agent's name could not be resolved in time").reached(Reach::Nowhere);
        tokio::time::timeout_at(deadline, self.ask(came)).await.map_err(late).flatten()
    }

    /// Where the name leads, for a call that came at `came`.
    fn known(&self, came: Instant) -> Option<Lead> {
        let led = self.led.load();
        // What was learnt since it came is news, however short it holds.
        led.as_ref().filter(|led| led.until > came || led.asked >= came).map(|led| led.lead.clone())
    }

    /// Asks, or hears what whoever is asking hears: the calls of one agent take one place among all names.
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
                tracing::warn!(agent = %self.agent.id, "its name cannot be resolved again, what it led to stays: {fault}");
                let (asked, lead) = (led.asked, led.lead.clone());
                self.led.store(Some(Arc::new(Led { until: now + AGAIN, asked, lead: lead.clone() })));
                Ok(lead)
            }
            (Err(fault), _) => {
                // Nobody was called: another endpoint may be. That the gateway is busy says nothing of this one.
                let fault = if fault.code() == Code::Overloaded { fault } else { fault.reached(Reach::Nowhere) };
                *failed = Some((now, fault.clone()));
                Err(fault)
            }
        }
    }

    async fn resolve(&self) -> Result<Led, Fault> {
        let none = || Fault::new(Code::AgentUnavailable, UNAVAILABLE).detail("nobody resolves names");
        let names = self.transport.names().ok_or_else(none)?;
        let resolved = names.locate(&self.uri).await.map_err(not_the_callers)?;
        let unusable = |why: String| {
            let told = format!("{} leads to {}: {why}", self.uri, resolved.endpoint);
            Fault::new(Code::AgentError, "the agent's name leads to an address that cannot be called").detail(told)
        };
        let endpoint: Endpoint = resolved.endpoint.parse().map_err(unusable)?;
        match endpoint {
            Endpoint::Http(_) | Endpoint::WebSocket(_) => {}
            Endpoint::Name(_) => return Err(unusable("is a name still".to_owned())),
            _ if resolved.is_operators_word() => {}
            // Whoever writes a document elsewhere must not have the gateway's accounts speak, or be shown their secrets.
            _ => return Err(unusable("only the operator's map may lead to this kind".to_owned())),
        }
        let agent = Agent { endpoint, ..self.agent.clone() };
        let lead = self.transport.lead(&agent, &self.settings).map_err(|whys| unusable(whys.join("; ")))?;
        let until = resolved.until.unwrap_or_else(|| names.usual());
        Ok(Led { until, asked: Instant::now(), lead })
    }
}

const UNAVAILABLE: &str = "the agent's name cannot be resolved now";

/// The record names the agent, and the caller only named the record.
fn not_the_callers(fault: Fault) -> Fault {
    let detail = fault.to_string();
    match fault.code() {
        Code::Overloaded | Code::AgentError | Code::Timeout => fault,
        code if code.row().blame == Blame::Caller && code != Code::NotFound => {
            Fault::new(Code::AgentError, "the agent's name leads to an address that cannot be called").detail(detail)
        }
        _ => Fault::new(Code::AgentUnavailable, UNAVAILABLE).detail(detail),
    }
}

#[async_trait::async_trait]
impl Way for Named {
    fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    async fn call(&self, request: Request<'_>, deadline: tokio::time::Instant) -> Result<Reply, Fault> {
        let lead = self.lead(deadline).await?;
        let called = self.transport.along(&lead, request, deadline).await;
        let gone = |fault: &Fault| fault.code() == Code::AgentUnavailable || fault.reach() == Some(Reach::Nowhere);
        if called.as_ref().is_err_and(gone) {
            // It may have moved: the next call asks again, and comes back here if it has not.
            self.led.rcu(|led| {
                let now = Instant::now();
                led.as_ref()
                    .map(|led| Arc::new(Led { until: led.until.min(now), asked: led.asked, lead: led.lead.clone() }))
            });
        }
        called
    }
}
