//! The agents: the list, and the page of one agent.

use super::{console_context::ConsoleContext, console_page::Visitor};
use axum::{extract::State, response::Response};
use maud::html;

/// Lists the agents.
pub(super) async fn list_agents(State(context): State<ConsoleContext>, visitor: Visitor) -> Response {
    let count = context.admin.health().agents.unwrap_or_default();
    let content = html! { div .page-head { h1 { "Agents" } p { (count) } } };
    visitor.page("Agents", "/console/agents", &content)
}
