//! Poller: polls one feed repeatedly, at its interval, with backoff after failures, and earlier when the feed asks.
//! The poller owns the timers, a feed has none. A feed that panics is reported and polled again.

use super::{
    feed::{Feed, FeedPart, PartUpdate, PollResult},
    source_poll::{IngestOutcome, SourcePoll},
};
use crate::{
    telemetry::redact,
    values::{Backoff, jittered, redact_known_secrets},
};
use futures_util::FutureExt as _;
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::{Notify, mpsc, oneshot};

/// Delay before the next poll of a feed that is in the middle of a change.
const SOON_DELAY: Duration = Duration::from_millis(100);
/// Minimum delay after a poll of local files, as a multiple of the poll's duration, unless the feed asks to be polled:
/// reading files costs CPU.
const LOCAL_DELAY_FACTOR: u32 = 20;
/// The same for remote sources, where a poll is mostly waiting.
const REMOTE_DELAY_FACTOR: u32 = 2;
/// Maximum duration of one poll with all its fetches.
const POLL_TIMEOUT: Duration = Duration::from_secs(600);
/// How much every delay varies in either direction, as a share of it: gateways that start together do not poll together.
const POLL_JITTER: f64 = 0.1;

/// A poll result that waits to be ingested.
pub(super) struct QueuedPoll {
    pub(super) poll: SourcePoll,
    pub(super) outcome: oneshot::Sender<IngestOutcome>,
}

/// Why a wait for the next poll ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PollWait {
    Due,
    Refreshed,
}

/// Polls one feed.
pub(super) struct Poller {
    pub(super) source_index: usize,
    pub(super) name: Arc<str>,
    pub(super) feed: Box<dyn Feed>,
    pub(super) interval: Duration,
    /// Maximum delay that failures cause.
    pub(super) max_backoff: Duration,
    /// Ends the delay before the next poll.
    pub(super) refresh: Arc<Notify>,
    /// Whether part names are prefixed with the name of the source.
    pub(super) prefix_parts: bool,
    pub(super) queue: mpsc::Sender<QueuedPoll>,
}

impl Poller {
    /// Polls until the receiver of poll results is dropped.
    pub(super) async fn run(mut self) {
        let (mut backoff, mut last_error) = (Backoff::new(self.interval, self.max_backoff), None);
        loop {
            let began = Instant::now();
            let result = self.poll_once().await;
            let poll_duration = began.elapsed();
            let (poll_soon, error) = (result.poll_soon, result.error.clone());
            if error.is_some() && error != last_error {
                tracing::warn!(source = %self.name, error = error.as_deref(), "poll failed: previous content stays");
            } else if last_error.is_some() && error.is_none() {
                tracing::info!(source = %self.name, "poll succeeded again");
            }
            last_error = error;
            let (outcome_sender, outcome_receiver) = oneshot::channel();
            let poll = SourcePoll { source: self.source_index, result, stored_at: None };
            if self.queue.send(QueuedPoll { poll, outcome: outcome_sender }).await.is_err() {
                return;
            }
            let outcome = outcome_receiver.await.unwrap_or(IngestOutcome::Rejected);
            match outcome {
                IngestOutcome::Outdated => return,
                IngestOutcome::Accepted { .. } | IngestOutcome::Withheld => self.call_feed(|feed| feed.acknowledge()),
                IngestOutcome::Rejected => self.call_feed(|feed| feed.reset()),
                IngestOutcome::Failed => {}
            }
            let requested_delay = self.call_feed(|feed| feed.requested_delay()).unwrap_or_default();
            let delay = if matches!(outcome, IngestOutcome::Failed | IngestOutcome::Rejected) {
                jittered(backoff.next_delay(), POLL_JITTER).max(requested_delay)
            } else {
                backoff.reset();
                if poll_soon {
                    SOON_DELAY.min(self.interval)
                } else {
                    jittered(self.interval, POLL_JITTER).max(requested_delay)
                }
            };
            let delay_factor = if self.prefix_parts { REMOTE_DELAY_FACTOR } else { LOCAL_DELAY_FACTOR };
            let wait = self.wait_for_next_poll(delay.max(poll_duration * delay_factor), began.elapsed()).await;
            if wait == PollWait::Refreshed {
                backoff.reset();
                self.call_feed(|feed| feed.refresh());
            }
        }
    }

    /// Polls once. Never panics, and ends within a bounded time.
    async fn poll_once(&mut self) -> PollResult {
        let polled = AssertUnwindSafe(tokio::time::timeout(POLL_TIMEOUT, self.feed.poll())).catch_unwind().await;
        let why = match polled {
            Ok(Ok(mut result)) => {
                let names = result.parts.iter_mut().map(|part| &mut part.name).chain(&mut result.lists);
                for name in names.filter(|name| self.prefix_parts && !name.starts_with(&*self.name)) {
                    *name = format!("{}: {name}", self.name).into();
                }
                // The last update of a part counts, as if each had been reported separately.
                result.parts = deduplicate_parts(result.parts);
                if self.prefix_parts {
                    redact_texts(&mut result);
                }
                return result;
            }
            Ok(Err(_)) => format!("the poll takes longer than {}s", POLL_TIMEOUT.as_secs()),
            Err(_) => "internal error: the poll panicked (a defect of the gateway)".to_owned(),
        };
        self.call_feed(|feed| feed.reset());
        PollResult::failed(why)
    }

    /// Waits for the next poll: for `delay`; or until the feed has an update, and then for up to twice `elapsed`, the
    /// duration of the last poll and its ingestion; or until an operator wants a poll, which also counts if it was
    /// during the last one.
    async fn wait_for_next_poll(&mut self, delay: Duration, elapsed: Duration) -> PollWait {
        let update = AssertUnwindSafe(self.feed.wait_for_update()).catch_unwind();
        let update = async {
            if update.await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        let refresh = Arc::clone(&self.refresh);
        let due = async {
            tokio::select! {
                () = tokio::time::sleep(delay) => {}
                // Frequent changes leave time for calls.
                () = update => tokio::time::sleep((elapsed * 2).min(delay)).await,
            }
        };
        tokio::select! {
            () = due => PollWait::Due,
            () = refresh.notified() => PollWait::Refreshed,
        }
    }

    /// Calls the feed, and ignores a panic.
    fn call_feed<T: Default>(&mut self, call: impl FnOnce(&mut dyn Feed) -> T) -> T {
        let feed = &mut *self.feed;
        catch_unwind(AssertUnwindSafe(|| call(feed))).unwrap_or_default()
    }
}

/// Removes secrets from what logs and admin pages say about a remote source: its server may repeat the credential that the
/// gateway sent, and URLs may have signatures.
fn redact_texts(result: &mut PollResult) {
    let unreadable = result.parts.iter_mut().filter_map(|part| match &mut part.update {
        PartUpdate::Unreadable(why) => Some(why),
        _ => None,
    });
    for text in result.error.iter_mut().chain(&mut result.warnings).chain(unreadable) {
        *text = redact(&redact_known_secrets(text)).into_owned();
    }
}

fn deduplicate_parts(parts: Vec<FeedPart>) -> Vec<FeedPart> {
    let mut names = std::collections::HashSet::with_capacity(parts.len());
    let mut deduplicated: Vec<FeedPart> =
        parts.into_iter().rev().filter(|part| names.insert(Arc::clone(&part.name))).collect();
    deduplicated.reverse();
    deduplicated
}
