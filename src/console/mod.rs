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
mod audit_page;
mod call_entry;
mod call_pages;
mod caller_access;
mod caller_pages;
mod changed_settings;
mod configuration_page;
mod console_context;
mod console_page;
mod document_view;
mod explain_pages;
mod explanation_view;
mod form_fields;
mod key_forms;
mod key_list;
mod key_operator;
mod key_problems;
mod key_view;
mod overview_page;
mod page_thread;
mod schema_form;
mod source_pages;
mod task_pages;
mod try_pages;

pub use console_context::{ConfigInForce, ConsoleServices, ConsoleSource};

use crate::admin::ConsolePages;
use axum::{
    Router,
    extract::DefaultBodyLimit,
    response::Redirect,
    routing::{get, post},
};
use console_context::ConsoleContext;

/// Returns the pages. Must be called on the runtime of calls, where the console reads the counters of calls.
pub fn build_pages(services: ConsoleServices) -> ConsolePages {
    let router = Router::new()
        .route("/", get(|| async { Redirect::to("/console") }))
        .route("/console", get(overview_page::show_overview))
        .route("/console/agents", get(agent_pages::list_agents))
        .route("/console/agents/{id}/try", get(try_pages::show_form).post(try_pages::call_agent))
        .merge(call_routes())
        .route("/console/agents/{id}", get(agent_page::show_agent))
        .route("/console/rejected-documents", get(agent_pages::list_rejected_documents))
        .merge(caller_pages::routes())
        .merge(task_pages::routes())
        .merge(audit_page::routes())
        .with_state(ConsoleContext::new(services));
    ConsolePages { router, assets: console_page::assets() }
}

/// Returns the pages of calls and their explanations, of sources, and of the configuration.
fn call_routes() -> Router<ConsoleContext> {
    let explain = get(explain_pages::show_explain)
        .merge(post(explain_pages::explain_call).layer(DefaultBodyLimit::max(explain_pages::MAX_FORM_BYTES)));
    Router::new()
        .route(call_pages::CALLS_PATH, get(call_pages::list_calls))
        .route(call_pages::CALL_PATH, get(call_pages::show_call))
        .route(explain_pages::EXPLAIN_PATH, explain)
        .route(source_pages::SOURCES_PATH, get(source_pages::list_sources))
        .route(source_pages::REFRESH_PATH, post(source_pages::refresh_source))
        .route(source_pages::CONFIRM_PATH, get(source_pages::ask_to_confirm).post(source_pages::confirm_loss))
        .route(configuration_page::CONFIGURATION_PATH, get(configuration_page::show_configuration))
}

#[cfg(test)]
mod tests;
