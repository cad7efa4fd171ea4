//! A page in a browser is told what it may ask, and gets a key for a code that an operator made (R88).

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

/// Bytes of a body with a code, and how long it may take.
const LARGEST: usize = 1 << 10;
const BODY: Duration = Duration::from_secs(10);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Shown {
    code: String,
}

impl Gateway {
    /// A code with which one page is paired, and how long it holds; none where pages are not paired.
    pub fn offer_pairing(&self) -> Option<(String, Duration)> {
        self.world.load().cors.as_ref()?.pairing?;
        self.paired.offer()
    }
}

impl Serving<'_> {
    /// Answers a preflight of a page that may ask.
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

    /// Gives the page that shows the code a key of its own.
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
        let stranger = || Fault::new(Code::PermissionDenied, "only pages of configured origins are paired");
        let origin = origin.ok_or_else(stranger)?.to_owned();
        let mut incoming = Incoming::new(session, Pace { connection: self.connection, until: call.arrived() + BODY });
        super::accept::json_body(incoming.headers())?;
        let body = incoming.whole(LARGEST).await?;
        let wrong = |_| Fault::new(Code::InvalidInput, "the body must be {\"code\": \"…\"}");
        let Shown { code } = serde_json::from_slice(&body).map_err(wrong)?;
        let refused = || Fault::new(Code::PermissionDenied, "the code is not valid (ask the operator for a new one)");
        let key = self.gateway.paired.redeem(&code, &origin, lifetime).ok_or_else(refused)?;
        let told = serde_json::json!({"key": key, "origin": origin, "expires_in": lifetime.as_secs()});
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        let answer = Answer { status: StatusCode::OK, headers, body: told.to_string().into() };
        reply::local(session, self.connection, call, (answer, None)).await
    }
}
