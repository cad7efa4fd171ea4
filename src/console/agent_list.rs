//! Which agents a list shows: one pass over all agents, in which only those of the page are kept.

use super::activity_window::AgentCalls;
use crate::{
    admin::select_page,
    agent::{Agent, AgentStatus},
    gateway::Route,
    registry::AgentSnapshot,
    transport::BreakerState,
};
use std::{cell::Cell, collections::HashMap, sync::Arc};

/// Number of agents on a page.
pub(super) const PAGE_SIZE: usize = 100;

/// Maximum characters of a search text; the rest is ignored.
const MAX_SEARCH_CHARS: usize = 100;

/// Which agents are listed by their state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum StateFilter {
    #[default]
    All,
    /// Calls do not reach them, or they failed calls in the last minutes.
    Failing,
    /// Listed, but not served.
    Inactive,
}

impl StateFilter {
    pub(super) const ALL: [Self; 3] = [Self::All, Self::Failing, Self::Inactive];

    /// Returns the filter with this name; an unknown name is no filter.
    pub(super) fn from_name(name: &str) -> Self {
        Self::ALL.into_iter().find(|filter| filter.name() == name).unwrap_or_default()
    }

    /// Returns the value of the query parameter.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Failing => "failing",
            Self::Inactive => "inactive",
        }
    }

    /// Returns the name for people.
    pub(super) const fn label(self) -> &'static str {
        match self {
            Self::All => "All",
            Self::Failing => "Failing",
            Self::Inactive => "Inactive",
        }
    }
}

/// A text that is searched in ids and names, whatever the case of its letters.
#[derive(Debug, Default)]
pub(super) struct SearchText(Vec<char>);

impl SearchText {
    pub(super) fn new(text: &str) -> Self {
        Self(text.trim().chars().take(MAX_SEARCH_CHARS).flat_map(char::to_lowercase).collect())
    }

    /// Returns whether `text` contains the searched text. Does not allocate.
    fn is_in(&self, text: &str) -> bool {
        let Some(first) = self.0.first() else { return true };
        let starts = text.char_indices().filter(|(_, c)| first_lowercase(*c) == *first);
        starts.map(|(at, _)| text.get(at..).unwrap_or_default()).any(|rest| {
            let mut lower = rest.chars().flat_map(char::to_lowercase);
            self.0.iter().all(|searched| lower.next() == Some(*searched))
        })
    }

    fn finds(&self, agent: &Agent) -> bool {
        self.is_in(agent.id.as_str()) || self.is_in(&agent.name)
    }
}

/// Returns the first character of the lower case of `c`. Most are ASCII, for which no table is needed.
fn first_lowercase(c: char) -> char {
    if c.is_ascii() { c.to_ascii_lowercase() } else { c.to_lowercase().next().unwrap_or(c) }
}

/// Which agents a page shows.
pub(super) struct ListRequest<'a> {
    pub(super) search: SearchText,
    pub(super) state: StateFilter,
    /// The last id of the page before.
    pub(super) after: Option<&'a str>,
    /// The agents that failed calls.
    pub(super) failing: &'a HashMap<Arc<str>, AgentCalls>,
}

/// One page of the list.
pub(super) struct AgentListPage {
    /// The agents, by id.
    pub(super) routes: Vec<Arc<Route>>,
    /// How many agents the filters find on all pages.
    pub(super) found: usize,
    /// Whether there is a next page.
    pub(super) has_more: bool,
}

impl ListRequest<'_> {
    /// Returns the page.
    pub(super) fn select(&self, snapshot: &AgentSnapshot<Route>) -> AgentListPage {
        let found = Cell::new(0);
        let matching =
            snapshot.iter().filter(|(_, route)| self.includes(route)).inspect(|_| found.set(found.get() + 1));
        let mut routes = select_page(matching, self.after, PAGE_SIZE + 1);
        let has_more = routes.len() > PAGE_SIZE;
        routes.truncate(PAGE_SIZE);
        AgentListPage { routes: routes.into_iter().map(Arc::clone).collect(), found: found.get(), has_more }
    }

    fn includes(&self, route: &Route) -> bool {
        let is_in_state = match self.state {
            StateFilter::All => true,
            StateFilter::Failing => is_failing(route, self.failing),
            StateFilter::Inactive => route.agent().status == AgentStatus::Inactive,
        };
        is_in_state && self.search.finds(route.agent())
    }
}

/// Returns whether calls do not reach the agent, or failed in the last minutes.
fn is_failing(route: &Route, failing: &HashMap<Arc<str>, AgentCalls>) -> bool {
    // Calls of an inactive agent are refused, and the agent is not there to fail them.
    let is_active = route.agent().status != AgentStatus::Inactive;
    is_active
        && (route.endpoints().any(|(_, breaker)| breaker != BreakerState::Closed)
            || failing.contains_key(route.agent().id.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_ignores_the_case_of_letters_also_beyond_ascii() {
        let finds = |searched: &str, text: &str| SearchText::new(searched).is_in(text);
        assert!(finds("TRANS", "my-translator") && finds("  übersetz ", "Der ÜBERSETZER") && finds("", "anything"));
        assert!(finds("aab", "aaab"), "a match may begin in the middle of a false one");
        assert!(!finds("translators", "translator") && !finds("x", ""));
        let long = "a".repeat(500);
        assert!(finds(&long, &"a".repeat(MAX_SEARCH_CHARS)), "the rest of a long text is ignored");
    }

    #[test]
    fn an_unknown_state_is_no_filter() {
        assert_eq!(
            ["failing", "inactive", "all", "", "<b>"].map(StateFilter::from_name),
            [StateFilter::Failing, StateFilter::Inactive, StateFilter::All, StateFilter::All, StateFilter::All,]
        );
    }
}
