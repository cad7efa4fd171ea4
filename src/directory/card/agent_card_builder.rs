//! Builds an agent's card from the card of either version that the agent published, with the gateway's address and
//! credentials instead of the agent's; or from the agent's operations.

use super::{
    super::{AcceptedCredentials, address_redaction::AddressRedactor, agent_document::RedactedDocument},
    agent_card::{AgentCard, CardInterface, CardSkill},
};
use crate::agent::{Agent, AgentEndpoint, Operation, media_types};
use serde_json::{Map, Value};
use std::borrow::Cow;

/// Members that this file handles; others are copied. Signatures are invalid after the replacements here, and the
/// extended card needs a method that callers cannot call.
const HANDLED_MEMBERS: &[&str] = &[
    "name",
    "description",
    "version",
    "provider",
    "documentationUrl",
    "iconUrl",
    "supportedInterfaces",
    "url",
    "preferredTransport",
    "additionalInterfaces",
    "protocolVersion",
    "capabilities",
    "securitySchemes",
    "security",
    "securityRequirements",
    "defaultInputModes",
    "defaultOutputModes",
    "skills",
    "signatures",
    "supportsAuthenticatedExtendedCard",
];
/// Capabilities of an agent that apply through the gateway too.
const KEPT_CAPABILITIES: &[&str] = &["streaming", "pushNotifications", "stateTransitionHistory", "extensions"];
/// Maximum number of skills, tags, examples and modes.
const MAX_ITEMS: usize = 256;

/// Builder of an agent's card.
pub(super) struct AgentCardBuilder<'a> {
    pub(super) agent: &'a Agent,
    pub(super) redactor: &'a AddressRedactor<'a>,
    pub(super) credentials: &'a AcceptedCredentials,
}

impl AgentCardBuilder<'_> {
    /// Builds a card from the card that the agent published, which is redacted already.
    pub(super) fn build_from_published_card(&self, published: &Value) -> AgentCard {
        let (agent, redactor) = (self.agent, self.redactor);
        let text =
            |name: &str| published.get(name).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned);
        let capabilities = published.get("capabilities").and_then(Value::as_object);
        let kept_capabilities =
            capabilities.into_iter().flatten().filter(|(name, _)| KEPT_CAPABILITIES.contains(&name.as_str()));
        let extra_members =
            published.as_object().into_iter().flatten().filter(|(name, _)| !HANDLED_MEMBERS.contains(&name.as_str()));
        let to_pair = |(name, value): (&String, &Value)| (name.clone(), value.clone());
        let skills = published.get("skills").and_then(Value::as_array);
        let card = AgentCard {
            name: text("name").unwrap_or_else(|| agent.name.clone()),
            description: text("description").unwrap_or_else(|| redactor.redact_text(&agent.description).into_owned()),
            version: text("version").or_else(|| agent.version.clone()).unwrap_or_default(),
            provider: parse_provider(published.get("provider")),
            documentation: text("documentationUrl"),
            icon: text("iconUrl"),
            interfaces: self.reachable_interfaces(published),
            capabilities: kept_capabilities.map(to_pair).collect(),
            inputs: string_array(published, "defaultInputModes"),
            outputs: string_array(published, "defaultOutputModes"),
            skills: skills.into_iter().flatten().take(MAX_ITEMS).map(parse_skill).collect(),
            extra_members: extra_members.map(to_pair).collect(),
            ..AgentCard::default()
        };
        card.with_credentials_and_defaults(self.credentials, Some(agent))
    }

    /// Builds a card from the agent's document and operations.
    pub(super) fn build_from_operations(&self, document: &RedactedDocument) -> AgentCard {
        let (agent, redactor) = (self.agent, self.redactor);
        let skill = |(index, operation)| self.operation_skill(document.operation_member(index), operation);
        let card = AgentCard {
            name: redactor.redact_text(&agent.name).into_owned(),
            description: first_non_blank(&[&agent.description, &agent.name], redactor),
            version: agent.version.clone().unwrap_or_default(),
            provider: parse_provider(document.member("provider")),
            documentation: document.text_member("documentationUrl").map(str::to_owned),
            icon: document.text_member("iconUrl").map(str::to_owned),
            interfaces: vec![CardInterface::aidip(redactor.public_endpoint().into_owned())],
            skills: agent.operations.iter().enumerate().map(skill).collect(),
            ..AgentCard::default()
        };
        card.with_credentials_and_defaults(self.credentials, Some(agent))
    }

    /// Returns the interfaces at the agent's endpoint. Others cannot be reached through the gateway.
    fn reachable_interfaces(&self, card: &Value) -> Vec<CardInterface> {
        let (agent, redactor) = (self.agent, self.redactor);
        // Compares the published addresses; the card shows the gateway's.
        let published: Value = serde_json::from_str(&agent.document).unwrap_or_default();
        let published = published.get("agent_card").unwrap_or(card);
        let text = |from: &Value, name: &str| from.get(name).and_then(Value::as_str).map(str::to_owned);
        let old_version = text(published, "protocolVersion").unwrap_or_else(|| "0.3.0".to_owned());
        let list = |name: &str| published.get(name).and_then(Value::as_array).into_iter().flatten().take(MAX_ITEMS);
        let mut interfaces: Vec<(String, CardInterface)> = Vec::new();
        let mut add = |url: Option<String>, binding: Option<String>, version: Option<String>| {
            let (Some(endpoint_url), binding) = (url, binding.unwrap_or_else(|| "JSONRPC".to_owned())) else { return };
            let version = version.unwrap_or_else(|| "1.0".to_owned());
            interfaces
                .push((endpoint_url, CardInterface { url: redactor.public_endpoint().into_owned(), binding, version }));
        };
        for interface in list("supportedInterfaces") {
            add(text(interface, "url"), text(interface, "protocolBinding"), text(interface, "protocolVersion"));
        }
        add(text(published, "url"), text(published, "preferredTransport"), Some(old_version.clone()));
        for interface in list("additionalInterfaces") {
            add(text(interface, "url"), text(interface, "transport"), Some(old_version.clone()));
        }
        let is_at_endpoint =
            |endpoint_url: &str| endpoint_url.parse::<AgentEndpoint>().is_ok_and(|endpoint| endpoint == agent.endpoint);
        let mut reachable: Vec<CardInterface> = Vec::new();
        for (_, interface) in interfaces.iter().filter(|(endpoint_url, _)| is_at_endpoint(endpoint_url)) {
            if !reachable.contains(interface) {
                reachable.push(interface.clone());
            }
        }
        match (reachable.is_empty(), interfaces.into_iter().next()) {
            // No interface is at the endpoint: assume the one that the card prefers.
            (true, Some((_, first))) => vec![first],
            (true, None) => {
                vec![CardInterface {
                    url: redactor.public_endpoint().into_owned(),
                    binding: "JSONRPC".to_owned(),
                    version: old_version,
                }]
            }
            (false, _) => reachable,
        }
    }

    fn operation_skill(&self, declared: Option<&Value>, operation: &Operation) -> CardSkill {
        let (agent, redactor) = (self.agent, self.redactor);
        let id = if operation.name.is_empty() { agent.id.as_str() } else { &operation.name };
        let name = if operation.name.is_empty() { agent.name.as_str() } else { &operation.name };
        // Never without a tag: readers require the list, and A2A's canonical form omits empty lists.
        let tags = [&agent.tags, &agent.capabilities].into_iter().find(|values| !values.is_empty());
        let tags = tags.map(|values| redactor.redact_list(values).into_iter().map(Cow::into_owned).collect());
        let examples = declared.and_then(|declared| declared.get("examples")).and_then(Value::as_array);
        let examples =
            examples.into_iter().flatten().take(3).filter_map(|example| Some(example.get("input")?.to_string()));
        CardSkill {
            id: id.to_owned(),
            name: redactor.redact_text(name).into_owned(),
            description: first_non_blank(&[&operation.description, &agent.description, name], redactor),
            tags: tags.unwrap_or_else(|| vec![id.to_owned()]),
            examples: examples.filter(|text| text.len() <= 1_000).collect(),
            inputs: operation.accepted_inputs().filter(|format| format.contains('/')).map(str::to_owned).collect(),
            outputs: media_types(&operation.formats.outputs).map(str::to_owned).collect(),
        }
    }
}

fn parse_skill(skill: &Value) -> CardSkill {
    let text = |name: &str| skill.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    CardSkill {
        id: text("id"),
        name: text("name"),
        description: text("description"),
        tags: string_array(skill, "tags"),
        examples: string_array(skill, "examples"),
        inputs: string_array(skill, "inputModes"),
        outputs: string_array(skill, "outputModes"),
    }
}

fn string_array(members: &Value, name: &str) -> Vec<String> {
    let list = members.get(name).and_then(Value::as_array).into_iter().flatten();
    list.filter_map(Value::as_str).take(MAX_ITEMS).map(str::to_owned).collect()
}

fn parse_provider(provider: Option<&Value>) -> Option<(String, String)> {
    let provider: &Map<String, Value> = provider?.as_object()?;
    let text = |name: &str| provider.get(name)?.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    Some((text("organization").or_else(|| text("name"))?, text("url")?))
}

/// Returns the first text that is not blank, redacted.
fn first_non_blank(texts: &[&str], redactor: &AddressRedactor<'_>) -> String {
    let first = texts.iter().find(|text| !text.trim().is_empty()).copied().unwrap_or_default();
    redactor.redact_text(first).into_owned()
}
