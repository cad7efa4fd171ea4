//! Lists of agents: `GET /agents` (R21), `POST /agents/search` (R22–R24) and the map of descriptors (R60). Each is
//! paginated, and contains only agents visible to the caller (R3).

use super::{
    Answer, Ask, Directory,
    address::Veil,
    body::{self, Members, Wrong},
    caching::Page,
    filters, media,
    query::{Pages, Params},
    summary::Summary,
};
use crate::{
    fault::Result,
    search::{Filters, Found, Query},
};
use http::StatusCode;
use serde::ser::{SerializeMap, Serializer};

/// Default and maximum number of agents on one page of `GET /agents`.
const USUAL: usize = 100;
const MOST: usize = 1_000;
/// Maximum number of agents on one page of the map.
const MOST_MAPPED: usize = 10_000;
/// Maximum number of characters of a query's text.
pub(super) const LONGEST_TEXT: usize = 2_000;

impl Directory {
    /// `GET /agents`: an array of summaries.
    pub(super) fn list(&self, call: &Ask<'_>) -> Result<Page> {
        let media = media::choose(call.headers, &[media::JSON])?;
        let params = Params::read(call.query)?;
        let filters = filters::of_query(&params)?;
        let text = params.one(&["q", "query"])?.unwrap_or_default();
        let mut pages = Pages::read(&params, USUAL, MOST)?;
        // `top` requests the best hits only, without further pages.
        let top = params.number(&["top", "limit"], 1..=MOST)?;
        pages.per_page = top.unwrap_or(pages.per_page);
        let found = self.find(call, filters, text, (pages.skip(), pages.per_page));
        let next = (found.more && top.is_none()).then(|| pages.next(&format!("{}/agents", call.base), &params));
        Ok(Page::json(media, &self.summaries(call, &found))?.next(next))
    }

    /// `POST /agents/search`.
    pub(super) fn search(&self, call: &Ask<'_>) -> Result<Answer> {
        media::choose(call.headers, &[media::JSON])?;
        let asked = body::json(call, &[media::JSON], 64 << 10, 16)?;
        let mut violations = Wrong::default();
        let members = Members::of(&asked, &mut violations);
        let filters = members.object(&["filters", "filter"], &mut violations);
        let filters = filters.map(|within| filters::of_members(&within, &mut violations)).unwrap_or_default();
        let text = members.text(&["query", "q"], LONGEST_TEXT, &mut violations).unwrap_or_default();
        let top = members.number(&["top", "limit"], 1..=100, &mut violations).unwrap_or(10);
        let skip = members.number(&["skip", "offset"], 0..=10_000, &mut violations).unwrap_or(0);
        violations.none("The search is not valid")?;
        let found = self.find(call, filters, text, (skip, top));
        let page = Page::json(media::JSON, &self.summaries(call, &found))?;
        Ok(Answer::written(StatusCode::OK, page.into_body()))
    }

    /// `/.well-known/agents.json`: the map from each agent to its descriptor.
    pub(super) fn map(&self, call: &Ask<'_>) -> Result<Page> {
        let media = media::choose(call.headers, &[media::JSON])?;
        let params = Params::read(call.query)?;
        let pages = Pages::read(&params, MOST_MAPPED, MOST_MAPPED)?;
        let found = self.find(call, Filters::default(), "", (pages.skip(), pages.per_page));
        let next = found.more.then(|| pages.next(&format!("{}/.well-known/agents.json", call.base), &params));
        Ok(Page::json(media, &Map { agents: Descriptors { found: &found, base: call.base } })?.next(next))
    }

    /// Searches the visible agents; `range` is the number of hits to skip and to return.
    pub(super) fn find(&self, call: &Ask<'_>, filters: Filters, text: &str, range: (usize, usize)) -> Found {
        let query = Query { filters, text: text.to_owned(), skip: range.0, top: range.1 };
        self.index.search(&query, &|agent| call.sight.sees(agent))
    }

    fn summaries<'a>(&self, call: &Ask<'_>, found: &'a Found) -> Vec<Summary<'a>> {
        let each = found.hits.iter().map(|hit| {
            Summary::of(&hit.agent, &Veil::over(&hit.agent, call.base, self.config.advertised_endpoints), hit.score)
        });
        each.collect()
    }
}

#[derive(serde::Serialize)]
struct Map<'a> {
    agents: Descriptors<'a>,
}

/// Serialized entry by entry: ten thousand entries must not become a tree in memory.
struct Descriptors<'a> {
    found: &'a Found,
    base: &'a str,
}

impl serde::Serialize for Descriptors<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(self.found.hits.len()))?;
        for hit in &self.found.hits {
            let id = hit.agent.id.as_str();
            map.serialize_entry(id, &format_args!("{}/agents/{id}/agent.json", self.base))?;
        }
        map.end()
    }
}
