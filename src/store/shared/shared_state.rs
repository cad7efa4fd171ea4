//! The shared state, as the other modules see it.

use super::{
    config::StateConfig,
    engine_health::EngineHealth,
    lease_exchange::{LeaseBatch, LeaseReply},
    log_engine::{LogAppend, LogPage},
    postgres::PostgresEngine,
    redis::RedisEngine,
    state_engine::{HeartbeatReply, StateEngine, StateResult},
    state_error::StateError,
    token_exchange::{TokenBatch, TokenReply},
    value_engine::{NewValue, Redemption, RedemptionAttempt, ValueChanges, ValueKey},
    value_kind::ValueKind,
};
use crate::{
    telemetry::{Metrics, StoreKind},
    values::{Backoff, jittered},
};
use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU32, Ordering::Relaxed},
    },
    time::{Duration, Instant, SystemTime},
};
use tokio::{task::JoinSet, time::timeout};

/// Time between two heartbeats.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);
/// How long a gateway counts as alive after a heartbeat.
const HEARTBEAT_LIFETIME: Duration = Duration::from_secs(5);
/// How long slots are leased after an exchange, by the clock of the server.
const LEASE_LIFETIME: Duration = Duration::from_secs(5);
/// Deadline of a heartbeat, which includes connecting.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(1);
/// Deadline of a trip for small values; the documentation of their methods states it.
const VALUE_TIMEOUT: Duration = Duration::from_millis(500);
/// Deadline of a trip for logs; the documentation of their methods states it.
const LOG_TIMEOUT: Duration = Duration::from_millis(500);
/// Delays between heartbeats while the server does not answer; each is varied by a half.
const MIN_PROBE_DELAY: Duration = Duration::from_millis(100);
const MAX_PROBE_DELAY: Duration = Duration::from_secs(2);

/// State that this gateway shares with others. It lives from the start of the process to its end.
pub struct SharedState {
    inner: Arc<StateConnection>,
    /// The heartbeat. It ends with the state.
    _heartbeat: JoinSet<()>,
}

/// The server, and what is known about it.
struct StateConnection {
    engine: Box<dyn StateEngine>,
    gateway: Box<str>,
    limit_timeout: Duration,
    health: EngineHealth,
    gateways: AtomicU32,
    /// The clock of the server minus the clock of this machine, in microseconds.
    clock_offset: AtomicI64,
    metrics: Arc<Metrics>,
}

impl fmt::Debug for SharedState {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("SharedState").field("engine", &self.inner.engine).finish_non_exhaustive()
    }
}

impl SharedState {
    /// Opens the state of a checked configuration, and waits briefly for the server. A server that does not answer fails
    /// nothing: the heartbeat goes on. Requires a tokio runtime.
    ///
    /// # Errors
    /// A value of the configuration is unusable.
    pub async fn open(config: &StateConfig, metrics: &Arc<Metrics>) -> Result<Arc<Self>, String> {
        let engine: Box<dyn StateEngine> = match (&config.redis, &config.database) {
            (Some(redis), _) => Box::new(RedisEngine::new(redis.clone())),
            (None, Some(database)) => {
                let authorities = config.database_ca.as_ref().map(|path| path.to_path_buf());
                Box::new(PostgresEngine::new(database.clone(), authorities)?)
            }
            (None, None) => return Err("redis: required, unless there is a database".to_owned()),
        };
        Ok(Self::with_engine(engine, config.timeout.get(), metrics).await)
    }

    /// Opens the state of an engine, as [`SharedState::open`] does.
    pub(super) async fn with_engine(
        engine: Box<dyn StateEngine>,
        limit_timeout: Duration,
        metrics: &Arc<Metrics>,
    ) -> Arc<Self> {
        let inner = Arc::new(StateConnection {
            engine,
            gateway: uuid::Uuid::new_v4().simple().to_string().into(),
            limit_timeout,
            health: EngineHealth::default(),
            gateways: AtomicU32::new(1),
            clock_offset: AtomicI64::new(0),
            metrics: Arc::clone(metrics),
        });
        inner.beat().await;
        let mut heartbeat = JoinSet::new();
        heartbeat.spawn(keep_beating(Arc::clone(&inner)));
        Arc::new(Self { inner, _heartbeat: heartbeat })
    }

    /// Returns the id of this process among the gateways.
    pub fn gateway_id(&self) -> &str {
        &self.inner.gateway
    }

    /// Returns how many gateways were alive at the last heartbeat, this one included; at least 1.
    pub fn gateway_count(&self) -> u32 {
        self.inner.gateways.load(Relaxed).max(1)
    }

    /// Returns whether the server answers, as far as is known.
    pub fn is_available(&self) -> bool {
        !self.inner.health.is_open()
    }

    /// Returns why the server is not available.
    pub fn last_error(&self) -> Option<String> {
        self.inner.health.last_error()
    }

    /// Returns how long a call waits for its limits.
    pub fn limit_timeout(&self) -> Duration {
        self.inner.limit_timeout
    }

    /// Returns the time of the server's clock since the Unix epoch, as known from the last heartbeat.
    pub fn server_time(&self) -> Duration {
        let own = i64::try_from(unix_time().as_micros()).unwrap_or(i64::MAX);
        let server = own.saturating_add(self.inner.clock_offset.load(Relaxed));
        Duration::from_micros(u64::try_from(server).unwrap_or_default())
    }

    /// Returns the number of shards; at least 1.
    pub fn shards(&self) -> u8 {
        self.inner.engine.shards().max(1)
    }

    /// Returns the shard of a key.
    pub fn shard_of(&self, key: u64) -> u8 {
        u8::try_from(key % u64::from(self.inner.engine.shards())).unwrap_or_default()
    }

    /// Exchanges tokens in one trip of at most `deadline`.
    ///
    /// # Errors
    /// Why there is no reply; the batches may have been applied.
    pub async fn exchange_tokens(
        &self,
        batches: &[TokenBatch],
        deadline: Duration,
    ) -> Result<Vec<Vec<TokenReply>>, StateError> {
        let connection = &self.inner;
        let trip = connection.engine.exchange_tokens(&connection.gateway, batches);
        connection.guard(StoreKind::Limits, deadline, trip).await
    }

    /// Returns the engine, for a trip that [`SharedState::guard`] makes.
    pub(super) fn engine(&self) -> &dyn StateEngine {
        &*self.inner.engine
    }

    /// Makes a trip within `deadline`, unless the breaker is open, and records what became of it.
    pub(super) async fn guard<T>(
        &self,
        kind: StoreKind,
        deadline: Duration,
        trip: impl Future<Output = StateResult<T>>,
    ) -> StateResult<T> {
        self.inner.guard(kind, deadline, trip).await
    }

    /// Returns how long slots are leased after an exchange, by the clock of the server.
    pub fn lease_lifetime(&self) -> Duration {
        LEASE_LIFETIME
    }

    /// Exchanges slots of agents in one trip of at most [`SharedState::limit_timeout`].
    ///
    /// # Errors
    /// Why there is no reply; the batches may have been applied.
    pub async fn exchange_leases(&self, batches: &[LeaseBatch]) -> Result<Vec<Vec<LeaseReply>>, StateError> {
        let connection = &self.inner;
        let trip = connection.engine.exchange_leases(&connection.gateway, LEASE_LIFETIME, batches);
        connection.guard(StoreKind::Limits, connection.limit_timeout, trip).await
    }

    /// Ends the heartbeat of this gateway, so that the others count without it.
    pub async fn leave(&self) {
        if self.is_available() {
            // Without it, the heartbeat ends after its lifetime.
            let _ = timeout(HEARTBEAT_TIMEOUT, self.inner.engine.leave(&self.inner.gateway)).await;
        }
    }
}

/// Append-only logs.
impl SharedState {
    /// Appends to logs independently of each other, in one trip of at most 500 ms.
    ///
    /// # Errors
    /// Why there is no reply; some of the entries may have been appended.
    pub async fn append_to_logs(&self, appends: &[LogAppend]) -> Result<(), StateError> {
        let connection = &self.inner;
        let trip = connection.engine.append_to_logs(appends);
        connection.guard(StoreKind::SharedState, LOG_TIMEOUT, trip).await
    }

    /// Reads entries of a log from an index, of about `max_bytes`, in one trip of at most 500 ms; `None` if there
    /// is no such log.
    ///
    /// # Errors
    /// Why there is no reply.
    pub async fn read_log(&self, log: u128, from: u64, max_bytes: u32) -> Result<Option<LogPage>, StateError> {
        let connection = &self.inner;
        let trip = connection.engine.read_log(log, from, max_bytes);
        connection.guard(StoreKind::SharedState, LOG_TIMEOUT, trip).await
    }

    /// Returns whether a gateway has sent a heartbeat in the last seconds, in one trip of at most 500 ms.
    ///
    /// # Errors
    /// Why there is no reply.
    pub async fn check_gateway(&self, gateway: &str) -> Result<bool, StateError> {
        let connection = &self.inner;
        let trip = connection.engine.check_gateway(gateway);
        connection.guard(StoreKind::SharedState, LOG_TIMEOUT, trip).await
    }
}

/// Small values with a lifetime.
impl SharedState {
    /// Stores values of a kind, at most [`MAX_VALUES_PER_TRIP`](super::MAX_VALUES_PER_TRIP), in one trip of at most
    /// 500 ms. Returns for each whether it is stored: a kind that is full may refuse it.
    ///
    /// # Errors
    /// Why there is no reply; the values may be stored.
    pub async fn put_values(&self, kind: ValueKind, values: &[NewValue]) -> Result<Vec<bool>, StateError> {
        let connection = &self.inner;
        let trip = connection.engine.put_values(kind, values);
        connection.guard(StoreKind::SharedState, VALUE_TIMEOUT, trip).await
    }

    /// Returns a value, in one trip of at most 500 ms.
    ///
    /// # Errors
    /// Why there is no reply.
    pub async fn get_value(&self, kind: ValueKind, key: &ValueKey) -> Result<Option<Vec<u8>>, StateError> {
        let connection = &self.inner;
        let trip = connection.engine.get_value(kind, key);
        connection.guard(StoreKind::SharedState, VALUE_TIMEOUT, trip).await
    }

    /// Takes a value if it is equal to what is presented, in one trip of at most 500 ms.
    ///
    /// # Errors
    /// Why there is no reply; the attempt may count, and the value may be taken.
    pub async fn redeem_value(
        &self,
        kind: ValueKind,
        key: &ValueKey,
        attempt: RedemptionAttempt<'_>,
    ) -> Result<Redemption, StateError> {
        let connection = &self.inner;
        let trip = connection.engine.redeem_value(kind, key, attempt);
        connection.guard(StoreKind::SharedState, VALUE_TIMEOUT, trip).await
    }

    /// Returns at most `limit` values that were stored after a position, in one trip of at most 500 ms.
    ///
    /// # Errors
    /// Why there is no reply.
    pub async fn changed_values(&self, kind: ValueKind, after: u64, limit: u32) -> Result<ValueChanges, StateError> {
        let connection = &self.inner;
        let trip = connection.engine.changed_values(kind, after, limit);
        connection.guard(StoreKind::SharedState, VALUE_TIMEOUT, trip).await
    }
}

impl StateConnection {
    /// Makes a trip within `deadline`, unless the breaker is open, and records what became of it.
    async fn guard<T>(
        &self,
        kind: StoreKind,
        deadline: Duration,
        trip: impl Future<Output = StateResult<T>>,
    ) -> StateResult<T> {
        if self.health.is_open() {
            return Err(StateError::Unavailable);
        }
        let started = Instant::now();
        let result = timeout(deadline, trip).await.unwrap_or(Err(StateError::Timeout));
        self.metrics.stores().record_operation(kind, started.elapsed(), result.is_ok());
        match &result {
            // A server that refuses the content of one request is not down.
            Ok(_) | Err(StateError::Refused(_)) => self.health.record_success(),
            Err(why) => self.health.record_failure(&why.to_string(), *why == StateError::Unavailable),
        }
        result
    }

    /// Sends a heartbeat, and returns whether the server answered.
    async fn beat(&self) -> bool {
        let (started, openings) = (Instant::now(), self.health.openings());
        let trip = self.engine.heartbeat(&self.gateway, HEARTBEAT_LIFETIME);
        let result = timeout(HEARTBEAT_TIMEOUT, trip).await.unwrap_or(Err(StateError::Timeout));
        let elapsed = started.elapsed();
        self.metrics.stores().record_operation(StoreKind::SharedState, elapsed, result.is_ok());
        match result {
            Ok(HeartbeatReply { gateways, server_time }) => {
                self.gateways.store(gateways.max(1), Relaxed);
                self.metrics.stores().set_gateways(gateways.max(1));
                let micros = |time: Duration| i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
                // The server read its clock in the middle of the trip, as far as is known.
                let own = unix_time().saturating_sub(elapsed / 2);
                self.clock_offset.store(micros(server_time).saturating_sub(micros(own)), Relaxed);
                self.health.close(openings);
                true
            }
            Err(why) => {
                if why == StateError::Timeout {
                    self.engine.reset_connection();
                }
                self.health.record_failure(&why.to_string(), true);
                false
            }
        }
    }
}

/// Sends heartbeats; after a failure with growing delays, which differ between gateways.
async fn keep_beating(connection: Arc<StateConnection>) {
    let mut backoff = Backoff::new(MIN_PROBE_DELAY, MAX_PROBE_DELAY);
    loop {
        if connection.health.is_open() {
            tokio::time::sleep(jittered(backoff.next_delay(), 0.5)).await;
        } else {
            // A trip that opens the breaker ends the wait, so that the server is probed soon.
            let _ = timeout(HEARTBEAT_INTERVAL, connection.health.wait_until_opened()).await;
            connection.engine.refresh_secrets().await;
        }
        if connection.beat().await {
            backoff.reset();
        }
    }
}

fn unix_time() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}
