//! The requests of web pages that the gateway answers itself: CORS preflights, and the exchange of an operator's
//! pairing code for an API key (R88).

use super::{
    CallError, Gateway,
    call::Call,
    cors::CorsPolicy,
    http_server::ServeOutcome,
    incoming_body::{BodyTimeout, IncomingBody},
    path_router,
    request_handler::RequestContext,
    response_writer,
};
use crate::{
    directory::DirectoryResponse,
    fault::{Fault, FaultCode},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use pingora_core::protocols::http::ServerSession;
use serde::Deserialize;
use std::time::Duration;

/// Maximum bytes of the request body, and maximum time to receive it.
const MAX_BODY_BYTES: usize = 1 << 10;
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PairingRequest {
    code: String,
}

impl Gateway {
    /// Creates a code with which one page can be paired; returns it with its validity. `None` if pairing is disabled.
    pub fn create_pairing_code(&self) -> Option<(String, Duration)> {
        self.config.load().cors.as_ref()?.pairing_key_ttl?;
        self.browser_pairings.create_code()
    }
}

impl RequestContext<'_> {
    /// Responds to a preflight request of an allowed page.
    pub(super) async fn respond_to_preflight(
        &self,
        session: &mut ServerSession,
        call: &mut Call,
        cors: &CorsPolicy,
    ) -> std::result::Result<ServeOutcome, CallError> {
        call.mark_directory_request();
        let response =
            DirectoryResponse { status: StatusCode::NO_CONTENT, headers: cors.preflight_headers(), body: Bytes::new() };
        response_writer::write_local_response(session, self.connection, call, response, None).await
    }

    /// Issues an API key to the page that presents a valid pairing code.
    pub(super) async fn redeem_pairing_code(
        &self,
        session: &mut ServerSession,
        call: &mut Call,
    ) -> std::result::Result<ServeOutcome, CallError> {
        call.mark_directory_request();
        let cors = self.config.cors.as_ref();
        let Some((cors, key_ttl)) = cors.and_then(|cors| Some((cors, cors.pairing_key_ttl?))) else {
            return Err(path_router::path_not_found().into());
        };
        let origin = cors.allowed_origin(&session.req_header().headers).and_then(|origin| origin.to_str().ok());
        let origin_not_allowed =
            || Fault::new(FaultCode::PermissionDenied, "Only pages of configured origins can be paired");
        let origin = origin.ok_or_else(origin_not_allowed)?.to_owned();
        let mut incoming = IncomingBody::new(
            session,
            BodyTimeout { connection: self.connection, deadline: call.arrived_at() + BODY_TIMEOUT },
        );
        super::content_negotiation::check_json_body(incoming.headers())?;
        let body = incoming.read_complete(MAX_BODY_BYTES).await?;
        let invalid_body = |_| Fault::new(FaultCode::InvalidInput, "The body must be {\"code\": \"…\"}");
        let PairingRequest { code } = serde_json::from_slice(&body).map_err(invalid_body)?;
        let invalid_code =
            || Fault::new(FaultCode::PermissionDenied, "The code is not valid (ask the operator for a new one)");
        let key = self.gateway.browser_pairings.redeem_code(&code, &origin, key_ttl).ok_or_else(invalid_code)?;
        let response_body = serde_json::json!({"key": key, "origin": origin, "expires_in": key_ttl.as_secs()});
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        let response = DirectoryResponse { status: StatusCode::OK, headers, body: response_body.to_string().into() };
        response_writer::write_local_response(session, self.connection, call, response, None).await
    }
}
