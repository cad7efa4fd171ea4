//! Where work is done that takes longer than a millisecond: probes share the thread of the admin listener.

use crate::{
    admin::error_page,
    fault::{Fault, FaultCode},
};
use axum::response::Response;

/// Runs `work` on a thread that may block. The work goes on if the client leaves.
///
/// # Errors
/// It panicked; the runtime logs why.
pub(super) async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Fault> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| Fault::new(FaultCode::Internal, "The page failed (the gateway's log says why)"))
}

/// Builds a page on a thread that may block.
pub(super) async fn build_page(build: impl FnOnce() -> Response + Send + 'static) -> Response {
    run_blocking(build).await.unwrap_or_else(|fault| error_page(&fault))
}
