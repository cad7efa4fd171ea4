//! The sources of agents: how each is, and the one thing that an operator may decide here.

use super::{
    Source,
    pages::{off, refuse},
    view::FeedRow,
};
use crate::fault::{Code, Fault};
use axum::{
    Json,
    extract::{Path, State},
    http::{HeaderMap, header},
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
    // A browser says from which page it posts (Fetch, "Origin header"); no page has any business here.
    if headers.contains_key(header::ORIGIN) || headers.contains_key("sec-fetch-site") {
        return refuse(&Fault::new(Code::PermissionDenied, "This is not answered to pages in a browser."));
    }
    match off(move || source.state.confirm(&name)).await {
        Some(Some(confirmed)) => Json(Confirmed { confirmed }).into_response(),
        Some(None) => refuse(&Fault::new(Code::NotFound, "There is no feed of that name; GET /feeds lists them.")),
        None => refuse(&Fault::new(Code::Internal, "The loss could not be confirmed.")),
    }
}
