//! Records in the audit log what operators and programs of this machine change over the admin listener.

use super::{
    admin_context::AdminContext,
    page_response::{error_response, run_blocking},
    recorded_change::{ChangeAuthor, ChangeResult, make_recorded_change},
};
use crate::{
    audit::AuditAction,
    fault::{Fault, FaultCode},
};
use axum::{
    extract::{RawPathParams, Request, State},
    middleware::Next,
    response::Response,
};

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
    let author = ChangeAuthor::of_request(request.extensions(), request.headers());
    let entry = author.audit_entry(route.action, subject);
    let ended = make_recorded_change(Some(log), entry, next.run(request), result_of_response).await;
    ended.unwrap_or_else(|| error_response(&Fault::new(FaultCode::Internal, "The change failed")))
}

fn result_of_response(response: &Response) -> ChangeResult {
    if response.extensions().get::<NothingChanged>().is_some() {
        return ChangeResult::NothingChanged;
    }
    let status = response.status();
    if status.is_success() { ChangeResult::Made } else { ChangeResult::Refused(format!("status {}", status.as_u16())) }
}
