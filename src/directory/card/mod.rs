//! A2A agent cards (R59, R151, R153): an agent's own card where it brought one, else one made from its operations;
//! in version 1.0, in 0.3, or in one document that readers of either understand.
//!
//! A client that fetches a card seldom says its version, so that the document without one has the members of both:
//! each reader leaves the other's alone.

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
/// What agents that do not speak A2A are called by: a JSON body by POST, as AIDIP has it.
const PLAIN_POST: &str = "AIDIP";

/// The version that a reader wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    V1,
    V03,
    Either,
}

/// What both versions of a card say, in one form.
#[derive(Debug, Default)]
struct Card {
    name: String,
    description: String,
    version: String,
    /// Name and web page: readers require both.
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
    /// Members of an agent's own card that neither version names.
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
    /// One agent's card.
    pub(super) fn card(&self, ask: &Ask<'_>) -> Result<Page> {
        let (media, version) = (media::choose(ask.headers, FORMS)?, Self::version(ask)?);
        Page::json(media, &self.card_of(ask.base, &*self.seen(ask)?, version))
    }

    /// The only agent's that the caller sees, or the gateway's own.
    pub(super) fn house_card(&self, ask: &Ask<'_>) -> Result<Page> {
        let (media, version) = (media::choose(ask.headers, FORMS)?, Self::version(ask)?);
        let found = self.shown(ask);
        match found.hits.as_slice() {
            [only] if !found.more => Page::json(media, &self.card_of(ask.base, &only.agent, version)),
            _ => Page::json(media, &self.written(ask.base, &self.own_card(ask.base, &found), version)),
        }
    }

    fn card_of(&self, base: &str, agent: &Agent, version: Version) -> Value {
        let veil = Veil::over(agent, base, self.config.endpoints);
        let doc = Doc::of(agent, &veil);
        match doc.get("agent_card").filter(|card| card.is_object()) {
            // What is shown as it was published keeps its publisher's signature.
            Some(own) if veil.is_lifted() => own.clone(),
            Some(own) => self.written(base, &self.read_card(agent, &veil, own), version),
            None => self.written(base, &self.made_card(agent, &veil, &doc), version),
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

    /// `?version=` or `A2A-Version`. In the query another version may be meant, the agent's own (R68): it is left alone.
    fn version(ask: &Ask<'_>) -> Result<Version> {
        let params = Params::read(ask.query)?;
        if let Some(version) = params.one(&["version"])?.and_then(named) {
            return Ok(version);
        }
        let field = ask.headers.get(A2A_VERSION).map(|value| value.to_str().unwrap_or("?").trim());
        let none = || Fault::new(Code::NotAcceptable, "cards are offered in A2A versions 1.0 and 0.3");
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

/// The members of both. Where both have a member, one inside the other, 1.0 says the value.
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
