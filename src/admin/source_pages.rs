//! Page with the health of the sources of agents, the confirmation of an agent loss, and polls at once.

use super::{
    admin_context::AdminContext,
    admin_state::SourceRow,
    page_response::{error_response, run_blocking},
};
use crate::fault::{Fault, FaultCode};
use axum::{
    Json,
    extract::{Path, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde::Serialize;

#[derive(Serialize)]
struct SourcesPage {
    sources: Vec<SourceRow>,
}

/// Lists every source in the order of precedence.
pub(super) async fn list_sources(State(context): State<AdminContext>) -> Response {
    match run_blocking(move || context.state.list_sources()).await {
        Some(sources) => Json(SourcesPage { sources }).into_response(),
        None => error_response(&Fault::new(FaultCode::Internal, "Listing the sources failed")),
    }
}

#[derive(Serialize)]
struct ConfirmResponse {
    confirmed: bool,
}

/// Confirms an agent loss that the loss guard holds back, which then takes effect.
pub(super) async fn confirm_agent_loss(State(context): State<AdminContext>, Path(name): Path<String>) -> Response {
    match run_blocking(move || context.state.confirm_agent_loss(&name)).await {
        Some(Some(confirmed)) => Json(ConfirmResponse { confirmed }).into_response(),
        Some(None) => error_response(&unknown_source()),
        None => error_response(&Fault::new(FaultCode::Internal, "Confirming the loss failed")),
    }
}

#[derive(Serialize)]
struct RefreshResponse {
    polling: bool,
}

/// Polls a source at once. The response does not wait for the poll, whose result `GET /sources` shows.
pub(super) async fn refresh_source(State(context): State<AdminContext>, Path(name): Path<String>) -> Response {
    match run_blocking(move || context.state.refresh_source(&name)).await {
        Some(true) => (StatusCode::ACCEPTED, Json(RefreshResponse { polling: true })).into_response(),
        Some(false) => error_response(&unknown_source()),
        None => error_response(&Fault::new(FaultCode::Internal, "The poll could not be started")),
    }
}

fn unknown_source() -> Fault {
    Fault::new(FaultCode::NotFound, "There is no source with this name (GET /sources lists them)")
}
