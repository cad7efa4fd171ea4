//! Small values in Redis: all values of a kind are in one shard, so that their number is bounded and they have an order.

use super::{redis_engine::RedisEngine, redis_script::ScriptArguments};
use crate::store::shared::{
    state_engine::{StateEngine as _, StateResult},
    state_error::StateError,
    value_engine::{NewValue, Redemption, RedemptionAttempt, StoredValue, ValueChanges, ValueEngine, ValueKey},
    value_kind::ValueKind,
};
use redis::Value;
use std::time::Duration;

/// Returns the arguments of a script: the keys of a kind.
fn arguments(engine: &RedisEngine, kind: ValueKind) -> ScriptArguments {
    let (shard, name) = (kind.number() % engine.shards(), kind.name());
    let key = |part: &str| engine.key(shard, format_args!("values:{name}:{part}"));
    ScriptArguments { keys: ["values", "ends", "order", "mismatches", "newest"].map(key).to_vec(), values: Vec::new() }
}

/// Reads the remaining values of a page: names, values and lifetimes in turn.
fn parse_page(rest: &[Value]) -> Option<Vec<StoredValue>> {
    let value = |[name, value, lifetime]: &[Value; 3]| {
        let (Value::BulkString(name), Value::BulkString(value), Value::Int(lifetime)) = (name, value, lifetime) else {
            return None;
        };
        let lifetime = Duration::from_millis(u64::try_from(*lifetime).ok()?);
        Some(StoredValue { key: name.as_slice().try_into().ok()?, value: value.clone(), lifetime })
    };
    rest.as_chunks::<3>().0.iter().map(value).collect()
}

fn parse_changes(reply: &[Value]) -> Option<ValueChanges> {
    let number = |value: &Value| redis::from_redis_value_ref::<u64>(value).ok();
    let [newest, count, position, rest @ ..] = reply else { return None };
    let (newest, count, position) = (number(newest)?, number(count)?, number(position)?);
    Some(ValueChanges { values: parse_page(rest)?, position, newest, count })
}

#[async_trait::async_trait]
impl ValueEngine for RedisEngine {
    async fn put_values(&self, kind: ValueKind, values: &[NewValue]) -> StateResult<Vec<bool>> {
        let mut arguments = arguments(self, kind);
        arguments.push_number(kind.max_values());
        arguments.push_number(u8::from(kind.replaces_oldest()));
        for value in values {
            arguments.push(value.key);
            arguments.push(value.value.clone());
            arguments.push_number(u64::try_from(value.lifetime.as_millis()).unwrap_or(u64::MAX).max(1));
        }
        let mut link = self.connection.link()?;
        let stored = self.values.put.run::<Vec<bool>>(&mut link, &arguments).await;
        stored.map_err(|why| self.connection.convert_error(&why))
    }

    async fn get_value(&self, kind: ValueKind, key: &ValueKey) -> StateResult<Option<Vec<u8>>> {
        let mut arguments = arguments(self, kind);
        arguments.push(*key);
        let mut link = self.connection.link()?;
        let value = self.values.get.run::<Option<Vec<u8>>>(&mut link, &arguments).await;
        value.map_err(|why| self.connection.convert_error(&why))
    }

    async fn redeem_value(
        &self,
        kind: ValueKind,
        key: &ValueKey,
        attempt: RedemptionAttempt<'_>,
    ) -> StateResult<Redemption> {
        let mut arguments = arguments(self, kind);
        arguments.push(*key);
        arguments.push(attempt.presented);
        arguments.push_number(attempt.max_mismatches);
        let mut link = self.connection.link()?;
        let result = self.values.redeem.run::<u8>(&mut link, &arguments).await;
        Ok(match result.map_err(|why| self.connection.convert_error(&why))? {
            2 => Redemption::Redeemed,
            1 => Redemption::Mismatch,
            _ => Redemption::Absent,
        })
    }

    async fn changed_values(&self, kind: ValueKind, after: u64, limit: u32) -> StateResult<ValueChanges> {
        let mut arguments = arguments(self, kind);
        arguments.push_number(after);
        arguments.push_number(limit);
        let mut link = self.connection.link()?;
        let reply = self.values.changed.run::<Vec<Value>>(&mut link, &arguments).await;
        let reply = reply.map_err(|why| self.connection.convert_error(&why))?;
        parse_changes(&reply).ok_or_else(|| StateError::Failed("Redis: a page of values is malformed".to_owned()))
    }
}
