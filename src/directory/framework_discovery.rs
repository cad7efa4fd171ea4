//! Discovery API of Agent Framework (R135–R150): the list and the document of one agent, under the well-known prefix
//! and its alias, and redirects from the former paths.

use super::{
    CallConventions, DirectoryCall, DirectoryConfig, DirectoryRequest, DirectoryResponse,
    address_redaction::AddressRedactor,
    agent_document::{DOCUMENT_MEDIA_TYPES, RedactedDocument},
    agent_summary::{first_sentence, status_name},
    bounded_list::{BoundedList, to_json},
    conditional_response::Representation,
    directory_request::FRAMEWORK_LIST_PATH,
    json_object_builder::JsonObjectBuilder,
    media_types,
    query_params::{Pagination, QueryParams},
    search_filters,
    visible_agent_search::{HitRange, VisibleAgentSearch},
};
use crate::{
    agent::Agent,
    fault::{Fault, FaultCode, Result},
    search::SearchFilters,
};
use http::{StatusCode, header};
use serde_json::{Value, json};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

const DEFAULT_PER_PAGE: usize = 100;
/// Maximum number of agents on one page.
pub(super) const MAX_PER_PAGE: usize = 1_000;
/// Maximum number of full documents on one page.
const MAX_FULL_PER_PAGE: usize = 50;

/// The parts of an agent that the caller requests.
#[derive(Clone, Copy, Debug)]
struct FrameworkView {
    full: bool,
    capabilities: bool,
    endpoints: bool,
}

impl FrameworkView {
    /// Parses `view` and `include`; unknown groups are ignored, because later versions may add some.
    fn from_params(params: &QueryParams, default_full: bool) -> Result<Self> {
        let full = match params.single(&["view"])? {
            None => default_full,
            Some("full") => true,
            Some("summary") => false,
            Some(_) => return Err(Fault::new(FaultCode::InvalidInput, "The parameter view must be summary or full")),
        };
        let groups = params.list(&["include"])?;
        let includes = |group: &str| groups.iter().any(|requested| requested == group);
        Ok(Self { full, capabilities: full || includes("capabilities"), endpoints: full || includes("endpoints") })
    }
}

/// Serves the discovery API of Agent Framework.
pub(super) struct FrameworkDiscoveryHandler<'a> {
    pub(super) search: VisibleAgentSearch<'a>,
    pub(super) conventions: &'a CallConventions,
    pub(super) config: &'a DirectoryConfig,
}

impl FrameworkDiscoveryHandler<'_> {
    /// The list.
    pub(super) fn list_agents(&self, call: &DirectoryCall<'_>) -> Result<Representation> {
        let media = media_types::negotiate(call.headers, DOCUMENT_MEDIA_TYPES)?;
        let params = QueryParams::parse(call.query)?;
        let view = FrameworkView::from_params(&params, false)?;
        let filters = SearchFilters { tags: params.list(search_filters::TAG_NAMES)?, ..SearchFilters::default() };
        let text = params.single(&["q", "query"])?.unwrap_or_default();
        let mut pages = Pagination::from_params(&params, DEFAULT_PER_PAGE, MAX_PER_PAGE)?;
        if view.full {
            // Full documents are large: their number on a page has a lower maximum.
            pages.per_page = pages.per_page.min(MAX_FULL_PER_PAGE);
        }
        let results =
            self.search.find_agents(call, filters, text, HitRange { skip: pages.offset(), top: pages.per_page });
        let entries = results.hits.iter().map(|hit| to_json(&self.framework_entry(call.base_url, &hit.agent, view)));
        let BoundedList { body, cut } = BoundedList::write("{\"agents\":[", "]}", entries)?;
        let url = format!("{}{FRAMEWORK_LIST_PATH}", call.base_url);
        let next = pages.next_link(&url, &params, cut, results.has_more);
        Ok(Representation::new(media, body).with_next_link(next))
    }

    /// The document of one agent.
    pub(super) fn agent_document(&self, call: &DirectoryCall<'_>) -> Result<Representation> {
        let media = media_types::negotiate(call.headers, DOCUMENT_MEDIA_TYPES)?;
        let view = FrameworkView::from_params(&QueryParams::parse(call.query)?, true)?;
        let agent = call.requested_agent()?;
        Representation::json(media, &self.framework_entry(call.base_url, &agent, view))
    }

    /// Builds the whole document of one agent.
    pub(super) fn full_document(&self, base: &str, agent: &Agent) -> Value {
        self.framework_entry(base, agent, FrameworkView { full: true, capabilities: true, endpoints: true })
    }

    /// Builds the document of the gateway itself (R151), whose endpoint is the list of its agents.
    pub(super) fn gateway_document(&self) -> Value {
        let mut fields = JsonObjectBuilder::default();
        fields.set("id", "gateway".into());
        fields.set("name", self.config.name.as_str().into());
        fields.set("summary", first_sentence(&self.config.description).into());
        fields.set("version", env!("CARGO_PKG_VERSION").into());
        fields.set("description", self.config.description.as_str().into());
        if let Some(provider) = &self.config.provider {
            fields.set("owner", json!({"name": provider.organization, "url": provider.url}));
        }
        fields.set("tags", json!([]));
        fields.set("capabilities", json!({}));
        let list = json!({"method": "GET", "path": FRAMEWORK_LIST_PATH, "description": "Lists the agents."});
        fields.set("endpoints", json!([list]));
        fields.set("metadata", json!({}));
        fields.into_value()
    }

    /// Builds the endpoints, as paths on the gateway (R143): the agent's first, then those of named operations, and those
    /// that the format publishes as examples (R144). Tasks have one if the gateway keeps tasks.
    fn entry_endpoints(&self, agent: &Agent, redactor: &AddressRedactor<'_>) -> Value {
        let entry = |method: &str, path: String, description: &str| {
            if description.is_empty() {
                json!({"method": method, "path": path})
            } else {
                json!({"method": method, "path": path, "description": redactor.redact_text(description)})
            }
        };
        let path = |rest: &str| format!("/agents/{}/{rest}", agent.id);
        let agent_entry = entry("POST", path("invoke"), first_sentence(&agent.description));
        let named_operations = agent.operations.iter().filter(|operation| !operation.name.is_empty());
        let operation_entries = named_operations.map(|operation| {
            entry("POST", path(&format!("invoke/{}", operation.name)), first_sentence(&operation.description))
        });
        let message_entries = [
            entry("POST", path("v1/message:send"), "Sends a message to the agent."),
            entry("POST", path("v1/message:stream"), "Sends a message to the agent, which answers as an event stream."),
        ];
        let task_entry = entry("GET", path("v1/tasks/{id}"), "The state of a task, and its result.");
        let entries = std::iter::once(agent_entry).chain(operation_entries).chain(message_entries);
        entries.chain(self.conventions.tasks.is_some().then_some(task_entry)).collect()
    }

    fn framework_entry(&self, base: &str, agent: &Agent, view: FrameworkView) -> Value {
        let redactor = AddressRedactor::for_list_entry(agent, base, self.config.advertised_endpoints);
        let description = redactor.redact_text(&agent.description);
        let mut fields = JsonObjectBuilder::default();
        fields.set("id", agent.id.as_str().into());
        fields.set("name", redactor.redact_text(&agent.name).into());
        fields.set("summary", first_sentence(&description).into());
        if let Some(version) = &agent.version {
            fields.set("version", version.as_str().into());
        }
        fields.set("tags", redactor.redact_list(&agent.tags).into());
        if view.capabilities {
            // Empty in this version of the format (R142): the agent's capabilities are in its metadata.
            fields.set("capabilities", json!({}));
        }
        if view.endpoints {
            fields.set("endpoints", self.entry_endpoints(agent, &redactor));
        }
        if view.full {
            let document = RedactedDocument::new(agent, &redactor);
            fields.set("description", description.into());
            for (name, value) in [
                ("owner", entry_owner(agent, &document, &redactor)),
                ("metadata", Some(metadata(agent, &document, &redactor))),
            ] {
                fields.set_optional(name, value);
            }
            for name in ["created_at", "updated_at"] {
                fields.set_optional(name, document.text_member(name).filter(|text| is_timestamp(text)));
            }
        }
        fields.into_value()
    }
}

/// Redirects a former path to the current one (R137), without checking that the agent exists.
pub(super) fn redirect_former_path(call: &DirectoryCall<'_>) -> DirectoryResponse {
    let mut location = format!("{}{FRAMEWORK_LIST_PATH}", call.base_url);
    if call.request == DirectoryRequest::FrameworkAgentRedirect {
        location.push('/');
        location.push_str(call.id);
    }
    if let Some(query) = call.query {
        location.push('?');
        location.push_str(query);
    }
    DirectoryResponse::uncacheable(StatusCode::PERMANENT_REDIRECT, Vec::new()).with_header(header::LOCATION, &location)
}

/// Returns `owner` of the document, else one with the publisher's name.
fn entry_owner(agent: &Agent, document: &RedactedDocument, redactor: &AddressRedactor<'_>) -> Option<Value> {
    let declared = document.member("owner").and_then(Value::as_object);
    let text = |name: &str| declared?.get(name)?.as_str().map(str::to_owned);
    let publisher = || agent.publisher.as_deref().map(|name| redactor.redact_text(name).into_owned());
    let mut owner = JsonObjectBuilder::default();
    owner.set("name", text("name").or_else(publisher)?.into());
    for name in ["email", "url"] {
        owner.set_optional(name, text(name));
    }
    Some(owner.into_value())
}

/// Builds `metadata`, for properties without a member in the format. It excludes authentication (R141).
fn metadata(agent: &Agent, document: &RedactedDocument, redactor: &AddressRedactor<'_>) -> Value {
    let mut metadata = document.member("metadata").and_then(Value::as_object).cloned().unwrap_or_default();
    metadata.insert("capabilities".to_owned(), redactor.redact_list(&agent.capabilities).into());
    metadata.insert("status".to_owned(), status_name(agent).into());
    if !agent.languages.is_empty() {
        metadata.insert("supported_languages".to_owned(), agent.languages.iter().map(|value| &**value).collect());
    }
    metadata.into()
}

fn is_timestamp(text: &str) -> bool {
    OffsetDateTime::parse(text, &Rfc3339).is_ok()
}
