//! Agent Framework's discovery (R135–R150): the list and the document of one agent, under the well-known prefix and
//! its alias, and the way there from where it once was.

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
/// Whole documents on one page.
const MOST_WHOLE: usize = 50;

/// How much of an agent is asked for.
#[derive(Clone, Copy, Debug)]
struct View {
    full: bool,
    capabilities: bool,
    endpoints: bool,
}

impl View {
    /// `view` and `include`; groups that are not known are left alone, because later versions may have more of them.
    fn read(params: &Params, usual: bool) -> Result<Self> {
        let full = match params.one(&["view"])? {
            None => usual,
            Some("full") => true,
            Some("summary") => false,
            Some(_) => return Err(Fault::new(Code::InvalidInput, "view must be summary or full")),
        };
        let groups = params.list(&["include"])?;
        let asks = |group: &str| groups.iter().any(|asked| asked == group);
        Ok(Self { full, capabilities: full || asks("capabilities"), endpoints: full || asks("endpoints") })
    }
}

impl Directory {
    /// The list.
    pub(super) fn framework(&self, ask: &Ask<'_>) -> Result<Page> {
        let media = media::choose(ask.headers, DOCUMENT)?;
        let params = Params::read(ask.query)?;
        let view = View::read(&params, false)?;
        let filters = Filters { tags: params.list(filters::TAGS)?, ..Filters::default() };
        let text = params.one(&["q", "query"])?.unwrap_or_default();
        let mut pages = Pages::read(&params, USUAL, MOST)?;
        if view.full {
            // Whole documents are large: fewer of them stand on a page, whatever was asked for.
            pages.per_page = pages.per_page.min(MOST_WHOLE);
        }
        let found = self.find(ask, filters, text, (pages.skip(), pages.per_page));
        let agents: Vec<Value> = found.hits.iter().map(|hit| self.metadata(ask, &hit.agent, view)).collect();
        let next = found.more.then(|| pages.next(&format!("{}{LIST}", ask.base), &params));
        Ok(Page::json(media, &json!({"agents": agents}))?.next(next))
    }

    /// One agent.
    pub(super) fn framework_agent(&self, ask: &Ask<'_>) -> Result<Page> {
        let media = media::choose(ask.headers, DOCUMENT)?;
        let view = View::read(&Params::read(ask.query)?, true)?;
        let agent = self.seen(ask)?;
        Page::json(media, &self.metadata(ask, &agent, view))
    }

    /// From where it was to where it is (R137), whatever stands there.
    pub(super) fn framework_moved(&self, ask: &Ask<'_>) -> Answer {
        let mut place = format!("{}{LIST}", ask.base);
        if ask.face == Face::FrameworkAgentMoved {
            place.push('/');
            place.push_str(ask.id);
        }
        if let Some(query) = ask.query {
            place.push('?');
            place.push_str(query);
        }
        Answer::written(StatusCode::PERMANENT_REDIRECT, Vec::new()).with(header::LOCATION, &place)
    }

    fn metadata(&self, ask: &Ask<'_>, agent: &Agent, view: View) -> Value {
        let veil = Veil::over(agent, ask.base, self.config.endpoints);
        let description = veil.text(&agent.description);
        let mut fields = Fields::default();
        fields.set("id", agent.id.as_str().into());
        fields.set("name", veil.text(&agent.name).into());
        fields.set("summary", first_sentence(&description).into());
        if let Some(version) = &agent.version {
            fields.set("version", version.as_str().into());
        }
        fields.set("tags", agent.tags.iter().map(|tag| &**tag).collect());
        if view.capabilities {
            // Empty in this version of the format (R142): what an agent can do stands in its metadata.
            fields.set("capabilities", json!({}));
        }
        if view.endpoints {
            fields.set("endpoints", endpoints(agent, &veil));
        }
        if view.full {
            let doc = Doc::of(agent, &veil);
            fields.set("description", description.into());
            for (name, value) in [("owner", owner(agent, &doc, &veil)), ("metadata", Some(metadata(agent, &doc)))] {
                fields.maybe(name, value);
            }
            for name in ["created_at", "updated_at"] {
                fields.maybe(name, doc.text(name).filter(|text| is_moment(text)));
            }
        }
        fields.done()
    }
}

/// Paths on the gateway (R143): first the agent, then each operation that has a name.
fn endpoints(agent: &Agent, veil: &Veil<'_>) -> Value {
    let entry = |path: String, description: &str| match description.is_empty() {
        true => json!({"method": "POST", "path": path}),
        false => json!({"method": "POST", "path": path, "description": veil.text(description)}),
    };
    let whole = entry(format!("/agents/{}/invoke", agent.id), first_sentence(&agent.description));
    let named = agent.operations.iter().filter(|operation| !operation.name.is_empty());
    let each = named.map(|operation| {
        entry(format!("/agents/{}/invoke/{}", agent.id, operation.name), first_sentence(&operation.description))
    });
    std::iter::once(whole).chain(each).collect()
}

/// `owner` as the document has it, else the publisher's name.
fn owner(agent: &Agent, doc: &Doc, veil: &Veil<'_>) -> Option<Value> {
    let given = doc.get("owner").and_then(Value::as_object);
    let text = |name: &str| given?.get(name)?.as_str().map(str::to_owned);
    let publisher = || agent.publisher.as_deref().map(|name| veil.text(name).into_owned());
    let mut owner = Fields::default();
    owner.set("name", text("name").or_else(publisher)?.into());
    for name in ["email", "url"] {
        owner.maybe(name, text(name));
    }
    Some(owner.done())
}

/// What the format has no field for. How callers prove who they are is no part of it (R141).
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
