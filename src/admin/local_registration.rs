//! Handlers for clients on this machine: the registration of a runtime, and the creation of a code that pairs a web
//! page. Requests from web pages are refused.

use super::{
    admin_context::AdminContext,
    audit_middleware::NothingChanged,
    page_response::{VisibleJson, error_response, run_blocking},
};
use crate::fault::{Fault, FaultCode};
use axum::{
    body::Bytes,
    extract::{Path, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde_json::json;

/// Maximum bytes of a registration.
const MAX_REGISTRATION_BYTES: usize = 16 << 10;

/// Registers a runtime, or renews its registration.
pub(super) async fn register_runtime(
    State(context): State<AdminContext>,
    Path(name): Path<String>,
    body: Bytes,
) -> Response {
    if body.len() > MAX_REGISTRATION_BYTES {
        return error_response(&Fault::new(FaultCode::PayloadTooLarge, "A registration may have at most 16KiB"));
    }
    let registered_name = name.clone();
    match run_blocking(move || context.state.register_runtime(&name, &body)).await {
        Some(Ok(registration)) => {
            let status = if registration.is_new { StatusCode::CREATED } else { StatusCode::OK };
            let body = json!({"name": registered_name, "expires_in": registration.ttl.as_secs()});
            let mut response = (status, VisibleJson(body)).into_response();
            if !registration.has_new_address {
                response.extensions_mut().insert(NothingChanged);
            }
            response
        }
        Some(Err(fault)) => error_response(&fault),
        None => error_response(&Fault::new(FaultCode::Internal, "The registration failed")),
    }
}

/// Removes a registration.
pub(super) async fn remove_registration(State(context): State<AdminContext>, Path(name): Path<String>) -> Response {
    if context.state.remove_registration(&name) {
        StatusCode::NO_CONTENT.into_response()
    } else {
        error_response(&Fault::new(FaultCode::NotFound, "There is no registration with this name"))
    }
}

/// Creates a code that pairs one web page, and invalidates the previous code.
pub(super) async fn create_pairing_code(State(context): State<AdminContext>) -> Response {
    match context.state.create_pairing_code().await {
        Ok(new) => VisibleJson(json!({"code": new.code, "expires_in": new.lifetime.as_secs()})).into_response(),
        Err(fault) => error_response(&fault),
    }
}
