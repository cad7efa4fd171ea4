//! The sources of agents: a page with their health, and the confirmation of an agent loss.

use super::{
    Source,
    local::from_page,
    pages::{off, refuse},
    view::FeedRow,
};
use crate::fault::{Code, Fault};
use axum::{
    Json,
    extract::{Path, State},
    http::HeaderMap,
    response::{IntoResponse, Response},
};
use serde::Serialize;

#[derive(Serialize)]
struct Feeds {
    feeds: Vec<FeedRow>,
}

/// Lists every source in the order of precedence.
pub(super) async fn list(State(source): State<Source>) -> Response {
    match off(move || source.state.feeds()).await {
        Some(feeds) => Json(Feeds { feeds }).into_response(),
        None => refuse(&Fault::new(Code::Internal, "Listing the feeds failed")),
    }
}

#[derive(Serialize)]
struct Confirmed {
    confirmed: bool,
}

/// Confirms an agent loss that the loss guard holds back, which then takes effect.
pub(super) async fn confirm(State(source): State<Source>, Path(name): Path<String>, headers: HeaderMap) -> Response {
    if let Some(refused) = from_page(&headers) {
        return refused;
    }
    match off(move || source.state.confirm(&name)).await {
        Some(Some(confirmed)) => Json(Confirmed { confirmed }).into_response(),
        Some(None) => refuse(&Fault::new(Code::NotFound, "There is no feed with this name (GET /feeds lists them)")),
        None => refuse(&Fault::new(Code::Internal, "Confirming the loss failed")),
    }
}
