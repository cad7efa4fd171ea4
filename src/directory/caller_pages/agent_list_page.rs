//! The page that lists agents.

use super::{
    super::{
        DirectoryCall, DirectoryConfig,
        address_redaction::AddressRedactor,
        agent_summary::{entry_text, entry_words, first_sentence, status_name},
        directory_request::{CALLER_PAGES_PATH, LOGIN_PARAMETER},
    },
    page_parts::shorten,
};
use crate::{
    agent::{Agent, AgentStatus},
    search::SearchResults,
    web_page::{Badge, Notice, pager, query_string, text_field},
};
use maud::{Markup, html};

/// Maximum number of words (tags) of one agent.
const MAX_WORDS: usize = 6;
/// Maximum number of characters of a name, and of a word.
const MAX_NAME: usize = 120;
const MAX_WORD: usize = 40;

/// One page of the list.
pub(super) struct AgentListPage<'a> {
    pub(super) call: &'a DirectoryCall<'a>,
    pub(super) config: &'a DirectoryConfig,
    /// The text of the search; empty without one.
    pub(super) text: &'a str,
    /// The number of the page, from 1.
    pub(super) page: usize,
    pub(super) results: &'a SearchResults,
}

impl AgentListPage<'_> {
    /// Returns the title.
    pub(super) fn title(&self) -> String {
        format!("Agents of {}", self.config.name)
    }

    /// Returns the content.
    pub(super) fn render(&self) -> Markup {
        let caller = self.call.caller;
        html! {
            .page-head { h1 { (self.title()) } }
            p { (self.config.description) }
            @if caller.is_anonymous() {
                p {
                    "These are the agents that visitors without a credential see. "
                    a href={ (CALLER_PAGES_PATH) "?" (LOGIN_PARAMETER) } { "Enter a credential" }
                    " to see those that you may call: the password is your API key or your bearer token."
                }
            } @else {
                p .muted { "You read this page as " code { (caller.id) } ", and see the agents that you may call, and public ones." }
            }
            form method="get" action=(CALLER_PAGES_PATH) role="search" {
                .fields {
                    (text_field("q", "Search", self.text))
                    button type="submit" .primary { "Search" }
                    @if !self.text.is_empty() { a .button href=(CALLER_PAGES_PATH) { "All agents" } }
                }
            }
            (self.table())
            (self.pager())
        }
    }

    fn table(&self) -> Markup {
        html! {
            @if self.results.hits.is_empty() {
                p {
                    @if self.text.is_empty() && self.page == 1 {
                        "You may see no agent. The operator of the gateway grants access."
                    } @else if self.text.is_empty() {
                        "There is no agent on this page."
                    } @else {
                        "No agent that you may see fits the search. Try other words, or fewer."
                    }
                }
            } @else {
                .card .table-scroll tabindex="0" {
                    table {
                        caption { @if self.text.is_empty() { "Agents" } @else { "Agents that fit the search, the best first" } }
                        thead { tr { th scope="col" { "Agent" } th scope="col" { "What it does" } th scope="col" { "Status" } } }
                        tbody { @for hit in &self.results.hits { (self.row(&hit.agent)) } }
                    }
                }
            }
        }
    }

    fn row(&self, agent: &Agent) -> Markup {
        let redactor = AddressRedactor::for_list_entry(agent, self.call.base_url, self.config.advertised_endpoints);
        let name = redactor.redact_text(entry_text(&agent.name));
        let description = redactor.redact_text(first_sentence(&agent.description));
        let words = entry_words(&agent.tags);
        let words = words.get(..MAX_WORDS).unwrap_or(words);
        html! {
            tr {
                th scope="row" {
                    a href={ (CALLER_PAGES_PATH) "/" (agent.id) } { (shorten(&name, MAX_NAME)) }
                    br;
                    code { (agent.id) }
                }
                td {
                    (description)
                    @if !words.is_empty() {
                        br;
                        @for word in redactor.redact_list(words) { span .badge { (shorten(&word, MAX_WORD)) } " " }
                    }
                }
                td { (status_badge(agent)) }
            }
        }
    }

    fn pager(&self) -> Markup {
        let link = |page: usize| {
            let number = if page > 1 { page.to_string() } else { String::new() };
            format!("{CALLER_PAGES_PATH}{}", query_string(&[("q", self.text), ("page", &number)]))
        };
        let first = (self.page > 1).then(|| link(1));
        let next = self.results.has_more.then(|| link(self.page + 1));
        pager(first.as_deref(), next.as_deref())
    }
}

/// Returns the status as a word.
pub(super) fn status_badge(agent: &Agent) -> Markup {
    let notice = match agent.status {
        AgentStatus::Active => Notice::Good,
        AgentStatus::Inactive => Notice::Bad,
        AgentStatus::Deprecated(_) => Notice::Warning,
    };
    html! { (Badge { notice, text: status_name(agent) }) }
}
