//! Spans in the published protobuf of OTLP.

use super::{
    config::TracingConfig,
    span::{AttributeValue, Span, SpanKind, SpanStatus},
};
use bytes::Bytes;
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value},
    resource::v1::Resource,
    trace::v1::{ResourceSpans, ScopeSpans, Span as OtlpSpan, Status, span, status},
};
use prost::Message as _;

/// Flags of a span: its trace is recorded, it is known whether the parent is remote, and it is.
const FLAG_SAMPLED: u32 = 0x1;
const FLAG_HAS_IS_REMOTE: u32 = 0x100;
const FLAG_IS_REMOTE: u32 = 0x200;

/// Encodes batches of spans, all with the resource of this gateway.
pub(super) struct SpanEncoder {
    resource: Resource,
    scope: InstrumentationScope,
}

impl SpanEncoder {
    pub(super) fn new(config: &TracingConfig) -> Self {
        let version = env!("CARGO_PKG_VERSION");
        let own = [
            ("service.name".to_owned(), config.service_name.clone()),
            ("service.version".to_owned(), version.to_owned()),
            ("service.instance.id".to_owned(), uuid::Uuid::new_v4().to_string()),
        ];
        let own = own.into_iter().filter(|(name, _)| !config.resource.contains_key(name));
        let configured = config.resource.iter().map(|(name, value)| (name.clone(), value.clone()));
        let attributes =
            own.chain(configured).map(|(name, value)| key_value(name, any_value::Value::StringValue(value)));
        Self {
            resource: Resource { attributes: attributes.collect(), ..Resource::default() },
            scope: InstrumentationScope {
                name: "gatepost".to_owned(),
                version: version.to_owned(),
                ..InstrumentationScope::default()
            },
        }
    }

    pub(super) fn encode(&self, spans: &[Span]) -> Bytes {
        let scope_spans = ScopeSpans {
            scope: Some(self.scope.clone()),
            spans: spans.iter().map(otlp_span).collect(),
            ..ScopeSpans::default()
        };
        let resource_spans = ResourceSpans {
            resource: Some(self.resource.clone()),
            scope_spans: vec![scope_spans],
            ..ResourceSpans::default()
        };
        ExportTraceServiceRequest { resource_spans: vec![resource_spans] }.encode_to_vec().into()
    }
}

fn key_value(key: String, value: any_value::Value) -> KeyValue {
    KeyValue { key, value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

fn otlp_span(span: &Span) -> OtlpSpan {
    let attribute = |(name, value): &(&'static str, AttributeValue)| {
        let value = match value {
            AttributeValue::Text(text) => any_value::Value::StringValue(text.to_string()),
            AttributeValue::Number(number) => any_value::Value::IntValue(*number),
        };
        key_value((*name).to_owned(), value)
    };
    let link = span.link.map(|link| span::Link {
        trace_id: link.trace_id.to_bytes().to_vec(),
        span_id: link.span_id.to_bytes().to_vec(),
        ..span::Link::default()
    });
    let remote = if span.has_remote_parent { FLAG_IS_REMOTE } else { 0 };
    let tracestate = span.tracestate.as_ref().and_then(|state| state.to_str().ok());
    OtlpSpan {
        trace_id: span.trace_id.to_bytes().to_vec(),
        span_id: span.span_id.to_bytes().to_vec(),
        parent_span_id: span.parent.map(|parent| parent.to_bytes().to_vec()).unwrap_or_default(),
        trace_state: tracestate.unwrap_or_default().to_owned(),
        flags: FLAG_SAMPLED | FLAG_HAS_IS_REMOTE | remote,
        name: span.name.to_string(),
        kind: otlp_kind(span.kind).into(),
        start_time_unix_nano: span.start,
        end_time_unix_nano: span.end,
        attributes: span.attributes.iter().map(attribute).collect(),
        links: link.into_iter().collect(),
        status: (span.status == SpanStatus::Error)
            .then(|| Status { code: status::StatusCode::Error.into(), ..Status::default() }),
        ..OtlpSpan::default()
    }
}

fn otlp_kind(kind: SpanKind) -> span::SpanKind {
    match kind {
        SpanKind::Internal => span::SpanKind::Internal,
        SpanKind::Server => span::SpanKind::Server,
        SpanKind::Client => span::SpanKind::Client,
        SpanKind::Producer => span::SpanKind::Producer,
        SpanKind::Consumer => span::SpanKind::Consumer,
    }
}
