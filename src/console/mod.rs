//! The console: pages for operators on the admin listener, below `/console`. HTML that the gateway writes, with one small
//! script that keeps lists up to date; every page works without it. `admin::access` decides who sees the pages and
//! whose forms change something; this module reads the gateway's state and writes pages.

mod activity;
mod activity_window;
mod agent_access;
mod agent_list;
mod agent_page;
mod agent_pages;
mod agent_sections;
mod attention;
mod console_context;
mod console_page;
mod document_view;
mod overview_page;
mod page_thread;

pub use console_context::{ConfigInForce, ConsoleServices, ConsoleSource};

use crate::admin::ConsolePages;
use axum::{Router, response::Redirect, routing::get};
use console_context::ConsoleContext;

/// Returns the pages. Must be called on the runtime of calls, where the console reads the counters of calls.
pub fn build_pages(services: ConsoleServices) -> ConsolePages {
    let router = Router::new()
        .route("/", get(|| async { Redirect::to("/console") }))
        .route("/console", get(overview_page::show_overview))
        .route("/console/agents", get(agent_pages::list_agents))
        .route("/console/agents/{id}", get(agent_page::show_agent))
        .route("/console/rejected-documents", get(agent_pages::list_rejected_documents))
        .with_state(ConsoleContext::new(services));
    ConsolePages { router, assets: console_page::assets() }
}
