//! The sources of agents: how each is, and the one thing that an operator may decide here.

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

/// Every source in the order of precedence.
pub(super) async fn list(State(source): State<Source>) -> Response {
    match off(move || source.state.feeds()).await {
        Some(feeds) => Json(Feeds { feeds }).into_response(),
        None => refuse(&Fault::new(Code::Internal, "The feeds cannot be listed.")),
    }
}

#[derive(Serialize)]
struct Confirmed {
    confirmed: bool,
}

/// Lets a loss of agents that is held back take effect.
pub(super) async fn confirm(State(source): State<Source>, Path(name): Path<String>, headers: HeaderMap) -> Response {
    if let Some(refused) = from_page(&headers) {
        return refused;
    }
    match off(move || source.state.confirm(&name)).await {
        Some(Some(confirmed)) => Json(Confirmed { confirmed }).into_response(),
        Some(None) => refuse(&Fault::new(Code::NotFound, "There is no feed of that name; GET /feeds lists them.")),
        None => refuse(&Fault::new(Code::Internal, "The loss could not be confirmed.")),
    }
}
