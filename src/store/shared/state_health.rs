//! Whether the server of the shared state answers, and for which kinds of trips it answers in time.

use super::{
    availability_log::AvailabilityLog,
    state_error::StateError,
    trip_breaker::TripBreaker,
    trip_kind::{TripKind, TripScope},
};
use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    time::Duration,
};
use tokio::sync::Notify;

/// The breakers. While that of the server is open, nothing but the heartbeat is sent. Each kind of trip has breakers of its
/// own, because a server that is too slow for the limits of a call may answer everything else in time.
#[derive(Debug)]
pub(super) struct StateHealth {
    server: TripBreaker,
    server_log: AvailabilityLog,
    server_opened: Notify,
    tokens: KindHealth,
    leases: KindHealth,
    keys: KindHealth,
    values: KindHealth,
}

/// The breakers of one kind of trip.
#[derive(Debug)]
struct KindHealth {
    /// One for each shard if each trip is about one shard; otherwise one.
    breakers: Box<[TripBreaker]>,
    log: AvailabilityLog,
    changed: Notify,
    /// Whether there was a trip of this kind.
    is_used: AtomicBool,
    /// The shortest deadline that was missed since the kind was available, in microseconds.
    missed_deadline: AtomicU64,
}

impl KindHealth {
    fn new(breakers: u8) -> Self {
        Self {
            breakers: (0..breakers).map(|_| TripBreaker::default()).collect(),
            log: AvailabilityLog::default(),
            changed: Notify::new(),
            is_used: AtomicBool::new(false),
            missed_deadline: AtomicU64::new(u64::MAX),
        }
    }

    fn breaker(&self, shard: u8) -> Option<&TripBreaker> {
        self.breakers.get(usize::from(shard)).or_else(|| self.breakers.first())
    }

    fn has_open_breaker(&self) -> bool {
        self.breakers.iter().any(TripBreaker::is_open)
    }
}

impl StateHealth {
    pub(super) fn new(shards: u8) -> Self {
        Self {
            server: TripBreaker::default(),
            server_log: AvailabilityLog::default(),
            server_opened: Notify::new(),
            tokens: KindHealth::new(1),
            leases: KindHealth::new(1),
            keys: KindHealth::new(shards.max(1)),
            values: KindHealth::new(1),
        }
    }

    const fn of(&self, kind: TripKind) -> &KindHealth {
        match kind {
            TripKind::Tokens => &self.tokens,
            TripKind::Leases => &self.leases,
            TripKind::Keys => &self.keys,
            TripKind::Values => &self.values,
        }
    }

    /// Returns whether the server does not answer at all.
    pub(super) fn is_server_open(&self) -> bool {
        self.server.is_open()
    }

    /// Returns whether no trip of this scope is sent.
    pub(super) fn is_open(&self, scope: TripScope) -> bool {
        self.server.is_open() || self.of(scope.kind).breaker(scope.shard).is_some_and(TripBreaker::is_open)
    }

    /// Returns whether trips of a kind are sent, to one shard at least.
    pub(super) fn is_available(&self, kind: TripKind) -> bool {
        !self.server.is_open() && !self.of(kind).breakers.iter().all(TripBreaker::is_open)
    }

    /// Returns whether there was a trip of a kind.
    pub(super) fn is_used(&self, kind: TripKind) -> bool {
        self.of(kind).is_used.load(Relaxed)
    }

    /// Records that a trip was answered in time.
    pub(super) fn record_success(&self, scope: TripScope) {
        let health = self.of(scope.kind);
        if !health.is_used.load(Relaxed) {
            health.is_used.store(true, Relaxed);
        }
        if let Some(breaker) = health.breaker(scope.shard) {
            breaker.record_success();
        }
    }

    /// Records that a trip failed, or had no answer within `deadline`. Returns whether the server is lost by that.
    pub(super) fn record_failure(&self, scope: TripScope, deadline: Duration, why: &StateError) -> bool {
        let health = self.of(scope.kind);
        health.is_used.store(true, Relaxed);
        if *why == StateError::Unavailable {
            return self.open_server(&why.to_string());
        }
        health.missed_deadline.fetch_min(u64::try_from(deadline.as_micros()).unwrap_or(u64::MAX), Relaxed);
        if health.breaker(scope.shard).is_some_and(|breaker| breaker.record_failure(&why.to_string())) {
            warn_of_kind(scope.kind, &why.to_string(), health.log.record_outage());
            health.changed.notify_one();
        }
        false
    }

    /// Records that there is no connection or that a heartbeat failed. Returns whether the server was available before.
    pub(super) fn open_server(&self, why: &str) -> bool {
        if !self.server.open(why) {
            self.warn_of_server(why, self.server_log.due_warning());
            return false;
        }
        self.warn_of_server(why, self.server_log.record_outage());
        self.server_opened.notify_one();
        true
    }

    fn warn_of_server(&self, why: &str, outages: Option<u32>) {
        if let Some(outages) = outages {
            tracing::warn!(
                error = why,
                outages,
                "the shared state is unavailable: limits are decided by limits.on_error, and calls with an \
                 Idempotency-Key are refused"
            );
        }
    }

    /// Returns how often the server was lost.
    pub(super) fn server_openings(&self) -> u32 {
        self.server.openings()
    }

    /// Records a successful heartbeat, which began after so many openings. A server that was lost may do everything again.
    /// Returns whether it was lost.
    pub(super) fn close_server(&self, openings_at_start: u32) -> bool {
        if !self.server.close(openings_at_start) {
            return false;
        }
        if self.server_log.record_recovery() {
            tracing::info!("the shared state is available again");
        }
        for kind in TripKind::ALL {
            let health = self.of(kind);
            for breaker in &health.breakers {
                breaker.close(breaker.openings());
            }
            self.record_recovery(kind);
        }
        true
    }

    /// Returns the shards whose breakers are open, with the number of their openings: those to probe.
    pub(super) fn open_shards(&self, kind: TripKind) -> Vec<OpenShard> {
        let numbered = (0..=u8::MAX).zip(&self.of(kind).breakers);
        let open = numbered.filter(|(_, breaker)| breaker.is_open());
        open.map(|(shard, breaker)| OpenShard { shard, openings: breaker.openings() }).collect()
    }

    /// Records a successful probe.
    pub(super) fn close_shard(&self, kind: TripKind, probed: OpenShard) {
        if let Some(breaker) = self.of(kind).breaker(probed.shard) {
            breaker.close(probed.openings);
        }
        self.record_recovery(kind);
    }

    /// Records a failed probe.
    pub(super) fn record_failed_probe(&self, kind: TripKind, why: &StateError) {
        warn_of_kind(kind, &why.to_string(), self.of(kind).log.due_warning());
    }

    fn record_recovery(&self, kind: TripKind) {
        let health = self.of(kind);
        if health.has_open_breaker() {
            return;
        }
        health.missed_deadline.store(u64::MAX, Relaxed);
        if health.log.record_recovery() {
            tracing::info!(store = kind.store().name(), "the shared state answers in time again");
        }
    }

    /// Returns the deadline of a probe: the shortest that was missed.
    pub(super) fn probe_deadline(&self, kind: TripKind) -> Duration {
        Duration::from_micros(self.of(kind).missed_deadline.load(Relaxed))
    }

    /// Returns why the server does not answer.
    pub(super) fn server_error(&self) -> Option<String> {
        self.server.last_error()
    }

    /// Resolves when the server was lost.
    pub(super) async fn wait_until_server_opened(&self) {
        self.server_opened.notified().await;
    }

    /// Resolves when a breaker of a kind is open and the server answers heartbeats.
    pub(super) async fn wait_until_open(&self, kind: TripKind) {
        let health = self.of(kind);
        while self.server.is_open() || !health.has_open_breaker() {
            health.changed.notified().await;
        }
    }
}

/// A shard to probe.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenShard {
    pub(super) shard: u8,
    openings: u32,
}

fn warn_of_kind(kind: TripKind, why: &str, outages: Option<u32>) {
    if let Some(outages) = outages {
        tracing::warn!(
            store = kind.store().name(),
            error = why,
            outages,
            "the shared state does not answer in time, or refuses a request: {}",
            kind.consequence()
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEADLINE: Duration = Duration::from_millis(20);

    fn miss(health: &StateHealth, scope: TripScope) {
        for _ in 0..3 {
            health.record_failure(scope, DEADLINE, &StateError::Timeout);
        }
    }

    #[test]
    fn a_kind_that_misses_its_deadline_leaves_the_others_available_and_is_closed_by_its_own_probe() {
        let health = StateHealth::new(1);
        miss(&health, TripKind::Tokens.into());
        assert!(health.is_open(TripKind::Tokens.into()) && !health.is_available(TripKind::Tokens));
        for kind in [TripKind::Leases, TripKind::Keys, TripKind::Values] {
            assert!(health.is_available(kind) && !health.is_open(kind.into()), "{kind:?}");
        }
        health.close_server(health.server_openings());
        assert!(!health.is_available(TripKind::Tokens), "a heartbeat has a longer deadline");
        assert_eq!(health.probe_deadline(TripKind::Tokens), DEADLINE);
        for shard in health.open_shards(TripKind::Tokens) {
            health.close_shard(TripKind::Tokens, shard);
        }
        assert!(health.is_available(TripKind::Tokens));
    }

    #[test]
    fn keys_of_one_shard_may_fail_while_those_of_others_are_claimed() {
        let health = StateHealth::new(64);
        miss(&health, TripKind::Keys.of_shard(7));
        assert!(health.is_open(TripKind::Keys.of_shard(7)) && !health.is_open(TripKind::Keys.of_shard(8)));
        assert!(health.is_available(TripKind::Keys));
        assert_eq!(health.open_shards(TripKind::Keys).iter().map(|open| open.shard).collect::<Vec<_>>(), [7]);
    }

    #[test]
    fn a_server_that_is_lost_is_lost_for_every_kind_until_a_heartbeat_reaches_it() {
        let health = StateHealth::new(1);
        miss(&health, TripKind::Keys.into());
        assert!(health.record_failure(TripKind::Tokens.into(), DEADLINE, &StateError::Unavailable));
        assert!(TripKind::ALL.iter().all(|kind| !health.is_available(*kind)));
        health.close_server(health.server_openings());
        assert!(TripKind::ALL.iter().all(|kind| health.is_available(*kind)));
    }
}
