//! A2A agent cards (R59, R151, R153): the agent's own card if it published one, else a card built from its operations;
//! in version 1.0, in 0.3, or in one document that readers of both understand.
//!
//! Clients that fetch a card seldom state their version, so a card without a requested version has the members of both:
//! readers ignore the members of the other version.

mod agent_card;
mod card_sources;
mod gateway_card;
mod v03;
mod v1;

use super::{
    AgentDirectory, DirectoryCall,
    address_redaction::AddressRedactor,
    agent_document::RedactedDocument,
    conditional_response::{A2A_VERSION, Representation},
    media_types,
    query_params::QueryParams,
};
use crate::{
    agent::Agent,
    fault::{Fault, FaultCode, Result},
};
use agent_card::{AgentCard, CardInterface, CardSkill};
use serde_json::{Map, Value};

const CARD_MEDIA_TYPES: &[&str] = &[media_types::JSON, "application/a2a+json"];
/// Protocol binding of agents that do not speak A2A: a JSON body by POST, as AIDIP defines it.
const AIDIP_BINDING: &str = "AIDIP";

/// The card version of a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CardVersion {
    V1,
    V03,
    Combined,
}

impl AgentDirectory {
    /// `/agents/{id}/agent-card.json`: the card of one agent.
    pub(super) fn agent_card(&self, call: &DirectoryCall<'_>) -> Result<Representation> {
        let (media, version) =
            (media_types::negotiate(call.headers, CARD_MEDIA_TYPES)?, Self::requested_card_version(call)?);
        Representation::json(media, &self.render_agent_card(call.base_url, &*self.visible_agent(call)?, version))
    }

    /// `/.well-known/agent-card.json`: the card of the only visible agent, or the gateway's own.
    pub(super) fn well_known_card(&self, call: &DirectoryCall<'_>) -> Result<Representation> {
        let (media, version) =
            (media_types::negotiate(call.headers, CARD_MEDIA_TYPES)?, Self::requested_card_version(call)?);
        let agents = self.listed_agents(call);
        match agents.hits.as_slice() {
            [only] if !agents.has_more => {
                Representation::json(media, &self.render_agent_card(call.base_url, &only.agent, version))
            }
            _ => Representation::json(
                media,
                &self.render_card(call.base_url, &self.gateway_card(call.base_url, &agents), version),
            ),
        }
    }

    fn render_agent_card(&self, base: &str, agent: &Agent, version: CardVersion) -> Value {
        let redactor = AddressRedactor::new(agent, base, self.config.advertised_endpoints);
        let document = RedactedDocument::new(agent, &redactor);
        match document.member("agent_card").filter(|card| card.is_object()) {
            // A card shown unchanged keeps its publisher's signature.
            Some(published) if redactor.exposes_endpoint() => published.clone(),
            Some(published) => self.render_card(base, &self.card_from_published(agent, &redactor, published), version),
            None => self.render_card(base, &self.card_from_operations(agent, &redactor, &document), version),
        }
    }

    fn render_card(&self, base: &str, card: &AgentCard, version: CardVersion) -> Value {
        let mut members = match version {
            CardVersion::V1 => v1::card_members(card, &self.credentials),
            CardVersion::V03 => v03::card_members(card, &self.credentials),
            CardVersion::Combined => {
                merge_versions(v1::card_members(card, &self.credentials), v03::card_members(card, &self.credentials))
            }
        };
        for (name, value) in &card.extra_members {
            members.entry(name.as_str()).or_insert_with(|| value.clone());
        }
        let mut rendered = Value::Object(members);
        if let Some(signer) = &self.signing_key {
            signer.sign_card(&mut rendered, &format!("{base}/.well-known/jwks.json"));
        }
        rendered
    }

    /// Returns the requested version, `?version=` or `A2A-Version`. An unknown version in the query is ignored: it may
    /// mean the agent's own version (R68).
    fn requested_card_version(call: &DirectoryCall<'_>) -> Result<CardVersion> {
        let params = QueryParams::parse(call.query)?;
        if let Some(version) = params.single(&["version"])?.and_then(parse_card_version) {
            return Ok(version);
        }
        let header = call.headers.get(A2A_VERSION).map(|value| value.to_str().unwrap_or("?").trim());
        let unsupported = || Fault::new(FaultCode::NotAcceptable, "Cards are available in A2A versions 1.0 and 0.3");
        header
            .filter(|text| !text.is_empty())
            .map_or(Ok(CardVersion::Combined), |text| parse_card_version(text).ok_or_else(unsupported))
    }
}

fn parse_card_version(text: &str) -> Option<CardVersion> {
    match text {
        "0.3" | "0.3.0" => Some(CardVersion::V03),
        "1" | "1.0" | "1.0.0" => Some(CardVersion::V1),
        _ => None,
    }
}

/// Merges the members of both versions, recursively. The value of 1.0 takes precedence.
fn merge_versions(mut new: Map<String, Value>, old: Map<String, Value>) -> Map<String, Value> {
    for (name, value) in old {
        match (new.get_mut(&name), value) {
            (None, value) => {
                new.insert(name, value);
            }
            (Some(Value::Object(inner)), Value::Object(value)) => *inner = merge_versions(std::mem::take(inner), value),
            (Some(Value::Array(inner)), Value::Array(value)) => {
                for (inner, value) in inner.iter_mut().zip(value) {
                    if let (Value::Object(inner), Value::Object(value)) = (inner, value) {
                        *inner = merge_versions(std::mem::take(inner), value);
                    }
                }
            }
            _ => {}
        }
    }
    new
}
