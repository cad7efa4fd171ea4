//! Why a step ended a call early, and the isolation of panics.

use crate::fault::{Fault, FaultCode};
use futures_util::FutureExt;
use std::panic::AssertUnwindSafe;

/// Why a step ended the call early.
#[derive(Debug)]
pub(super) enum CallError {
    /// The call failed; the caller receives the fault.
    Fault(Fault),
    /// The caller is gone, so no response is written.
    CallerGone,
}

impl From<Fault> for CallError {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// The result of a step whose caller may leave.
pub(super) type CallResult<T> = Result<T, CallError>;

/// Turns a panic into a fault, so that it ends only its own call.
///
/// Not an `async fn`: its future would hold `work` twice, as the argument and as the awaited value.
pub(super) fn catch_panic<T>(work: impl Future<Output = CallResult<T>>) -> impl Future<Output = CallResult<T>> {
    AssertUnwindSafe(work).catch_unwind().map(|done| {
        done.unwrap_or_else(|_| {
            let fault = Fault::from(FaultCode::Internal).with_detail("a panic; its message is on stderr");
            Err(CallError::Fault(fault))
        })
    })
}
