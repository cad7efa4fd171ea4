//! The state engine in Redis.

use super::{
    idempotency_scripts::IdempotencyScripts,
    log_scripts::LogScripts,
    outcome_reads::OutcomeReads,
    redis_connection::RedisConnection,
    redis_script::{RedisScript, ScriptArguments},
    token_script::{PackedBatch, TokenScript},
    value_scripts::ValueScripts,
};
use crate::store::shared::{
    config::RedisConfig,
    state_engine::{HeartbeatReply, StateEngine, StateResult},
    state_error::StateError,
    token_exchange::{TokenBatch, TokenReply},
};
use futures_util::future::try_join_all;
use redis::cmd;
use std::{fmt, time::Duration};

/// Shards of a cluster. A single server has one.
const CLUSTER_SHARDS: u8 = 64;

/// A Redis server that holds shared state.
pub(in crate::store::shared) struct RedisEngine {
    pub(super) connection: RedisConnection,
    tokens: TokenScript,
    heartbeat: RedisScript,
    pub(super) idempotency: IdempotencyScripts,
    pub(super) outcome_reads: OutcomeReads,
    pub(super) values: ValueScripts,
    pub(super) logs: LogScripts,
    pub(super) leases: RedisScript,
}

impl RedisEngine {
    /// Prepares the engine; the first heartbeat connects.
    pub(in crate::store::shared) fn new(config: RedisConfig) -> Self {
        Self {
            connection: RedisConnection::new(config),
            tokens: TokenScript::new(),
            heartbeat: RedisScript::new(include_str!("heartbeat.lua")),
            idempotency: IdempotencyScripts::new(),
            outcome_reads: OutcomeReads::new(),
            values: ValueScripts::new(),
            logs: LogScripts::new(),
            leases: RedisScript::new(include_str!("leases.lua")),
        }
    }

    /// Connects, and waits for a reply.
    ///
    /// # Errors
    /// Why the server cannot be used.
    pub(in crate::store::shared) async fn ping(&self) -> StateResult<()> {
        let mut link = self.connection.connect().await?;
        let result = link.query::<String>(&cmd("PING")).await;
        result.map(drop).map_err(|why| self.connection.convert_error(&why))
    }

    /// Returns the name of a key: the prefix, the shard in braces, which a cluster hashes alone, and what it is.
    pub(super) fn key(&self, shard: u8, name: fmt::Arguments<'_>) -> Vec<u8> {
        format!("{}:{{{shard}}}:{name}", self.connection.config().key_prefix).into_bytes()
    }

    fn pack<'a>(&self, gateway: &str, batch: &'a TokenBatch) -> PackedBatch<'a> {
        let sequence_key = self.key(batch.shard, format_args!("batch:{gateway}"));
        PackedBatch::new(batch, sequence_key, self.key(batch.shard, format_args!("tokens:")))
    }
}

impl fmt::Debug for RedisEngine {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("RedisEngine").field("config", self.connection.config()).finish_non_exhaustive()
    }
}

#[async_trait::async_trait]
impl StateEngine for RedisEngine {
    fn shards(&self) -> u8 {
        if self.connection.config().cluster { CLUSTER_SHARDS } else { 1 }
    }

    async fn heartbeat(&self, gateway: &str, lifetime: Duration) -> StateResult<HeartbeatReply> {
        let mut link = self.connection.connect().await?;
        let mut arguments = ScriptArguments::default();
        arguments.keys.push(self.key(0, format_args!("gateways")));
        arguments.push(gateway);
        arguments.push_number(u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX));
        let result: redis::RedisResult<(u32, u64, u32)> = self.heartbeat.run(&mut link, &arguments).await;
        let (gateways, seconds, micros) = result.map_err(|why| self.connection.convert_error(&why))?;
        let server_time = Duration::from_secs(seconds) + Duration::from_micros(micros.into());
        Ok(HeartbeatReply { gateways, server_time })
    }

    async fn leave(&self, gateway: &str) -> StateResult<()> {
        let mut command = cmd("ZREM");
        command.arg(self.key(0, format_args!("gateways"))).arg(gateway);
        let result = self.connection.link()?.query::<u32>(&command).await;
        result.map(drop).map_err(|why| self.connection.convert_error(&why))
    }

    async fn exchange_tokens(&self, gateway: &str, batches: &[TokenBatch]) -> StateResult<Vec<Vec<TokenReply>>> {
        let link = self.connection.link()?;
        // The commands are written together, and the server handles those of a shard in order.
        let exchanges = batches.iter().map(|batch| {
            let (batch, mut link) = (self.pack(gateway, batch), link.clone());
            async move { self.tokens.run(&mut link, &batch).await }
        });
        let replies = try_join_all(exchanges).await.map_err(|why| self.connection.convert_error(&why))?;
        let complete: Option<Vec<_>> = replies.into_iter().collect();
        complete.ok_or_else(|| StateError::Failed("Redis: a reply is incomplete".to_owned()))
    }

    async fn refresh_connection(&self) {
        self.connection.refresh().await;
    }

    fn reset_connection(&self) {
        self.connection.disconnect();
    }
}
