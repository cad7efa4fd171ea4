//! Poller: polls one feed repeatedly, at its interval, with backoff after failures, and earlier when the feed asks.
//! The poller owns the timers, a feed has none. A feed that panics is reported and polled again.

use super::{
    feed::{Change, Feed, Part},
    intake::{Look, Verdict},
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
const SOON: Duration = Duration::from_millis(100);
/// A poll may take one part in so many of the time, unless the feed asks to be polled: of local files, whose reading
/// costs this machine CPU, and of remote sources, where a poll is mostly waiting.
const SHARE: u32 = 20;
const SHARE_AFAR: u32 = 2;
/// Maximum duration of one poll with all its fetches.
const LONGEST: Duration = Duration::from_secs(600);
/// Maximum delay that failures cause.
const BACKED_OFF: Duration = Duration::from_secs(300);

/// A poll result that waits to be ingested.
pub(super) struct Told {
    pub(super) look: Look,
    pub(super) answer: oneshot::Sender<Verdict>,
}

/// Polls one feed.
pub(super) struct Looker {
    pub(super) at: usize,
    pub(super) name: Arc<str>,
    pub(super) feed: Box<dyn Feed>,
    pub(super) poll: Duration,
    /// Whether part names are prefixed with the name of the source.
    pub(super) prefix: bool,
    pub(super) to: mpsc::Sender<Told>,
}

impl Looker {
    /// Polls until the receiver of poll results is dropped.
    pub(super) async fn run(mut self) {
        let (mut failed, mut told) = (0_u32, None);
        loop {
            let began = Instant::now();
            let change = self.look().await;
            let looked = began.elapsed();
            let (soon, trouble) = (change.soon, change.trouble.clone());
            if trouble.is_some() && trouble != told {
                tracing::warn!(source = %self.name, error = trouble.as_deref(), "poll failed: previous content stays");
            } else if told.is_some() && trouble.is_none() {
                tracing::info!(source = %self.name, "poll succeeded again");
            }
            told = trouble;
            let (answer, verdict) = oneshot::channel();
            let look = Look { source: self.at, change, remembered: None };
            if self.to.send(Told { look, answer }).await.is_err() {
                return;
            }
            let verdict = verdict.await.unwrap_or(Verdict::Refused);
            match verdict {
                Verdict::Late => return,
                Verdict::Taken { .. } | Verdict::Held => self.quietly(|feed| feed.taken()),
                Verdict::Refused => self.quietly(|feed| feed.forget()),
                Verdict::Failed => {}
            }
            failed = match verdict {
                Verdict::Failed | Verdict::Refused => failed.saturating_add(1),
                _ => 0,
            };
            let again = self.quietly(|feed| feed.again()).unwrap_or_default();
            let usual = if soon { SOON.min(self.poll) } else { jittered(self.poll).max(again) };
            let wait = if failed > 0 { jittered(backed_off(self.poll, failed)).max(again) } else { usual };
            let share = if self.prefix { SHARE_AFAR } else { SHARE };
            self.pause(wait.max(looked * share), began.elapsed()).await;
        }
    }

    /// Polls once. Never panics, and ends within a bounded time.
    async fn look(&mut self) -> Change {
        let looked = AssertUnwindSafe(tokio::time::timeout(LONGEST, self.feed.next())).catch_unwind().await;
        let why = match looked {
            Ok(Ok(mut change)) => {
                for part in change.parts.iter_mut().filter(|part| self.prefix && !part.name.starts_with(&*self.name)) {
                    part.name = format!("{}: {}", self.name, part.name).into();
                }
                // The last update of a part counts, as if each had been reported separately.
                change.parts = last_words(change.parts);
                return change;
            }
            Ok(Err(_)) => format!("the poll takes longer than {}s", LONGEST.as_secs()),
            Err(_) => "internal error: the poll panicked (a defect of the gateway)".to_owned(),
        };
        self.quietly(|feed| feed.forget());
        Change::failed(why)
    }

    /// Waits for the next poll: for `wait`; or until the feed wakes up, and then for up to twice as long as `busy`.
    async fn pause(&mut self, wait: Duration, busy: Duration) {
        let woken = AssertUnwindSafe(self.feed.wake()).catch_unwind();
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
    fn quietly<T: Default>(&mut self, say: impl FnOnce(&mut dyn Feed) -> T) -> T {
        let feed = &mut *self.feed;
        catch_unwind(AssertUnwindSafe(|| say(feed))).unwrap_or_default()
    }
}

fn last_words(parts: Vec<Part>) -> Vec<Part> {
    let mut seen = std::collections::HashSet::with_capacity(parts.len());
    let mut last: Vec<Part> = parts.into_iter().rev().filter(|part| seen.insert(Arc::clone(&part.name))).collect();
    last.reverse();
    last
}

fn backed_off(poll: Duration, failed: u32) -> Duration {
    let factor = 1_u32 << failed.saturating_sub(1).min(16);
    poll.saturating_mul(factor).min(BACKED_OFF)
}

/// Varies the delay by ±10 %, so that gateways that start together do not poll together.
fn jittered(wait: Duration) -> Duration {
    let random = RandomState::default().hash_one(Instant::now().elapsed());
    let share = f64::from(u32::try_from(random % 2_001).unwrap_or_default()) / 10_000.0;
    wait.mul_f64(0.9 + share)
}
