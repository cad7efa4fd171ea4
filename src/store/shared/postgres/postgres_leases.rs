//! Slots of agents in PostgreSQL.

use super::{postgres_connection::SqlParameter, postgres_engine::PostgresEngine};
use crate::store::shared::{
    lease_engine::LeaseEngine,
    lease_exchange::{LeaseBatch, LeaseEntry, LeaseReply},
    state_engine::StateResult,
    state_error::StateError,
};
use futures_util::future::try_join_all;
use std::time::Duration;
use tokio_postgres::{Row, types::Type};

const EXCHANGE_LEASES: &str = "select entry, slots, total, share
    from gatepost_shared_exchange_leases($1, $2, $3, $4, $5, $6, $7, $8)";

#[async_trait::async_trait]
impl LeaseEngine for PostgresEngine {
    async fn exchange_leases(
        &self,
        gateway: &str,
        lifetime: Duration,
        batches: &[LeaseBatch],
    ) -> Result<Vec<Vec<LeaseReply>>, StateError> {
        try_join_all(batches.iter().map(|batch| exchange_batch(self, gateway, lifetime, batch))).await
    }
}

async fn exchange_batch(
    engine: &PostgresEngine,
    gateway: &str,
    lifetime: Duration,
    batch: &LeaseBatch,
) -> StateResult<Vec<LeaseReply>> {
    let column = |value: fn(&LeaseEntry) -> u32| -> Vec<i32> {
        batch.entries.iter().map(|entry| i32::try_from(value(entry)).unwrap_or(i32::MAX)).collect()
    };
    let ids: Vec<Vec<u8>> = batch.entries.iter().map(|entry| entry.id.to_be_bytes().to_vec()).collect();
    let sequence = i64::try_from(batch.sequence).unwrap_or(i64::MAX);
    let lifetime = lifetime.as_secs_f64() * 1e6;
    let (maxima, held) = (column(|entry| entry.max), column(|entry| entry.held));
    let (wanted, waiting) = (column(|entry| entry.wanted), column(|entry| entry.waiting));
    let parameters: [SqlParameter<'_>; 8] = [
        (&gateway, Type::TEXT),
        (&sequence, Type::INT8),
        (&lifetime, Type::FLOAT8),
        (&ids, Type::BYTEA_ARRAY),
        (&maxima, Type::INT4_ARRAY),
        (&held, Type::INT4_ARRAY),
        (&wanted, Type::INT4_ARRAY),
        (&waiting, Type::INT4_ARRAY),
    ];
    let rows = engine.query(EXCHANGE_LEASES, &parameters).await?;
    let mut replies: Vec<Option<LeaseReply>> = vec![None; batch.entries.len()];
    for row in &rows {
        let (entry, reply) = read_lease_reply(row).map_err(|why| engine.column_error(&why))?;
        if let Some(place) = replies.get_mut(entry) {
            *place = Some(reply);
        }
    }
    let replies: Option<Vec<LeaseReply>> = replies.into_iter().collect();
    replies.ok_or_else(|| StateError::Failed("PostgreSQL: a reply is incomplete".to_owned()))
}

/// Returns the position of an entry in its batch, and its reply.
fn read_lease_reply(row: &Row) -> Result<(usize, LeaseReply), tokio_postgres::Error> {
    let number = |at: usize| row.try_get::<_, i32>(at).map(|number| u32::try_from(number).unwrap_or_default());
    // The server counts from 1.
    let entry = usize::try_from(number(0)?).unwrap_or_default().wrapping_sub(1);
    Ok((entry, LeaseReply { slots: number(1)?, total: number(2)?, share: number(3)? }))
}
