//! Handlers for clients on this machine: registering a runtime, and creating a code that pairs a web page. Web pages
//! themselves are refused.

use super::{
    Source,
    pages::{off, refuse},
};
use crate::fault::{Code, Fault};
use axum::{
    Json,
    body::Bytes,
    extract::{Path, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde_json::json;

/// Maximum bytes of a registration.
const LONGEST: usize = 16 << 10;

/// Registers a runtime, or renews its registration.
pub(super) async fn lease(
    State(source): State<Source>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    if let Some(refused) = from_page(&headers) {
        return refused;
    }
    if body.len() > LONGEST {
        return refuse(&Fault::new(Code::PayloadTooLarge, "A registration may have at most 16KiB"));
    }
    let told = name.clone();
    match off(move || source.state.lease(&name, &body)).await {
        Some(Ok((holds, new))) => {
            let status = if new { StatusCode::CREATED } else { StatusCode::OK };
            (status, Json(json!({"name": told, "expires_in": holds.as_secs()}))).into_response()
        }
        Some(Err(fault)) => refuse(&fault),
        None => refuse(&Fault::new(Code::Internal, "The registration failed")),
    }
}

/// Removes a registration.
pub(super) async fn release(State(source): State<Source>, Path(name): Path<String>, headers: HeaderMap) -> Response {
    if let Some(refused) = from_page(&headers) {
        return refused;
    }
    match source.state.release(&name) {
        true => StatusCode::NO_CONTENT.into_response(),
        false => refuse(&Fault::new(Code::NotFound, "There is no registration with this name")),
    }
}

/// Creates a code with which one web page can be paired; it replaces the previous code.
pub(super) async fn pair(State(source): State<Source>, headers: HeaderMap) -> Response {
    if let Some(refused) = from_page(&headers) {
        return refused;
    }
    match source.state.pair() {
        Some((code, holds)) => Json(json!({"code": code, "expires_in": holds.as_secs()})).into_response(),
        None => refuse(&Fault::new(Code::NotFound, "Pairing is disabled (the configuration has no cors.pairing)")),
    }
}

/// Refuses requests from web pages, which browsers mark with `Origin` (Fetch, "Origin header") or `Sec-Fetch-Site`.
pub(super) fn from_page(headers: &HeaderMap) -> Option<Response> {
    let page = headers.contains_key(header::ORIGIN) || headers.contains_key("sec-fetch-site");
    page.then(|| refuse(&Fault::new(Code::PermissionDenied, "Web pages may not use this endpoint")))
}
