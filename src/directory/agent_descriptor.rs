//! `agent.json` (R57–R59, R65–R71): the descriptor of an agent in JSON-LD 1.1. It embeds its context, so that readers
//! need not fetch one; schemas are JSON literals, because their keywords are not terms of the context.

use super::{
    AcceptedCredentials, CallConventions, DirectoryCall, DirectoryConfig,
    address_redaction::AddressRedactor,
    agent_document::RedactedDocument,
    agent_summary::{entry_text, entry_words, status_name},
    conditional_response::Representation,
    json_object_builder::JsonObjectBuilder,
    media_types,
    version_addresses::{callable_versions, version_addresses},
    visible_agent_search::VisibleAgentSearch,
};
use crate::{
    agent::{Agent, MAX_URI_LEN, Operation, query_expression, undeclared_schema},
    fault::Result,
    resolver::operation_url,
    search::SearchResults,
    values::AcceptHeader,
};
use http::HeaderMap;
use serde_json::{Value, json};

/// Media types of a descriptor; the first is the default.
pub(super) const DESCRIPTOR_MEDIA_TYPES: &[&str] =
    &[media_types::JSON, "application/ld+json", "application/agent+json"];
/// The media type that only a card has.
const A2A_CARD: &str = "application/a2a+json";

/// Media types that only a descriptor has.
const LINKED_DATA_MEDIA_TYPES: &[&str] = &["application/ld+json", "application/agent+json"];

/// Returns whether a caller requests the descriptor, and not the card, at a path that both share (R58): it accepts one of
/// the descriptor's own media types, with at least the quality of plain JSON. A client of A2A 0.2 states neither its
/// version nor a media type that tells it apart.
pub(super) fn is_requested(headers: &HeaderMap) -> bool {
    let accept = AcceptHeader::from_headers(headers);
    let quality_of = |media: &&str| accept.exact_quality_of(media).unwrap_or_default();
    let linked_data = LINKED_DATA_MEDIA_TYPES.iter().map(quality_of).max().unwrap_or_default();
    let plain = [media_types::JSON, A2A_CARD].iter().map(quality_of).max().unwrap_or_default();
    !headers.contains_key(media_types::A2A_VERSION) && linked_data > 0 && linked_data >= plain
}

/// Members about an agent's behaviour (R71), which each capability may override.
const BEHAVIOUR_MEMBERS: &[&str] = &[
    "isDeterministic",
    "expectedOutputVariability",
    "responseLatency",
    "requiresContext",
    "memoryEnabled",
    "confidenceEstimation",
];
/// Members copied from the document if they are scalars (R72).
const SCALAR_MEMBERS: &[&str] = &["documentationUrl", "interactionModel"];
/// Members copied with any value (R72, R73): JSON literals in the context, so that no document can introduce a context
/// of its own, which a reader would fetch.
const LITERAL_MEMBERS: &[&str] = &["orchestration", "envelopeSchemas", "provider", "contact"];

/// Members in which documents declare their practices of state management (R73).
const STATE_MEMBERS: &[&str] = &["stateManagement", "state_management"];

/// Serves the descriptors of agents, and the gateway's own.
pub(super) struct AgentDescriptorHandler<'a> {
    pub(super) search: VisibleAgentSearch<'a>,
    pub(super) credentials: &'a AcceptedCredentials,
    pub(super) conventions: &'a CallConventions,
    pub(super) config: &'a DirectoryConfig,
}

impl AgentDescriptorHandler<'_> {
    /// `/agents/{id}/agent.json`: the descriptor of one agent.
    pub(super) fn agent_descriptor(&self, call: &DirectoryCall<'_>) -> Result<Representation> {
        let media = media_types::negotiate(call.headers, DESCRIPTOR_MEDIA_TYPES)?;
        Representation::json(media, &self.render_descriptor(call.base_url, &*call.requested_agent()?))
    }

    /// `/agent.json`: the descriptor of the only visible agent, or the gateway's own.
    pub(super) fn well_known_descriptor(&self, call: &DirectoryCall<'_>) -> Result<Representation> {
        let media = media_types::negotiate(call.headers, DESCRIPTOR_MEDIA_TYPES)?;
        let agents = self.search.listed_agents(call);
        match agents.hits.as_slice() {
            [only] if !agents.has_more => {
                Representation::json(media, &self.render_descriptor(call.base_url, &only.agent))
            }
            _ => Representation::json(media, &self.gateway_descriptor(call.base_url, &agents)),
        }
    }

    fn render_descriptor(&self, base: &str, agent: &Agent) -> Value {
        let redactor = AddressRedactor::new(agent, base, self.config.advertised_endpoints);
        let document = RedactedDocument::new(agent, &redactor);
        let mut fields = JsonObjectBuilder::default();
        let id = agent.id.as_str();
        fields.set("@context", jsonld_context());
        fields.set("@id", format!("{base}/agents/{id}/agent.json").into());
        fields.set("@type", "Agent".into());
        fields.set("identifier", id.into());
        fields.set("name", redactor.redact_text(&agent.name).into());
        // JSON-LD readers require a version; "0.0.0" stands for an unknown one.
        fields.set("version", agent.version.as_deref().unwrap_or("0.0.0").into());
        fields.set("description", redactor.redact_text(&agent.description).into());
        fields.set("url", redactor.public_endpoint().into());
        fields.set("status", status_name(agent).into());
        fields.set("tags", redactor.redact_list(&agent.tags).into());
        if let Some(publisher) = &agent.publisher {
            fields.set("provider", json!({"organization": redactor.redact_text(publisher)}));
        }
        for name in SCALAR_MEMBERS.iter().chain(BEHAVIOUR_MEMBERS) {
            fields.set_optional(name, document.member(name).filter(|value| is_scalar(value)).cloned());
        }
        for name in LITERAL_MEMBERS {
            fields.set_optional(name, document.member(name).filter(|value| !value.is_null()).cloned());
        }
        fields.set("capabilities", capabilities(&redactor, agent, &document));
        fields.set("authentication", self.descriptor_authentication(agent, &document));
        fields.set("endpoints", json!({"https": redactor.public_endpoint()}));
        fields.set("transport", json!({"protocol": "https", "method": "POST", "endpoint": redactor.public_endpoint()}));
        let declared = STATE_MEMBERS.iter().find_map(|name| document.member(name));
        if redactor.exposes_endpoint() {
            // Calls to an agent's own endpoint follow the agent's conventions, which only its document knows.
            fields.set_optional("stateManagement", declared.filter(|value| !value.is_null()).cloned());
        } else {
            fields.set("bindings", self.conventions.bindings(base, agent, self.credentials));
            fields.set("stateManagement", self.conventions.state_management(base, declared));
        }
        fields.set("versionNegotiation", version_negotiation());
        fields.set_optional("supportedVersions", supported_versions(base, agent));
        fields.set("links", links(base, id));
        fields.into_value()
    }

    /// Builds `authentication`: the credentials that the gateway requires from callers of the agent.
    fn descriptor_authentication(&self, agent: &Agent, document: &RedactedDocument) -> Value {
        let schemes: Vec<&str> =
            self.credentials.accepted_methods(Some(agent)).iter().map(|method| method.descriptor_scheme()).collect();
        let mut fields = JsonObjectBuilder::default();
        fields.set("type", document.authentication_type(agent).into());
        fields.set("schemes", schemes.into());
        if !agent.authentication.scopes.is_empty() {
            fields.set("scopes", agent.authentication.scopes.as_slice().into());
        }
        let instructions =
            document.member("authentication").and_then(|authentication| authentication.get("instructions"));
        fields.set_optional("instructions", instructions.and_then(Value::as_str));
        fields.into_value()
    }

    fn gateway_descriptor(&self, base: &str, agents: &SearchResults) -> Value {
        let capability_of = |agent: &Agent| {
            let redactor = AddressRedactor::for_list_entry(agent, base, self.config.advertised_endpoints);
            json!({
                "@type": "Capability",
                "name": agent.id.as_str(),
                "description": redactor.redact_text(entry_text(&agent.description)),
                "tags": redactor.redact_list(entry_words(&agent.tags)),
                "endpoint": redactor.public_endpoint(),
                "descriptor": format!("{base}/agents/{}/agent.json", agent.id),
            })
        };
        json!({
            "@context": jsonld_context(),
            "@id": format!("{base}/agent.json"),
            "@type": "Agent",
            "name": self.config.name,
            "version": env!("CARGO_PKG_VERSION"),
            "description": self.config.description,
            "url": base,
            "capabilities": agents.hits.iter().map(|hit| capability_of(&hit.agent)).collect::<Vec<_>>(),
            "versionNegotiation": version_negotiation(),
            "links": {
                "agents": format!("{base}/.well-known/agents.json"),
                "openapi": format!("{base}/openapi.json"),
            },
        })
    }
}

/// Returns the JSON-LD context. Common terms map to schema.org; the others have a vocabulary of their own.
fn jsonld_context() -> Value {
    let json = json!({"@type": "@json"});
    json!({
        "@version": 1.1,
        "@vocab": "urn:agent-descriptor:",
        "name": "https://schema.org/name",
        "description": "https://schema.org/description",
        "identifier": "https://schema.org/identifier",
        "version": "https://schema.org/version",
        "url": {"@id": "https://schema.org/url", "@type": "@id"},
        "tags": "https://schema.org/keywords",
        "endpoint": {"@type": "@id"},
        "descriptor": {"@type": "@id"},
        "input": json,
        "output": json,
        "examples": json,
        "supportedVersions": json,
        "envelopeSchemas": json,
        "contact": json,
        "provider": json,
        "orchestration": json,
        "bindings": json,
        "stateManagement": json,
    })
}

/// Returns whether `value` is a string, a number or a boolean.
fn is_scalar(value: &Value) -> bool {
    matches!(value, Value::String(_) | Value::Number(_) | Value::Bool(_))
}

/// Builds one capability for each operation, with its schemas; there is at least one (R65).
fn capabilities(redactor: &AddressRedactor<'_>, agent: &Agent, document: &RedactedDocument) -> Value {
    let capability = |(index, operation): (usize, &Operation)| {
        let declared = document.operation_member(index);
        let name = if operation.name.is_empty() {
            agent.capabilities.first().map_or("invoke", |capability_name| &**capability_name)
        } else {
            &*operation.name
        };
        let description = if operation.description.is_empty() { &agent.description } else { &operation.description };
        let or_json = |formats: Vec<&str>| if formats.is_empty() { json!([media_types::JSON]) } else { json!(formats) };
        let input_formats = or_json(operation.accepted_inputs().collect());
        let output_formats = or_json(operation.formats.outputs.iter().map(|format| &**format).collect());
        let mut fields = JsonObjectBuilder::default();
        fields.set("@type", "Capability".into());
        fields.set("name", name.into());
        fields.set("description", redactor.redact_text(description).into());
        fields.set("tags", redactor.redact_list(&agent.capabilities).into());
        let own = operation.endpoint.as_deref().filter(|_| redactor.exposes_endpoint());
        let own = own.and_then(|reference| operation_url(&agent.endpoint, reference)).map(String::from);
        fields.set("endpoint", own.map_or_else(|| redactor.operation_url(&operation.name), Into::into).into());
        fields.set_optional("uriTemplate", operation_template(redactor, operation, declared));
        fields.set("contentTypes", json!({"inputFormat": input_formats, "outputFormat": output_formats}));
        fields.set("inputFormats", input_formats);
        fields.set("outputFormats", output_formats);
        let schemas = [("input", &operation.inputs), ("output", &operation.outputs)];
        for (name, schema) in schemas {
            let mut schema = schema.as_deref().map_or_else(undeclared_schema, Value::clone);
            redactor.redact_value(&mut schema);
            fields.set(name, schema);
        }
        let declared = |name: &str| declared?.get(name);
        for name in BEHAVIOUR_MEMBERS.iter().chain(&["version"]) {
            fields.set_optional(name, declared(name).filter(|value| is_scalar(value)).cloned());
        }
        fields.set_optional("examples", declared("examples").filter(|value| value.is_array()).cloned());
        fields.into_value()
    };
    agent.operations.iter().enumerate().map(capability).collect()
}

/// Returns the template (RFC 6570) of an operation whose document lists one (R157), with the gateway's address: callers
/// expand it to a call with GET. Only a query has the same meaning at the gateway's address.
fn operation_template(
    redactor: &AddressRedactor<'_>,
    operation: &Operation,
    declared: Option<&Value>,
) -> Option<String> {
    let template = declared?.get("uriTemplate")?.as_str().filter(|template| template.len() <= MAX_URI_LEN)?;
    if redactor.exposes_endpoint() {
        return Some(template.to_owned());
    }
    Some(format!("{}{}", redactor.operation_url(&operation.name), query_expression(template)?))
}

/// Describes how callers select a version (R69), in the header, the query or the path; the default is the latest.
fn version_negotiation() -> Value {
    json!({
        "method": "header",
        "methods": ["header", "query", "path"],
        "header": "X-Agent-Version",
        "query": "version",
        "path": "/agents/{id}@{version}/invoke",
        "ranges": true,
        "default": "latest",
        "description": "Send a SemVer version or range (1.2.3, ^1.2, 1.x) in the header X-Agent-Version, in the query \
            parameter version, or after the agent's id in the path; the default is the latest version. Responses name \
            the version in X-Agent-Version; an unknown version results in 406.",
    })
}

/// Returns the URL of every version that callers can select (R67).
fn supported_versions(base: &str, agent: &Agent) -> Option<Value> {
    let (versions, addresses) = (callable_versions(agent), version_addresses(base, agent));
    (versions.iter().any(|version| version.location.is_some()) || addresses.len() > 1).then(|| addresses.into())
}

fn links(base: &str, id: &str) -> Value {
    json!({
        "metadata": format!("{base}/agents/{id}"),
        "card": format!("{base}/agents/{id}/agent-card.json"),
        "openapi": format!("{base}/agents/{id}/openapi.json"),
    })
}
