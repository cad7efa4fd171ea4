//! The document of an agent (R20): its publisher reads it as published, other callers with the gateway's addresses.

use super::{Answer, Ask, Directory, address::Veil, caching::Page, media};
use crate::{
    agent::{Agent, AgentId},
    fault::{Code, Fault, Result},
    registry::{Publisher, Stored},
};
use serde_json::Value;
use std::{sync::Arc, time::SystemTime};

/// Media types of a whole document.
pub(super) const DOCUMENT: &[&str] = &[media::JSON, media::METADATA];

/// An agent's document with its addresses redacted.
#[derive(Debug)]
pub(super) struct Doc(Value);

impl Doc {
    /// Parses the agent's document and redacts it.
    pub(super) fn of(agent: &Agent, redactor: &Veil<'_>) -> Self {
        let mut value = serde_json::from_str(&agent.document).unwrap_or_default();
        redactor.value(&mut value);
        if !redactor.is_lifted() {
            if let Some(endpoint) = value.get_mut("endpoint") {
                *endpoint = redactor.endpoint().into_owned().into();
            }
            // The signatures covered the addresses that were replaced.
            if let Some(card) = value.get_mut("agent_card").and_then(Value::as_object_mut) {
                card.remove("signatures");
            }
        }
        Self(value)
    }

    /// Returns a member that is a non-blank string.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.get(name)?.as_str().filter(|text| !text.trim().is_empty())
    }

    /// Returns a member.
    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// Returns the whole document.
    pub(super) fn into_value(self) -> Value {
        self.0
    }

    /// Returns the member for the operation at `at`, if the document lists operations.
    pub(super) fn operation(&self, at: usize) -> Option<&Value> {
        self.0.get("operations")?.get(at)
    }
}

impl Directory {
    /// `GET /agents/{id}`: the document of one agent.
    pub(super) async fn document(&self, call: &Ask<'_>) -> Result<Answer> {
        let media = media::choose(call.headers, DOCUMENT)?;
        if let Some(own) = self.own(call).await {
            let page = Page::new(media, own.document.as_bytes().to_vec()).changed(SystemTime::from(own.updated));
            return Ok(self.give(call, page));
        }
        let agent = self.seen(call)?;
        let redactor = Veil::over(&agent, call.base, self.config.advertised_endpoints);
        Ok(self.give(call, Page::json(media, &Doc::of(&agent, &redactor).into_value())?))
    }

    /// Returns the requested agent.
    ///
    /// # Errors
    /// `NotFound`, with the same message for an unknown agent and for one that is invisible to the caller.
    pub(super) fn seen(&self, call: &Ask<'_>) -> Result<Arc<Agent>> {
        call.sight.find(call.id).ok_or_else(no_agent)
    }

    /// Returns the document as the caller published it. If the registry is unavailable, the served document is shown
    /// instead; a write guarded by its tag then fails.
    async fn own(&self, call: &Ask<'_>) -> Option<Stored> {
        let (registry, by) = (self.registry.as_ref()?, publisher(call));
        let id: AgentId = call.id.parse().ok()?;
        match registry.admits(by) {
            true => registry.own(by, &id).await.ok()?,
            false => None,
        }
    }
}

/// Returns the caller as a publisher.
pub(super) fn publisher<'a>(call: &Ask<'a>) -> Publisher<'a> {
    Publisher { id: &call.caller.id, groups: &call.caller.groups }
}

/// Builds the fault for an agent that is unknown or invisible to the caller.
#[cold]
pub(super) fn no_agent() -> Fault {
    Fault::new(Code::NotFound, "There is no such agent")
}
