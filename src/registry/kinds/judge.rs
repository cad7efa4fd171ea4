//! Classifies the entries of a list: an agent's document, a link to one, or invalid with the reason.
//! The document's own shape decides what it is, and not the registry that lists it: an AIDIP registry may have A2A
//! cards, and an agent:// domain AIDIP documents.

use super::{
    card, descriptor,
    fields::{quoted, text},
    framework,
    listing::{self, Raw},
    name::slug,
    shape::{is_agent, is_catalogued, is_metadata, unwrapped},
};
use crate::{
    names::hints,
    net::Url,
    registry::{
        Body, Document, Kind,
        config::Proof,
        read::{self, sha256},
    },
    unit::json::kind,
};
use bytes::Bytes;
use serde_json::{Map, Value};

/// Maximum size of one document in bytes.
const LARGEST: usize = 1 << 20;
/// Maximum length in bytes of an id that becomes part of a document's URL.
const LONGEST_ID: usize = 256;
/// Maximum length in bytes of the URL of a document.
const LONGEST_URL: usize = 2_048;
/// Members of a summary of AIDIP or Agent Framework; an entry with other members is the document itself.
const SUMMARY: &[&str] = &[
    "id",
    "name",
    "description",
    "summary",
    "endpoint",
    "capabilities",
    "tags",
    "version",
    "status",
    "score",
    "etag",
    "created_at",
    "updated_at",
];

/// What a list entry is.
#[derive(Clone, Debug)]
pub(super) enum Judged {
    /// An agent's document.
    Agent(Ready),
    /// The URL of the document, and the name by which the list knows it.
    At { url: Url, known_as: Option<String> },
    /// Neither, and why.
    Broken(String),
}

/// A converted document, which only the catalogue has yet to validate.
#[derive(Clone, Debug)]
pub(super) struct Ready {
    text: Bytes,
    digest: [u8; 32],
}

impl Ready {
    fn new(text: Bytes) -> Result<Self, String> {
        match text.len() {
            0..=LARGEST => Ok(Self { digest: sha256(&text), text }),
            many => Err(format!("the document has {many} bytes (at most {LARGEST})")),
        }
    }

    pub(super) fn size(&self) -> usize {
        self.text.len()
    }

    pub(super) fn document(&self) -> Document {
        Document { digest: self.digest, body: Body::Text(self.text.clone()) }
    }
}

/// Returns an invalid entry in the form that the catalogue rejects with this reason.
pub(super) fn refused(why: &str) -> Document {
    Document { digest: sha256(format!("refused: {why}").as_bytes()), body: Body::Broken(why.to_owned()) }
}

/// Classifies the entries of one feed.
#[derive(Debug)]
pub(super) struct Judge {
    pub(super) kind: Kind,
    pub(super) proof: Proof,
}

impl Judge {
    /// Classifies an entry of the list that was read from `base`.
    pub(super) fn entry(&self, raw: &Raw, base: &Url) -> Judged {
        let judged = match &raw.broken {
            Some(why) => Err(why.clone()),
            None => self.read(&raw.text).and_then(|value| self.listed(value, raw, base)),
        };
        judged.unwrap_or_else(|why| Judged::Broken(labelled(raw, &why)))
    }

    /// Converts the document that was read from `base` and is listed as `known_as`, or returns why it is rejected.
    ///
    /// # Errors
    /// The content is not an agent's document at all, such as half of one: it says nothing about the agent.
    pub(super) fn document(
        &self,
        text: &Bytes,
        known_as: Option<&str>,
        base: &Url,
    ) -> Result<Result<Ready, String>, String> {
        let value = self.read(text)?;
        let says = ["id", "name", "identifier", "agent", "metadata"].iter().any(|field| value.get(field).is_some());
        match says {
            true => Ok(self.ready(value, text, known_as, base)),
            false => Err("it is not an agent's document (it has neither id nor name)".to_owned()),
        }
    }

    fn read(&self, text: &Bytes) -> Result<Value, String> {
        match text.len() {
            0 => Err("no document between two commas".to_owned()),
            1..=LARGEST => read::value(Body::Text(text.clone())),
            many => Err(format!("the document has {many} bytes (at most {LARGEST})")),
        }
    }

    fn listed(&self, value: Value, raw: &Raw, base: &Url) -> Result<Judged, String> {
        let name = raw.name.as_deref();
        let members = match value {
            Value::String(url) => return link(&url, name, base),
            Value::Object(members) => members,
            other => return Err(format!("an entry must be an object, not {}", kind(&other))),
        };
        if is_catalogued(&members) {
            return self.catalogued(members, base);
        }
        if let Some(id) = self.summary(&members) {
            let mut url = base.clone();
            url.set_query((self.kind == Kind::AgentFramework).then_some("view=full"));
            let path = url.path_segments_mut().map(|mut path| {
                path.pop_if_empty().push(id);
            });
            path.map_err(|()| "documents cannot be below the URL of the list".to_owned())?;
            return Ok(Judged::At { url, known_as: None });
        }
        self.ready(Value::Object(members), &raw.text, name, base).map(Judged::Agent)
    }

    /// Returns the id of an entry that has no more members than a summary.
    fn summary<'a>(&self, members: &'a Map<String, Value>) -> Option<&'a str> {
        let short = members.keys().all(|name| SUMMARY.contains(&name.as_str()));
        let listed = match self.kind {
            Kind::Aidip => short,
            Kind::AgentFramework => short || !members.contains_key("endpoints") && !members.contains_key("endpoint"),
            _ => false,
        };
        text(members, "id").filter(|id| listed && id.len() <= LONGEST_ID && !matches!(*id, "." | ".."))
    }

    /// Classifies an entry of an AI Catalog or ARD registry: a card by URL or inline.
    fn catalogued(&self, mut entry: Map<String, Value>, base: &Url) -> Result<Judged, String> {
        let media = text(&entry, "type").or_else(|| text(&entry, "mediaType")).unwrap_or_default();
        if !is_agent(media) {
            return Err(format!("is of type {}, which is not an agent", quoted(media)));
        }
        let name = ["identifier", "id", "name"].into_iter().find_map(|field| text(&entry, field)).map(str::to_owned);
        let inline = ["data", "card", "content"].into_iter().find_map(|field| entry.remove(field));
        match inline.filter(|value| !value.is_null()) {
            Some(value) => self.ready(value, &Bytes::new(), name.as_deref(), base).map(Judged::Agent),
            None => match text(&entry, "url").or_else(|| text(&entry, "href")) {
                Some(url) => link(url, name.as_deref(), base),
                None => Err("has neither a url nor data".to_owned()),
            },
        }
    }

    /// Converts a document of any shape; `original` is its text, where the list has it as a text of its own.
    fn ready(&self, value: Value, original: &Bytes, known_as: Option<&str>, base: &Url) -> Result<Ready, String> {
        let Value::Object(mut members) = value else {
            return Err(format!("an agent's document must be an object, not {}", kind(&value)));
        };
        let unwrapped = unwrapped(&members)?;
        let original = if unwrapped.is_some() { &Bytes::new() } else { original };
        members = unwrapped.unwrap_or(members);
        let members = self.proven(members)?;
        let urn = known_as.filter(|name| name.starts_with("urn:"));
        let mut document = if hints::is_card(&members) {
            card::document(members, known_as, base)?
        } else if members.get("endpoints").is_some_and(Value::is_array) && !members.contains_key("endpoint") {
            framework::document(members, base)?
        } else if is_metadata(&members) {
            elsewhere(&members)?;
            return plain(members, original, known_as, base);
        } else {
            descriptor::document(members, known_as, base)?
        };
        document.as_object().map_or(Ok(()), elsewhere)?;
        if let (Some(urn), Value::Object(members)) = (urn, &mut document) {
            members.entry("identifier").or_insert_with(|| urn.into());
        }
        Ready::new(document.to_string().into())
    }

    /// Returns the members that the signature covers, or all where no keys are configured.
    fn proven(&self, members: Map<String, Value>) -> Result<Map<String, Value>, String> {
        let Some(trusted) = &self.proof.trusted else {
            return Ok(members);
        };
        if !members.contains_key("signatures") {
            return match self.proof.required {
                true => Err("signatures: the document is not signed (require_signed is set)".to_owned()),
                false => Ok(members),
            };
        }
        match trusted.believed(&Value::Object(members))? {
            Value::Object(believed) => Ok(believed),
            other => Err(format!("signatures: cover {} instead of an object", kind(&other))),
        }
    }
}

/// Rejects an endpoint that is a local runtime. Runtimes register on this machine; a document from elsewhere must not
/// expose one under another id, which other callers may be allowed to use.
fn elsewhere(document: &Map<String, Value>) -> Result<(), String> {
    match text(document, "endpoint").is_some_and(|endpoint| endpoint.starts_with("agent+local:")) {
        true => Err("endpoint: is a runtime of the gateway's own machine, which registers itself".to_owned()),
        false => Ok(()),
    }
}

/// Keeps the text of an AIDIP document, unless its endpoint is relative (R11) or its id is its key in a map.
fn plain(
    mut members: Map<String, Value>,
    original: &Bytes,
    known_as: Option<&str>,
    base: &Url,
) -> Result<Ready, String> {
    let relative = text(&members, "endpoint").filter(|endpoint| endpoint.starts_with('/'));
    let resolved = relative.and_then(|endpoint| base.join(endpoint).ok());
    let id = known_as.filter(|_| !members.contains_key("id")).map(slug);
    if resolved.is_none() && id.is_none() && !original.is_empty() && !members.contains_key("signatures") {
        // Copied, so that one document does not keep the whole page in memory.
        return Ready::new(Bytes::copy_from_slice(original));
    }
    members.extend(resolved.map(|url| ("endpoint".to_owned(), String::from(url).into())));
    members.extend(id.map(|id| ("id".to_owned(), id.into())));
    Ready::new(Value::Object(members).to_string().into())
}

fn link(url: &str, name: Option<&str>, base: &Url) -> Result<Judged, String> {
    if url.len() > LONGEST_URL {
        return Err(format!("the URL of its document has {} bytes (at most {LONGEST_URL})", url.len()));
    }
    // R46, R54: agent:// without a transport is HTTPS.
    let plain = url.strip_prefix("agent://").or_else(|| url.strip_prefix("agent+https://"));
    let url = plain.map_or_else(|| url.to_owned(), |rest| format!("https://{rest}"));
    let joined = base.join(&url).ok().filter(|joined| matches!(joined.scheme(), "http" | "https"));
    let url = joined.ok_or_else(|| format!("the link {} is not a URL over HTTP", quoted(&url)))?;
    Ok(Judged::At { url, known_as: name.map(str::to_owned) })
}

/// Prefixes the reason with the name or id of the entry.
fn labelled(raw: &Raw, why: &str) -> String {
    let within = || {
        let members = listing::members(&raw.text).ok()?;
        let texts = ["id", "identifier", "name"].into_iter().filter_map(|wanted| {
            let (_, place) = members.iter().find(|(name, _)| name == wanted)?;
            serde_json::from_slice::<String>(&raw.text.slice(place.clone())).ok()
        });
        texts.into_iter().next()
    };
    match raw.name.clone().or_else(within) {
        Some(name) => format!("{}: {why}", quoted(&name)),
        None => why.to_owned(),
    }
}
