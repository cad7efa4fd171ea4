//! The page of one agent.

use super::{
    activity::window_text,
    agent_access::access_section,
    agent_pages::{AGENTS_PATH, is_counted, status_badge},
    agent_sections::{decisions_section, endpoints_section, facts_section, operations_section},
    console_context::ConsoleContext,
    console_page::Visitor,
    document_view::DocumentView,
    overview_page::chart_card,
    page_thread::build_page,
};
use crate::{
    admin::error_page,
    agent::AgentId,
    fault::{Fault, FaultCode},
    gateway::Route,
    telemetry::redact_agent_text,
    web_page::{Notice, count_text, notice, rate_text},
};
use axum::{
    extract::{Path, State},
    response::Response,
};
use maud::{Markup, html};
use serde_json::Value;

/// Shows one agent.
pub(super) async fn show_agent(
    State(context): State<ConsoleContext>,
    Path(id): Path<String>,
    visitor: Visitor,
) -> Response {
    build_page(move || {
        let snapshot = context.gateway.catalogue.snapshot();
        let Some(route) = snapshot.get(&id).filter(|_| AgentId::is_valid(&id)) else {
            return error_page(&Fault::new(FaultCode::NotFound, "The gateway serves no agent with this id"));
        };
        let content = agent_content(&context, route);
        visitor.page(route.agent().id.as_str(), AGENTS_PATH, &content)
    })
    .await
}

fn agent_content(context: &ConsoleContext, route: &Route) -> Markup {
    let agent = route.agent();
    let config = context.source.config_in_force();
    let document: Value = serde_json::from_str(&agent.document).unwrap_or_default();
    let mut view = DocumentView::new();
    html! {
        p { a href=(AGENTS_PATH) { "Agents" } }
        div .page-head {
            h1 { (redact_agent_text(&agent.name)) }
            p { (status_badge(&agent.status)) " " code { (agent.id) } }
        }
        (warnings(route))
        div #traffic data-refresh="10" {
            (traffic_section(context, route))
            (endpoints_section(route))
            (decisions_section(&context.admin.find_decisions_of_agent(agent.id.as_str())))
        }
        div .columns { (facts_section(context, route, &config)) (try_it_section(&agent.id)) }
        (access_section(agent, &config))
        (operations_section(agent, &document, &mut view))
        section .card {
            h2 { "Document" }
            p .muted { "As its source has it. Secrets are redacted." }
            (view.show("The whole document", &document))
        }
    }
}

/// Returns what operators should know about the document.
fn warnings(route: &Route) -> Markup {
    let warnings = route.document_warnings();
    html! {
        @if !warnings.is_empty() {
            (notice(Notice::Warning, &html! {
                p { "The document has findings:" }
                ul { @for warning in warnings { li { (redact_agent_text(warning)) } } }
            }))
        }
    }
}

/// Returns the place where operators call the agent.
fn try_it_section(id: &AgentId) -> Markup {
    html! {
        section .card {
            h2 { "Try it" }
            p { "Call this agent from here, with your own credential." }
            p { a .button href={ (AGENTS_PATH) "/" (id) "/try" } { "Try it" } }
        }
    }
}

fn traffic_section(context: &ConsoleContext, route: &Route) -> Markup {
    if !is_counted(route) {
        let text = "Calls of this agent are not counted alone: more agents were called than metrics.max_agent_labels.";
        return html! { section .card { h2 { "Calls" } p { (text) } } };
    }
    let activity = context.activity.of_agent(route.agent().id.as_str());
    let highest = |values: &[f64]| rate_text(values.iter().copied().fold(0.0, f64::max));
    html! {
        dl .tiles {
            div .tile { dt { "Calls now" } dd { (rate_text(activity.current_rate())) } }
            div .tile { dt { "Calls" } dd { (count_text(activity.total.calls)) " " small .muted { (window_text()) } } }
            div .tile { dt { "Failures" } dd { (count_text(activity.total.failures)) " " small .muted { (window_text()) } } }
            div .tile { dt { "In flight" } dd { (route.in_flight()) } }
        }
        div .columns {
            (chart_card("Calls", &activity.calls, &highest(&activity.calls)))
            (chart_card("Failures", &activity.failures, &highest(&activity.failures)))
        }
    }
}
