//! Poller: polls one feed repeatedly, at its interval, with backoff after failures, and earlier when the feed asks.
//! The poller owns the timers, a feed has none. A feed that panics is reported and polled again.

use super::{
    feed::{Feed, FeedPart, PollResult},
    ingest::{IngestOutcome, SourcePoll},
};
use foldhash::fast::RandomState;
use futures_util::FutureExt as _;
use std::{
    hash::BuildHasher,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::{mpsc, oneshot};

/// Delay before the next poll of a feed that is in the middle of a change.
const SOON_DELAY: Duration = Duration::from_millis(100);
/// A poll may take one part in so many of the time, unless the feed asks to be polled: of local files, whose reading
/// costs this machine CPU, and of remote sources, where a poll is mostly waiting.
const LOCAL_POLL_SHARE: u32 = 20;
const REMOTE_POLL_SHARE: u32 = 2;
/// Maximum duration of one poll with all its fetches.
const POLL_TIMEOUT: Duration = Duration::from_secs(600);
/// Maximum delay that failures cause.
const MAX_BACKOFF: Duration = Duration::from_secs(300);

/// A poll result that waits to be ingested.
pub(super) struct QueuedPoll {
    pub(super) poll: SourcePoll,
    pub(super) outcome: oneshot::Sender<IngestOutcome>,
}

/// Polls one feed.
pub(super) struct Poller {
    pub(super) source_index: usize,
    pub(super) name: Arc<str>,
    pub(super) feed: Box<dyn Feed>,
    pub(super) interval: Duration,
    /// Whether part names are prefixed with the name of the source.
    pub(super) prefix_parts: bool,
    pub(super) queue: mpsc::Sender<QueuedPoll>,
}

impl Poller {
    /// Polls until the receiver of poll results is dropped.
    pub(super) async fn run(mut self) {
        let (mut failed, mut last_error) = (0_u32, None);
        loop {
            let began = Instant::now();
            let change = self.poll_once().await;
            let looked = began.elapsed();
            let (soon, trouble) = (change.poll_soon, change.error.clone());
            if trouble.is_some() && trouble != last_error {
                tracing::warn!(source = %self.name, error = trouble.as_deref(), "poll failed: previous content stays");
            } else if last_error.is_some() && trouble.is_none() {
                tracing::info!(source = %self.name, "poll succeeded again");
            }
            last_error = trouble;
            let (answer, verdict) = oneshot::channel();
            let look = SourcePoll { source: self.source_index, result: change, stored_at: None };
            if self.queue.send(QueuedPoll { poll: look, outcome: answer }).await.is_err() {
                return;
            }
            let verdict = verdict.await.unwrap_or(IngestOutcome::Rejected);
            match verdict {
                IngestOutcome::Outdated => return,
                IngestOutcome::Accepted { .. } | IngestOutcome::Withheld => self.call_feed(|feed| feed.acknowledge()),
                IngestOutcome::Rejected => self.call_feed(|feed| feed.reset()),
                IngestOutcome::Failed => {}
            }
            failed = match verdict {
                IngestOutcome::Failed | IngestOutcome::Rejected => failed.saturating_add(1),
                _ => 0,
            };
            let again = self.call_feed(|feed| feed.requested_delay()).unwrap_or_default();
            let usual = if soon { SOON_DELAY.min(self.interval) } else { with_jitter(self.interval).max(again) };
            let wait = if failed > 0 { with_jitter(backoff_delay(self.interval, failed)).max(again) } else { usual };
            let share = if self.prefix_parts { REMOTE_POLL_SHARE } else { LOCAL_POLL_SHARE };
            self.wait_for_next_poll(wait.max(looked * share), began.elapsed()).await;
        }
    }

    /// Polls once. Never panics, and ends within a bounded time.
    async fn poll_once(&mut self) -> PollResult {
        let looked = AssertUnwindSafe(tokio::time::timeout(POLL_TIMEOUT, self.feed.poll())).catch_unwind().await;
        let why = match looked {
            Ok(Ok(mut change)) => {
                for part in
                    change.parts.iter_mut().filter(|part| self.prefix_parts && !part.name.starts_with(&*self.name))
                {
                    part.name = format!("{}: {}", self.name, part.name).into();
                }
                // The last update of a part counts, as if each had been reported separately.
                change.parts = deduplicate_parts(change.parts);
                return change;
            }
            Ok(Err(_)) => format!("the poll takes longer than {}s", POLL_TIMEOUT.as_secs()),
            Err(_) => "internal error: the poll panicked (a defect of the gateway)".to_owned(),
        };
        self.call_feed(|feed| feed.reset());
        PollResult::failed(why)
    }

    /// Waits for the next poll: for `wait`; or until the feed wakes up, and then for up to twice as long as `busy`.
    async fn wait_for_next_poll(&mut self, wait: Duration, busy: Duration) {
        let woken = AssertUnwindSafe(self.feed.wait_for_update()).catch_unwind();
        let woken = async {
            if woken.await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            // So that frequent changes leave time for calls.
            () = woken => tokio::time::sleep((busy * 2).min(wait)).await,
        }
    }

    /// Calls the feed, and ignores a panic.
    fn call_feed<T: Default>(&mut self, say: impl FnOnce(&mut dyn Feed) -> T) -> T {
        let feed = &mut *self.feed;
        catch_unwind(AssertUnwindSafe(|| say(feed))).unwrap_or_default()
    }
}

fn deduplicate_parts(parts: Vec<FeedPart>) -> Vec<FeedPart> {
    let mut seen = std::collections::HashSet::with_capacity(parts.len());
    let mut last: Vec<FeedPart> = parts.into_iter().rev().filter(|part| seen.insert(Arc::clone(&part.name))).collect();
    last.reverse();
    last
}

fn backoff_delay(poll: Duration, failed: u32) -> Duration {
    let factor = 1_u32 << failed.saturating_sub(1).min(16);
    poll.saturating_mul(factor).min(MAX_BACKOFF)
}

/// Varies the delay by ±10 %, so that gateways that start together do not poll together.
fn with_jitter(wait: Duration) -> Duration {
    let random = RandomState::default().hash_one(Instant::now().elapsed());
    let share = f64::from(u32::try_from(random % 2_001).unwrap_or_default()) / 10_000.0;
    wait.mul_f64(0.9 + share)
}
