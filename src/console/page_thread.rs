//! Where work is done that takes longer than a millisecond: probes share the thread of the admin listener.

use crate::{
    admin::error_page,
    fault::{Fault, FaultCode},
};
use axum::response::Response;
use tokio::sync::Semaphore;

/// How many pages are built at once. The work of a client that left goes on and counts, so that a client that asks again
/// and again occupies no further threads.
static PAGES_AT_ONCE: Semaphore = Semaphore::const_new(4);

/// Runs `work` on a thread that may block. The work goes on if the client leaves.
///
/// # Errors
/// It panicked; the runtime logs why.
pub(super) async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Fault> {
    // The semaphore is never closed.
    let permit = PAGES_AT_ONCE.acquire().await;
    let done = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        work()
    });
    done.await.map_err(|_| Fault::new(FaultCode::Internal, "The page failed (the gateway's log says why)"))
}

/// Builds a page on a thread that may block.
pub(super) async fn build_page(build: impl FnOnce() -> Response + Send + 'static) -> Response {
    run_blocking(build).await.unwrap_or_else(|fault| error_page(&fault))
}
