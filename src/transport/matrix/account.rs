//! One account on one homeserver, shared by all agents reached through it: requests within the homeserver's rate
//! limits, retried where that is safe, and the calls that await replies. `sync` receives the replies.

use super::{failure, room::Room, sync, waiting::Waiting};
use crate::{
    fault::Fault,
    net::{Api, ApiReply, Ask, Bounds},
    unit::{Size, Span},
};
use std::{
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep, timeout_at},
};

/// The maximum number of rooms of one account; their messages between two syncs stay within the bound of `sync`.
const MOST_ROOMS: usize = 200;

/// The maximum size of a response other than that of a sync.
const ANSWER: Size = Size::kib(8 << 10);

/// The timeout of one request, and the maximum number of attempts.
const REQUEST: Duration = Duration::from_secs(10);
const TRIES: u32 = 4;

/// The remaining time below which a call counts as timed out.
const MOMENT: Duration = Duration::from_millis(20);

/// How often one call waits for the homeserver's rate limit.
const WAITS: u32 = 50;

/// The state of the account's sync loop.
#[derive(Clone, Debug, Default)]
pub(super) struct Ear {
    /// Whether a sync has succeeded: replies from then on are received, if necessary after an outage.
    pub(super) open: bool,
    /// The fault of the last sync, if it failed.
    pub(super) fault: Option<Fault>,
    /// The number of syncs that have ended.
    pub(super) looks: u64,
}

/// An account on a homeserver.
#[derive(Debug)]
pub(super) struct Account {
    pub(super) api: Api,
    pub(super) waiting: Arc<Waiting>,
    pub(super) ear: watch::Sender<Ear>,
    /// Wakes the sync loop: a room was added, or a call waits for the first sync.
    pub(super) wake: Notify,
    rooms: Mutex<Vec<Weak<Room>>>,
    /// When the homeserver's rate limit ends.
    limited: Mutex<Option<Instant>>,
    listens: AtomicBool,
}

impl Account {
    pub(super) fn new(api: Api) -> Self {
        Self {
            api,
            waiting: Arc::default(),
            ear: watch::Sender::default(),
            wake: Notify::new(),
            rooms: Mutex::default(),
            limited: Mutex::default(),
            listens: AtomicBool::new(false),
        }
    }

    /// Starts the sync loop and waits until replies are received from now on.
    pub(super) async fn listen(self: &Arc<Self>, until: Instant) -> Result<(), Fault> {
        let mut ear = self.ear.subscribe();
        if !self.listens.swap(true, Ordering::AcqRel) {
            tokio::spawn(sync::follow(Arc::downgrade(self)));
        }
        let looks = {
            let ear = ear.borrow();
            if ear.open {
                return Ok(());
            }
            ear.looks
        };
        self.wake.notify_one();
        match timeout_at(until, ear.wait_for(|ear| ear.open || ear.looks > looks)).await {
            Ok(Ok(ear)) if ear.open => Ok(()),
            Ok(Ok(ear)) => Err(ear.fault.clone().unwrap_or_else(failure::too_late)),
            _ => Err(failure::too_late()),
        }
    }

    /// The rooms in which calls are made.
    pub(super) fn rooms(&self) -> Vec<Arc<Room>> {
        let mut rooms = self.rooms.lock().unwrap_or_else(PoisonError::into_inner);
        rooms.retain(|room| room.strong_count() > 0);
        rooms.iter().filter_map(Weak::upgrade).collect()
    }

    /// Adds `room` to the rooms whose messages are received.
    pub(super) fn attend(&self, room: &Arc<Room>) -> Result<(), Fault> {
        let mut rooms = self.rooms.lock().unwrap_or_else(PoisonError::into_inner);
        rooms.retain(|known| known.strong_count() > 0);
        if rooms.iter().any(|known| known.as_ptr() == Arc::as_ptr(room)) {
            return Ok(());
        }
        if rooms.len() >= MOST_ROOMS {
            let why = format!("one Matrix account serves at most {MOST_ROOMS} agents");
            return Err(failure::unavailable("The agent cannot be reached", why));
        }
        rooms.push(Arc::downgrade(room));
        self.wake.notify_one();
        Ok(())
    }

    /// Sends an idempotent request, and retries it while the response is a rate limit or a server error.
    pub(super) async fn ask(&self, ask: Ask<'_>, until: Instant) -> Result<ApiReply, Fault> {
        let (mut tries, mut waits) = (0, 0);
        loop {
            self.pace(until).await?;
            let left = until.saturating_duration_since(Instant::now()).min(REQUEST);
            if left.is_zero() {
                return Err(if waits > 0 { failure::busy(failure::SOON) } else { failure::too_late() });
            }
            let bounds = Bounds { size: ANSWER, time: Span::millis(left.as_millis().max(1) as u64) };
            let fault = match self.api.send(ask.clone(), bounds).await {
                Ok(reply) => match failure::limited(&reply) {
                    Some(wait) => {
                        self.limit(wait);
                        waits += 1;
                        if waits > WAITS {
                            return Err(failure::busy(wait));
                        }
                        continue;
                    }
                    None if reply.status < 500 => return Ok(reply),
                    None => failure::refused("a request", &reply),
                },
                Err(why) => failure::unreached(&why),
            };
            // The call's deadline ended the request, not the homeserver.
            if Instant::now() + MOMENT >= until {
                return Err(failure::too_late());
            }
            tries += 1;
            let pause = Duration::from_millis(100 << tries);
            if tries >= TRIES || Instant::now() + pause >= until {
                return Err(fault);
            }
            sleep(pause).await;
        }
    }

    /// Records the homeserver's rate limit, which applies to every call of the account.
    fn limit(&self, wait: Duration) {
        let until = Instant::now() + wait;
        let mut limited = self.limited.lock().unwrap_or_else(PoisonError::into_inner);
        *limited = Some(limited.map_or(until, |before| before.max(until)));
    }

    /// Waits while the homeserver limits the rate; fails where the limit lasts longer than the call may.
    async fn pace(&self, until: Instant) -> Result<(), Fault> {
        let limited = *self.limited.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        match limited.filter(|limited| *limited > now) {
            Some(limited) if limited >= until => Err(failure::busy(limited - now)),
            Some(limited) => {
                // The jitter keeps the delayed calls from resuming all at once.
                sleep(limited - now + jitter(Duration::from_millis(50))).await;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

/// Returns a random duration up to `most`.
pub(super) fn jitter(most: Duration) -> Duration {
    let share = uuid::Uuid::new_v4().as_u128() as u16;
    most.mul_f64(f64::from(share) / f64::from(u16::MAX))
}
