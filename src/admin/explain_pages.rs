//! Pages that explain decisions about calls: what would become of a call, and why a past call was refused. A dry run
//! assumes callers without their secrets: whoever reaches this listener may read it as the operator reads the key file.

use super::{
    admin_context::AdminContext,
    page_response::{VisibleJson, error_response, run_blocking},
};
use crate::fault::{Fault, FaultCode};
use axum::{
    body::Bytes,
    extract::{Path, State},
    response::{IntoResponse, Response},
};
use serde_json::json;

/// Maximum bytes of a request to explain, with its body.
pub(super) const MAX_REQUEST_BYTES: usize = 4 << 20;

/// What is said of an id that no remembered call has.
const NOT_REMEMBERED: &str = "No refused call with this id is remembered: admitted calls are not, \
    explain.recent_decisions bounds how many refused ones are, and a call whose head was refused may have an id of the \
    gateway's own, which the response has in X-Request-ID";

/// Explains what would become of a call. It runs where calls run, and not on the thread of this listener.
pub(super) async fn explain_call(State(context): State<AdminContext>, body: Bytes) -> Response {
    match context.calls.spawn(context.state.explain(body)).await {
        Ok(Ok(explanation)) => VisibleJson(explanation).into_response(),
        Ok(Err(fault)) => error_response(&fault),
        Err(_) => error_response(&Fault::new(FaultCode::Internal, "The explanation failed")),
    }
}

/// Returns why recent calls with this id were refused.
pub(super) async fn find_decisions(State(context): State<AdminContext>, Path(id): Path<String>) -> Response {
    match run_blocking(move || context.state.find_decisions(&id)).await {
        // The member says that it is the id that is unknown, and not the page.
        Some(decisions) if decisions.is_empty() => {
            error_response(&Fault::new(FaultCode::NotFound, NOT_REMEMBERED).with_member("remembered", false.into()))
        }
        Some(decisions) => VisibleJson(json!({"decisions": decisions})).into_response(),
        None => error_response(&Fault::new(FaultCode::Internal, "Finding the decisions failed")),
    }
}
