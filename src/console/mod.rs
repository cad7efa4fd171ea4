//! The console: pages for operators on the admin listener, below `/console`. HTML that the gateway writes, with one small
//! script that keeps lists up to date; every page works without it. `admin::access` decides who sees the pages and
//! whose forms change something; this module reads the gateway's state and writes pages.

mod agent_pages;
mod audit_page;
mod blocking;
mod caller_access;
mod caller_pages;
mod console_context;
mod console_page;
mod form_fields;
mod key_forms;
mod key_list;
mod key_problems;
mod key_view;
mod overview_page;
mod task_pages;

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
        .merge(caller_pages::routes())
        .merge(task_pages::routes())
        .merge(audit_page::routes())
        .with_state(ConsoleContext::new(services));
    ConsolePages { router, assets: console_page::assets() }
}

#[cfg(test)]
mod tests;
