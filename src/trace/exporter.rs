//! The exporter: takes spans from the queue, batches them by number and time, and sends them. A batch that cannot be sent
//! is tried again a few times and then dropped; meanwhile the queue fills and drops. Nothing waits for the exporter.

use super::{
    config::TracingConfig,
    otlp_client::{ExportFailure, OtlpClient},
    otlp_encoding::SpanEncoder,
    span::Span,
};
use crate::{
    telemetry::{Metrics, SpanResult, redact},
    values::{Backoff, jittered},
};
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep, timeout_at},
};

/// The most spans in one request.
const MAX_BATCH: usize = 512;
/// How long spans accumulate before a request.
const BATCH_INTERVAL: Duration = Duration::from_secs(1);
/// How often a batch is sent at most.
const MAX_ATTEMPTS: u32 = 5;
/// The delays between the attempts; the receiver may ask for longer ones, up to a bound.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(500);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(10);
const MAX_RETRY_AFTER: Duration = Duration::from_secs(30);

/// Asks the exporter to send everything now; it answers when the queue is empty.
pub(super) type FlushRequest = oneshot::Sender<()>;

/// Sends spans to one receiver.
pub(super) struct Exporter {
    client: OtlpClient,
    encoder: SpanEncoder,
    metrics: Arc<Metrics>,
    is_failing: bool,
}

impl Exporter {
    pub(super) fn new(config: &TracingConfig, client: OtlpClient, metrics: Arc<Metrics>) -> Self {
        Self { client, encoder: SpanEncoder::new(config), metrics, is_failing: false }
    }

    /// Exports until every sender of the queue is gone.
    pub(super) async fn run(mut self, mut spans: mpsc::Receiver<Span>, mut requests: mpsc::Receiver<FlushRequest>) {
        let mut batch = Vec::with_capacity(MAX_BATCH);
        loop {
            let mut flush = tokio::select! {
                biased;
                Some(request) = requests.recv() => Some(request),
                received = spans.recv_many(&mut batch, MAX_BATCH) => match received {
                    0 => return,
                    _ => None,
                },
            };
            let full_at = Instant::now() + BATCH_INTERVAL;
            while flush.is_none() && batch.len() < MAX_BATCH {
                let free = MAX_BATCH - batch.len();
                tokio::select! {
                    biased;
                    Some(request) = requests.recv() => flush = Some(request),
                    received = timeout_at(full_at, spans.recv_many(&mut batch, free)) => {
                        if matches!(received, Err(_) | Ok(0)) {
                            break;
                        }
                    }
                }
            }
            self.export(std::mem::take(&mut batch), &mut flush, &mut requests).await;
            if let Some(request) = flush {
                self.drain(&mut spans, request).await;
            }
        }
    }

    /// Sends what is queued, each batch once.
    async fn drain(&mut self, spans: &mut mpsc::Receiver<Span>, request: FlushRequest) {
        loop {
            let batch: Vec<Span> = std::iter::from_fn(|| spans.try_recv().ok()).take(MAX_BATCH).collect();
            if batch.is_empty() {
                break;
            }
            let message = self.encoder.encode(&batch);
            let result = self.client.send(&message).await;
            if self.record(batch.len(), result).is_some() {
                self.metrics.record_spans(SpanResult::DroppedExport, batch.len() as u64);
            }
        }
        // Whoever asked may have given up.
        let _ = request.send(());
    }

    /// Sends a batch. A request to flush ends the pause before the next attempt, which is then the last.
    async fn export(
        &mut self,
        batch: Vec<Span>,
        flush: &mut Option<FlushRequest>,
        requests: &mut mpsc::Receiver<FlushRequest>,
    ) {
        if batch.is_empty() {
            return;
        }
        let (count, message) = (batch.len(), self.encoder.encode(&batch));
        drop(batch);
        let mut backoff = Backoff::new(MIN_RETRY_DELAY, MAX_RETRY_DELAY);
        for attempt in 1.. {
            let result = self.client.send(&message).await;
            let Some(failure) = self.record(count, result) else { return };
            let ExportFailure::Temporary { retry_after, .. } = failure else { break };
            if attempt >= MAX_ATTEMPTS || flush.is_some() {
                break;
            }
            let delay = jittered(backoff.next_delay(), 0.2).max(retry_after.unwrap_or_default().min(MAX_RETRY_AFTER));
            tokio::select! {
                () = sleep(delay) => {}
                Some(request) = requests.recv() => *flush = Some(request),
            }
        }
        self.metrics.record_spans(SpanResult::DroppedExport, count as u64);
    }

    /// Counts an export that succeeded; returns the failure of another one. Of failures in a row the first is logged.
    fn record(&mut self, count: usize, result: Result<u64, ExportFailure>) -> Option<ExportFailure> {
        match result {
            Ok(rejected) => {
                let rejected = rejected.min(count as u64);
                self.metrics.record_spans(SpanResult::Exported, count as u64 - rejected);
                self.metrics.record_spans(SpanResult::DroppedExport, rejected);
                if std::mem::take(&mut self.is_failing) {
                    tracing::info!("traces are exported again");
                }
                None
            }
            Err(failure) => {
                if !std::mem::replace(&mut self.is_failing, true) {
                    let why = failure.to_string();
                    tracing::warn!("traces cannot be exported: {} (check tracing.endpoint)", redact(&why));
                }
                Some(failure)
            }
        }
    }
}
