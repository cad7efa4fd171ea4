//! `agent.json` (R57–R59, R65–R71): the descriptor of an agent in JSON-LD 1.1. It embeds its context, so that readers
//! need not fetch one; schemas are JSON literals, because their keywords are not terms of the context.

use super::{
    Ask, Directory,
    address::{Veil, invoke},
    caching::Page,
    credentials::aidip,
    document::Doc,
    fields::Fields,
    media,
    summary::status,
};
use crate::{
    agent::{Agent, Operation},
    fault::Result,
    names::version_place,
};
use serde_json::{Map, Value, json};

/// Media types of a descriptor; the first is the default.
const FORMS: &[&str] = &[media::JSON, "application/ld+json", "application/agent+json"];

/// Members about an agent's behaviour (R71), which each capability may override.
const BEHAVIOUR: &[&str] = &[
    "isDeterministic",
    "expectedOutputVariability",
    "responseLatency",
    "requiresContext",
    "memoryEnabled",
    "confidenceEstimation",
];
/// Members copied from the document if they are scalars (R72).
const TEXTS: &[&str] = &["documentationUrl", "interactionModel"];
/// Members copied with any value (R72, R73): JSON literals in the context, so that no document can introduce a context
/// of its own, which a reader would fetch.
const LITERALS: &[&str] = &["orchestration", "envelopeSchemas", "provider", "contact"];

impl Directory {
    /// `/agents/{id}/agent.json`: the descriptor of one agent.
    pub(super) fn descriptor(&self, call: &Ask<'_>) -> Result<Page> {
        let media = media::choose(call.headers, FORMS)?;
        Page::json(media, &self.descriptor_of(call.base, &*self.seen(call)?))
    }

    /// `/.well-known/agent.json`: the descriptor of the only visible agent, or the gateway's own.
    pub(super) fn house_descriptor(&self, call: &Ask<'_>) -> Result<Page> {
        let media = media::choose(call.headers, FORMS)?;
        let found = self.shown(call);
        match found.hits.as_slice() {
            [only] if !found.more => Page::json(media, &self.descriptor_of(call.base, &only.agent)),
            _ => Page::json(media, &self.own_descriptor(call.base, &found)),
        }
    }

    fn descriptor_of(&self, base: &str, agent: &Agent) -> Value {
        let redactor = Veil::over(agent, base, self.config.advertised_endpoints);
        let doc = Doc::of(agent, &redactor);
        let mut fields = Fields::default();
        let id = agent.id.as_str();
        fields.set("@context", context());
        fields.set("@id", format!("{base}/agents/{id}/agent.json").into());
        fields.set("@type", "Agent".into());
        fields.set("identifier", id.into());
        fields.set("name", redactor.text(&agent.name).into());
        // JSON-LD readers require a version; "0.0.0" stands for an unknown one.
        fields.set("version", agent.version.as_deref().unwrap_or("0.0.0").into());
        fields.set("description", redactor.text(&agent.description).into());
        fields.set("url", redactor.endpoint().into());
        fields.set("status", status(agent).into());
        fields.set("tags", agent.tags.iter().map(|tag| &**tag).collect());
        if let Some(publisher) = &agent.publisher {
            fields.set("provider", json!({"organization": redactor.text(publisher)}));
        }
        for name in TEXTS.iter().chain(BEHAVIOUR) {
            fields.maybe(name, doc.get(name).filter(|value| is_plain(value)).cloned());
        }
        for name in LITERALS {
            fields.maybe(name, doc.get(name).filter(|value| !value.is_null()).cloned());
        }
        fields.set("capabilities", capabilities(&redactor, agent, &doc));
        fields.set("authentication", self.authentication(agent, &doc));
        fields.set("endpoints", json!({"https": redactor.endpoint()}));
        fields.set("transport", json!({"protocol": "https", "method": "POST", "endpoint": redactor.endpoint()}));
        fields.set("versionNegotiation", versions());
        fields.maybe("supportedVersions", supported(base, agent));
        fields.set("links", links(base, id));
        fields.done()
    }

    /// Builds `authentication`: what the gateway requires from callers of the agent.
    fn authentication(&self, agent: &Agent, doc: &Doc) -> Value {
        let schemes: Vec<&str> = self.credentials.counting(Some(agent)).iter().map(|kind| kind.agent_uri()).collect();
        let mut fields = Fields::default();
        fields.set("type", aidip(agent.authentication.kind).into());
        fields.set("schemes", schemes.into());
        if !agent.authentication.scopes.is_empty() {
            fields.set("scopes", agent.authentication.scopes.as_slice().into());
        }
        let instructions = doc.get("authentication").and_then(|given| given.get("instructions"));
        fields.maybe("instructions", instructions.and_then(Value::as_str));
        fields.done()
    }

    fn own_descriptor(&self, base: &str, found: &crate::search::Found) -> Value {
        let entry = |agent: &Agent| {
            let redactor = Veil::over(agent, base, self.config.advertised_endpoints);
            json!({
                "@type": "Capability",
                "name": agent.id.as_str(),
                "description": redactor.text(&agent.description),
                "tags": agent.tags.iter().map(|tag| &**tag).collect::<Vec<_>>(),
                "endpoint": redactor.endpoint(),
                "descriptor": format!("{base}/agents/{}/agent.json", agent.id),
            })
        };
        json!({
            "@context": context(),
            "@id": format!("{base}/.well-known/agent.json"),
            "@type": "Agent",
            "name": self.config.name,
            "version": env!("CARGO_PKG_VERSION"),
            "description": self.config.description,
            "url": base,
            "capabilities": found.hits.iter().map(|hit| entry(&hit.agent)).collect::<Vec<_>>(),
            "versionNegotiation": versions(),
            "links": {
                "agents": format!("{base}/.well-known/agents.json"),
                "openapi": format!("{base}/openapi.json"),
            },
        })
    }
}

/// Returns the JSON-LD context. Common terms map to schema.org; the others have a vocabulary of their own.
fn context() -> Value {
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
    })
}

/// Whether `value` is a string, a number or a boolean.
fn is_plain(value: &Value) -> bool {
    matches!(value, Value::String(_) | Value::Number(_) | Value::Bool(_))
}

/// Builds one capability for each operation, with its schemas; there is at least one (R65).
fn capabilities(redactor: &Veil<'_>, agent: &Agent, doc: &Doc) -> Value {
    let one = |(at, operation): (usize, &Operation)| {
        let declared = doc.operation(at);
        let name = match operation.name.is_empty() {
            true => agent.capabilities.first().map_or("invoke", |word| &**word),
            false => &*operation.name,
        };
        let description = match operation.description.is_empty() {
            true => &agent.description,
            false => &operation.description,
        };
        let formats = json!(["application/json"]);
        let mut fields = Fields::default();
        fields.set("@type", "Capability".into());
        fields.set("name", name.into());
        fields.set("description", redactor.text(description).into());
        fields.set("tags", agent.capabilities.iter().map(|word| &**word).collect());
        fields.set("endpoint", redactor.operation(&operation.name).into());
        fields.set("inputFormats", formats.clone());
        fields.set("outputFormats", formats.clone());
        fields.set("contentTypes", json!({"inputFormat": formats, "outputFormat": formats}));
        let schemas = [("input", &operation.inputs), ("output", &operation.outputs)];
        for (name, schema) in schemas.into_iter().filter_map(|(name, schema)| Some((name, schema.as_ref()?))) {
            let mut schema = Value::clone(schema);
            redactor.value(&mut schema);
            fields.set(name, schema);
        }
        let declared = |name: &str| declared?.get(name);
        for name in BEHAVIOUR.iter().chain(&["version"]) {
            fields.maybe(name, declared(name).filter(|value| is_plain(value)).cloned());
        }
        fields.maybe("examples", declared("examples").filter(|value| value.is_array()).cloned());
        fields.done()
    };
    agent.operations.iter().enumerate().map(one).collect()
}

/// Describes how callers select a version (R69), in the header, the query or the path; the default is the latest.
fn versions() -> Value {
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
            the version in X-Agent-Version; an unknown version is answered 406.",
    })
}

/// Returns the URL of every version that callers can select (R67).
fn supported(base: &str, agent: &Agent) -> Option<Value> {
    let here = |at: &str| version_place(&agent.endpoint, at).is_some();
    let versions = agent.versions.only(|served| served.place.as_deref().is_none_or(here));
    let place = |label: &str| Value::from(invoke(base, &format!("{}@{label}", agent.id), ""));
    let each: Map<_, _> = versions.iter().map(|served| (served.label.to_string(), place(&served.label))).collect();
    (versions.iter().any(|served| served.place.is_some()) || each.len() > 1).then(|| each.into())
}

fn links(base: &str, id: &str) -> Value {
    json!({
        "metadata": format!("{base}/agents/{id}"),
        "card": format!("{base}/agents/{id}/agent-card.json"),
        "openapi": format!("{base}/agents/{id}/openapi.json"),
    })
}
