//! Sources of a card: the agent's own card of either version, with the gateway's address and credentials instead of the
//! agent's; or the agent's operations.

use super::{
    super::{AgentDirectory, address_redaction::AddressRedactor, agent_document::RedactedDocument},
    AIDIP_BINDING, AgentCard, CardInterface, CardSkill,
};
use crate::agent::{Agent, AgentEndpoint, Operation};
use serde_json::{Map, Value};

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
const DEFAULT_MODE: &str = "application/json";
/// Maximum number of skills, tags, examples and modes.
const MAX_ITEMS: usize = 256;

impl AgentDirectory {
    /// Builds a card from the agent's own card `own`, which is redacted already.
    pub(super) fn card_from_published(&self, agent: &Agent, redactor: &AddressRedactor<'_>, own: &Value) -> AgentCard {
        let text =
            |name: &str| own.get(name).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned);
        let given = own.get("capabilities").and_then(Value::as_object);
        let kept = given.into_iter().flatten().filter(|(name, _)| KEPT_CAPABILITIES.contains(&name.as_str()));
        let more = own.as_object().into_iter().flatten().filter(|(name, _)| !HANDLED_MEMBERS.contains(&name.as_str()));
        let pairs = |(name, value): (&String, &Value)| (name.clone(), value.clone());
        let skills = own.get("skills").and_then(Value::as_array);
        let mut card = AgentCard {
            name: text("name").unwrap_or_else(|| agent.name.clone()),
            description: text("description").unwrap_or_else(|| redactor.redact_text(&agent.description).into_owned()),
            version: text("version").or_else(|| agent.version.clone()).unwrap_or_default(),
            provider: parse_provider(own.get("provider")),
            documentation: text("documentationUrl"),
            icon: text("iconUrl"),
            interfaces: reachable_interfaces(agent, redactor, own),
            capabilities: kept.map(pairs).collect(),
            inputs: string_array(own, "defaultInputModes"),
            outputs: string_array(own, "defaultOutputModes"),
            skills: skills.into_iter().flatten().take(MAX_ITEMS).map(parse_skill).collect(),
            extra_members: more.map(pairs).collect(),
            ..AgentCard::default()
        };
        self.add_credentials_and_defaults(&mut card, Some(agent));
        card
    }

    /// Builds a card from the agent's document and operations.
    pub(super) fn card_from_operations(
        &self,
        agent: &Agent,
        redactor: &AddressRedactor<'_>,
        doc: &RedactedDocument,
    ) -> AgentCard {
        let one = |(at, operation)| operation_skill(agent, redactor, doc, (at, operation));
        let interface = CardInterface {
            url: redactor.public_endpoint().into_owned(),
            binding: AIDIP_BINDING.to_owned(),
            version: "1.0".to_owned(),
        };
        let mut card = AgentCard {
            name: redactor.redact_text(&agent.name).into_owned(),
            description: first_non_blank(&[&agent.description, &agent.name], redactor),
            version: agent.version.clone().unwrap_or_default(),
            provider: parse_provider(doc.member("provider")),
            documentation: doc.text_member("documentationUrl").or(doc.text_member("documentation")).map(str::to_owned),
            icon: doc.text_member("iconUrl").map(str::to_owned),
            interfaces: vec![interface],
            skills: agent.operations.iter().enumerate().map(one).collect(),
            ..AgentCard::default()
        };
        self.add_credentials_and_defaults(&mut card, Some(agent));
        card
    }

    /// Adds the accepted credentials, and defaults for the members that readers require.
    pub(super) fn add_credentials_and_defaults(&self, card: &mut AgentCard, agent: Option<&Agent>) {
        card.credentials = self.credentials.accepted_kinds(agent);
        card.scopes = agent.map(|agent| agent.authentication.scopes.clone()).unwrap_or_default();
        for modes in [&mut card.inputs, &mut card.outputs].into_iter().filter(|modes| modes.is_empty()) {
            modes.push(DEFAULT_MODE.to_owned());
        }
        if card.version.is_empty() {
            // A2A requires a version, and none is known.
            card.version = "0.0.0".to_owned();
        }
    }
}

/// Returns the interfaces at the agent's endpoint. Others cannot be reached through the gateway.
fn reachable_interfaces(agent: &Agent, redactor: &AddressRedactor<'_>, own: &Value) -> Vec<CardInterface> {
    // Compares the published addresses; the card shows the gateway's.
    let published: Value = serde_json::from_str(&agent.document).unwrap_or_default();
    let published = published.get("agent_card").unwrap_or(own);
    let text = |from: &Value, name: &str| from.get(name).and_then(Value::as_str).map(str::to_owned);
    let old = text(published, "protocolVersion").unwrap_or_else(|| "0.3.0".to_owned());
    let list = |name: &str| published.get(name).and_then(Value::as_array).into_iter().flatten().take(MAX_ITEMS);
    let mut all: Vec<(String, CardInterface)> = Vec::new();
    let mut add = |url: Option<String>, binding: Option<String>, version: Option<String>| {
        let (Some(at), binding) = (url, binding.unwrap_or_else(|| "JSONRPC".to_owned())) else { return };
        let version = version.unwrap_or_else(|| "1.0".to_owned());
        all.push((at, CardInterface { url: redactor.public_endpoint().into_owned(), binding, version }));
    };
    for each in list("supportedInterfaces") {
        add(text(each, "url"), text(each, "protocolBinding"), text(each, "protocolVersion"));
    }
    add(text(published, "url"), text(published, "preferredTransport"), Some(old.clone()));
    for each in list("additionalInterfaces") {
        add(text(each, "url"), text(each, "transport"), Some(old.clone()));
    }
    let reached = |at: &str| at.parse::<AgentEndpoint>().is_ok_and(|at| at == agent.endpoint);
    let mut kept: Vec<CardInterface> = Vec::new();
    for (_, interface) in all.iter().filter(|(at, _)| reached(at)) {
        if !kept.contains(interface) {
            kept.push(interface.clone());
        }
    }
    match (kept.is_empty(), all.into_iter().next()) {
        // No interface is at the endpoint: assume the one that the card prefers.
        (true, Some((_, first))) => vec![first],
        (true, None) => {
            vec![CardInterface {
                url: redactor.public_endpoint().into_owned(),
                binding: "JSONRPC".to_owned(),
                version: old,
            }]
        }
        (false, _) => kept,
    }
}

fn operation_skill(
    agent: &Agent,
    redactor: &AddressRedactor<'_>,
    doc: &RedactedDocument,
    (at, operation): (usize, &Operation),
) -> CardSkill {
    let id = match operation.name.is_empty() {
        true => agent.id.as_str(),
        false => &operation.name,
    };
    let name = if operation.name.is_empty() { agent.name.as_str() } else { &operation.name };
    // Never without a tag: readers require the list, and A2A's canonical form omits empty lists.
    let tags = [&agent.tags, &agent.capabilities].into_iter().find(|words| !words.is_empty());
    let tags = tags.map(|words| words.iter().map(|word| word.to_string()).collect());
    let examples = doc.operation_member(at).and_then(|declared| declared.get("examples")).and_then(Value::as_array);
    let examples = examples.into_iter().flatten().take(3).filter_map(|example| Some(example.get("input")?.to_string()));
    CardSkill {
        id: id.to_owned(),
        name: redactor.redact_text(name).into_owned(),
        description: first_non_blank(&[&operation.description, &agent.description, name], redactor),
        tags: tags.unwrap_or_else(|| vec![id.to_owned()]),
        examples: examples.filter(|text| text.len() <= 1_000).collect(),
        ..CardSkill::default()
    }
}

fn parse_skill(own: &Value) -> CardSkill {
    let text = |name: &str| own.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    CardSkill {
        id: text("id"),
        name: text("name"),
        description: text("description"),
        tags: string_array(own, "tags"),
        examples: string_array(own, "examples"),
        inputs: string_array(own, "inputModes"),
        outputs: string_array(own, "outputModes"),
    }
}

fn string_array(own: &Value, name: &str) -> Vec<String> {
    let list = own.get(name).and_then(Value::as_array).into_iter().flatten();
    list.filter_map(Value::as_str).take(MAX_ITEMS).map(str::to_owned).collect()
}

fn parse_provider(given: Option<&Value>) -> Option<(String, String)> {
    let given: &Map<String, Value> = given?.as_object()?;
    let text = |name: &str| given.get(name)?.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    Some((text("organization").or_else(|| text("name"))?, text("url")?))
}

/// Returns the first text that is not blank, redacted.
fn first_non_blank(texts: &[&str], redactor: &AddressRedactor<'_>) -> String {
    let first = texts.iter().find(|text| !text.trim().is_empty()).copied().unwrap_or_default();
    redactor.redact_text(first).into_owned()
}
