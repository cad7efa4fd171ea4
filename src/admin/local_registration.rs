//! Handlers for clients on this machine: registering a runtime, and creating a code that pairs a web page. Web pages
//! themselves are refused.

use super::{
    AdminContext,
    status_pages::{error_response, run_blocking},
};
use crate::fault::{Fault, FaultCode};
use axum::{
    Json,
    body::Bytes,
    extract::{Path, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde_json::json;

/// Maximum bytes of a registration.
const MAX_REGISTRATION_BYTES: usize = 16 << 10;

/// Registers a runtime, or renews its registration.
pub(super) async fn register_runtime(
    State(source): State<AdminContext>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    if let Some(refused) = refuse_browser_page(&headers) {
        return refused;
    }
    if body.len() > MAX_REGISTRATION_BYTES {
        return error_response(&Fault::new(FaultCode::PayloadTooLarge, "A registration may have at most 16KiB"));
    }
    let told = name.clone();
    match run_blocking(move || source.state.register_runtime(&name, &body)).await {
        Some(Ok((holds, new))) => {
            let status = if new { StatusCode::CREATED } else { StatusCode::OK };
            (status, Json(json!({"name": told, "expires_in": holds.as_secs()}))).into_response()
        }
        Some(Err(fault)) => error_response(&fault),
        None => error_response(&Fault::new(FaultCode::Internal, "The registration failed")),
    }
}

/// Removes a registration.
pub(super) async fn remove_registration(
    State(source): State<AdminContext>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Response {
    if let Some(refused) = refuse_browser_page(&headers) {
        return refused;
    }
    match source.state.remove_registration(&name) {
        true => StatusCode::NO_CONTENT.into_response(),
        false => error_response(&Fault::new(FaultCode::NotFound, "There is no registration with this name")),
    }
}

/// Creates a code with which one web page can be paired; it replaces the previous code.
pub(super) async fn create_pairing_code(State(source): State<AdminContext>, headers: HeaderMap) -> Response {
    if let Some(refused) = refuse_browser_page(&headers) {
        return refused;
    }
    match source.state.create_pairing_code() {
        Some((code, holds)) => Json(json!({"code": code, "expires_in": holds.as_secs()})).into_response(),
        None => error_response(&Fault::new(
            FaultCode::NotFound,
            "Pairing is disabled (the configuration has no cors.pairing)",
        )),
    }
}

/// Refuses requests from web pages, which browsers mark with `Origin` (Fetch, "Origin header") or `Sec-Fetch-Site`.
pub(super) fn refuse_browser_page(headers: &HeaderMap) -> Option<Response> {
    let page = headers.contains_key(header::ORIGIN) || headers.contains_key("sec-fetch-site");
    page.then(|| error_response(&Fault::new(FaultCode::PermissionDenied, "Web pages may not use this endpoint")))
}
