//! Logs in PostgreSQL.

use super::{postgres_connection::SqlParameter, postgres_engine::PostgresEngine};
use crate::store::shared::{
    log_engine::{LogAppend, LogEngine, LogPage, MAX_PAGE_ENTRIES},
    state_engine::StateResult,
};
use bytes::Bytes;
use futures_util::future::try_join_all;
use tokio_postgres::{Error, Row, types::Type};

const APPEND: &str = "select gatepost_shared_append_to_log($1, $2, $3, $4, $5, $6, $7)";
const READ: &str = "select logs.header, logs.first_index, logs.next_index, page.entry
    from gatepost_shared_logs as logs
    left join lateral (
        select index, entry from (
            select index, entry, row_number() over (order by index) as number,
                sum(length(entry)) over (order by index) as total
            from (
                select index, entry from gatepost_shared_log_entries where log = $1 and index >= $2
                    order by index limit $4
            ) as entries
        ) as summed where total <= $3 or number = 1
    ) as page on true
    where logs.log = $1 and logs.ends_at > (select gatepost_shared_now())
    order by page.index";
const IS_ALIVE: &str = "select exists (
    select from gatepost_shared_gateways where gateway = $1 and ends_at > (select gatepost_shared_now()))";

/// Reads a page: each row has the header and one entry, or none.
fn read_page(rows: &[Row]) -> Result<Option<LogPage>, Error> {
    let Some(first) = rows.first() else { return Ok(None) };
    let number = |at: usize| first.try_get::<_, i64>(at).map(|number| u64::try_from(number).unwrap_or_default());
    let entries: Result<Vec<Option<Vec<u8>>>, Error> = rows.iter().map(|row| row.try_get(3)).collect();
    Ok(Some(LogPage {
        header: first.try_get::<_, Vec<u8>>(0)?.into(),
        first_index: number(1)?,
        next_index: number(2)?,
        entries: entries?.into_iter().flatten().map(Bytes::from).collect(),
    }))
}

#[async_trait::async_trait]
impl LogEngine for PostgresEngine {
    async fn append_to_logs(&self, appends: &[LogAppend]) -> StateResult<()> {
        let statements = appends.iter().map(|append| async move {
            let (log, header) = (append.log.to_be_bytes(), &append.header[..]);
            let first = append.first_index.map(|index| i64::try_from(index).unwrap_or(i64::MAX));
            let entries: Vec<&[u8]> = append.entries.iter().map(|entry| &entry[..]).collect();
            let (max_entries, max_bytes) =
                (i64::from(append.max_entries), i64::try_from(append.max_bytes).unwrap_or(i64::MAX));
            let lifetime = append.lifetime.as_secs_f64() * 1e6;
            let log = &log[..];
            let parameters: [SqlParameter<'_>; 7] = [
                (&log, Type::BYTEA),
                (&header, Type::BYTEA),
                (&first, Type::INT8),
                (&entries, Type::BYTEA_ARRAY),
                (&max_entries, Type::INT8),
                (&max_bytes, Type::INT8),
                (&lifetime, Type::FLOAT8),
            ];
            self.query(APPEND, &parameters).await.map(drop)
        });
        try_join_all(statements).await.map(drop)
    }

    async fn read_log(&self, log: u128, from: u64, max_bytes: u32) -> StateResult<Option<LogPage>> {
        let (log, from) = (log.to_be_bytes(), i64::try_from(from).unwrap_or(i64::MAX));
        let (log, max_bytes, max_entries) = (&log[..], i64::from(max_bytes), i64::from(MAX_PAGE_ENTRIES));
        let parameters: [SqlParameter<'_>; 4] =
            [(&log, Type::BYTEA), (&from, Type::INT8), (&max_bytes, Type::INT8), (&max_entries, Type::INT8)];
        let rows = self.query(READ, &parameters).await?;
        read_page(&rows).map_err(|why| self.column_error(&why))
    }

    async fn check_gateway(&self, gateway: &str) -> StateResult<bool> {
        let rows = self.query(IS_ALIVE, &[(&gateway, Type::TEXT)]).await?;
        let is_alive = rows.first().map(|row| row.try_get(0)).transpose().map_err(|why| self.column_error(&why))?;
        Ok(is_alive.unwrap_or(false))
    }
}
