//! Lists: `GET /agents` (R21), `POST /agents/search` (R22–R24) and the map of descriptors (R60). Each shows a part at a
//! time, and only what the caller may see (R3).

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

/// Agents on one page of `GET /agents`, unless asked otherwise, and at most.
const USUAL: usize = 100;
const MOST: usize = 1_000;
/// Agents on one page of the map.
const MOST_MAPPED: usize = 10_000;
/// Characters of a query in words.
pub(super) const LONGEST_TEXT: usize = 2_000;

impl Directory {
    /// `GET /agents`: a bare array of summaries.
    pub(super) fn list(&self, ask: &Ask<'_>) -> Result<Page> {
        let media = media::choose(ask.headers, &[media::JSON])?;
        let params = Params::read(ask.query)?;
        let filters = filters::of_query(&params)?;
        let text = params.one(&["q", "query"])?.unwrap_or_default();
        let mut pages = Pages::read(&params, USUAL, MOST)?;
        // `top` asks for the best and for no more.
        let top = params.number(&["top", "limit"], 1..=MOST)?;
        pages.per_page = top.unwrap_or(pages.per_page);
        let found = self.find(ask, filters, text, (pages.skip(), pages.per_page));
        let next = (found.more && top.is_none()).then(|| pages.next(&format!("{}/agents", ask.base), &params));
        Ok(Page::json(media, &self.summaries(ask, &found))?.next(next))
    }

    /// `POST /agents/search`.
    pub(super) fn search(&self, ask: &Ask<'_>) -> Result<Answer> {
        media::choose(ask.headers, &[media::JSON])?;
        let asked = body::json(ask, &[media::JSON], 64 << 10, 16)?;
        let mut wrong = Wrong::default();
        let members = Members::of(&asked, &mut wrong);
        let filters = members.object(&["filters", "filter"], &mut wrong);
        let filters = filters.map(|within| filters::of_members(&within, &mut wrong)).unwrap_or_default();
        let text = members.text(&["query", "q"], LONGEST_TEXT, &mut wrong).unwrap_or_default();
        let top = members.number(&["top", "limit"], 1..=100, &mut wrong).unwrap_or(10);
        let skip = members.number(&["skip", "offset"], 0..=10_000, &mut wrong).unwrap_or(0);
        wrong.none("the search is not valid")?;
        let found = self.find(ask, filters, text, (skip, top));
        let page = Page::json(media::JSON, &self.summaries(ask, &found))?;
        Ok(Answer::written(StatusCode::OK, page.into_body()))
    }

    /// `/.well-known/agents.json`: from each agent to its descriptor.
    pub(super) fn map(&self, ask: &Ask<'_>) -> Result<Page> {
        let media = media::choose(ask.headers, &[media::JSON])?;
        let params = Params::read(ask.query)?;
        let pages = Pages::read(&params, MOST_MAPPED, MOST_MAPPED)?;
        let found = self.find(ask, Filters::default(), "", (pages.skip(), pages.per_page));
        let next = found.more.then(|| pages.next(&format!("{}/.well-known/agents.json", ask.base), &params));
        Ok(Page::json(media, &Map { agents: Descriptors { found: &found, base: ask.base } })?.next(next))
    }

    /// What fits and may be seen; `range` is how many to leave out and how many to take.
    pub(super) fn find(&self, ask: &Ask<'_>, filters: Filters, text: &str, range: (usize, usize)) -> Found {
        let query = Query { filters, text: text.to_owned(), skip: range.0, top: range.1 };
        self.index.search(&query, &|agent| ask.sight.sees(agent))
    }

    fn summaries<'a>(&self, ask: &Ask<'_>, found: &'a Found) -> Vec<Summary<'a>> {
        let each = found
            .hits
            .iter()
            .map(|hit| Summary::of(&hit.agent, &Veil::over(&hit.agent, ask.base, self.config.endpoints), hit.score));
        each.collect()
    }
}

#[derive(serde::Serialize)]
struct Map<'a> {
    agents: Descriptors<'a>,
}

/// Written entry by entry: ten thousand of them are no tree in memory.
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
