//! Logs in Redis: each is a list and a hash in one shard.

use super::{redis_engine::RedisEngine, redis_script::ScriptArguments};
use crate::store::shared::{
    log_engine::{LogAppend, LogEngine, LogPage, MAX_PAGE_ENTRIES},
    state_engine::{StateEngine as _, StateResult},
    state_error::StateError,
};
use bytes::Bytes;
use futures_util::future::try_join_all;
use redis::{Value, cmd};

/// Returns the arguments of a script: the keys of a log.
fn arguments(engine: &RedisEngine, log: u128) -> ScriptArguments {
    let shard = (log % u128::from(engine.shards())) as u8;
    let key = |part: &str| engine.key(shard, format_args!("log:{log:032x}:{part}"));
    ScriptArguments { keys: ["entries", "log"].map(key).to_vec(), values: Vec::new() }
}

fn parse_page(reply: Vec<Value>) -> Option<LogPage> {
    let bytes = |value: Value| match value {
        Value::BulkString(bytes) => Some(Bytes::from(bytes)),
        _ => None,
    };
    let mut values = reply.into_iter();
    let header = bytes(values.next()?)?;
    let mut number = || redis::from_redis_value::<u64>(values.next()?).ok();
    let (first_index, next_index) = (number()?, number()?);
    Some(LogPage { header, first_index, next_index, entries: values.map(bytes).collect::<Option<_>>()? })
}

#[async_trait::async_trait]
impl LogEngine for RedisEngine {
    async fn append_to_logs(&self, appends: &[LogAppend]) -> StateResult<()> {
        let link = self.connection.link()?;
        let scripts = appends.iter().map(|append| {
            let (mut arguments, mut link) = (arguments(self, append.log), link.clone());
            arguments.push(append.header.to_vec());
            match append.first_index {
                Some(index) => arguments.push_number(index),
                None => arguments.push(""),
            }
            arguments.push_number(append.max_entries);
            arguments.push_number(append.max_bytes);
            arguments.push_number(u64::try_from(append.lifetime.as_millis()).unwrap_or(u64::MAX).max(1));
            append.entries.iter().for_each(|entry| arguments.push(entry.to_vec()));
            async move { self.logs.append.run::<()>(&mut link, &arguments).await }
        });
        let result = try_join_all(scripts).await;
        result.map(drop).map_err(|why| self.connection.convert_error(&why))
    }

    async fn read_log(&self, log: u128, from: u64, max_bytes: u32) -> StateResult<Option<LogPage>> {
        let mut arguments = arguments(self, log);
        arguments.push_number(from);
        arguments.push_number(max_bytes);
        arguments.push_number(MAX_PAGE_ENTRIES);
        let mut link = self.connection.link()?;
        let reply = self.logs.read.run::<Option<Vec<Value>>>(&mut link, &arguments).await;
        let reply = reply.map_err(|why| self.connection.convert_error(&why))?;
        let malformed = || StateError::Failed("Redis: a page of a log is malformed".to_owned());
        reply.map(|reply| parse_page(reply).ok_or_else(malformed)).transpose()
    }

    async fn check_gateway(&self, gateway: &str) -> StateResult<bool> {
        let mut link = self.connection.link()?;
        let mut command = cmd("ZSCORE");
        command.arg(self.key(0, format_args!("gateways"))).arg(gateway);
        let ends = link.query::<Option<f64>>(&command).await.map_err(|why| self.connection.convert_error(&why))?;
        // Each heartbeat, also of this gateway, removes those that have ended.
        Ok(ends.is_some())
    }
}
