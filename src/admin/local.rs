//! What runtimes and people of this machine ask for: a registration, a code with which a page is paired. Pages in a
//! browser ask for neither.

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

/// The longest registration.
const LONGEST: usize = 16 << 10;

/// Registers a runtime, or renews that.
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
        return refuse(&Fault::new(Code::PayloadTooLarge, "A registration has at most 16KiB."));
    }
    let told = name.clone();
    match off(move || source.state.lease(&name, &body)).await {
        Some(Ok((holds, new))) => {
            let status = if new { StatusCode::CREATED } else { StatusCode::OK };
            (status, Json(json!({"name": told, "expires_in": holds.as_secs()}))).into_response()
        }
        Some(Err(fault)) => refuse(&fault),
        None => refuse(&Fault::new(Code::Internal, "The registration could not be made.")),
    }
}

/// Ends a registration.
pub(super) async fn release(State(source): State<Source>, Path(name): Path<String>, headers: HeaderMap) -> Response {
    if let Some(refused) = from_page(&headers) {
        return refused;
    }
    match source.state.release(&name) {
        true => StatusCode::NO_CONTENT.into_response(),
        false => refuse(&Fault::new(Code::NotFound, "There is no registration of that name.")),
    }
}

/// Makes a code with which one page is paired. The code before it counts no more.
pub(super) async fn pair(State(source): State<Source>, headers: HeaderMap) -> Response {
    if let Some(refused) = from_page(&headers) {
        return refused;
    }
    match source.state.pair() {
        Some((code, holds)) => Json(json!({"code": code, "expires_in": holds.as_secs()})).into_response(),
        None => refuse(&Fault::new(Code::NotFound, "Pages are not paired: the configuration has no cors.pairing.")),
    }
}

/// A browser says from which page it asks (Fetch, "Origin header"); no page has any business here.
pub(super) fn from_page(headers: &HeaderMap) -> Option<Response> {
    let page = headers.contains_key(header::ORIGIN) || headers.contains_key("sec-fetch-site");
    page.then(|| refuse(&Fault::new(Code::PermissionDenied, "This is not answered to pages in a browser.")))
}
