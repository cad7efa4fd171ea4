//! Slots of agents in Redis.

use super::{redis_engine::RedisEngine, redis_script::ScriptArguments};
use crate::store::shared::{
    lease_engine::LeaseEngine,
    lease_exchange::{LeaseBatch, LeaseReply},
    state_error::StateError,
};
use futures_util::future::try_join_all;
use std::time::Duration;

#[async_trait::async_trait]
impl LeaseEngine for RedisEngine {
    async fn exchange_leases(
        &self,
        gateway: &str,
        lifetime: Duration,
        batches: &[LeaseBatch],
    ) -> Result<Vec<Vec<LeaseReply>>, StateError> {
        let link = self.connection.link()?;
        let exchanges = batches.iter().map(|batch| {
            let mut arguments = ScriptArguments::default();
            arguments.push(gateway);
            arguments.push_number(batch.sequence);
            arguments.push_number(u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX));
            for entry in &batch.entries {
                arguments.keys.push(self.key(batch.shard, format_args!("leases:{:032x}", entry.id)));
                let numbers = [entry.max, entry.held, entry.wanted, entry.waiting];
                numbers.into_iter().for_each(|number| arguments.push_number(number));
            }
            let mut link = link.clone();
            async move { self.leases.run::<Vec<u32>>(&mut link, &arguments).await }
        });
        let replies = try_join_all(exchanges).await.map_err(|why| self.connection.convert_error(&why))?;
        let reply = |&[slots, total, share]: &[u32; 3]| LeaseReply { slots, total, share };
        let of_batch = |(values, batch): (Vec<u32>, &LeaseBatch)| {
            let replies: Vec<LeaseReply> = values.as_chunks::<3>().0.iter().map(reply).collect();
            let is_complete = replies.len() == batch.entries.len();
            is_complete.then_some(replies).ok_or_else(|| StateError::Failed("Redis: a reply is incomplete".to_owned()))
        };
        replies.into_iter().zip(batches).map(of_batch).collect()
    }
}
