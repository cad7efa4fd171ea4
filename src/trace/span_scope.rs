//! The place of a span in its trace: what its children need, and what agents and brokers receive of it.

use super::{
    span::{Span, SpanKind, SpanLink, SpanStatus},
    span_queue::SpanQueue,
    trace_context::{BAGGAGE, RemoteContext, SpanId, TRACEPARENT, TRACESTATE, TraceId, Traceparent},
};
use http::{HeaderMap, HeaderName, HeaderValue};
use std::{
    borrow::Cow,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

/// What all spans of one call share.
#[derive(Debug)]
pub(super) struct SharedTrace {
    pub(super) queue: Arc<SpanQueue>,
    pub(super) trace_id: TraceId,
    tracestate: Option<HeaderValue>,
    baggage: Option<HeaderValue>,
    /// Whether `tracestate` and baggage differ from those of the request, which the agent receives otherwise.
    is_reduced: bool,
    /// One moment on both clocks: the times of all spans follow the monotonic one, so that they nest.
    epoch: Epoch,
}

/// One moment on both clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Epoch {
    at: Instant,
    unix: Duration,
}

impl Epoch {
    pub(super) fn new(at: Instant, time: SystemTime) -> Self {
        Self { at, unix: time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default() }
    }

    pub(super) fn unix_seconds(&self) -> u64 {
        self.unix.as_secs()
    }

    fn nanos(&self, at: Instant) -> u64 {
        let since = self.unix + at.saturating_duration_since(self.at);
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// A span of a call, as the parent of others. Cheap to clone.
#[derive(Clone, Debug)]
pub struct SpanScope {
    pub(super) shared: Arc<SharedTrace>,
    pub(super) span_id: SpanId,
    pub(super) is_sampled: bool,
}

impl SpanScope {
    /// Begins the first span of a call. It continues the trace of `context`, or begins a new one.
    pub(super) fn root(queue: &Arc<SpanQueue>, context: RemoteContext, epoch: Epoch) -> Self {
        let RemoteContext { parent, tracestate, baggage, is_reduced } = context;
        let trace_id = parent.map_or_else(TraceId::random, |parent| parent.trace_id);
        let shared = SharedTrace { queue: Arc::clone(queue), trace_id, tracestate, baggage, is_reduced, epoch };
        Self { shared: Arc::new(shared), span_id: SpanId::random(), is_sampled: false }
    }

    /// Returns a span of a trace that has been stored, as the parent of others.
    pub(super) fn resume(queue: &Arc<SpanQueue>, parent: Traceparent) -> Self {
        let context = RemoteContext { parent: Some(parent), ..RemoteContext::default() };
        let scope = Self::root(queue, context, Epoch::new(Instant::now(), SystemTime::now()));
        Self { span_id: parent.span_id, is_sampled: parent.is_sampled, ..scope }
    }

    /// Returns the baggage of the trace, without its context.
    pub(super) fn baggage_only(&self) -> RemoteContext {
        RemoteContext { baggage: self.shared.baggage.clone(), is_reduced: true, ..RemoteContext::default() }
    }

    /// Returns the place of a new span below this one.
    pub(super) fn child(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), span_id: SpanId::random(), is_sampled: self.is_sampled }
    }

    /// Returns a link to this span.
    pub(super) fn link(&self) -> SpanLink {
        SpanLink { trace_id: self.shared.trace_id, span_id: self.span_id }
    }

    /// Returns the data of this span.
    pub(super) fn span(
        &self,
        kind: SpanKind,
        name: Cow<'static, str>,
        parent: Option<SpanId>,
        started: Instant,
    ) -> Span {
        Span {
            trace_id: self.shared.trace_id,
            span_id: self.span_id,
            parent,
            has_remote_parent: false,
            tracestate: self.shared.tracestate.clone(),
            name,
            kind,
            start: self.shared.epoch.nanos(started),
            end: 0,
            attributes: Vec::new(),
            link: None,
            status: SpanStatus::Unset,
        }
    }

    /// Ends a span now, and queues it.
    pub(super) fn end(&self, mut span: Span) {
        span.end = self.shared.epoch.nanos(Instant::now()).max(span.start);
        self.shared.queue.push(span);
    }

    /// Whether the spans of the trace are recorded.
    pub fn is_sampled(&self) -> bool {
        self.is_sampled
    }

    /// Returns the trace id in hexadecimal.
    pub fn trace_id_hex(&self) -> [u8; 32] {
        self.shared.trace_id.to_hex()
    }

    /// Returns the `traceparent` that makes this span the parent.
    pub fn traceparent(&self) -> HeaderValue {
        let parent = Traceparent { trace_id: self.shared.trace_id, span_id: self.span_id, is_sampled: self.is_sampled };
        HeaderValue::from_bytes(&parent.to_text()).unwrap_or(HeaderValue::from_static("00"))
    }

    /// Returns the fields that carry the context to another process.
    pub fn context_fields(&self) -> [(HeaderName, Option<HeaderValue>); 3] {
        let SharedTrace { tracestate, baggage, .. } = &*self.shared;
        [(TRACEPARENT, Some(self.traceparent())), (TRACESTATE, tracestate.clone()), (BAGGAGE, baggage.clone())]
    }

    /// Returns the same fields as user properties of a message of MQTT 5.
    pub fn context_properties(&self) -> Vec<(String, String)> {
        let fields = self.context_fields().into_iter();
        fields.filter_map(|(name, value)| Some((name.as_str().to_owned(), value?.to_str().ok()?.to_owned()))).collect()
    }

    /// Sets the context in the fields of a request, which are the caller's; what is not valid does not pass.
    pub fn propagate(&self, headers: &mut HeaderMap) {
        headers.insert(TRACEPARENT, self.traceparent());
        let SharedTrace { tracestate, baggage, is_reduced, .. } = &*self.shared;
        if *is_reduced {
            for (name, value) in [(TRACESTATE, tracestate), (BAGGAGE, baggage)] {
                match value {
                    Some(value) => drop(headers.insert(name, value.clone())),
                    None => drop(headers.remove(name)),
                }
            }
        }
    }
}
