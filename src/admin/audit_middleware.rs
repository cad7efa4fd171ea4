//! Records in the audit log what operators and programs of this machine change over the admin listener.

use super::{
    access::Operator,
    admin_context::AdminContext,
    bounded_listener::ClientAddress,
    page_response::{error_response, run_blocking},
};
use crate::{
    audit::{AuditAction, AuditEntry},
    fault::{Fault, FaultCode},
};
use axum::{
    extract::{RawPathParams, Request, State},
    middleware::Next,
    response::Response,
};

/// Maximum characters of a request id that the log takes over.
const MAX_REQUEST_ID_CHARS: usize = 128;

/// A route whose requests change something.
#[derive(Clone)]
pub(super) struct ChangingRoute {
    pub(super) context: AdminContext,
    pub(super) action: AuditAction,
}

/// Marks a response after which nothing is different, such as the renewal of a registration.
#[derive(Clone, Copy)]
pub(super) struct NothingChanged;

impl ChangingRoute {
    /// Whether the action gives a program or a page access. Such a change is refused while it cannot be recorded; others
    /// go through, because they withdraw something or leave no trace outside the gateway.
    const fn grants_access(&self) -> bool {
        matches!(self.action, AuditAction::RuntimeRegistered | AuditAction::PairingCodeCreated)
    }
}

/// Records the change that a request makes, unless it is refused as a web page before.
pub(super) async fn record_change(
    State(route): State<ChangingRoute>,
    params: RawPathParams,
    request: Request,
    next: Next,
) -> Response {
    let Some(log) = route.context.state.audit_log() else { return next.run(request).await };
    if route.grants_access() {
        let checked = log.clone();
        match run_blocking(move || checked.require_writable()).await {
            Some(Ok(())) => {}
            Some(Err(why)) => return error_response(&Fault::from(why)),
            None => return next.run(request).await,
        }
    }
    let subject = params.iter().next().map_or("", |(_, value)| value).to_owned();
    let mut entry = match request.extensions().get::<Operator>() {
        Some(operator) => AuditEntry::new(route.action, operator.audit_actor(), subject),
        None => AuditEntry::by_admin(route.action, subject),
    };
    entry.address = request.extensions().get::<ClientAddress>().map(|client| client.0);
    let id = request.headers().get("x-request-id").and_then(|id| id.to_str().ok());
    entry.request_id = id.map(|id| id.chars().take(MAX_REQUEST_ID_CHARS).collect());
    // A task of its own: a client that leaves ends the handling of its request, but not the change that is under way.
    let ended = tokio::spawn(async move {
        let response = next.run(request).await;
        if response.extensions().get::<NothingChanged>().is_some() {
            return response;
        }
        if !response.status().is_success() {
            entry = entry.refused(format!("status {}", response.status().as_u16()));
        }
        run_blocking(move || log.record_limited(entry)).await;
        response
    });
    ended.await.unwrap_or_else(|_| error_response(&Fault::new(FaultCode::Internal, "The change failed")))
}
