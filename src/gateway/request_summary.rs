//! What the access log needs of the head of a request.

use super::header_names::TRACEPARENT;
use crate::{http_server::RefusedTarget, telemetry::ResponseProtocol};
use http::{HeaderName, Method, Version, header, request};

/// What the access log needs of the head of a request.
pub(super) struct RequestSummary {
    pub(super) method: Method,
    pub(super) path: Box<str>,
    pub(super) query_bytes: usize,
    version: Version,
    pub(super) user_agent: Box<str>,
    /// The id of the caller's trace.
    pub(super) trace_id: Box<str>,
}

impl RequestSummary {
    /// Summarises a head. The caller's trace is left out unless `with_trace` asks for it.
    pub(super) fn of_head(head: &request::Parts, with_trace: bool) -> Self {
        let text = |name: &HeaderName| head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let traceparent = if with_trace { text(&TRACEPARENT) } else { "" };
        Self {
            method: head.method.clone(),
            path: head.uri.path().into(),
            query_bytes: head.uri.query().map_or(0, str::len),
            version: head.version,
            user_agent: text(&header::USER_AGENT).into(),
            trace_id: traceparent.split('-').nth(1).filter(|trace| trace.len() == 32).unwrap_or_default().into(),
        }
    }

    /// Summarises a head that was refused, as far as it could be read.
    pub(super) fn of_refused(target: RefusedTarget, protocol: ResponseProtocol) -> Self {
        let RefusedTarget { method, path } = target;
        let version = match protocol {
            ResponseProtocol::Http2 => Version::HTTP_2,
            _ => Version::HTTP_11,
        };
        Self { method, path, query_bytes: 0, version, user_agent: "".into(), trace_id: "".into() }
    }

    /// Summarises a call that the gateway makes for another one.
    pub(super) fn of_subrequest(agent: &str) -> Self {
        Self {
            method: Method::POST,
            path: format!("/agents/{agent}/invoke").into(),
            query_bytes: 0,
            version: Version::HTTP_11,
            user_agent: "".into(),
            trace_id: "".into(),
        }
    }

    /// Returns the name of the protocol.
    pub(super) fn protocol_name(&self) -> &'static str {
        match self.version {
            Version::HTTP_10 => "HTTP/1.0",
            Version::HTTP_2 => "HTTP/2",
            _ => "HTTP/1.1",
        }
    }
}
