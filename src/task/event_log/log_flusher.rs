//! Appends the events of all tasks of this gateway to their logs: many of them in one trip.

use super::{event_log_writer::EventLogWriter, log_queue::LogQueue};
use crate::{
    store::SharedState,
    values::{Backoff, jittered},
};
use bytes::Bytes;
use std::{sync::Arc, time::Duration};
use tokio::time::sleep;

/// How long events wait for further events, to be appended in one trip.
const BATCH_DELAY: Duration = Duration::from_millis(20);
/// Maximum number of logs in one trip, maximum bytes of one of them, and of all together. Draws of limits share the
/// connection: a trip must not keep them waiting.
const MAX_LOGS: usize = 64;
const MAX_LOG_BYTES: usize = 128 << 10;
const MAX_BATCH_BYTES: usize = 256 << 10;
/// Delays between attempts while the shared state does not answer; each is varied by a half.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(100);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(1);

/// Appends the events of the logs in the queue, until it is dropped.
pub(super) async fn flush_logs(queue: Arc<LogQueue<EventLogWriter>>, shared_state: Arc<SharedState>) {
    let mut backoff = Backoff::new(MIN_RETRY_DELAY, MAX_RETRY_DELAY);
    loop {
        if queue.is_empty() {
            queue.wait_for_log().await;
            sleep(BATCH_DELAY).await;
        }
        if flush_batch(&queue, &shared_state).await {
            backoff.reset();
        } else {
            // Otherwise the logs of ended tasks would pile up during an outage.
            queue.retain(|log| !log.has_expired());
            sleep(jittered(backoff.next_delay(), 0.5)).await;
        }
    }
}

/// Appends a batch, and returns whether the shared state has confirmed it.
async fn flush_batch(queue: &LogQueue<EventLogWriter>, shared_state: &SharedState) -> bool {
    if !shared_state.is_available() {
        return false;
    }
    let (mut logs, mut appends, mut bytes) = (Vec::new(), Vec::new(), 0);
    while appends.len() < MAX_LOGS && bytes < MAX_BATCH_BYTES {
        let Some(log) = queue.take() else { break };
        if log.has_expired() {
            queue.record_done(1);
            continue;
        }
        let append = log.take_append(MAX_LOG_BYTES);
        bytes += append.entries.iter().map(Bytes::len).sum::<usize>();
        appends.push(append);
        logs.push(log);
    }
    if appends.is_empty() {
        return true;
    }
    let result = shared_state.append_to_logs(&appends).await;
    for (log, append) in logs.iter().zip(&appends) {
        match &result {
            Ok(()) => log.record_append(append),
            Err(_) => log.record_failure(),
        }
    }
    // After logs are in the queue again, so that the count is not 0 in between.
    queue.record_done(appends.len());
    result.is_ok()
}
