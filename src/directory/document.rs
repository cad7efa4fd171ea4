//! One agent's document (R20): to its publisher as it was published, to everyone else with the gateway's addresses.

use super::{Answer, Ask, Directory, address::Veil, caching::Page, media};
use crate::{
    agent::{Agent, AgentId},
    fault::{Code, Fault, Result},
    registry::{Publisher, Stored},
};
use serde_json::Value;
use std::{sync::Arc, time::SystemTime};

/// What the formats of a whole document are.
pub(super) const DOCUMENT: &[&str] = &[media::JSON, media::METADATA];

/// An agent's document with the veil over it, to be read member by member.
#[derive(Debug)]
pub(super) struct Doc(Value);

impl Doc {
    /// The document of the agent under `veil`.
    pub(super) fn of(agent: &Agent, veil: &Veil<'_>) -> Self {
        let mut value = serde_json::from_str(&agent.document).unwrap_or_default();
        veil.value(&mut value);
        if !veil.is_lifted() {
            if let Some(endpoint) = value.get_mut("endpoint") {
                *endpoint = veil.endpoint().into_owned().into();
            }
            // They covered what now says something else.
            if let Some(card) = value.get_mut("agent_card").and_then(Value::as_object_mut) {
                card.remove("signatures");
            }
        }
        Self(value)
    }

    /// A member that is a string with something in it.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.get(name)?.as_str().filter(|text| !text.trim().is_empty())
    }

    /// A member.
    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// The whole of it.
    pub(super) fn into_value(self) -> Value {
        self.0
    }

    /// What the document says of its operation at `at`, where it lists any.
    pub(super) fn operation(&self, at: usize) -> Option<&Value> {
        self.0.get("operations")?.get(at)
    }
}

impl Directory {
    /// `GET /agents/{id}`.
    pub(super) async fn document(&self, ask: &Ask<'_>) -> Result<Answer> {
        let media = media::choose(ask.headers, DOCUMENT)?;
        if let Some(own) = self.own(ask).await {
            let page = Page::new(media, own.document.as_bytes().to_vec()).changed(SystemTime::from(own.updated));
            return Ok(self.give(ask, page));
        }
        let agent = self.seen(ask)?;
        let veil = Veil::over(&agent, ask.base, self.config.endpoints);
        Ok(self.give(ask, Page::json(media, &Doc::of(&agent, &veil).into_value())?))
    }

    /// The agent that is asked for.
    ///
    /// # Errors
    /// `NotFound`, in the same words whether there is none or the caller may not see it.
    pub(super) fn seen(&self, ask: &Ask<'_>) -> Result<Arc<Agent>> {
        ask.sight.find(ask.id).ok_or_else(no_agent)
    }

    /// The document as the caller published it. A registry that cannot be reached has none for now: what is served is
    /// still shown, and a write that is guarded by its tag fails.
    async fn own(&self, ask: &Ask<'_>) -> Option<Stored> {
        let (registry, by) = (self.registry.as_ref()?, publisher(ask));
        let id: AgentId = ask.id.parse().ok()?;
        match registry.admits(by) {
            true => registry.own(by, &id).await.ok()?,
            false => None,
        }
    }
}

/// The caller, as one who publishes.
pub(super) fn publisher<'a>(ask: &Ask<'a>) -> Publisher<'a> {
    Publisher { id: &ask.caller.id, groups: &ask.caller.groups }
}

/// There is none, or none for this caller.
#[cold]
pub(super) fn no_agent() -> Fault {
    Fault::new(Code::NotFound, "there is no such agent")
}
