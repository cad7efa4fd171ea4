//! A2A agent cards (R59, R151, R153): the agent's own card if it published one, else a card built from its operations;
//! in version 1.0, in 0.3, or in one document that readers of both understand.
//!
//! Clients that fetch a card seldom state their version, so a card without a requested version has the members of both:
//! readers ignore the members of the other version.

mod agent_card;
mod agent_card_builder;
mod gateway_card;
mod v03;
mod v1;

use super::{
    AcceptedCredentials, DirectoryCall, DirectoryConfig,
    address_redaction::AddressRedactor,
    agent_document::RedactedDocument,
    conditional_response::Representation,
    framework_discovery::FrameworkDiscoveryHandler,
    media_types::{self, A2A_VERSION},
    query_params::QueryParams,
    visible_agent_search::VisibleAgentSearch,
};
use crate::{
    agent::Agent,
    fault::{Fault, FaultCode, Result},
    signing::SigningKey,
};
use agent_card::AgentCard;
use agent_card_builder::AgentCardBuilder;
use gateway_card::GatewayCardBuilder;
use serde_json::{Map, Value};

/// The members of a card that describe credentials.
const SECURITY_MEMBERS: [&str; 3] = ["securitySchemes", "security", "securityRequirements"];

/// Media types of a card; the first is the default.
pub(super) const CARD_MEDIA_TYPES: &[&str] = &[media_types::JSON, "application/a2a+json"];

/// Replaces what a card of any version says of credentials by what callers of the agent need at the gateway.
pub(super) fn set_card_security(agent: &Agent, credentials: &AcceptedCredentials, card: &mut Map<String, Value>) {
    let own = AgentCard::default().with_credentials_and_defaults(credentials, Some(agent));
    let is_v1 = card.contains_key("supportedInterfaces");
    let mut own = if is_v1 { v1::card_members(&own, credentials) } else { v03::card_members(&own, credentials) };
    for name in SECURITY_MEMBERS {
        card.remove(name);
        card.extend(own.remove_entry(name));
    }
    let skills = card.get_mut("skills").and_then(Value::as_array_mut).into_iter().flatten();
    for skill in skills.filter_map(Value::as_object_mut) {
        SECURITY_MEMBERS.iter().for_each(|name| drop(skill.remove(*name)));
    }
}

/// The card version of a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CardVersion {
    V1,
    V03,
    Combined,
}

impl CardVersion {
    /// Returns the requested version, `?version=` or `A2A-Version`. An unknown version in the query is ignored: it may
    /// mean the agent's own version (R68).
    fn requested_by(call: &DirectoryCall<'_>) -> Result<Self> {
        let params = QueryParams::parse(call.query)?;
        if let Some(version) = params.single(&["version"])?.and_then(Self::parse) {
            return Ok(version);
        }
        let header = call.headers.get(A2A_VERSION).map(|value| value.to_str().unwrap_or("?").trim());
        let unsupported = || Fault::new(FaultCode::NotAcceptable, "Cards are available in A2A versions 1.0 and 0.3");
        header
            .filter(|text| !text.is_empty())
            .map_or(Ok(Self::Combined), |text| Self::parse(text).ok_or_else(unsupported))
    }

    fn parse(text: &str) -> Option<Self> {
        match text {
            "0.3" | "0.3.0" => Some(Self::V03),
            "1" | "1.0" | "1.0.0" => Some(Self::V1),
            _ => None,
        }
    }
}

/// Serves the cards of agents, and the gateway's own.
pub(super) struct AgentCardHandler<'a> {
    pub(super) search: VisibleAgentSearch<'a>,
    pub(super) credentials: &'a AcceptedCredentials,
    /// Key that signs cards; `None` if cards are unsigned.
    pub(super) signing_key: Option<&'a SigningKey>,
    pub(super) config: &'a DirectoryConfig,
}

impl AgentCardHandler<'_> {
    /// `/agents/{id}/agent-card.json`: the card of one agent.
    pub(super) fn agent_card(&self, call: &DirectoryCall<'_>) -> Result<Representation> {
        let (media, version) =
            (media_types::negotiate(call.headers, CARD_MEDIA_TYPES)?, CardVersion::requested_by(call)?);
        Representation::json(media, &self.render_agent_card(call.base_url, &*call.requested_agent()?, version, None))
    }

    /// `/.well-known/agent-card.json`: the card of the only visible agent, or the gateway's own.
    pub(super) fn well_known_card(&self, call: &DirectoryCall<'_>) -> Result<Representation> {
        self.shared_card(call, None)
    }

    /// `/.well-known/agent-card` and `/v1/card`: the well-known card, with the members that Agent Framework's document
    /// has besides (R151). Readers of either format ignore the other's members.
    pub(super) fn framework_card(
        &self,
        call: &DirectoryCall<'_>,
        framework: &FrameworkDiscoveryHandler<'_>,
    ) -> Result<Representation> {
        self.shared_card(call, Some(framework))
    }

    fn shared_card(
        &self,
        call: &DirectoryCall<'_>,
        framework: Option<&FrameworkDiscoveryHandler<'_>>,
    ) -> Result<Representation> {
        let (media, version) =
            (media_types::negotiate(call.headers, CARD_MEDIA_TYPES)?, CardVersion::requested_by(call)?);
        let agents = self.search.listed_agents(call);
        let (base, only) = (call.base_url, agents.hits.first().filter(|_| agents.hits.len() == 1 && !agents.has_more));
        let document = framework.map(|framework| match only {
            Some(only) => framework.full_document(base, &only.agent),
            None => framework.gateway_document(),
        });
        let rendered = match only {
            Some(only) => self.render_agent_card(base, &only.agent, version, document),
            None => {
                let builder = GatewayCardBuilder { base_url: base, credentials: self.credentials, config: self.config };
                self.render_card(base, &with_members(builder.build(&agents), document), version)
            }
        };
        Representation::json(media, &rendered)
    }

    /// Renders the card of `agent`, with the members of `framework` that the card does not have.
    fn render_agent_card(&self, base: &str, agent: &Agent, version: CardVersion, framework: Option<Value>) -> Value {
        let redactor = AddressRedactor::new(agent, base, self.config.advertised_endpoints);
        let document = RedactedDocument::new(agent, &redactor);
        let builder = AgentCardBuilder { agent, redactor: &redactor, credentials: self.credentials };
        match document.member("agent_card").filter(|card| card.is_object()) {
            // A card shown unchanged keeps its publisher's signature, which does not cover further members.
            Some(published) if redactor.exposes_endpoint() => match framework {
                None => published.clone(),
                Some(framework) => unsigned_with_members(published, framework),
            },
            Some(published) => {
                self.render_card(base, &with_members(builder.build_from_published_card(published), framework), version)
            }
            None => self.render_card(base, &with_members(builder.build_from_operations(&document), framework), version),
        }
    }

    fn render_card(&self, base: &str, card: &AgentCard, version: CardVersion) -> Value {
        let mut members = match version {
            CardVersion::V1 => v1::card_members(card, self.credentials),
            CardVersion::V03 => v03::card_members(card, self.credentials),
            CardVersion::Combined => {
                merge_versions(v1::card_members(card, self.credentials), v03::card_members(card, self.credentials))
            }
        };
        for (name, value) in &card.extra_members {
            members.entry(name.as_str()).or_insert_with(|| value.clone());
        }
        let mut rendered = Value::Object(members);
        if let Some(signer) = self.signing_key {
            signer.sign_card(&mut rendered, &format!("{base}/.well-known/jwks.json"));
        }
        rendered
    }
}

/// Adds the members of a document that the card does not have.
fn with_members(mut card: AgentCard, document: Option<Value>) -> AgentCard {
    if let Some(Value::Object(members)) = document {
        add_missing_members(&mut card.extra_members, members);
    }
    card
}

/// Returns a published card without its signatures, with the members of `document` that it does not have.
fn unsigned_with_members(published: &Value, document: Value) -> Value {
    let mut card = published.clone();
    if let (Value::Object(card), Value::Object(members)) = (&mut card, document) {
        card.remove("signatures");
        add_missing_members(card, members);
    }
    card
}

fn add_missing_members(card: &mut Map<String, Value>, members: Map<String, Value>) {
    for (name, value) in members {
        card.entry(name).or_insert(value);
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
