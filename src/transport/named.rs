//! Agents by name: where an `agent://` name leads is asked when a call is made, kept as long as the answer holds, and
//! then called through whichever transport that is, with the agent's own settings.
//! What cannot be resolved is never the caller's fault.

use super::{Bounds, Lead, Reply, Request, Settings, Transport, Way};
use crate::{
    agent::{Agent, AgentUri, Endpoint},
    fault::{Blame, Code, Fault},
};
use arc_swap::ArcSwapOption;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

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
        })
    }

    async fn lead(&self, deadline: tokio::time::Instant) -> Result<Lead, Fault> {
        let now = Instant::now();
        let before = self.led.load_full();
        if let Some(led) = before.as_ref().filter(|led| led.until > now) {
            return Ok(led.lead.clone());
        }
        let late = |_| Fault::new(Code::Timeout, "the agent's name could not be resolved in time");
        let resolved = tokio::time::timeout_at(deadline, self.resolve()).await.map_err(late).flatten();
        match (resolved, before) {
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
            (Err(fault), _) => Err(fault),
        }
    }

    async fn resolve(&self) -> Result<Led, Fault> {
        let names = self.transport.names().ok_or_else(|| Fault::new(Code::AgentUnavailable, UNAVAILABLE))?;
        let resolved = names.locate(&self.uri).await.map_err(not_the_callers)?;
        let unusable = |why: String| {
            let told = format!("{} leads to {}: {why}", self.uri, resolved.endpoint);
            Fault::new(Code::AgentError, "the agent's name leads to an address that cannot be called").detail(told)
        };
        let endpoint: Endpoint = resolved.endpoint.parse().map_err(unusable)?;
        if matches!(endpoint, Endpoint::Name(_)) {
            return Err(unusable("is a name still".to_owned()));
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

    async fn reaches(&self) -> bool {
        match self.lead(tokio::time::Instant::now() + self.bounds.connect).await {
            Ok(lead) => self.transport.reaches_along(&lead).await,
            Err(_) => false,
        }
    }

    async fn call(&self, request: Request<'_>, deadline: tokio::time::Instant) -> Result<Reply, Fault> {
        let lead = self.lead(deadline).await?;
        let called = self.transport.along(&lead, request, deadline).await;
        if called.as_ref().is_err_and(|fault| fault.code() == Code::AgentUnavailable) {
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
