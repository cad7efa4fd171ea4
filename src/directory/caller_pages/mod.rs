//! Pages for callers (`/docs`): the agents that a visitor may see, and for each of them what a person needs to call it.
//! The texts come from publishers, and are redacted and escaped; pages have a maximum size.

mod agent_list_page;
mod agent_page;
mod call_limits;
mod call_lines;
mod code_literals;
mod example_input;
mod fault_page;
mod fault_table;
mod operation_section;
mod page_parts;
mod page_response;
mod required_credential;
mod schema_table;

pub use call_limits::CallLimits;
pub use fault_page::FaultPage;

use super::{
    AcceptedCredentials, CallConventions, DirectoryCall, DirectoryConfig, DirectoryResponse,
    directory_request::{CALLER_PAGES_PATH, LOGIN_PARAMETER},
    media_types,
    query_params::{MAX_PAGE, QueryParams},
    visible_agent_search::{HitRange, VisibleAgentSearch},
};
use crate::{
    fault::{Fault, FaultCode, Result},
    search::SearchFilters,
    web_page::stylesheet,
};
use agent_list_page::AgentListPage;
use agent_page::AgentPage;
use http::{StatusCode, header};

/// Number of agents on one page of the list.
const PER_PAGE: usize = 100;

/// Serves the pages for callers.
pub(super) struct CallerPageHandler<'a> {
    pub(super) search: VisibleAgentSearch<'a>,
    pub(super) credentials: &'a AcceptedCredentials,
    pub(super) conventions: &'a CallConventions,
    pub(super) config: &'a DirectoryConfig,
}

impl CallerPageHandler<'_> {
    /// `/docs`: the agents that the visitor may see, or those of them that a search finds.
    pub(super) fn list_agents(&self, call: &DirectoryCall<'_>) -> Result<DirectoryResponse> {
        media_types::negotiate(call.headers, page_response::MEDIA_TYPES)?;
        let params = QueryParams::parse(call.query)?;
        if params.has_any(&[LOGIN_PARAMETER]) {
            // Only a visitor with a credential comes here.
            let response = DirectoryResponse::uncacheable(StatusCode::SEE_OTHER, "");
            return Ok(response.with_header(header::LOCATION, CALLER_PAGES_PATH));
        }
        let text = params.single(&["q", "query"])?.unwrap_or_default();
        let page = params.number(&["page"], 1..=MAX_PAGE)?.unwrap_or(1);
        let range = HitRange { skip: (page - 1).saturating_mul(PER_PAGE), top: PER_PAGE };
        let results = self.search.find_agents(call, SearchFilters::default(), text, range);
        if results.hits.is_empty() && call.caller.is_anonymous() && !self.has_visible_agent(call) {
            return Err(call.visibility.missing_agent_fault(""));
        }
        let list = AgentListPage { call, config: self.config, text, page, results: &results };
        Ok(page_response::page(&list.title(), &list.render()))
    }

    /// `/docs/{id}`: one agent.
    pub(super) fn show_agent(&self, call: &DirectoryCall<'_>) -> Result<DirectoryResponse> {
        let agent = call.requested_agent()?;
        media_types::negotiate(call.headers, page_response::MEDIA_TYPES)?;
        let page = AgentPage::new(&agent, call, self.credentials, self.conventions, self.config);
        Ok(page_response::page(&page.title(), &page.render()))
    }

    /// `/docs/assets/{file}`: the style of the pages.
    pub(super) fn serve_asset(&self, call: &DirectoryCall<'_>) -> Result<DirectoryResponse> {
        let asset = stylesheet();
        if call.id != asset.file_name {
            return Err(Fault::new(FaultCode::NotFound, "There is no file with this name"));
        }
        Ok(page_response::asset(asset))
    }

    fn has_visible_agent(&self, call: &DirectoryCall<'_>) -> bool {
        let any = HitRange { skip: 0, top: 1 };
        !self.search.find_agents(call, SearchFilters::default(), "", any).hits.is_empty()
    }
}
