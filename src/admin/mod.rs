//! The admin listener: `/metrics`, `/healthz`, `/readyz`, `/agents` and `/sources`. Operators can also confirm an agent
//! loss that the loss guard holds back, register a runtime of this machine, and create a pairing code for a web page.
//! The listener has no authentication: it refuses requests that change state from web pages, and its address belongs on
//! loopback. This module accesses the gateway only through [`AdminState`].

mod admin_context;
mod admin_listener;
mod admin_state;
mod local_registration;
mod page_response;
mod source_pages;
mod status_pages;

pub use admin_state::{AdminState, AgentRow, GatewayHealth, RejectedDocument, SourceRow, select_page};

use crate::telemetry::Metrics;
use admin_context::AdminContext;
use axum::{
    Router,
    middleware::{from_fn, from_fn_with_state},
    routing::{get, post, put},
};
use std::{net::SocketAddr, sync::Arc};
use tokio::{net::TcpListener, sync::watch};

/// Serves the admin pages until `shutdown` becomes true, and completes the responses in progress.
pub async fn serve(
    listener: TcpListener,
    state: Arc<dyn AdminState>,
    metrics: Arc<Metrics>,
    shutdown: watch::Receiver<bool>,
) {
    let is_on_loopback = listener.local_addr().is_ok_and(|address: SocketAddr| address.ip().is_loopback());
    let router = build_router(AdminContext { state, metrics }, is_on_loopback);
    let shutdown_requested = async move {
        let mut shutdown = shutdown;
        // An error means that the sender was dropped: shutdown as well.
        let _ = shutdown.wait_for(|requested| *requested).await;
    };
    let result = axum::serve(admin_listener::AdminListener::new(listener), router)
        .with_graceful_shutdown(shutdown_requested)
        .await;
    if let Err(why) = result {
        tracing::error!(error = %why, "admin listener failed");
    }
}

fn build_router(context: AdminContext, is_on_loopback: bool) -> Router {
    Router::new()
        .route("/metrics", get(status_pages::metrics))
        .route("/healthz", get(status_pages::healthz))
        .route("/readyz", get(status_pages::readyz))
        .route("/agents", get(status_pages::list_agents))
        .route("/sources", get(source_pages::list_sources))
        .route("/sources/{name}/confirm", post(source_pages::confirm_agent_loss))
        .route(
            "/local/{name}",
            put(local_registration::register_runtime).delete(local_registration::remove_registration),
        )
        .route("/pairing", post(local_registration::create_pairing_code))
        .fallback(status_pages::not_found)
        .method_not_allowed_fallback(status_pages::method_not_allowed)
        .layer(from_fn(status_pages::add_common_headers))
        .layer(from_fn_with_state(is_on_loopback, admin_listener::require_loopback_host))
        .with_state(context)
}

#[cfg(test)]
mod tests;
