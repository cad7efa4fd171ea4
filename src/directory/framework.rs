//! Discovery API of Agent Framework (R135–R150): the list and the document of one agent, under the well-known prefix
//! and its alias, and redirects from the former paths.

use super::{
    Answer, Ask, Directory, Face,
    address::Veil,
    caching::Page,
    document::{DOCUMENT, Doc},
    fields::Fields,
    filters, media,
    query::{Pages, Params},
    summary::{first_sentence, status},
};
use crate::{
    agent::Agent,
    fault::{Code, Fault, Result},
    search::Filters,
};
use http::{StatusCode, header};
use serde_json::{Value, json};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

const LIST: &str = "/.well-known/agentframework/v1/agents";
const USUAL: usize = 100;
const MOST: usize = 1_000;
/// Maximum number of full documents on one page.
const MOST_WHOLE: usize = 50;

/// The parts of an agent that the caller requests.
#[derive(Clone, Copy, Debug)]
struct View {
    full: bool,
    capabilities: bool,
    endpoints: bool,
}

impl View {
    /// Parses `view` and `include`; unknown groups are ignored, because later versions may add some.
    fn read(params: &Params, usual: bool) -> Result<Self> {
        let full = match params.one(&["view"])? {
            None => usual,
            Some("full") => true,
            Some("summary") => false,
            Some(_) => return Err(Fault::new(Code::InvalidInput, "The parameter view must be summary or full")),
        };
        let groups = params.list(&["include"])?;
        let asks = |group: &str| groups.iter().any(|asked| asked == group);
        Ok(Self { full, capabilities: full || asks("capabilities"), endpoints: full || asks("endpoints") })
    }
}

impl Directory {
    /// The list.
    pub(super) fn framework(&self, call: &Ask<'_>) -> Result<Page> {
        let media = media::choose(call.headers, DOCUMENT)?;
        let params = Params::read(call.query)?;
        let view = View::read(&params, false)?;
        let filters = Filters { tags: params.list(filters::TAGS)?, ..Filters::default() };
        let text = params.one(&["q", "query"])?.unwrap_or_default();
        let mut pages = Pages::read(&params, USUAL, MOST)?;
        if view.full {
            // Full documents are large: a page has fewer of them, whatever the caller requests.
            pages.per_page = pages.per_page.min(MOST_WHOLE);
        }
        let found = self.find(call, filters, text, (pages.skip(), pages.per_page));
        let agents: Vec<Value> = found.hits.iter().map(|hit| self.metadata(call, &hit.agent, view)).collect();
        let next = found.more.then(|| pages.next(&format!("{}{LIST}", call.base), &params));
        Ok(Page::json(media, &json!({"agents": agents}))?.next(next))
    }

    /// The document of one agent.
    pub(super) fn framework_agent(&self, call: &Ask<'_>) -> Result<Page> {
        let media = media::choose(call.headers, DOCUMENT)?;
        let view = View::read(&Params::read(call.query)?, true)?;
        let agent = self.seen(call)?;
        Page::json(media, &self.metadata(call, &agent, view))
    }

    /// Redirects a former path to the current one (R137), without checking that the agent exists.
    pub(super) fn framework_moved(&self, call: &Ask<'_>) -> Answer {
        let mut place = format!("{}{LIST}", call.base);
        if call.face == Face::FrameworkAgentMoved {
            place.push('/');
            place.push_str(call.id);
        }
        if let Some(query) = call.query {
            place.push('?');
            place.push_str(query);
        }
        Answer::written(StatusCode::PERMANENT_REDIRECT, Vec::new()).with(header::LOCATION, &place)
    }

    fn metadata(&self, call: &Ask<'_>, agent: &Agent, view: View) -> Value {
        let redactor = Veil::over(agent, call.base, self.config.advertised_endpoints);
        let description = redactor.text(&agent.description);
        let mut fields = Fields::default();
        fields.set("id", agent.id.as_str().into());
        fields.set("name", redactor.text(&agent.name).into());
        fields.set("summary", first_sentence(&description).into());
        if let Some(version) = &agent.version {
            fields.set("version", version.as_str().into());
        }
        fields.set("tags", agent.tags.iter().map(|tag| &**tag).collect());
        if view.capabilities {
            // Empty in this version of the format (R142): the agent's capabilities are in its metadata.
            fields.set("capabilities", json!({}));
        }
        if view.endpoints {
            fields.set("endpoints", endpoints(agent, &redactor));
        }
        if view.full {
            let doc = Doc::of(agent, &redactor);
            fields.set("description", description.into());
            for (name, value) in [("owner", owner(agent, &doc, &redactor)), ("metadata", Some(metadata(agent, &doc)))] {
                fields.maybe(name, value);
            }
            for name in ["created_at", "updated_at"] {
                fields.maybe(name, doc.text(name).filter(|text| is_moment(text)));
            }
        }
        fields.done()
    }
}

/// Builds the endpoints, as paths on the gateway (R143): the agent's first, then those of named operations.
fn endpoints(agent: &Agent, redactor: &Veil<'_>) -> Value {
    let entry = |path: String, description: &str| match description.is_empty() {
        true => json!({"method": "POST", "path": path}),
        false => json!({"method": "POST", "path": path, "description": redactor.text(description)}),
    };
    let whole = entry(format!("/agents/{}/invoke", agent.id), first_sentence(&agent.description));
    let named = agent.operations.iter().filter(|operation| !operation.name.is_empty());
    let each = named.map(|operation| {
        entry(format!("/agents/{}/invoke/{}", agent.id, operation.name), first_sentence(&operation.description))
    });
    std::iter::once(whole).chain(each).collect()
}

/// Returns `owner` of the document, else one with the publisher's name.
fn owner(agent: &Agent, doc: &Doc, redactor: &Veil<'_>) -> Option<Value> {
    let given = doc.get("owner").and_then(Value::as_object);
    let text = |name: &str| given?.get(name)?.as_str().map(str::to_owned);
    let publisher = || agent.publisher.as_deref().map(|name| redactor.text(name).into_owned());
    let mut owner = Fields::default();
    owner.set("name", text("name").or_else(publisher)?.into());
    for name in ["email", "url"] {
        owner.maybe(name, text(name));
    }
    Some(owner.done())
}

/// Builds `metadata`, for what the format has no member for. It excludes authentication (R141).
fn metadata(agent: &Agent, doc: &Doc) -> Value {
    let mut metadata = doc.get("metadata").and_then(Value::as_object).cloned().unwrap_or_default();
    metadata.insert("capabilities".to_owned(), agent.capabilities.iter().map(|word| &**word).collect());
    metadata.insert("status".to_owned(), status(agent).into());
    if !agent.languages.is_empty() {
        metadata.insert("supported_languages".to_owned(), agent.languages.iter().map(|word| &**word).collect());
    }
    metadata.into()
}

fn is_moment(text: &str) -> bool {
    OffsetDateTime::parse(text, &Rfc3339).is_ok()
}
