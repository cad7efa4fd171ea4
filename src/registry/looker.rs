//! Asks one feed, again and again: in its own time, later while it is in trouble, sooner when it says so itself.
//! The clocks are here, and nowhere in a feed; a feed that panics is told, and asked again.

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

/// How soon a feed that is in the middle of a change is asked again.
const SOON: Duration = Duration::from_millis(100);
/// A look may take one part in so many of the time, unless the feed itself asks for it: of files, whose reading is
/// this machine's work, and of others, where it is mostly waiting.
const SHARE: u32 = 20;
const SHARE_AFAR: u32 = 2;
/// One look, all its fetches together.
const LONGEST: Duration = Duration::from_secs(600);
/// The longest pause that trouble causes.
const BACKED_OFF: Duration = Duration::from_secs(300);

/// A look that waits to be taken in.
pub(super) struct Told {
    pub(super) look: Look,
    pub(super) answer: oneshot::Sender<Verdict>,
}

/// Whoever asks one feed.
pub(super) struct Looker {
    pub(super) at: usize,
    pub(super) name: Arc<str>,
    pub(super) feed: Box<dyn Feed>,
    pub(super) poll: Duration,
    /// Whether its parts are named after the source.
    pub(super) prefix: bool,
    pub(super) to: mpsc::Sender<Told>,
}

impl Looker {
    /// Looks until nobody hears it any more.
    pub(super) async fn run(mut self) {
        let (mut failed, mut told) = (0_u32, None);
        loop {
            let began = Instant::now();
            let change = self.look().await;
            let looked = began.elapsed();
            let (soon, trouble) = (change.soon, change.trouble.clone());
            if trouble.is_some() && trouble != told {
                tracing::warn!(feed = %self.name, why = trouble.as_deref(), "cannot be read; what it said before stays");
            } else if told.is_some() && trouble.is_none() {
                tracing::info!(feed = %self.name, "can be read again");
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

    /// One look, which never panics and always ends.
    async fn look(&mut self) -> Change {
        let looked = AssertUnwindSafe(tokio::time::timeout(LONGEST, self.feed.next())).catch_unwind().await;
        let why = match looked {
            Ok(Ok(mut change)) => {
                for part in change.parts.iter_mut().filter(|part| self.prefix && !part.name.starts_with(&*self.name)) {
                    part.name = format!("{}: {}", self.name, part.name).into();
                }
                // The last word on a part counts, as if each had been told by itself.
                change.parts = last_words(change.parts);
                return change;
            }
            Ok(Err(_)) => format!("a look takes longer than {}s", LONGEST.as_secs()),
            Err(_) => "looking failed in a way that is a defect of the gateway".to_owned(),
        };
        self.quietly(|feed| feed.forget());
        Change::failed(why)
    }

    /// Waits for the next look: `wait`, or until the feed wakes up, and then still as long as `busy` asks for.
    async fn pause(&mut self, wait: Duration, busy: Duration) {
        let woken = AssertUnwindSafe(self.feed.wake()).catch_unwind();
        let woken = async {
            if woken.await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            // So that a storm of changes leaves time for calls.
            () = woken => tokio::time::sleep((busy * 2).min(wait)).await,
        }
    }

    /// Says something to the feed, whatever it makes of it.
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

/// One part in ten more or less, so that gateways that were started together do not ask together.
fn jittered(wait: Duration) -> Duration {
    let random = RandomState::default().hash_one(Instant::now().elapsed());
    let share = f64::from(u32::try_from(random % 2_001).unwrap_or_default()) / 10_000.0;
    wait.mul_f64(0.9 + share)
}
