//! The admin listener: `/metrics`, `/healthz`, `/readyz`, `/agents` and `/sources`. Operators can also confirm an agent
//! loss that the loss guard holds back, register a runtime of this machine, and create a pairing code for a web page.
//! The listener has no authentication: it refuses requests that change state from web pages, and requests under a host
//! name that is not its own; its address belongs on loopback. This module accesses the gateway only through [`AdminState`].

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

/// What the admin listener serves, and for which hosts.
pub struct AdminService {
    /// The state that the pages show.
    pub state: Arc<dyn AdminState>,
    /// The metrics.
    pub metrics: Arc<Metrics>,
    /// The host names of the listener, besides loopback names.
    pub allowed_hosts: Vec<String>,
}

/// Serves the admin pages until `shutdown` becomes true, and completes the responses in progress.
pub async fn serve(listener: TcpListener, service: AdminService, shutdown: watch::Receiver<bool>) {
    let AdminService { state, metrics, allowed_hosts } = service;
    let is_on_loopback = listener.local_addr().is_ok_and(|address: SocketAddr| address.ip().is_loopback());
    let hosts = admin_listener::AllowedHosts { is_on_loopback, names: allowed_hosts };
    let router = build_router(AdminContext { state, metrics }, hosts);
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

fn build_router(context: AdminContext, hosts: admin_listener::AllowedHosts) -> Router {
    Router::new()
        .route("/metrics", get(status_pages::metrics))
        .route("/healthz", get(status_pages::healthz))
        .route("/readyz", get(status_pages::readyz))
        .route("/agents", get(status_pages::list_agents))
        .route("/sources", get(source_pages::list_sources))
        .route("/sources/{name}/confirm", post(source_pages::confirm_agent_loss))
        .route("/sources/{name}/refresh", post(source_pages::refresh_source))
        .route(
            "/local/{name}",
            put(local_registration::register_runtime).delete(local_registration::remove_registration),
        )
        .route("/pairing", post(local_registration::create_pairing_code))
        .fallback(status_pages::not_found)
        .method_not_allowed_fallback(status_pages::method_not_allowed)
        .layer(from_fn(status_pages::add_common_headers))
        .layer(from_fn_with_state(Arc::new(hosts), admin_listener::require_own_host))
        .with_state(context)
}

#[cfg(test)]
mod tests;
