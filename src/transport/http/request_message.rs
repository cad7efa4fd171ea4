//! The request as it is sent to the agent, and the validation of response heads.

use super::{HttpTarget, error_mapping};
use crate::{
    fault::Fault,
    transport::{headers, upstream_body::HyperBody},
};
use http::{HeaderMap, Method, Response, StatusCode, Uri, Version, header};
use hyper::body::Incoming;
use std::sync::Arc;
use tokio::time::Instant;

pub(super) type HyperRequest = http::Request<HyperBody>;

/// The parts of a call that all its attempts share.
pub(super) struct HttpExchange<'a> {
    pub(super) target: &'a Arc<HttpTarget>,
    pub(super) method: Method,
    pub(super) path: Option<http::uri::PathAndQuery>,
    pub(super) headers: &'a HeaderMap,
    pub(super) header_mutations: headers::HeaderMutations<'a>,
    pub(super) deadline: Instant,
}

impl HttpExchange<'_> {
    /// Whether the agent may receive the request twice: with idempotent methods (RFC 9110 §9.2.2), or where the
    /// caller's idempotency key lets the agent recognise the repetition.
    pub(super) fn is_repeatable(&self) -> bool {
        self.method.is_idempotent() || self.headers.contains_key("idempotency-key")
    }

    /// Builds the request of one attempt, with the remaining time of the call.
    pub(super) fn build_request(&self, body: HyperBody, version: Version) -> Result<HyperRequest, Fault> {
        let remaining = self.deadline.saturating_duration_since(Instant::now());
        let mut headers = headers::build_request_headers(
            self.headers,
            &self.target.gateway_headers,
            &self.header_mutations,
            remaining,
        );
        let path = self.path.as_ref().unwrap_or(&self.target.path);
        let mut parts = http::uri::Parts::default();
        parts.path_and_query = Some(path.clone());
        if version == Version::HTTP_2 {
            // RFC 9113 §8.3.1: the authority is a pseudo-header there.
            headers.remove(header::HOST);
            (parts.scheme, parts.authority) = (Some(self.target.scheme.clone()), Some(self.target.authority.clone()));
        }
        let uri = Uri::from_parts(parts)
            .map_err(|error| error_mapping::invalid_response_fault(format_args!("the path {path}: {error}")))?;
        let mut request = HyperRequest::new(body);
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        Ok(request)
    }
}

/// Refuses heads whose framing hyper accepts although it is ambiguous (RFC 9112 §6.3).
pub(super) fn validate_response_head(response: &Response<Incoming>) -> Result<(), Fault> {
    let (status, headers) = (response.status(), response.headers());
    if status == StatusCode::SWITCHING_PROTOCOLS || !(200..600).contains(&status.as_u16()) {
        return Err(error_mapping::invalid_response_fault(format_args!("unexpected status {status}")));
    }
    if response.version() > Version::HTTP_11 {
        return Ok(());
    }
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).into_iter();
    let Some(coding) = codings.next() else {
        return Ok(());
    };
    if !coding.as_bytes().eq_ignore_ascii_case(b"chunked") || codings.next().is_some() {
        return Err(error_mapping::invalid_response_fault("a transfer coding other than chunked"));
    }
    if headers.contains_key(header::CONTENT_LENGTH) {
        return Err(error_mapping::invalid_response_fault("both Content-Length and Transfer-Encoding"));
    }
    Ok(())
}
