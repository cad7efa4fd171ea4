//! The list of the agents, and the documents that are rejected.

use super::{
    activity::window_text,
    activity_window::AgentActivity,
    agent_list::{AgentListPage, ListRequest, PAGE_SIZE, SearchText, StateFilter},
    attention::agent_link,
    console_context::ConsoleContext,
    console_page::Visitor,
    page_thread::build_page,
};
use crate::{
    admin::RejectedDocument,
    agent::{Agent, AgentStatus},
    gateway::Route,
    telemetry::redact_agent_text,
    transport::BreakerState,
    web_page::{Badge, Notice, count_text, pager, query_string, rate_text, sparkline, text_field},
};
use axum::{
    extract::{Query, State, rejection::QueryRejection},
    response::Response,
};
use maud::{Markup, Render as _, html};
use serde::Deserialize;

/// The path of the list.
pub(super) const AGENTS_PATH: &str = "/console/agents";

/// Maximum characters of a name in the list.
const MAX_NAME_CHARS: usize = 120;

/// Maximum number of reasons that are shown for one rejected document.
const MAX_REASONS: usize = 20;

/// The query of the list.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct AgentsQuery {
    q: String,
    state: String,
    after: String,
}

/// Lists the agents.
pub(super) async fn list_agents(
    State(context): State<ConsoleContext>,
    query: Result<Query<AgentsQuery>, QueryRejection>,
    visitor: Visitor,
) -> Response {
    let Query(query) = query.unwrap_or_default();
    build_page(move || {
        let snapshot = context.gateway.catalogue.snapshot();
        let (failing, state) = (context.activity.failing_agents(), StateFilter::from_name(&query.state));
        let request = ListRequest {
            search: SearchText::new(&query.q),
            state,
            after: Some(&*query.after).filter(|after| !after.is_empty()),
            failing: &failing,
        };
        let page = request.select(&snapshot);
        let rejected = snapshot.rejected.len();
        let content = html! {
            div .page-head { h1 { "Agents" } p { (count_text(snapshot.len() as u64)) " served" } }
            (filter_form(&query.q, state))
            div #agents .card data-refresh="10" {
                @if page.routes.is_empty() {
                    (empty_list(snapshot.is_empty()))
                } @else {
                    (agent_table(&context, &page))
                    (list_pager(&query, state, &page))
                }
            }
            @if rejected > 0 {
                p {
                    (Badge { notice: Notice::Warning, text: "rejected" }) " "
                    a href="/console/rejected-documents" { "Rejected documents: " (count_text(rejected as u64)) }
                }
            }
        };
        visitor.page("Agents", AGENTS_PATH, &content)
    })
    .await
}

fn filter_form(searched: &str, state: StateFilter) -> Markup {
    html! {
        form .fields method="get" action=(AGENTS_PATH) role="search" {
            (text_field("q", "Id or name contains", searched))
            div .field {
                label for="field-state" { "State" }
                select id="field-state" name="state" {
                    @for filter in StateFilter::ALL {
                        option value=(filter.name()) selected[filter == state] { (filter.label()) }
                    }
                }
            }
            button type="submit" { "Search" }
        }
    }
}

fn empty_list(has_no_agents: bool) -> Markup {
    html! {
        @if has_no_agents {
            p { "The gateway serves no agent. Name a source of agents in " code { "agents.sources" } " of the configuration." }
        } @else {
            p { "No agent matches the search. " a href=(AGENTS_PATH) { "Show all agents" } }
        }
    }
}

fn list_pager(query: &AgentsQuery, state: StateFilter, page: &AgentListPage) -> Markup {
    let state = if state == StateFilter::All { "" } else { state.name() };
    let link =
        |after: &str| format!("{AGENTS_PATH}{}", query_string(&[("q", &query.q), ("state", state), ("after", after)]));
    let first = (!query.after.is_empty()).then(|| link(""));
    let next = page.routes.last().filter(|_| page.has_more).map(|last| link(last.agent().id.as_str()));
    pager(first.as_deref(), next.as_deref())
}

fn agent_table(context: &ConsoleContext, page: &AgentListPage) -> Markup {
    html! {
        div .table-scroll tabindex="0" {
            table {
                caption {
                    (count_text(page.found as u64)) " found, by id, " (PAGE_SIZE) " on a page. Calls and failures are those of the last "
                    (window_text()) "."
                }
                thead {
                    tr {
                        @for name in ["Id", "Name", "Status", "Authentication", "Source"] { th scope="col" { (name) } }
                        th scope="col" { "Calls" }
                        @for name in ["Failures", "In flight"] { th .number scope="col" { (name) } }
                        th scope="col" { "Circuit breaker" }
                    }
                }
                tbody { @for route in &page.routes { (agent_row(context, route)) } }
            }
        }
    }
}

fn agent_row(context: &ConsoleContext, route: &Route) -> Markup {
    let agent = route.agent();
    let activity = context.activity.of_agent(agent.id.as_str());
    html! {
        tr {
            th scope="row" { (agent_link(agent.id.as_str())) }
            td { (short_name(agent)) }
            td { (status_badge(&agent.status)) }
            td { (authentication_text(agent)) }
            td title=(source_text(agent)) { (short_source(agent)) }
            @if is_counted(route) {
                td .nowrap { (rate_text(activity.current_rate())) (call_line(&activity)) }
                td .number { (count_text(activity.total.failures)) }
            } @else {
                td .muted colspan="2" { "not counted alone" }
            }
            td .number { (route.in_flight()) }
            td { (breaker_badge(route)) }
        }
    }
}

/// Returns a line of the calls; nothing for an agent without calls.
fn call_line(activity: &AgentActivity) -> Markup {
    html! { @if activity.total.calls > 0 { (sparkline(&activity.calls, "Calls over time")) } }
}

/// Returns whether the calls of the agent are counted for it alone: agents beyond `metrics.max_agent_labels` share their
/// counters.
pub(super) fn is_counted(route: &Route) -> bool {
    route.metrics().counted_label().is_none_or(|label| *label == *route.agent().id.as_str())
}

fn short_name(agent: &Agent) -> String {
    let name = redact_agent_text(&agent.name);
    match name.char_indices().nth(MAX_NAME_CHARS) {
        Some((at, _)) => format!("{}…", name.get(..at).unwrap_or_default()),
        None => name.into_owned(),
    }
}

/// Returns the status of an agent.
pub(super) fn status_badge(status: &AgentStatus) -> Badge<'static> {
    match status {
        AgentStatus::Active => Badge { notice: Notice::Good, text: "active" },
        AgentStatus::Inactive => Badge { notice: Notice::Neutral, text: "inactive" },
        AgentStatus::Deprecated(_) => Badge { notice: Notice::Warning, text: "deprecated" },
    }
}

/// Returns the kind of credential that callers need.
pub(super) fn authentication_text(agent: &Agent) -> &'static str {
    if agent.authentication.refuses_anonymous { "any" } else { agent.authentication.method.document_type() }
}

/// Returns the name of the source.
pub(super) fn source_text(agent: &Agent) -> &str {
    if agent.source.name.is_empty() { "–" } else { &agent.source.name }
}

/// Returns the last part of the source's name, which may be a long path.
fn short_source(agent: &Agent) -> &str {
    let name = source_text(agent);
    name.rsplit('/').find(|part| !part.is_empty()).unwrap_or(name)
}

/// Returns the state of the circuit breakers of all endpoints.
fn breaker_badge(route: &Route) -> Markup {
    let (mut endpoints, mut not_closed, mut first) = (0, 0, BreakerState::Closed);
    for (_, state) in route.endpoints() {
        endpoints += 1;
        if state != BreakerState::Closed {
            not_closed += 1;
            first = if first == BreakerState::Closed { state } else { first };
        }
    }
    html! {
        (state_badge(first))
        @if not_closed > 0 && endpoints > 1 { " " (not_closed) " of " (endpoints) " endpoints" }
    }
}

/// Returns the state of one circuit breaker.
pub(super) fn state_badge(state: BreakerState) -> Markup {
    let notice = match state {
        BreakerState::Closed => Notice::Neutral,
        BreakerState::HalfOpen => Notice::Warning,
        BreakerState::Open => Notice::Bad,
    };
    Badge { notice, text: state.as_str() }.render()
}

/// Lists the documents that are rejected.
pub(super) async fn list_rejected_documents(State(context): State<ConsoleContext>, visitor: Visitor) -> Response {
    build_page(move || {
        let (all, documents) =
            (context.admin.health().rejected_documents, context.admin.list_rejected_documents(PAGE_SIZE));
        let content = html! {
            div .page-head { h1 { "Rejected documents" } p { (count_text(all as u64)) } }
            div .card {
                @if documents.is_empty() {
                    p { "No document is rejected: every agent of every source is served." }
                } @else {
                    (rejected_table(&documents, all))
                }
            }
            p { a href=(AGENTS_PATH) { "Agents" } }
        };
        visitor.page("Rejected documents", AGENTS_PATH, &content)
    })
    .await
}

fn rejected_table(documents: &[RejectedDocument], all: usize) -> Markup {
    html! {
        div .table-scroll tabindex="0" {
            table {
                caption {
                    "The agents of these documents cannot be called. Correct the documents at their source."
                    @if all > documents.len() { " Only the first " (documents.len()) " are shown." }
                }
                thead { tr { @for name in ["Part of the source", "Index", "Id", "Reasons"] { th scope="col" { (name) } } } }
                tbody {
                    @for document in documents {
                        tr {
                            th scope="row" { (redact_agent_text(&document.source)) }
                            td .number { (document.index) }
                            td { @match &document.id { Some(id) => (redact_agent_text(id)), None => "unknown" } }
                            td { (reason_list(&document.reasons)) }
                        }
                    }
                }
            }
        }
    }
}

fn reason_list(reasons: &[String]) -> Markup {
    html! {
        @for reason in reasons.iter().take(MAX_REASONS) { div { (redact_agent_text(reason)) } }
        @if reasons.len() > MAX_REASONS { div .muted { (reasons.len() - MAX_REASONS) " more" } }
    }
}
