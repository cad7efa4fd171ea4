//! The request as it is sent to the agent, and the validation of response heads.

use super::{Target, failure};
use crate::{
    fault::Fault,
    transport::{body::Outgoing, headers},
};
use http::{HeaderMap, Method, Response, StatusCode, Uri, Version, header};
use hyper::body::Incoming;
use std::sync::Arc;
use tokio::time::Instant;

pub(super) type Message = http::Request<Outgoing>;

/// What all attempts of one call share.
pub(super) struct Exchange<'a> {
    pub(super) target: &'a Arc<Target>,
    pub(super) method: Method,
    pub(super) path: Option<http::uri::PathAndQuery>,
    pub(super) headers: &'a HeaderMap,
    pub(super) passage: headers::Passage<'a>,
    pub(super) deadline: Instant,
}

impl Exchange<'_> {
    /// Whether the agent may receive the request twice: with idempotent methods (RFC 9110 §9.2.2), or where the
    /// caller's idempotency key lets the agent recognise the repetition.
    pub(super) fn is_repeatable(&self) -> bool {
        self.method.is_idempotent() || self.headers.contains_key("idempotency-key")
    }

    /// Builds the request of one attempt, with the remaining time of the call.
    pub(super) fn message(&self, body: Outgoing, version: Version) -> Result<Message, Fault> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        let mut headers = headers::outgoing_headers(self.headers, &self.target.own, &self.passage, left);
        let path = self.path.as_ref().unwrap_or(&self.target.path);
        let mut parts = http::uri::Parts::default();
        parts.path_and_query = Some(path.clone());
        if version == Version::HTTP_2 {
            // RFC 9113 §8.3.1: the authority is a pseudo-header there.
            headers.remove(header::HOST);
            (parts.scheme, parts.authority) = (Some(self.target.scheme.clone()), Some(self.target.authority.clone()));
        }
        let uri =
            Uri::from_parts(parts).map_err(|why| failure::unbelievable(format_args!("the path {path}: {why}")))?;
        let mut message = Message::new(body);
        *message.method_mut() = self.method.clone();
        *message.uri_mut() = uri;
        *message.headers_mut() = headers;
        Ok(message)
    }
}

/// Refuses heads whose framing hyper accepts although it is ambiguous (RFC 9112 §6.3).
pub(super) fn believable(response: &Response<Incoming>) -> Result<(), Fault> {
    let (status, headers) = (response.status(), response.headers());
    if status == StatusCode::SWITCHING_PROTOCOLS || !(200..600).contains(&status.as_u16()) {
        return Err(failure::unbelievable(format_args!("unexpected status {status}")));
    }
    if response.version() > Version::HTTP_11 {
        return Ok(());
    }
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).into_iter();
    let Some(coding) = codings.next() else {
        return Ok(());
    };
    if !coding.as_bytes().eq_ignore_ascii_case(b"chunked") || codings.next().is_some() {
        return Err(failure::unbelievable("a transfer coding other than chunked"));
    }
    match headers.contains_key(header::CONTENT_LENGTH) {
        true => Err(failure::unbelievable("both Content-Length and Transfer-Encoding")),
        false => Ok(()),
    }
}
