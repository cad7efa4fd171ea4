//! One account on one homeserver, shared by every agent that is reached through it: requests within the homeserver's
//! limits, repeated where that is safe, and the calls that wait. Listening is `sync`'s.

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

/// Rooms in which calls were made at once. What they can say between two looks stays within `sync`'s bound.
const MOST_ROOMS: usize = 200;

/// The longest answer to a request that is no sync.
const ANSWER: Size = Size::kib(8 << 10);

/// How long one request may take, and how often it is made.
const REQUEST: Duration = Duration::from_secs(10);
const TRIES: u32 = 4;

/// What is left of a call's time when it is as good as over.
const MOMENT: Duration = Duration::from_millis(20);

/// How often a homeserver that limits the rate is asked again for one call.
const WAITS: u32 = 50;

/// How the account listens.
#[derive(Clone, Debug, Default)]
pub(super) struct Ear {
    /// Whether it has listened: whatever is said from then on is heard, now or when the homeserver is back.
    pub(super) open: bool,
    /// Why the last look failed, if it did.
    pub(super) fault: Option<Fault>,
    /// Looks that have ended.
    pub(super) looks: u64,
}

/// An account.
#[derive(Debug)]
pub(super) struct Account {
    pub(super) api: Api,
    pub(super) waiting: Arc<Waiting>,
    pub(super) ear: watch::Sender<Ear>,
    /// A room was added, or a call waits for the account to listen.
    pub(super) wake: Notify,
    rooms: Mutex<Vec<Weak<Room>>>,
    /// Until when the homeserver takes nothing more.
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

    /// Waits until whatever is said from now on will be heard.
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

    /// Listens in `room`, too.
    pub(super) fn attend(&self, room: &Arc<Room>) -> Result<(), Fault> {
        let mut rooms = self.rooms.lock().unwrap_or_else(PoisonError::into_inner);
        rooms.retain(|known| known.strong_count() > 0);
        if rooms.iter().any(|known| known.as_ptr() == Arc::as_ptr(room)) {
            return Ok(());
        }
        if rooms.len() >= MOST_ROOMS {
            let why = format!("one Matrix account serves at most {MOST_ROOMS} agents");
            return Err(failure::unavailable("The agent cannot be reached.", why));
        }
        rooms.push(Arc::downgrade(room));
        self.wake.notify_one();
        Ok(())
    }

    /// Sends a request that may be repeated, until it is answered with anything but a limit or a failure.
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
            // What ran out was the call's time, and not the homeserver's.
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

    /// What the homeserver says of its limit holds for every call of the account.
    fn limit(&self, wait: Duration) {
        let until = Instant::now() + wait;
        let mut limited = self.limited.lock().unwrap_or_else(PoisonError::into_inner);
        *limited = Some(limited.map_or(until, |before| before.max(until)));
    }

    /// Waits while the homeserver takes nothing; refuses where that lasts longer than the call may.
    async fn pace(&self, until: Instant) -> Result<(), Fault> {
        let limited = *self.limited.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        match limited.filter(|limited| *limited > now) {
            Some(limited) if limited >= until => Err(failure::busy(limited - now)),
            Some(limited) => {
                // Calls that were held back together do not all come at once.
                sleep(limited - now + jitter(Duration::from_millis(50))).await;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

/// Anything from nothing to `most`.
pub(super) fn jitter(most: Duration) -> Duration {
    let share = uuid::Uuid::new_v4().as_u128() as u16;
    most.mul_f64(f64::from(share) / f64::from(u16::MAX))
}
