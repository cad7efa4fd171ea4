//! Lists of agents: `GET /agents` (R21), `POST /agents/search` (R22–R24) and the map of descriptors (R60). Each is
//! paginated, and contains only agents visible to the caller (R3).

use super::{
    DirectoryCall, DirectoryResponse, EndpointExposure,
    address_redaction::AddressRedactor,
    agent_summary::AgentSummary,
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
use serde::ser::{SerializeMap, Serializer};

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
        let next =
            (results.has_more && top.is_none()).then(|| pages.next_link(&format!("{}/agents", call.base_url), &params));
        Ok(Representation::json(media, &self.summaries(call, &results))?.with_next_link(next))
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
        let representation = Representation::json(media_types::JSON, &self.summaries(call, &results))?;
        Ok(DirectoryResponse::uncacheable(StatusCode::OK, representation.into_body()))
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
        let next =
            results.has_more.then(|| pages.next_link(&format!("{}/.well-known/agents.json", call.base_url), &params));
        Ok(Representation::json(
            media,
            &DescriptorMap { agents: DescriptorMapEntries { results: &results, base: call.base_url } },
        )?
        .with_next_link(next))
    }

    fn summaries<'a>(&self, call: &DirectoryCall<'_>, results: &'a SearchResults) -> Vec<AgentSummary<'a>> {
        let summaries = results.hits.iter().map(|hit| {
            AgentSummary::new(
                &hit.agent,
                &AddressRedactor::for_list_entry(&hit.agent, call.base_url, self.advertised_endpoints),
                hit.score,
            )
        });
        summaries.collect()
    }
}

#[derive(serde::Serialize)]
struct DescriptorMap<'a> {
    agents: DescriptorMapEntries<'a>,
}

/// Serialized entry by entry: ten thousand entries must not become a tree in memory.
struct DescriptorMapEntries<'a> {
    results: &'a SearchResults,
    base: &'a str,
}

impl serde::Serialize for DescriptorMapEntries<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(self.results.hits.len()))?;
        for hit in &self.results.hits {
            let id = hit.agent.id.as_str();
            map.serialize_entry(id, &format_args!("{}/agents/{id}/agent.json", self.base))?;
        }
        map.end()
    }
}
