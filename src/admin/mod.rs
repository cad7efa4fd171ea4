//! The admin listener on its own address: `/metrics`, `/healthz`, `/readyz`, `/agents` and `/feeds`. Operators can
//! confirm an agent loss that the loss guard holds back, register a runtime of this machine, and create a pairing code
//! for a web page. The listener has no authentication, so it refuses requests from web pages and belongs on loopback.
//! This module accesses the gateway only through [`AdminState`].

mod door;
mod feeds;
mod local;
mod pages;
mod view;

pub use view::{AgentRow, FeedRow, Health, Refused, State, page};

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
struct Source {
    state: Arc<dyn State>,
    metrics: Arc<Metrics>,
}

/// Serves the admin pages until `stopped` becomes true; completes the responses in progress.
pub async fn serve(
    listener: TcpListener,
    state: Arc<dyn State>,
    metrics: Arc<Metrics>,
    stopped: watch::Receiver<bool>,
) {
    let loopback = listener.local_addr().is_ok_and(|address: SocketAddr| address.ip().is_loopback());
    let router = router(Source { state, metrics }, loopback);
    let end = async move {
        let mut stopped = stopped;
        // A sender that was dropped sends no further notifications; the error means shutdown as well.
        let _ = stopped.wait_for(|stopped| *stopped).await;
    };
    let served = axum::serve(door::Door::new(listener), router).with_graceful_shutdown(end).await;
    if let Err(why) = served {
        tracing::error!(%why, "admin listener failed");
    }
}

fn router(source: Source, loopback: bool) -> Router {
    Router::new()
        .route("/metrics", get(pages::metrics))
        .route("/healthz", get(pages::alive))
        .route("/readyz", get(pages::ready))
        .route("/agents", get(pages::agents))
        .route("/feeds", get(feeds::list))
        .route("/feeds/{name}/confirm", post(feeds::confirm))
        .route("/local/{name}", put(local::lease).delete(local::release))
        .route("/pairing", post(local::pair))
        .fallback(pages::nothing)
        .method_not_allowed_fallback(pages::only_get)
        .layer(from_fn(pages::dress))
        .layer(from_fn_with_state(loopback, door::own_name))
        .with_state(source)
}

#[cfg(test)]
mod tests;
