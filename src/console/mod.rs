//! The console: pages for operators on the admin listener, below `/console`. HTML that the gateway writes, with one small
//! script that keeps lists up to date; every page works without it. `admin::access` decides who sees the pages and
//! whose forms change something; this module reads the gateway's state and writes pages.

mod agent_pages;
mod console_context;
mod console_page;
mod overview_page;
mod schema_form;
mod try_pages;

pub use console_context::{ConfigInForce, ConsoleServices, ConsoleSource};

use crate::admin::ConsolePages;
use axum::{Router, response::Redirect, routing::get};
use console_context::ConsoleContext;

/// Returns the pages.
pub fn build_pages(services: ConsoleServices) -> ConsolePages {
    let router = Router::new()
        .route("/", get(|| async { Redirect::to("/console") }))
        .route("/console", get(overview_page::show_overview))
        .route("/console/agents", get(agent_pages::list_agents))
        .route("/console/agents/{id}/try", get(try_pages::show_form).post(try_pages::call_agent))
        .with_state(ConsoleContext::new(services));
    ConsolePages { router, assets: console_page::assets() }
}
