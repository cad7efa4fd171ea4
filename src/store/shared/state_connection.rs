//! The server of the shared state, and the tasks that keep this gateway connected to it: the heartbeat, the probes of kinds of
//! trips that fail, and the refresh of secrets.

use super::{
    gateway_count::GatewayCount,
    state_engine::{HeartbeatReply, StateEngine, StateResult},
    state_error::StateError,
    state_health::{OpenShard, StateHealth},
    token_exchange::TokenBatch,
    trip_kind::{TripKind, TripScope},
    value_kind::ValueKind,
};
use crate::{
    telemetry::{Metrics, StoreKind},
    values::{Backoff, jittered},
};
use futures_util::future::{join_all, select_ok};
use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    time::{Duration, Instant, SystemTime},
};
use tokio::time::{sleep, timeout};

/// Time between two heartbeats.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);
/// How long a gateway counts as alive after a heartbeat.
const HEARTBEAT_LIFETIME: Duration = Duration::from_secs(5);
/// Deadline of a heartbeat, which includes connecting.
pub(super) const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(1);
/// Delays between heartbeats or probes while they fail; each is varied by a half.
const MIN_PROBE_DELAY: Duration = Duration::from_millis(100);
const MAX_PROBE_DELAY: Duration = Duration::from_secs(2);
/// How long a kind of trip is available before the delays of its probes begin with the shortest again.
const STABLE_TIME: Duration = Duration::from_secs(10);
/// Time between two refreshes of the connection.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);
/// The key that probes look up. No hash is zero.
const PROBE_KEY: [u8; 32] = [0; 32];

/// The server, and what is known about it.
pub(super) struct StateConnection {
    pub(super) engine: Box<dyn StateEngine>,
    pub(super) gateway: Box<str>,
    pub(super) limit_timeout: Duration,
    pub(super) health: StateHealth,
    pub(super) gateways: GatewayCount,
    /// The clock of the server minus the clock of this machine, in microseconds.
    clock_offset: AtomicI64,
    metrics: Arc<Metrics>,
}

impl StateConnection {
    pub(super) fn new(engine: Box<dyn StateEngine>, limit_timeout: Duration, metrics: &Arc<Metrics>) -> Self {
        Self {
            health: StateHealth::new(engine.shards()),
            engine,
            gateway: uuid::Uuid::new_v4().simple().to_string().into(),
            limit_timeout,
            gateways: GatewayCount::new(),
            clock_offset: AtomicI64::new(0),
            metrics: Arc::clone(metrics),
        }
    }

    /// Returns the time of the server's clock since the Unix epoch, as known from the last heartbeat.
    pub(super) fn server_time(&self) -> Duration {
        let own = i64::try_from(unix_time().as_micros()).unwrap_or(i64::MAX);
        let server = own.saturating_add(self.clock_offset.load(Relaxed));
        Duration::from_micros(u64::try_from(server).unwrap_or_default())
    }

    /// Makes a trip within `deadline`, unless its breaker is open, and records what became of it.
    pub(super) async fn guard<T>(
        &self,
        scope: TripScope,
        deadline: Duration,
        trip: impl Future<Output = StateResult<T>>,
    ) -> StateResult<T> {
        if self.health.is_open(scope) {
            return Err(StateError::Unavailable);
        }
        let result = self.make_trip(scope.kind.store(), deadline, trip).await;
        match &result {
            // A server that refuses the content of one request is not down.
            Ok(_) | Err(StateError::Refused(_)) => self.health.record_success(scope),
            Err(why) => {
                if self.health.record_failure(scope, deadline, why) {
                    self.set_all_up(false);
                }
            }
        }
        result
    }

    async fn make_trip<T>(
        &self,
        store: StoreKind,
        deadline: Duration,
        trip: impl Future<Output = StateResult<T>>,
    ) -> StateResult<T> {
        let started = Instant::now();
        let result = timeout(deadline, trip).await.unwrap_or(Err(StateError::Timeout));
        self.metrics.stores().record_operation(store, started.elapsed(), result.is_ok());
        result
    }

    /// Shows each kind of trip as up or down with the server. A kind that was never used has no series.
    fn set_all_up(&self, is_up: bool) {
        for kind in TripKind::ALL.into_iter().filter(|kind| self.health.is_used(*kind)) {
            self.metrics.stores().set_up(kind.store(), is_up);
        }
    }

    /// Sends a heartbeat, and returns whether the server answered.
    pub(super) async fn beat(&self) -> bool {
        let (started, openings) = (Instant::now(), self.health.server_openings());
        let trip = self.engine.heartbeat(&self.gateway, HEARTBEAT_LIFETIME);
        match self.make_trip(StoreKind::SharedState, HEARTBEAT_TIMEOUT, trip).await {
            Ok(HeartbeatReply { gateways, server_time }) => {
                self.gateways.record(gateways, HEARTBEAT_LIFETIME);
                self.metrics.stores().set_gateways(self.gateways.get());
                let micros = |time: Duration| i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
                // The server read its clock in the middle of the trip, as far as is known.
                let own = unix_time().saturating_sub(started.elapsed() / 2);
                self.clock_offset.store(micros(server_time).saturating_sub(micros(own)), Relaxed);
                if self.health.close_server(openings) {
                    self.set_all_up(true);
                }
                true
            }
            Err(why) => {
                self.gateways.record_failure();
                // The node of the heartbeats may be the only one of a cluster that is gone.
                if !self.answers_elsewhere().await {
                    if why == StateError::Timeout {
                        self.engine.reset_connection();
                    }
                    if self.health.open_server(&why.to_string()) {
                        self.set_all_up(false);
                    }
                }
                false
            }
        }
    }

    /// Returns whether a shard of a cluster answers that is not the one of the heartbeats.
    async fn answers_elsewhere(&self) -> bool {
        let shards = 1..self.engine.shards();
        let lookups = shards.map(|shard| self.engine.look_up_key(shard, &PROBE_KEY, &PROBE_KEY));
        let lookups: Vec<_> = lookups.collect();
        !lookups.is_empty() && matches!(timeout(HEARTBEAT_TIMEOUT, select_ok(lookups)).await, Ok(Ok(_)))
    }

    /// Makes one trip of a kind for each breaker that is open, with the deadline that was missed, and closes those whose trip
    /// succeeds.
    async fn probe(&self, kind: TripKind) {
        let open = self.health.open_shards(kind);
        join_all(open.into_iter().map(|shard| self.probe_shard(kind, shard))).await;
    }

    async fn probe_shard(&self, kind: TripKind, shard: OpenShard) {
        let deadline = self.health.probe_deadline(kind);
        match self.make_trip(kind.store(), deadline, self.probe_trip(kind, shard.shard)).await {
            Ok(()) => self.health.close_shard(kind, shard),
            Err(why) => self.health.record_failed_probe(kind, &why),
        }
    }

    /// Makes a trip over the connection of a kind that changes nothing.
    async fn probe_trip(&self, kind: TripKind, shard: u8) -> StateResult<()> {
        match kind {
            TripKind::Tokens | TripKind::Leases => {
                // A batch of the number 0 is older than every other, so that the server does not apply it.
                let batch = |shard| TokenBatch { sequence: 0, confirmed: 0, shard, entries: Vec::new() };
                let batches: Vec<_> = (0..self.engine.shards()).map(batch).collect();
                self.engine.exchange_tokens(&self.gateway, &batches).await.map(drop)
            }
            TripKind::Keys => self.engine.look_up_key(shard, &PROBE_KEY, &PROBE_KEY).await.map(drop),
            TripKind::Values => self.engine.get_value(ValueKind::Revocation, &PROBE_KEY).await.map(drop),
        }
    }
}

/// Sends heartbeats; after a failure with growing delays, which differ between gateways.
pub(super) async fn keep_beating(connection: Arc<StateConnection>) {
    let mut backoff = Backoff::new(MIN_PROBE_DELAY, MAX_PROBE_DELAY);
    loop {
        if connection.health.is_server_open() {
            sleep(jittered(backoff.next_delay(), 0.5)).await;
        } else {
            // A trip without a connection ends the wait, so that the gateway connects soon.
            let _ = timeout(HEARTBEAT_INTERVAL, connection.health.wait_until_server_opened()).await;
        }
        if connection.beat().await {
            backoff.reset();
        }
    }
}

/// Probes a kind of trip while a breaker of it is open.
pub(super) async fn keep_probing(connection: Arc<StateConnection>, kind: TripKind) {
    let mut backoff = Backoff::new(MIN_PROBE_DELAY, MAX_PROBE_DELAY);
    loop {
        // Trips that fail again soon after a probe are probed less often.
        let waiting_since = Instant::now();
        connection.health.wait_until_open(kind).await;
        if waiting_since.elapsed() >= STABLE_TIME {
            backoff.reset();
        }
        sleep(jittered(backoff.next_delay(), 0.5)).await;
        connection.probe(kind).await;
    }
}

/// Looks for changed secrets and addresses. A task of its own, because no heartbeat waits for a file that does not answer.
pub(super) async fn keep_refreshing(connection: Arc<StateConnection>) {
    loop {
        sleep(REFRESH_INTERVAL).await;
        connection.engine.refresh_connection().await;
    }
}

fn unix_time() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}
