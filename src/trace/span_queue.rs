//! The queue between calls and the exporter. It is bounded, and a full queue drops spans: a receiver that is slow or
//! unreachable costs spans, and no call waits for it.

use super::span::Span;
use crate::telemetry::{Metrics, SpanResult};
use std::sync::Arc;
use tokio::sync::mpsc;

/// The sending side, which calls hold. The exporter ends when the last call and the last configuration have dropped it.
#[derive(Debug)]
pub(super) struct SpanQueue {
    sender: mpsc::Sender<Span>,
    metrics: Arc<Metrics>,
}

impl SpanQueue {
    /// Creates a queue of at most `size` spans.
    pub(super) fn new(size: usize, metrics: Arc<Metrics>) -> (Self, mpsc::Receiver<Span>) {
        let (sender, receiver) = mpsc::channel(size.max(1));
        (Self { sender, metrics }, receiver)
    }

    /// Queues a span, or drops and counts it.
    pub(super) fn push(&self, span: Span) {
        if self.sender.try_send(span).is_err() {
            self.metrics.record_spans(SpanResult::DroppedQueue, 1);
        }
    }
}
