//! Idempotency keys in Redis. Their trips use the connection for large values, because a stored response may be one.

use super::{
    idempotency_scripts::{
        HistoryReply, KEY_NAMES, MaintainReply, millis, push_claim_request, push_history, push_outcome_request,
        push_upkeep_request, read_claim_reply, read_key_reply, read_outcome_reply, read_upkeep_reply,
    },
    outcome_reads::MAX_INLINE_OUTCOME,
    redis_engine::RedisEngine,
    redis_script::{RedisScript, ScriptArguments},
};
use crate::store::shared::{
    idempotency_engine::{
        ClaimRelease, ClaimReply, ClaimRequest, IdempotencyEngine, KeyReply, KeyShard, OutcomeReply, OutcomeRequest,
        ShardReply, UpkeepReply, UpkeepRequest,
    },
    state_error::StateError,
};
use redis::FromRedisValue;

/// Returns arguments with the keys of a shard.
fn arguments_of_shard(engine: &RedisEngine, shard: u8) -> ScriptArguments {
    let keys = KEY_NAMES.map(|name| engine.key(shard, format_args!("idempotency:{name}")));
    ScriptArguments { keys: keys.into(), values: Vec::new() }
}

/// What a script says of an outcome that is to be read apart.
const LARGE: &str = "large";

/// What became of a key, and its outcome.
type LookupReply = (String, Vec<u8>);

/// A key that is looked up.
#[derive(Clone, Copy)]
struct KeyLookup<'a> {
    shard: u8,
    key: &'a [u8; 32],
    digest: &'a [u8; 32],
}

impl KeyLookup<'_> {
    fn arguments(&self, engine: &RedisEngine, max_outcome: u32) -> ScriptArguments {
        let mut arguments = arguments_of_shard(engine, self.shard);
        arguments.push(*self.key);
        arguments.push(*self.digest);
        arguments.push_number(max_outcome);
        arguments
    }
}

/// Looks up a key with its outcome, however large it is.
async fn read_large(
    engine: &RedisEngine,
    client: Option<u64>,
    lookup: KeyLookup<'_>,
) -> Result<LookupReply, StateError> {
    let link = engine.connection.outcome_link()?;
    let arguments = lookup.arguments(engine, u32::MAX);
    let read = async |mut link| {
        let result = engine.idempotency.look_up.run(&mut link, &arguments).await;
        result.map_err(|why| engine.connection.convert_error(&why))
    };
    engine.outcome_reads.read(client, link, read).await
}

async fn run<T: FromRedisValue>(
    engine: &RedisEngine,
    script: &RedisScript,
    arguments: ScriptArguments,
) -> Result<T, StateError> {
    let mut link = engine.connection.bulk_link()?;
    let result = script.run(&mut link, &arguments).await;
    result.map_err(|why| engine.connection.convert_error(&why))
}

#[async_trait::async_trait]
impl IdempotencyEngine for RedisEngine {
    async fn claim_key(
        &self,
        gateway: &str,
        shard: KeyShard,
        request: &ClaimRequest,
    ) -> Result<ShardReply<ClaimReply>, StateError> {
        let mut arguments = arguments_of_shard(self, shard.shard);
        push_history(&mut arguments, gateway, shard);
        push_claim_request(&mut arguments, request);
        let mut reply: HistoryReply = run(self, &self.idempotency.claim, arguments).await?;
        if reply.0 == LARGE {
            let lookup = KeyLookup { shard: shard.shard, key: &request.claim.key, digest: &request.claim.digest };
            let (name, outcome) = read_large(self, Some(request.claim.client), lookup).await?;
            // The record may have ended meanwhile: its call is not made again.
            reply.0 = if name == "absent" { "completed".to_owned() } else { name };
            reply.2 = outcome;
        }
        read_claim_reply(gateway, reply)
    }

    async fn look_up_key(&self, shard: u8, key: &[u8; 32], digest: &[u8; 32]) -> Result<KeyReply, StateError> {
        let lookup = KeyLookup { shard, key, digest };
        let arguments = lookup.arguments(self, MAX_INLINE_OUTCOME);
        let (mut name, mut outcome): LookupReply = run(self, &self.idempotency.look_up, arguments).await?;
        if name == LARGE {
            (name, outcome) = read_large(self, None, lookup).await?;
        }
        read_key_reply(&name, outcome)
    }

    async fn complete_key(
        &self,
        gateway: &str,
        shard: KeyShard,
        request: &OutcomeRequest,
    ) -> Result<ShardReply<OutcomeReply>, StateError> {
        let mut arguments = arguments_of_shard(self, shard.shard);
        push_history(&mut arguments, gateway, shard);
        push_outcome_request(&mut arguments, request);
        let reply: HistoryReply = run(self, &self.idempotency.complete, arguments).await?;
        read_outcome_reply(reply)
    }

    async fn release_keys(&self, gateway: &str, shard: u8, releases: &[ClaimRelease]) -> Result<Vec<bool>, StateError> {
        let mut arguments = arguments_of_shard(self, shard);
        arguments.push(gateway);
        for release in releases {
            arguments.push(release.claim.key);
            arguments.push_number(release.claim.number);
            arguments.push_number(millis(release.not_after));
        }
        let settled: Vec<i64> = run(self, &self.idempotency.release, arguments).await?;
        Ok(settled.into_iter().map(|settled| settled == 1).collect())
    }

    async fn maintain_keys(
        &self,
        gateway: &str,
        shard: KeyShard,
        request: &UpkeepRequest,
    ) -> Result<ShardReply<UpkeepReply>, StateError> {
        let mut arguments = arguments_of_shard(self, shard.shard);
        push_history(&mut arguments, gateway, shard);
        push_upkeep_request(&mut arguments, request);
        let reply: MaintainReply = run(self, &self.idempotency.maintain, arguments).await?;
        read_upkeep_reply(reply)
    }
}
