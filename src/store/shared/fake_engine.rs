//! A server of the shared state for unit tests, in memory. It holds idempotency keys without bounds, and logs, by the clock
//! of the runtime, and misbehaves as a test wants it.

use super::{
    fake_logs::FakeLogs,
    fake_tokens::FakeTokens,
    idempotency_engine::{
        ClaimRelease, ClaimReply, ClaimRequest, ExtensionReply, IdempotencyEngine, KeyClaim, KeyReply, KeyShard,
        OutcomeReply, OutcomeRequest, ShardReply, UpkeepReply, UpkeepRequest,
    },
    lease_engine::LeaseEngine,
    lease_exchange::{LeaseBatch, LeaseReply},
    log_engine::{LogAppend, LogEngine, LogPage},
    shared_state::SharedState,
    state_engine::{HeartbeatReply, StateEngine, StateResult},
    state_error::StateError,
    token_exchange::{TokenBatch, TokenReply},
    value_engine::{NewValue, Redemption, RedemptionAttempt, ValueChanges, ValueEngine, ValueKey},
    value_kind::ValueKind,
};
use crate::telemetry::Metrics;
use bytes::Bytes;
use parking_lot::Mutex;
use std::{collections::HashMap, sync::Arc, time::Duration};
use tokio::time::Instant;

/// What the server does with requests about keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FakeBehavior {
    /// Applies and answers them.
    Answers,
    /// Applies them, and never answers.
    LosesReplies,
    /// Applies claims after this time, and everything else at once.
    DelaysClaims(Duration),
    /// Refuses them.
    Fails,
}

#[derive(Clone, Debug)]
struct FakeKey {
    digest: [u8; 32],
    gateway: String,
    number: u64,
    outcome: Option<Bytes>,
    is_complete: bool,
    lease_ends_at: Instant,
}

#[derive(Debug)]
struct FakeData {
    behavior: FakeBehavior,
    epoch: u128,
    keys: HashMap<[u8; 32], FakeKey>,
    lookups: usize,
    claims: usize,
}

/// The server, which several gateways share.
#[derive(Debug)]
pub struct FakeServer {
    data: Mutex<FakeData>,
    logs: Mutex<FakeLogs>,
    tokens: Mutex<FakeTokens>,
    started: Instant,
}

impl FakeServer {
    /// Starts an empty server.
    pub fn start() -> Arc<Self> {
        let data = FakeData { behavior: FakeBehavior::Answers, epoch: 1, keys: HashMap::new(), lookups: 0, claims: 0 };
        Arc::new(Self {
            data: Mutex::new(data),
            logs: Mutex::default(),
            tokens: Mutex::default(),
            started: Instant::now(),
        })
    }

    /// Opens the state as one more gateway.
    pub async fn open(self: &Arc<Self>) -> Arc<SharedState> {
        let metrics = Metrics::new().unwrap();
        SharedState::with_engine(Box::new(FakeEngine(Arc::clone(self))), Duration::from_millis(20), &metrics).await
    }

    /// Changes what the server does from now on.
    pub fn behave(&self, behavior: FakeBehavior) {
        self.data.lock().behavior = behavior;
    }

    /// Returns the numbers of keys that are in progress and complete.
    pub fn key_counts(&self) -> (usize, usize) {
        let data = self.data.lock();
        let complete = data.keys.values().filter(|key| key.is_complete).count();
        (data.keys.len() - complete, complete)
    }

    /// Returns how often keys were claimed. Unlike a claim itself, which may be released at once, this stays.
    pub fn claims(&self) -> usize {
        self.data.lock().claims
    }

    /// Returns how often keys were looked up without being claimed.
    pub fn lookups(&self) -> usize {
        self.data.lock().lookups
    }

    /// Loses the keys, and not the epoch.
    pub fn lose_keys(&self) {
        self.data.lock().keys.clear();
    }

    /// Loses the logs, and what is known of gateways.
    pub fn lose_logs(&self) {
        *self.logs.lock() = FakeLogs::default();
    }

    /// Changes what is in the logs.
    pub fn with_logs<T>(&self, change: impl FnOnce(&mut FakeLogs) -> T) -> T {
        change(&mut self.logs.lock())
    }

    /// Changes the tokens of limits.
    pub fn with_tokens<T>(&self, change: impl FnOnce(&mut FakeTokens) -> T) -> T {
        change(&mut self.tokens.lock())
    }

    /// Returns the server's clock.
    pub fn now(&self) -> Duration {
        Duration::from_secs(1_800_000_000) + self.started.elapsed()
    }

    fn reply<T>(&self, value: T) -> ShardReply<T> {
        ShardReply { epoch: self.data.lock().epoch, lost_for: Duration::ZERO, value }
    }
}

/// One gateway's connection to the server.
#[derive(Debug)]
struct FakeEngine(Arc<FakeServer>);

impl FakeEngine {
    async fn answer<T>(&self, value: T) -> StateResult<T> {
        match self.0.data.lock().behavior {
            FakeBehavior::LosesReplies => {}
            FakeBehavior::Fails => return Err(StateError::Failed("the server refuses".to_owned())),
            FakeBehavior::Answers | FakeBehavior::DelaysClaims(_) => return Ok(value),
        }
        std::future::pending().await
    }

    fn is_failing(&self) -> bool {
        self.0.data.lock().behavior == FakeBehavior::Fails
    }

    fn claim(&self, gateway: &str, shard: KeyShard, request: &ClaimRequest) -> ClaimReply {
        let KeyClaim { key, digest, number, .. } = request.claim;
        let now = self.0.now();
        let mut data = self.0.data.lock();
        match data.keys.get(&key) {
            Some(stored) if stored.digest != digest => ClaimReply::DifferentRequest,
            Some(stored) if stored.is_complete => ClaimReply::Completed(stored.outcome.clone()),
            Some(stored) if stored.lease_ends_at <= Instant::now() => ClaimReply::Unknown,
            Some(stored) => ClaimReply::Running { own_number: (stored.gateway == gateway).then_some(stored.number) },
            None if now > request.not_after => ClaimReply::TooLate,
            None => {
                data.keys.insert(key, FakeKey::new(gateway, shard, &request.claim, number));
                data.claims += 1;
                ClaimReply::Claimed
            }
        }
    }
}

impl FakeKey {
    fn new(gateway: &str, shard: KeyShard, claim: &KeyClaim, number: u64) -> Self {
        Self {
            digest: claim.digest,
            gateway: gateway.to_owned(),
            number,
            outcome: None,
            is_complete: false,
            lease_ends_at: Instant::now() + shard.lease,
        }
    }

    fn belongs_to(&self, gateway: &str, number: u64) -> bool {
        self.gateway == gateway && self.number == number
    }
}

#[async_trait::async_trait]
impl IdempotencyEngine for FakeEngine {
    async fn claim_key(
        &self,
        gateway: &str,
        shard: KeyShard,
        request: &ClaimRequest,
    ) -> StateResult<ShardReply<ClaimReply>> {
        let behavior = self.0.data.lock().behavior;
        if let FakeBehavior::DelaysClaims(delay) = behavior {
            // As over a network, the request arrives although its sender has given up.
            let (server, gateway, request) = (Arc::clone(&self.0), gateway.to_owned(), *request);
            let arrival = tokio::spawn(async move {
                tokio::time::sleep(delay).await;
                Self(server).claim(&gateway, shard, &request)
            });
            return self.answer(self.0.reply(arrival.await.unwrap())).await;
        }
        if self.is_failing() {
            return self.answer(self.0.reply(ClaimReply::Claimed)).await;
        }
        let reply = self.0.reply(self.claim(gateway, shard, request));
        self.answer(reply).await
    }

    async fn look_up_key(&self, _shard: u8, key: &[u8; 32], digest: &[u8; 32]) -> StateResult<KeyReply> {
        let reply = {
            let mut data = self.0.data.lock();
            // Probes look up a key of zeros.
            data.lookups += usize::from(*key != [0; 32]);
            match data.keys.get(key) {
                Some(stored) if stored.digest != *digest => KeyReply::Absent,
                Some(stored) if stored.is_complete => KeyReply::Completed(stored.outcome.clone()),
                Some(stored) if stored.lease_ends_at <= Instant::now() => KeyReply::Unknown,
                Some(_) => KeyReply::Running,
                None => KeyReply::Absent,
            }
        };
        self.answer(reply).await
    }

    async fn complete_key(
        &self,
        gateway: &str,
        shard: KeyShard,
        request: &OutcomeRequest,
    ) -> StateResult<ShardReply<OutcomeReply>> {
        let mut reply = OutcomeReply::Stored;
        if !self.is_failing() {
            let mut data = self.0.data.lock();
            let number = request.claim.number;
            let new_key = FakeKey::new(gateway, shard, &request.claim, number);
            let stored = data.keys.entry(request.claim.key).or_insert(new_key);
            if !stored.belongs_to(gateway, number) {
                reply = OutcomeReply::Lost;
            } else if !stored.is_complete {
                stored.is_complete = true;
                stored.outcome = (!request.outcome.is_empty()).then(|| request.outcome.clone());
            }
        }
        self.answer(self.0.reply(reply)).await
    }

    async fn release_keys(&self, gateway: &str, _shard: u8, releases: &[ClaimRelease]) -> StateResult<Vec<bool>> {
        let now = self.0.now();
        let mut settled = Vec::new();
        if !self.is_failing() {
            let mut data = self.0.data.lock();
            for release in releases {
                let KeyClaim { key, number, .. } = release.claim;
                let stored = data.keys.get(&key);
                let is_held = stored.is_some_and(|stored| stored.belongs_to(gateway, number) && !stored.is_complete);
                if is_held {
                    data.keys.remove(&key);
                }
                settled.push(is_held || now > release.not_after);
            }
        }
        self.answer(settled).await
    }

    async fn maintain_keys(
        &self,
        gateway: &str,
        shard: KeyShard,
        request: &UpkeepRequest,
    ) -> StateResult<ShardReply<UpkeepReply>> {
        let mut extensions = Vec::new();
        if !self.is_failing() {
            let mut data = self.0.data.lock();
            for claim in &request.claims {
                extensions.push(match data.keys.get_mut(&claim.key) {
                    Some(stored) if !stored.belongs_to(gateway, claim.number) => ExtensionReply::Lost,
                    Some(stored) if stored.is_complete => ExtensionReply::Completed,
                    Some(stored) => {
                        stored.lease_ends_at = Instant::now() + shard.lease;
                        ExtensionReply::Extended
                    }
                    None => {
                        data.keys.insert(claim.key, FakeKey::new(gateway, shard, claim, claim.number));
                        ExtensionReply::Restored
                    }
                });
            }
        }
        let reply = UpkeepReply { extensions, has_more: false, keys: 0, size: 0 };
        self.answer(self.0.reply(reply)).await
    }
}

#[async_trait::async_trait]
impl LeaseEngine for FakeEngine {
    async fn exchange_leases(
        &self,
        _gateway: &str,
        _lifetime: Duration,
        _batches: &[LeaseBatch],
    ) -> StateResult<Vec<Vec<LeaseReply>>> {
        Err(StateError::Unavailable)
    }
}

#[async_trait::async_trait]
impl ValueEngine for FakeEngine {
    async fn put_values(&self, _kind: ValueKind, _values: &[NewValue]) -> StateResult<Vec<bool>> {
        Err(StateError::Unavailable)
    }

    async fn get_value(&self, _kind: ValueKind, _key: &ValueKey) -> StateResult<Option<Vec<u8>>> {
        self.answer(None).await
    }

    async fn redeem_value(
        &self,
        _kind: ValueKind,
        _key: &ValueKey,
        _attempt: RedemptionAttempt<'_>,
    ) -> StateResult<Redemption> {
        Err(StateError::Unavailable)
    }

    async fn changed_values(&self, _kind: ValueKind, _after: u64, _limit: u32) -> StateResult<ValueChanges> {
        Err(StateError::Unavailable)
    }
}

#[async_trait::async_trait]
impl LogEngine for FakeEngine {
    async fn append_to_logs(&self, appends: &[LogAppend]) -> StateResult<()> {
        if !self.is_failing() {
            self.0.logs.lock().append(appends);
        }
        self.answer(()).await
    }

    async fn read_log(&self, log: u128, from: u64, max_bytes: u32) -> StateResult<Option<LogPage>> {
        let page = self.0.logs.lock().read(log, from, max_bytes);
        self.answer(page).await
    }

    async fn check_gateway(&self, gateway: &str) -> StateResult<bool> {
        let is_alive = self.0.logs.lock().has_gateway(gateway);
        self.answer(is_alive).await
    }
}

#[async_trait::async_trait]
impl StateEngine for FakeEngine {
    fn shards(&self) -> u8 {
        4
    }

    async fn heartbeat(&self, gateway: &str, lifetime: Duration) -> StateResult<HeartbeatReply> {
        self.0.logs.lock().beat(gateway, lifetime);
        Ok(HeartbeatReply { gateways: 1, server_time: self.0.now() })
    }

    async fn leave(&self, _gateway: &str) -> StateResult<()> {
        Ok(())
    }

    async fn exchange_tokens(&self, gateway: &str, batches: &[TokenBatch]) -> StateResult<Vec<Vec<TokenReply>>> {
        if self.is_failing() {
            return self.answer(Vec::new()).await;
        }
        let time = self.0.with_tokens(|tokens| tokens.time_for(batches));
        let replies = self.0.tokens.lock().exchange(gateway, batches, self.0.now());
        tokio::time::sleep(time).await;
        self.answer(replies).await?
    }

    async fn refresh_connection(&self) {}

    fn reset_connection(&self) {}
}
