//! The shared state, as the other modules see it.

use super::{
    config::StateConfig,
    lease_exchange::{LeaseBatch, LeaseReply},
    log_engine::{LogAppend, LogPage},
    postgres::PostgresEngine,
    redis::RedisEngine,
    state_connection::{HEARTBEAT_TIMEOUT, StateConnection, keep_beating, keep_probing, keep_refreshing},
    state_engine::{StateEngine, StateResult},
    state_error::StateError,
    token_exchange::{TokenBatch, TokenReply},
    trip_kind::{TripKind, TripScope},
    value_engine::{NewValue, Redemption, RedemptionAttempt, ValueChanges, ValueKey},
    value_kind::ValueKind,
};
use crate::telemetry::Metrics;
use std::{fmt, sync::Arc, time::Duration};
use tokio::{task::JoinSet, time::timeout};

/// How long slots are leased after an exchange, by the clock of the server.
const LEASE_LIFETIME: Duration = Duration::from_secs(5);
/// Deadline of a trip for small values; the documentation of their methods states it.
const VALUE_TIMEOUT: Duration = Duration::from_millis(500);
/// Deadline of a trip for logs; the documentation of their methods states it.
const LOG_TIMEOUT: Duration = Duration::from_millis(500);
/// State that this gateway shares with others. It lives from the start of the process to its end.
pub struct SharedState {
    inner: Arc<StateConnection>,
    /// The heartbeat, the probes and the refresh. They end with the state.
    _upkeep: JoinSet<()>,
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
        let inner = Arc::new(StateConnection::new(engine, limit_timeout, metrics));
        inner.beat().await;
        let mut upkeep = JoinSet::new();
        upkeep.spawn(keep_beating(Arc::clone(&inner)));
        upkeep.spawn(keep_refreshing(Arc::clone(&inner)));
        for kind in TripKind::ALL {
            upkeep.spawn(keep_probing(Arc::clone(&inner), kind));
        }
        Arc::new(Self { inner, _upkeep: upkeep })
    }

    /// Returns the id of this process among the gateways.
    pub fn gateway_id(&self) -> &str {
        &self.inner.gateway
    }

    /// Returns how many gateways were alive at the last heartbeats, this one included; at least 1.
    pub fn gateway_count(&self) -> u32 {
        self.inner.gateways.get()
    }

    /// Returns whether the server answers trips for small values and logs, as far as is known.
    pub fn is_available(&self) -> bool {
        self.is_available_for(TripKind::Values)
    }

    /// Returns whether the server answers trips of a kind in time, as far as is known.
    pub fn is_available_for(&self, kind: TripKind) -> bool {
        self.inner.health.is_available(kind)
    }

    /// Returns why the server does not answer.
    pub fn last_error(&self) -> Option<String> {
        self.inner.health.server_error()
    }

    /// Returns how long a call waits for its limits.
    pub fn limit_timeout(&self) -> Duration {
        self.inner.limit_timeout
    }

    /// Returns the time of the server's clock since the Unix epoch, as known from the last heartbeat.
    pub fn server_time(&self) -> Duration {
        self.inner.server_time()
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
        connection.guard(TripKind::Tokens.into(), deadline, trip).await
    }

    /// Returns the engine, for a trip that [`SharedState::guard`] makes.
    pub(super) fn engine(&self) -> &dyn StateEngine {
        &*self.inner.engine
    }

    /// Makes a trip within `deadline`, unless its breaker is open, and records what became of it.
    pub(super) async fn guard<T>(
        &self,
        scope: TripScope,
        deadline: Duration,
        trip: impl Future<Output = StateResult<T>>,
    ) -> StateResult<T> {
        self.inner.guard(scope, deadline, trip).await
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
        connection.guard(TripKind::Leases.into(), connection.limit_timeout, trip).await
    }

    /// Ends the heartbeat of this gateway, so that the others count without it.
    pub async fn leave(&self) {
        if !self.inner.health.is_server_open() {
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
        connection.guard(TripKind::Values.into(), LOG_TIMEOUT, trip).await
    }

    /// Reads entries of a log from an index, of about `max_bytes`, in one trip of at most 500 ms; `None` if there
    /// is no such log.
    ///
    /// # Errors
    /// Why there is no reply.
    pub async fn read_log(&self, log: u128, from: u64, max_bytes: u32) -> Result<Option<LogPage>, StateError> {
        let connection = &self.inner;
        let trip = connection.engine.read_log(log, from, max_bytes);
        connection.guard(TripKind::Values.into(), LOG_TIMEOUT, trip).await
    }

    /// Returns whether a gateway has sent a heartbeat in the last seconds, in one trip of at most 500 ms.
    ///
    /// # Errors
    /// Why there is no reply.
    pub async fn check_gateway(&self, gateway: &str) -> Result<bool, StateError> {
        let connection = &self.inner;
        let trip = connection.engine.check_gateway(gateway);
        connection.guard(TripKind::Values.into(), LOG_TIMEOUT, trip).await
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
        connection.guard(TripKind::Values.into(), VALUE_TIMEOUT, trip).await
    }

    /// Returns a value, in one trip of at most 500 ms.
    ///
    /// # Errors
    /// Why there is no reply.
    pub async fn get_value(&self, kind: ValueKind, key: &ValueKey) -> Result<Option<Vec<u8>>, StateError> {
        let connection = &self.inner;
        let trip = connection.engine.get_value(kind, key);
        connection.guard(TripKind::Values.into(), VALUE_TIMEOUT, trip).await
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
        connection.guard(TripKind::Values.into(), VALUE_TIMEOUT, trip).await
    }

    /// Returns at most `limit` values that were stored after a position, in one trip of at most 500 ms.
    ///
    /// # Errors
    /// Why there is no reply.
    pub async fn changed_values(&self, kind: ValueKind, after: u64, limit: u32) -> Result<ValueChanges, StateError> {
        let connection = &self.inner;
        let trip = connection.engine.changed_values(kind, after, limit);
        connection.guard(TripKind::Values.into(), VALUE_TIMEOUT, trip).await
    }
}
