//! Revocation of tokens before they expire.

use super::{
    admin_context::AdminContext,
    page_response::{VisibleJson, error_response},
    recorded_change::{ChangeAuthor, ChangeResult, make_recorded_change},
};
use crate::{
    audit::AuditAction,
    auth::{Publication, TokenRevocationRequest},
    fault::{Fault, FaultCode},
};
use axum::{
    body::Bytes,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde_json::json;

/// Maximum bytes of a request, which may have a token.
pub(super) const MAX_REQUEST_BYTES: usize = 32 << 10;

/// Revokes one token, or the tokens of a subject. They are refused here at once, and at the other gateways within a second
/// of the response if it says that the revocation is published.
pub(super) async fn revoke_tokens(State(context): State<AdminContext>, author: ChangeAuthor, body: Bytes) -> Response {
    let Some(revocations) = context.state.revocations() else {
        return error_response(&Fault::new(FaultCode::NotFound, "Tokens are not revoked here"));
    };
    // The message of serde_json is not used: it may quote the token.
    let request = serde_json::from_slice::<TokenRevocationRequest>(&body);
    let request = request.map_err(|_| "The body is a JSON object with token, or issuer with jti or subject".to_owned());
    let select = |request: TokenRevocationRequest| {
        let tokens = request.select(revocations.time())?;
        context.state.require_possible_revocation(&request).map(|()| tokens)
    };
    let tokens = match request.and_then(select) {
        Ok(tokens) => tokens,
        Err(why) => return error_response(&Fault::new(FaultCode::InvalidInput, why)),
    };
    let expires_in = tokens.lifetime().as_secs();
    let mut entry = author.audit_entry(AuditAction::TokensRevoked, tokens.subject);
    entry.detail = tokens.detail;
    let change = async move { revocations.revoke(&[tokens.revocation]).await };
    let result_of = |outcome: &Result<Publication, _>| match outcome {
        Ok(_) => ChangeResult::Made,
        Err(why) => ChangeResult::Refused(format!("{why}")),
    };
    match make_recorded_change(context.state.audit_log(), entry, change, result_of).await {
        Some(Ok(Publication::NotShared)) => VisibleJson(json!({"expires_in": expires_in})).into_response(),
        Some(Ok(Publication::Published)) => {
            VisibleJson(json!({"expires_in": expires_in, "published": true})).into_response()
        }
        Some(Ok(Publication::Pending)) => {
            let body = VisibleJson(json!({"expires_in": expires_in, "published": false}));
            (StatusCode::ACCEPTED, body).into_response()
        }
        Some(Err(why)) => error_response(&Fault::new(FaultCode::Overloaded, why.to_string())),
        None => error_response(&Fault::new(FaultCode::Internal, "The tokens could not be revoked")),
    }
}
