//! A span that has begun. Dropping it ends it: one that nothing has ended was cancelled.

use super::{
    semantic_conventions as names,
    span::{AttributeValue, Span, SpanKind, SpanStatus},
    span_scope::SpanScope,
};
use std::{borrow::Cow, time::Instant};

/// The `error.type` of a span whose step was dropped before it ended.
const CANCELED: &str = "canceled";

/// A span that has begun. It always has a place in its trace, and data only if the trace is recorded.
#[derive(Debug)]
pub struct ActiveSpan {
    scope: SpanScope,
    span: Option<Box<Span>>,
}

impl ActiveSpan {
    /// Begins a span below `parent`. The name is made only if the span is recorded.
    pub fn start(parent: &SpanScope, kind: SpanKind, name: impl FnOnce() -> Cow<'static, str>) -> Self {
        let scope = parent.child();
        let span =
            parent.is_sampled().then(|| Box::new(scope.span(kind, name(), Some(parent.span_id), Instant::now())));
        Self { scope, span }
    }

    /// The place of the span in its trace.
    pub fn scope(&self) -> &SpanScope {
        &self.scope
    }

    /// Sets an attribute, whose value is made only if the span is recorded.
    pub fn set<V: Into<AttributeValue>>(&mut self, name: &'static str, value: impl FnOnce() -> V) {
        if let Some(span) = &mut self.span {
            span.set(name, value());
        }
    }

    /// Marks the span as failed, and goes on.
    pub fn set_error(&mut self, error_type: impl Into<AttributeValue>) {
        if let Some(span) = &mut self.span {
            span.set(names::ERROR_TYPE, error_type);
            span.status = SpanStatus::Error;
        }
    }

    /// Ends the span, without a further failure.
    pub fn finish(mut self) {
        if let Some(span) = self.span.take() {
            self.scope.end(*span);
        }
    }

    /// Ends the span with a failure.
    pub fn fail(mut self, error_type: impl Into<AttributeValue>) {
        self.end_with_error(error_type.into());
    }

    fn end_with_error(&mut self, error_type: AttributeValue) {
        self.set_error(error_type);
        if let Some(span) = self.span.take() {
            self.scope.end(*span);
        }
    }
}

impl Drop for ActiveSpan {
    fn drop(&mut self) {
        self.end_with_error(CANCELED.into());
    }
}
