//! The queue, and spans in the published protobuf.

use super::super::{
    active_span::ActiveSpan,
    config::TracingConfig,
    otlp_encoding::SpanEncoder,
    semantic_conventions,
    span::SpanKind,
    span_queue::SpanQueue,
    span_scope::{Epoch, SpanScope},
    trace_context::RemoteContext,
};
use crate::telemetry::{ExpositionFormat, Metrics};
use opentelemetry_proto::tonic::{collector::trace::v1::ExportTraceServiceRequest, trace::v1::status::StatusCode};
use prost::Message as _;
use std::{
    sync::Arc,
    time::{Instant, SystemTime},
};
use tokio::sync::mpsc;

fn recorded_scope(size: usize) -> (SpanScope, mpsc::Receiver<super::super::span::Span>, Arc<Metrics>) {
    let metrics = Metrics::new().unwrap();
    let (queue, spans) = SpanQueue::new(size, Arc::clone(&metrics));
    let epoch = Epoch::new(Instant::now(), SystemTime::now());
    let mut scope = SpanScope::root(&Arc::new(queue), RemoteContext::default(), epoch);
    scope.is_sampled = true;
    (scope, spans, metrics)
}

#[test]
fn a_full_queue_drops_spans_and_counts_them() {
    let (scope, mut spans, metrics) = recorded_scope(3);
    for _ in 0..10 {
        ActiveSpan::start(&scope, SpanKind::Internal, || "step".into()).finish();
    }
    let page = metrics.render(ExpositionFormat::Text);
    assert!(page.contains("gatepost_spans_total{result=\"dropped_queue\"} 7"), "{page}");
    assert_eq!(std::iter::from_fn(|| spans.try_recv().ok()).count(), 3);
}

#[test]
fn a_span_that_is_not_recorded_has_a_context_and_no_data() {
    let (mut scope, mut spans, _) = recorded_scope(3);
    scope.is_sampled = false;
    let mut span = ActiveSpan::start(&scope, SpanKind::Client, || panic!("the name is not needed"));
    span.set(semantic_conventions::SERVER_ADDRESS, || -> String { panic!("the value is not needed") });
    let context = span.scope().traceparent();
    assert!(context.to_str().unwrap().ends_with("-00"), "{context:?}");
    assert_ne!(context, scope.traceparent());
    span.finish();
    assert!(spans.try_recv().is_err());
}

#[test]
fn spans_are_encoded_in_the_published_protobuf() {
    let (scope, mut spans, _) = recorded_scope(8);
    let mut parent = ActiveSpan::start(&scope, SpanKind::Client, || "call".into());
    parent.set(semantic_conventions::SERVER_ADDRESS, || "x".repeat(1_000));
    parent.set(semantic_conventions::SERVER_PORT, || 443_u16);
    ActiveSpan::start(parent.scope(), SpanKind::Internal, || "dropped".into());
    parent.fail("Timeout");
    let spans: Vec<_> = std::iter::from_fn(|| spans.try_recv().ok()).collect();
    let config: TracingConfig =
        serde_saphyr::from_str("endpoint: http://localhost\nresource: {region: eu}\nservice_name: edge").unwrap();
    let message = SpanEncoder::new(&config).encode(&spans);
    let request = ExportTraceServiceRequest::decode(&*message).unwrap();
    let resource = format!("{:?}", request.resource_spans[0].resource);
    for text in ["service.name", "edge", "service.version", "service.instance.id", "region", "eu"] {
        assert!(resource.contains(text), "{resource}");
    }
    let spans = &request.resource_spans[0].scope_spans[0].spans;
    let [child, parent] = &spans[..] else { panic!("{spans:?}") };
    assert_eq!((child.name.as_str(), parent.name.as_str()), ("dropped", "call"));
    assert_eq!(child.parent_span_id, parent.span_id);
    assert_eq!((child.trace_id.len(), child.span_id.len()), (16, 8));
    assert!(parent.start_time_unix_nano <= child.start_time_unix_nano);
    assert!(child.end_time_unix_nano <= parent.end_time_unix_nano);
    for span in spans {
        assert_eq!(span.status.as_ref().unwrap().code, i32::from(StatusCode::Error));
    }
    let attributes = format!("{:?}", parent.attributes);
    assert!(attributes.contains("Timeout") && attributes.contains("443"), "{attributes}");
    assert!(attributes.contains(&"x".repeat(256)) && !attributes.contains(&"x".repeat(257)), "a text has a bound");
    assert!(format!("{:?}", child.attributes).contains("canceled"));
}

#[test]
fn the_names_of_attributes_are_in_the_documentation() {
    let page = include_str!("../../../docs/tracing.md");
    for name in semantic_conventions::ALL {
        assert!(page.contains(&format!("`{name}`")), "docs/tracing.md does not explain {name}");
    }
}
