//! The requests of web pages that the gateway answers itself: CORS preflights, and the exchange of an operator's
//! pairing code for an API key (R88).

use super::cors_policy::CorsPolicy;
use crate::{
    audit::{AuditAction, AuditEntry},
    directory::DirectoryResponse,
    fault::{Fault, FaultCode},
    gateway::{admission::BodyBound, call::CallResult, exchange::Exchange, path_router},
    http_server::ServeOutcome,
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::Deserialize;
use std::time::Duration;

/// Maximum bytes of the request body, and maximum time to receive it.
const MAX_BODY: BodyBound = BodyBound::fixed(1 << 10);
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PairingRequest {
    code: String,
}

/// Responds to a preflight request of an allowed page.
pub(in crate::gateway) async fn respond_to_preflight(
    exchange: &mut Exchange<'_>,
    cors: &CorsPolicy,
) -> CallResult<ServeOutcome> {
    exchange.call.mark_directory_request();
    let response =
        DirectoryResponse { status: StatusCode::NO_CONTENT, headers: cors.preflight_headers(), body: Bytes::new() };
    exchange.respond_locally(response, None).await
}

/// Issues an API key to the page that presents a valid pairing code.
pub(in crate::gateway) async fn redeem_pairing_code(exchange: &mut Exchange<'_>) -> CallResult<ServeOutcome> {
    exchange.call.mark_directory_request();
    let cors = exchange.config.cors.as_ref();
    let Some((cors, key_ttl)) = cors.and_then(|cors| Some((cors, cors.pairing_key_ttl?))) else {
        return Err(path_router::path_not_found().into());
    };
    let origin = cors.allowed_origin(&exchange.session.head().headers).and_then(|origin| origin.to_str().ok());
    let origin_not_allowed =
        || Fault::new(FaultCode::PermissionDenied, "Only pages of configured origins can be paired");
    let origin = origin.ok_or_else(origin_not_allowed)?.to_owned();
    let body = exchange.read_own_body(MAX_BODY, BODY_TIMEOUT).await?;
    let invalid_body = |_| Fault::new(FaultCode::InvalidInput, "The body must be {\"code\": \"…\"}");
    let PairingRequest { code } = serde_json::from_slice(&body).map_err(invalid_body)?;
    let invalid_code =
        || Fault::new(FaultCode::PermissionDenied, "The code is not valid (ask the operator for a new one)");
    if let Some(log) = &exchange.gateway.audit_log {
        log.require_writable_in_background().await.map_err(Fault::from)?;
    }
    let redeemed = exchange.gateway.browser_pairings.redeem_code(&code, &origin, key_ttl).await;
    let key = redeemed?.ok_or_else(invalid_code)?;
    if let Some(log) = &exchange.gateway.audit_log {
        let mut entry = AuditEntry::new(AuditAction::PagePaired, format!("browser:{origin}"), &*origin);
        entry.request_id = Some(exchange.call.id().to_owned());
        entry.address = Some(exchange.connection.client_address());
        log.record_in_background(entry).await;
    }
    let response_body = serde_json::json!({"key": key, "origin": origin, "expires_in": key_ttl.as_secs()});
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let response = DirectoryResponse { status: StatusCode::OK, headers, body: response_body.to_string().into() };
    exchange.respond_locally(response, None).await
}
