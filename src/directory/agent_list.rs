//! Lists of agents: `GET /agents` (R21), `POST /agents/search` (R22–R24) and the map of descriptors (R60). Each is
//! paginated by number and bytes, and contains only agents visible to the caller (R3).

use super::{
    DirectoryCall, DirectoryResponse, EndpointExposure,
    address_redaction::AddressRedactor,
    agent_summary::AgentSummary,
    bounded_list::{BoundedList, to_json},
    conditional_response::Representation,
    media_types,
    query_params::{Pagination, QueryParams},
    request_body::{self, BodyMembers, Violations},
    search_filters,
    visible_agent_search::{HitRange, MAX_QUERY_CHARS, VisibleAgentSearch},
};
use crate::{
    fault::Result,
    search::{SearchFilters, SearchResults},
};
use http::StatusCode;

/// Default and maximum number of agents on one page of `GET /agents`.
const DEFAULT_PER_PAGE: usize = 100;
pub(super) const MAX_PER_PAGE: usize = 1_000;
/// Maximum number of agents on one page of the map.
pub(super) const MAX_MAP_ENTRIES_PER_PAGE: usize = 10_000;

/// Serves lists of agents.
pub(super) struct AgentListHandler<'a> {
    pub(super) search: VisibleAgentSearch<'a>,
    pub(super) advertised_endpoints: EndpointExposure,
}

impl AgentListHandler<'_> {
    /// `GET /agents`: an array of summaries.
    pub(super) fn list_agents(&self, call: &DirectoryCall<'_>) -> Result<Representation> {
        let media = media_types::negotiate(call.headers, &[media_types::JSON])?;
        let params = QueryParams::parse(call.query)?;
        let filters = search_filters::filters_from_query(&params)?;
        let text = params.single(&["q", "query"])?.unwrap_or_default();
        let mut pages = Pagination::from_params(&params, DEFAULT_PER_PAGE, MAX_PER_PAGE)?;
        // `top` requests the best hits only, without further pages.
        let top = params.number(&["top", "limit"], 1..=MAX_PER_PAGE)?;
        pages.per_page = top.unwrap_or(pages.per_page);
        let results =
            self.search.find_agents(call, filters, text, HitRange { skip: pages.offset(), top: pages.per_page });
        let BoundedList { body, cut } = self.summaries(call, &results)?;
        let url = format!("{}/agents", call.base_url);
        let next = pages.next_link(&url, &params, cut, results.has_more && top.is_none());
        Ok(Representation::new(media, body).with_next_link(next))
    }

    /// `POST /agents/search`.
    pub(super) fn search_agents(&self, call: &DirectoryCall<'_>) -> Result<DirectoryResponse> {
        media_types::negotiate(call.headers, &[media_types::JSON])?;
        let body = request_body::parse_json_body(call, &[media_types::JSON], 64 << 10, 16)?;
        let mut violations = Violations::default();
        let members = BodyMembers::new(&body, &mut violations);
        let filters = members.object(&["filters", "filter"], &mut violations);
        let filters =
            filters.map(|members| search_filters::filters_from_body(&members, &mut violations)).unwrap_or_default();
        let text = members.text(&["query", "q"], MAX_QUERY_CHARS, &mut violations).unwrap_or_default();
        let top = members.number(&["top", "limit"], 1..=100, &mut violations).unwrap_or(10);
        let skip = members.number(&["skip", "offset"], 0..=10_000, &mut violations).unwrap_or(0);
        violations.into_result("The search is not valid")?;
        let results = self.search.find_agents(call, filters, text, HitRange { skip, top });
        Ok(DirectoryResponse::uncacheable(StatusCode::OK, self.summaries(call, &results)?.body))
    }

    /// `/.well-known/agents.json`: the map from each agent to its descriptor.
    pub(super) fn well_known_agents(&self, call: &DirectoryCall<'_>) -> Result<Representation> {
        let media = media_types::negotiate(call.headers, &[media_types::JSON])?;
        let params = QueryParams::parse(call.query)?;
        let pages = Pagination::from_params(&params, MAX_MAP_ENTRIES_PER_PAGE, MAX_MAP_ENTRIES_PER_PAGE)?;
        let results = self.search.find_agents(
            call,
            SearchFilters::default(),
            "",
            HitRange { skip: pages.offset(), top: pages.per_page },
        );
        let entries = results.hits.iter().map(|hit| {
            let id = hit.agent.id.as_str();
            let url = to_json(&format_args!("{}/agents/{id}/agent.json", call.base_url))?;
            Ok([&to_json(&id)?, &b":"[..], &url].concat())
        });
        let BoundedList { body, cut } = BoundedList::write("{\"agents\":{", "}}", entries)?;
        let url = format!("{}/.well-known/agents.json", call.base_url);
        let next = pages.next_link(&url, &params, cut, results.has_more);
        Ok(Representation::new(media, body).with_next_link(next))
    }

    fn summaries(&self, call: &DirectoryCall<'_>, results: &SearchResults) -> Result<BoundedList> {
        let summaries = results.hits.iter().map(|hit| {
            to_json(&AgentSummary::new(
                &hit.agent,
                &AddressRedactor::for_list_entry(&hit.agent, call.base_url, self.advertised_endpoints),
                hit.score,
            ))
        });
        BoundedList::write("[", "]", summaries)
    }
}
