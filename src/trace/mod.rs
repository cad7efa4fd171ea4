//! OpenTelemetry traces: the trace context of W3C in and out, the choice of the calls that are recorded, their spans, and
//! the export by OTLP.
//!
//! Spans are plain data with the gateway's own timestamps. A call whose trace is not recorded costs its ids and the
//! context that its agent receives; without the section `tracing` it costs one branch at each of these places.

mod active_span;
mod call_trace;
mod config;
mod exporter;
mod otlp_client;
mod otlp_encoding;
mod sampler;
pub mod semantic_conventions;
mod span;
mod span_queue;
mod span_scope;
mod trace_context;
mod tracer;

pub use active_span::ActiveSpan;
pub use call_trace::{CallPhase, CallRecord, CallSpan, CallTrace, RequestedServer, TraceOrigin};
pub use config::{OtlpProtocol, TraceTrust, TracingConfig};
pub use span::{AttributeValue, SpanKind};
pub use span_scope::SpanScope;
pub use trace_context::{BAGGAGE, RemoteContext, TRACEPARENT, TRACESTATE};
pub use tracer::Tracer;

#[cfg(test)]
mod tests;
