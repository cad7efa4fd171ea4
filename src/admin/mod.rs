//! The admin listener on its own address: `/metrics`, `/healthz`, `/readyz`, `/agents` and `/sources`. Operators can
//! confirm an agent loss that the loss guard holds back, register a runtime of this machine, and create a pairing code
//! for a web page. The listener has no authentication, so it refuses requests from web pages and belongs on loopback.
//! This module accesses the gateway only through [`AdminState`].

mod admin_listener;
mod admin_state;
mod local_registration;
mod source_pages;
mod status_pages;

pub use admin_state::{AdminState, AgentRow, GatewayHealth, RejectedDocument, SourceRow, select_page};

use crate::telemetry::Metrics;
use axum::{
    Router,
    middleware::{from_fn, from_fn_with_state},
    routing::{get, post, put},
};
use std::{net::SocketAddr, sync::Arc};
use tokio::{net::TcpListener, sync::watch};

/// What the handlers build pages from.
#[derive(Clone)]
struct AdminContext {
    state: Arc<dyn AdminState>,
    metrics: Arc<Metrics>,
}

/// Serves the admin pages until `stopped` becomes true; completes the responses in progress.
pub async fn serve(
    listener: TcpListener,
    state: Arc<dyn AdminState>,
    metrics: Arc<Metrics>,
    stopped: watch::Receiver<bool>,
) {
    let loopback = listener.local_addr().is_ok_and(|address: SocketAddr| address.ip().is_loopback());
    let router = build_router(AdminContext { state, metrics }, loopback);
    let end = async move {
        let mut stopped = stopped;
        // A sender that was dropped sends no further notifications; the error means shutdown as well.
        let _ = stopped.wait_for(|stopped| *stopped).await;
    };
    let served = axum::serve(admin_listener::AdminListener::new(listener), router).with_graceful_shutdown(end).await;
    if let Err(why) = served {
        tracing::error!(%why, "admin listener failed");
    }
}

fn build_router(source: AdminContext, loopback: bool) -> Router {
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
        .layer(from_fn_with_state(loopback, admin_listener::require_loopback_host))
        .with_state(source)
}

#[cfg(test)]
mod tests;
