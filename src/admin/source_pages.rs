//! Page with the health of the sources of agents, the confirmation of an agent loss, and polls at once.

use super::{
    admin_context::AdminContext,
    admin_state::{AdminState, SourceRow},
    page_response::{VisibleJson, error_response, run_blocking},
};
use crate::{
    fault::{Fault, FaultCode},
    values::nearest_name,
};
use axum::{
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
        Some(sources) => VisibleJson(SourcesPage { sources }).into_response(),
        None => error_response(&Fault::new(FaultCode::Internal, "Listing the sources failed")),
    }
}

#[derive(Serialize)]
struct ConfirmResponse {
    confirmed: bool,
}

/// Confirms an agent loss that the loss guard holds back, which then takes effect.
pub(super) async fn confirm_agent_loss(State(context): State<AdminContext>, Path(name): Path<String>) -> Response {
    let confirm = move || context.state.confirm_agent_loss(&name).ok_or_else(|| unknown_source(&*context.state, &name));
    match run_blocking(confirm).await {
        Some(Ok(confirmed)) => VisibleJson(ConfirmResponse { confirmed }).into_response(),
        Some(Err(unknown)) => error_response(&unknown),
        None => error_response(&Fault::new(FaultCode::Internal, "Confirming the loss failed")),
    }
}

#[derive(Serialize)]
struct RefreshResponse {
    polling: bool,
}

/// Polls a source at once. The response does not wait for the poll, whose result `GET /sources` shows.
pub(super) async fn refresh_source(State(context): State<AdminContext>, Path(name): Path<String>) -> Response {
    let refresh = move || {
        let is_known = context.state.refresh_source(&name);
        if is_known { Ok(()) } else { Err(unknown_source(&*context.state, &name)) }
    };
    match run_blocking(refresh).await {
        Some(Ok(())) => (StatusCode::ACCEPTED, VisibleJson(RefreshResponse { polling: true })).into_response(),
        Some(Err(unknown)) => error_response(&unknown),
        None => error_response(&Fault::new(FaultCode::Internal, "The poll could not be started")),
    }
}

fn unknown_source(state: &dyn AdminState, name: &str) -> Fault {
    let sources = state.list_sources();
    let nearest = nearest_name(name, sources.iter().map(|source| &*source.name));
    let nearest = nearest.map(|name| format!("did you mean {name}? ")).unwrap_or_default();
    Fault::new(FaultCode::NotFound, format!("There is no source with this name ({nearest}GET /sources lists them)"))
}
