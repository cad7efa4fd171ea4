//! A2A agent cards (R59, R151, R153): the agent's own card if it published one, else a card built from its operations;
//! in version 1.0, in 0.3, or in one document that readers of both understand.
//!
//! Clients that fetch a card seldom state their version, so a card without a requested version has the members of both:
//! readers ignore the members of the other version.

mod house;
mod read;
mod v03;
mod v1;

use super::{
    Ask, Directory,
    address::Veil,
    caching::{A2A_VERSION, Page},
    credentials::Kind,
    document::Doc,
    media,
    query::Params,
};
use crate::{
    agent::Agent,
    fault::{Code, Fault, Result},
};
use serde_json::{Map, Value};

const FORMS: &[&str] = &[media::JSON, "application/a2a+json"];
/// Protocol binding of agents that do not speak A2A: a JSON body by POST, as AIDIP defines it.
const PLAIN_POST: &str = "AIDIP";

/// The card version of a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    V1,
    V03,
    Either,
}

/// A card, independent of the version.
#[derive(Debug, Default)]
struct Card {
    name: String,
    description: String,
    version: String,
    /// Name and URL: readers require both.
    provider: Option<(String, String)>,
    documentation: Option<String>,
    icon: Option<String>,
    /// At least one; the first is the preferred one.
    interfaces: Vec<Interface>,
    capabilities: Map<String, Value>,
    credentials: Vec<Kind>,
    scopes: Vec<String>,
    inputs: Vec<String>,
    outputs: Vec<String>,
    skills: Vec<Skill>,
    /// Other members of an agent's own card.
    more: Map<String, Value>,
}

#[derive(Clone, Debug, PartialEq)]
struct Interface {
    url: String,
    binding: String,
    version: String,
}

#[derive(Debug, Default)]
struct Skill {
    id: String,
    name: String,
    description: String,
    tags: Vec<String>,
    examples: Vec<String>,
    inputs: Vec<String>,
    outputs: Vec<String>,
}

impl Directory {
    /// `/agents/{id}/agent-card.json`: the card of one agent.
    pub(super) fn card(&self, call: &Ask<'_>) -> Result<Page> {
        let (media, version) = (media::choose(call.headers, FORMS)?, Self::version(call)?);
        Page::json(media, &self.card_of(call.base, &*self.seen(call)?, version))
    }

    /// `/.well-known/agent-card.json`: the card of the only visible agent, or the gateway's own.
    pub(super) fn house_card(&self, call: &Ask<'_>) -> Result<Page> {
        let (media, version) = (media::choose(call.headers, FORMS)?, Self::version(call)?);
        let found = self.shown(call);
        match found.hits.as_slice() {
            [only] if !found.more => Page::json(media, &self.card_of(call.base, &only.agent, version)),
            _ => Page::json(media, &self.written(call.base, &self.own_card(call.base, &found), version)),
        }
    }

    fn card_of(&self, base: &str, agent: &Agent, version: Version) -> Value {
        let redactor = Veil::over(agent, base, self.config.advertised_endpoints);
        let doc = Doc::of(agent, &redactor);
        match doc.get("agent_card").filter(|card| card.is_object()) {
            // A card shown unchanged keeps its publisher's signature.
            Some(own) if redactor.is_lifted() => own.clone(),
            Some(own) => self.written(base, &self.read_card(agent, &redactor, own), version),
            None => self.written(base, &self.made_card(agent, &redactor, &doc), version),
        }
    }

    fn written(&self, base: &str, card: &Card, version: Version) -> Value {
        let mut written = match version {
            Version::V1 => v1::write(card, &self.credentials),
            Version::V03 => v03::write(card, &self.credentials),
            Version::Either => either(v1::write(card, &self.credentials), v03::write(card, &self.credentials)),
        };
        for (name, value) in &card.more {
            written.entry(name.as_str()).or_insert_with(|| value.clone());
        }
        let mut written = Value::Object(written);
        if let Some(signer) = &self.signer {
            signer.sign_card(&mut written, &format!("{base}/.well-known/jwks.json"));
        }
        written
    }

    /// Returns the requested version, `?version=` or `A2A-Version`. An unknown version in the query is ignored: it may
    /// mean the agent's own version (R68).
    fn version(call: &Ask<'_>) -> Result<Version> {
        let params = Params::read(call.query)?;
        if let Some(version) = params.one(&["version"])?.and_then(named) {
            return Ok(version);
        }
        let field = call.headers.get(A2A_VERSION).map(|value| value.to_str().unwrap_or("?").trim());
        let none = || Fault::new(Code::NotAcceptable, "Cards are available in A2A versions 1.0 and 0.3");
        field.filter(|text| !text.is_empty()).map_or(Ok(Version::Either), |text| named(text).ok_or_else(none))
    }
}

fn named(text: &str) -> Option<Version> {
    match text {
        "0.3" | "0.3.0" => Some(Version::V03),
        "1" | "1.0" | "1.0.0" => Some(Version::V1),
        _ => None,
    }
}

/// Merges the members of both versions, recursively. The value of 1.0 takes precedence.
fn either(mut new: Map<String, Value>, old: Map<String, Value>) -> Map<String, Value> {
    for (name, value) in old {
        match (new.get_mut(&name), value) {
            (None, value) => {
                new.insert(name, value);
            }
            (Some(Value::Object(inner)), Value::Object(value)) => *inner = either(std::mem::take(inner), value),
            (Some(Value::Array(inner)), Value::Array(value)) => {
                for (inner, value) in inner.iter_mut().zip(value) {
                    if let (Value::Object(inner), Value::Object(value)) = (inner, value) {
                        *inner = either(std::mem::take(inner), value);
                    }
                }
            }
            _ => {}
        }
    }
    new
}
