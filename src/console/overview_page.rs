//! The first page: whether the gateway works, and what needs attention.

use super::{
    console_context::ConsoleContext,
    console_page::{OVERVIEW_PATH, Visitor},
};
use crate::{
    admin::GatewayHealth,
    web_page::{Badge, Notice, attention_item},
};
use axum::{extract::State, response::Response};
use maud::{Markup, html};

/// Shows the first page.
pub(super) async fn show_overview(State(context): State<ConsoleContext>, visitor: Visitor) -> Response {
    let health = context.admin.health();
    let content = html! {
        div .page-head { h1 { "Overview" } }
        section #attention data-refresh="5" {
            h2 { "Needs attention" }
            (attention_list(&health))
        }
    };
    visitor.page("Overview", OVERVIEW_PATH, &content)
}

fn attention_list(health: &GatewayHealth) -> Markup {
    let bad = Badge { notice: Notice::Bad, text: "not ready" };
    html! {
        ul .attention {
            @for reason in health.not_ready_reasons() { (attention_item(bad, &html! { (reason) })) }
        }
    }
}
