//! One account on one homeserver, shared by all agents reached through it: requests within the homeserver's rate
//! limits, retried where that is safe, and the calls that await replies. `sync` receives the replies.

use super::{agent_room::AgentRoom, error_mapping, pending_calls::PendingCalls, sync};
use crate::{
    fault::Fault,
    net::{ApiClient, ApiReply, ApiRequest, FetchLimits},
    values::{ByteSize, ConfigDuration, random_duration},
};
use parking_lot::Mutex;
use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep, timeout_at},
};

/// The maximum number of rooms of one account; their messages between two syncs stay within the bound of `sync`.
const MAX_ROOMS: usize = 200;

/// The maximum size of a response other than that of a sync.
const MAX_RESPONSE: ByteSize = ByteSize::from_kib(8 << 10);

/// The timeout of one request, and the maximum number of attempts.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_ATTEMPTS: u32 = 4;

/// The remaining time below which a call counts as timed out.
const DEADLINE_MARGIN: Duration = Duration::from_millis(20);

/// How often one call waits for the homeserver's rate limit.
const MAX_RATE_LIMIT_WAITS: u32 = 50;

/// The state of the account's sync loop.
#[derive(Clone, Debug, Default)]
pub(super) struct SyncState {
    /// Whether a sync has succeeded: replies from then on are received, if necessary after an outage.
    pub(super) receiving: bool,
    /// The fault of the last sync, if it failed.
    pub(super) fault: Option<Fault>,
    /// The number of syncs that have ended.
    pub(super) syncs: u64,
}

/// An account on a homeserver.
#[derive(Debug)]
pub(super) struct MatrixAccount {
    pub(super) api: ApiClient,
    pub(super) pending: Arc<PendingCalls>,
    pub(super) sync_state: watch::Sender<SyncState>,
    /// Wakes the sync loop: a room was added, or a call waits for the first sync.
    pub(super) wake_sync: Notify,
    rooms: Mutex<Vec<Weak<AgentRoom>>>,
    /// When the homeserver's rate limit ends.
    rate_limited_until: Mutex<Option<Instant>>,
    sync_started: AtomicBool,
}

impl MatrixAccount {
    pub(super) fn new(api: ApiClient) -> Self {
        Self {
            api,
            pending: Arc::default(),
            sync_state: watch::Sender::default(),
            wake_sync: Notify::new(),
            rooms: Mutex::default(),
            rate_limited_until: Mutex::default(),
            sync_started: AtomicBool::new(false),
        }
    }

    /// Starts the sync loop if necessary, and waits until it receives replies.
    pub(super) async fn ensure_receiving(self: &Arc<Self>, until: Instant) -> Result<(), Fault> {
        let mut state = self.sync_state.subscribe();
        if !self.sync_started.swap(true, Ordering::AcqRel) {
            tokio::spawn(sync::run_sync_loop(Arc::downgrade(self)));
        }
        let syncs = {
            let state = state.borrow();
            if state.receiving {
                return Ok(());
            }
            state.syncs
        };
        self.wake_sync.notify_one();
        match timeout_at(until, state.wait_for(|state| state.receiving || state.syncs > syncs)).await {
            Ok(Ok(state)) if state.receiving => Ok(()),
            Ok(Ok(state)) => Err(state.fault.clone().unwrap_or_else(error_mapping::timeout_fault)),
            _ => Err(error_mapping::timeout_fault()),
        }
    }

    /// The rooms in which calls are made.
    pub(super) fn rooms(&self) -> Vec<Arc<AgentRoom>> {
        let mut rooms = self.rooms.lock();
        rooms.retain(|room| room.strong_count() > 0);
        rooms.iter().filter_map(Weak::upgrade).collect()
    }

    /// Adds `room` to the rooms whose messages are received.
    pub(super) fn add_room(&self, room: &Arc<AgentRoom>) -> Result<(), Fault> {
        let mut rooms = self.rooms.lock();
        rooms.retain(|existing| existing.strong_count() > 0);
        if rooms.iter().any(|existing| existing.as_ptr() == Arc::as_ptr(room)) {
            return Ok(());
        }
        if rooms.len() >= MAX_ROOMS {
            let detail = format!("one Matrix account serves at most {MAX_ROOMS} agents");
            return Err(error_mapping::unavailable_fault("The agent cannot be reached", detail));
        }
        rooms.push(Arc::downgrade(room));
        self.wake_sync.notify_one();
        Ok(())
    }

    /// Sends an idempotent request, and retries it while the response is a rate limit or a server error.
    pub(super) async fn send_with_retry(&self, request: ApiRequest<'_>, until: Instant) -> Result<ApiReply, Fault> {
        let (mut attempts, mut rate_limit_waits) = (0, 0);
        loop {
            self.wait_for_rate_limit(until).await?;
            let remaining = until.saturating_duration_since(Instant::now()).min(REQUEST_TIMEOUT);
            if remaining.is_zero() {
                return Err(if rate_limit_waits > 0 {
                    error_mapping::rate_limited_fault(error_mapping::RETRY_SOON)
                } else {
                    error_mapping::timeout_fault()
                });
            }
            let limits = FetchLimits {
                size: MAX_RESPONSE,
                time: ConfigDuration::from_millis(remaining.as_millis().max(1) as u64),
            };
            let fault = match self.api.send(request.clone(), limits).await {
                Ok(reply) => match error_mapping::rate_limit_delay(&reply) {
                    Some(wait) => {
                        self.record_rate_limit(wait);
                        rate_limit_waits += 1;
                        if rate_limit_waits > MAX_RATE_LIMIT_WAITS {
                            return Err(error_mapping::rate_limited_fault(wait));
                        }
                        continue;
                    }
                    None if reply.status < 500 => return Ok(reply),
                    None => error_mapping::homeserver_fault("a request", &reply),
                },
                Err(error) => error_mapping::unreachable_fault(&error),
            };
            // The call's deadline ended the request, not the homeserver.
            if Instant::now() + DEADLINE_MARGIN >= until {
                return Err(error_mapping::timeout_fault());
            }
            attempts += 1;
            let pause = Duration::from_millis(100 << attempts);
            if attempts >= MAX_ATTEMPTS || Instant::now() + pause >= until {
                return Err(fault);
            }
            sleep(pause).await;
        }
    }

    /// Records the homeserver's rate limit, which applies to every call of the account.
    fn record_rate_limit(&self, wait: Duration) {
        let until = Instant::now() + wait;
        let mut rate_limited_until = self.rate_limited_until.lock();
        *rate_limited_until = Some(rate_limited_until.map_or(until, |current| current.max(until)));
    }

    /// Waits while the homeserver limits the rate; fails where the limit lasts longer than the call may.
    async fn wait_for_rate_limit(&self, until: Instant) -> Result<(), Fault> {
        let limited_until = *self.rate_limited_until.lock();
        let now = Instant::now();
        match limited_until.filter(|limited_until| *limited_until > now) {
            Some(limited_until) if limited_until >= until => {
                Err(error_mapping::rate_limited_fault(limited_until - now))
            }
            Some(limited_until) => {
                // The jitter keeps the delayed calls from resuming all at once.
                sleep(limited_until - now + random_duration(Duration::from_millis(50))).await;
                Ok(())
            }
            None => Ok(()),
        }
    }
}
