//! Work that blocks, apart from the thread of the admin listener.

use crate::fault::{Fault, FaultCode};

/// Runs `work` on a thread that may block. The work goes on if the client leaves.
///
/// # Errors
/// It panicked; the runtime logs why.
pub(super) async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Fault> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| Fault::new(FaultCode::Internal, "The page failed (the gateway's log says why)"))
}
