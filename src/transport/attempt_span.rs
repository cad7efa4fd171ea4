//! The span of one attempt to call an endpoint.

use crate::{
    fault::Fault,
    trace::{ActiveSpan, SpanKind, SpanScope, semantic_conventions as names},
};
use http::StatusCode;

/// What the span of an attempt says of the endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracedEndpoint {
    /// How the endpoint is reached: `http`, `mqtt`.
    pub transport: &'static str,
    /// The host, or the path of a Unix socket.
    pub host: String,
    /// The port, where there is one.
    pub port: Option<u16>,
}

impl TracedEndpoint {
    /// Returns the name of the span of a call that is not a request of HTTP.
    pub(super) fn span_name(&self) -> &'static str {
        match self.transport {
            "mqtt" => "mqtt call",
            "matrix" => "matrix call",
            "websocket" => "websocket call",
            _ => "call",
        }
    }
}

/// The span of one attempt, if the trace of the call is recorded.
#[derive(Debug)]
pub(super) struct AttemptSpan<'a> {
    call: Option<&'a SpanScope>,
    span: Option<Box<ActiveSpan>>,
}

impl<'a> AttemptSpan<'a> {
    /// Begins the span, as a child of the call's.
    pub(super) fn start(
        call: Option<&'a SpanScope>,
        name: &'static str,
        endpoint: impl FnOnce() -> TracedEndpoint,
    ) -> Self {
        let span = call.filter(|call| call.is_sampled()).map(|call| {
            let mut span = ActiveSpan::start(call, SpanKind::Client, || name.into());
            let TracedEndpoint { transport, host, port } = endpoint();
            span.set(names::TRANSPORT, || transport);
            span.set(names::SERVER_ADDRESS, || host);
            if let Some(port) = port {
                span.set(names::SERVER_PORT, || port);
            }
            Box::new(span)
        });
        Self { call, span }
    }

    /// Returns the context that the agent receives: that of the call, if the trace is not recorded.
    pub(super) fn scope(&self) -> Option<&SpanScope> {
        self.span.as_ref().map(|span| span.scope()).or(self.call)
    }

    /// Sets an attribute, whose value is made only if the span is recorded.
    pub(super) fn set_number(&mut self, name: &'static str, number: u64) {
        if let Some(span) = &mut self.span {
            span.set(name, || number);
        }
    }

    pub(super) fn set_text(&mut self, name: &'static str, text: impl FnOnce() -> String) {
        if let Some(span) = &mut self.span {
            span.set(name, text);
        }
    }

    /// Ends the span of an attempt that was answered. A status that is a failure of the agent's is one of the span's.
    pub(super) fn finish_with_status(self, status: StatusCode) {
        let Some(mut span) = self.span else { return };
        span.set(names::HTTP_RESPONSE_STATUS_CODE, || status.as_u16());
        if status.is_client_error() || status.is_server_error() {
            span.fail(status.as_u16().to_string());
        } else {
            span.finish();
        }
    }

    /// Ends the span of an attempt that had no reply.
    pub(super) fn fail(self, fault: &Fault) {
        if let Some(span) = self.span {
            span.fail(fault.code().row().name);
        }
    }

    /// Ends the span of an attempt that succeeded and had no status.
    pub(super) fn finish(self) {
        if let Some(span) = self.span {
            span.finish();
        }
    }
}
