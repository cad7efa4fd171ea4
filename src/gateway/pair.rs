//! Pairing of web pages: exchanges a pairing code of an operator for an API key (R88); and preflight responses.

use super::{
    Gateway, Stop,
    body::{Incoming, Pace},
    call::Call,
    cors::Cors,
    listen::Outcome,
    reply,
    serve::Serving,
    target,
};
use crate::{
    directory::Answer,
    fault::{Code, Fault},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use pingora_core::protocols::http::ServerSession;
use serde::Deserialize;
use std::time::Duration;

/// Maximum bytes of the request body, and maximum time to receive it.
const LARGEST: usize = 1 << 10;
const BODY: Duration = Duration::from_secs(10);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Shown {
    code: String,
}

impl Gateway {
    /// Creates a code with which one page can be paired; returns it with its validity. `None` if pairing is disabled.
    pub fn offer_pairing(&self) -> Option<(String, Duration)> {
        self.world.load().cors.as_ref()?.pairing?;
        self.paired.offer()
    }
}

impl Serving<'_> {
    /// Responds to a preflight request of an allowed page.
    pub(super) async fn permit(
        &self,
        session: &mut ServerSession,
        call: &mut Call,
        cors: &Cors,
    ) -> std::result::Result<Outcome, Stop> {
        call.browses();
        let answer = Answer { status: StatusCode::NO_CONTENT, headers: cors.permission(), body: Bytes::new() };
        reply::local(session, self.connection, call, (answer, None)).await
    }

    /// Issues an API key to the page that presents a valid pairing code.
    pub(super) async fn pair(
        &self,
        session: &mut ServerSession,
        call: &mut Call,
    ) -> std::result::Result<Outcome, Stop> {
        call.browses();
        let cors = self.world.cors.as_ref();
        let Some((cors, lifetime)) = cors.and_then(|cors| Some((cors, cors.pairing?))) else {
            return Err(target::nothing().into());
        };
        let origin = cors.origin(&session.req_header().headers).and_then(|origin| origin.to_str().ok());
        let stranger = || Fault::new(Code::PermissionDenied, "Only pages of configured origins can be paired");
        let origin = origin.ok_or_else(stranger)?.to_owned();
        let mut incoming = Incoming::new(session, Pace { connection: self.connection, until: call.arrived() + BODY });
        super::accept::json_body(incoming.headers())?;
        let body = incoming.whole(LARGEST).await?;
        let wrong = |_| Fault::new(Code::InvalidInput, "The body must be {\"code\": \"…\"}");
        let Shown { code } = serde_json::from_slice(&body).map_err(wrong)?;
        let refused = || Fault::new(Code::PermissionDenied, "The code is not valid (ask the operator for a new one)");
        let key = self.gateway.paired.redeem(&code, &origin, lifetime).ok_or_else(refused)?;
        let told = serde_json::json!({"key": key, "origin": origin, "expires_in": lifetime.as_secs()});
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        let answer = Answer { status: StatusCode::OK, headers, body: told.to_string().into() };
        reply::local(session, self.connection, call, (answer, None)).await
    }
}
