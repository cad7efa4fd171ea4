//! Where pages are built that take longer than a millisecond: probes share the thread of the admin listener.

use crate::{
    admin::error_page,
    fault::{Fault, FaultCode},
};
use axum::response::Response;

/// Builds a page on a thread that may block.
pub(super) async fn build_page(build: impl FnOnce() -> Response + Send + 'static) -> Response {
    let page = tokio::task::spawn_blocking(build).await;
    page.unwrap_or_else(|_| {
        tracing::error!("console: building a page failed");
        error_page(&Fault::new(FaultCode::Internal, "The page could not be built"))
    })
}
