//! Small values in PostgreSQL.

use super::{postgres_connection::SqlParameter, postgres_engine::PostgresEngine};
use crate::store::shared::{
    state_engine::StateResult,
    state_error::StateError,
    value_engine::{NewValue, Redemption, RedemptionAttempt, StoredValue, ValueChanges, ValueEngine, ValueKey},
    value_kind::ValueKind,
};
use std::time::Duration;
use tokio_postgres::{Error, Row, types::Type};

const PUT: &str = "select gatepost_shared_put_values($1, $2, $3, $4, $5, $6)";
const GET: &str = "select value from gatepost_shared_values
    where kind = $1 and name = $2 and ends_at > gatepost_shared_now()";
const REDEEM: &str = "select gatepost_shared_redeem_value($1, $2, $3, $4)";
const CHANGED: &str = "select kinds.newest, kinds.present, page.name, page.value, page.position, page.rest
    from (
        select coalesce((select newest from gatepost_shared_value_kinds where kind = $1), 0) as newest, (
            select count(*) from gatepost_shared_values where kind = $1 and ends_at > (select gatepost_shared_now())
        ) as present
    ) as kinds
    left join lateral (
        select name, value, position, ends_at - (select gatepost_shared_now()) as rest from gatepost_shared_values
            where kind = $1 and position > $2 order by position limit $3
    ) as page on true
    order by page.position";

/// Returns the number of a kind as the tables have it.
fn number(kind: ValueKind) -> i16 {
    kind.number().into()
}

fn incomplete() -> StateError {
    StateError::Failed("PostgreSQL: a reply is incomplete".to_owned())
}

/// A row of a page: the newest position, the number of values, and the value with its position if there is one.
struct PageRow {
    newest: u64,
    count: u64,
    position: Option<u64>,
    value: Option<StoredValue>,
}

impl PageRow {
    fn read(row: &Row) -> Result<Self, Error> {
        let (newest, count): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
        let (name, value): (Option<Vec<u8>>, Option<Vec<u8>>) = (row.try_get(2)?, row.try_get(3)?);
        let (position, rest): (Option<i64>, Option<f64>) = (row.try_get(4)?, row.try_get(5)?);
        let stored = name.zip(value).zip(rest.filter(|rest| *rest > 0.0)).and_then(|((name, value), rest)| {
            Some(StoredValue { key: name.try_into().ok()?, value, lifetime: Duration::from_micros(rest as u64) })
        });
        let unsigned = |number: i64| u64::try_from(number).unwrap_or_default();
        let (newest, count, position) = (unsigned(newest), unsigned(count), position.map(unsigned));
        Ok(Self { newest, count, position, value: stored })
    }
}

#[async_trait::async_trait]
impl ValueEngine for PostgresEngine {
    async fn put_values(&self, kind: ValueKind, values: &[NewValue]) -> StateResult<Vec<bool>> {
        let names: Vec<&[u8]> = values.iter().map(|value| &value.key[..]).collect();
        let texts: Vec<&[u8]> = values.iter().map(|value| &value.value[..]).collect();
        let lifetimes: Vec<f64> = values.iter().map(|value| value.lifetime.as_secs_f64() * 1e6).collect();
        let (number, max, replaces) = (number(kind), i64::from(kind.max_values()), kind.replaces_oldest());
        let parameters: [SqlParameter<'_>; 6] = [
            (&number, Type::INT2),
            (&max, Type::INT8),
            (&replaces, Type::BOOL),
            (&names, Type::BYTEA_ARRAY),
            (&texts, Type::BYTEA_ARRAY),
            (&lifetimes, Type::FLOAT8_ARRAY),
        ];
        let rows = self.query(PUT, &parameters).await?;
        let row = rows.first().ok_or_else(incomplete)?;
        row.try_get(0).map_err(|why| self.column_error(&why))
    }

    async fn get_value(&self, kind: ValueKind, key: &ValueKey) -> StateResult<Option<Vec<u8>>> {
        let (number, name) = (number(kind), &key[..]);
        let rows = self.query(GET, &[(&number, Type::INT2), (&name, Type::BYTEA)]).await?;
        rows.first().map(|row| row.try_get(0).map_err(|why| self.column_error(&why))).transpose()
    }

    async fn redeem_value(
        &self,
        kind: ValueKind,
        key: &ValueKey,
        attempt: RedemptionAttempt<'_>,
    ) -> StateResult<Redemption> {
        let (number, name) = (number(kind), &key[..]);
        let max = i32::try_from(attempt.max_mismatches).unwrap_or(i32::MAX);
        let parameters: [SqlParameter<'_>; 4] =
            [(&number, Type::INT2), (&name, Type::BYTEA), (&attempt.presented, Type::BYTEA), (&max, Type::INT4)];
        let rows = self.query(REDEEM, &parameters).await?;
        let result: i32 = rows.first().ok_or_else(incomplete)?.try_get(0).map_err(|why| self.column_error(&why))?;
        Ok(match result {
            2 => Redemption::Redeemed,
            1 => Redemption::Mismatch,
            _ => Redemption::Absent,
        })
    }

    async fn changed_values(&self, kind: ValueKind, after: u64, limit: u32) -> StateResult<ValueChanges> {
        let (number, after, max) = (number(kind), i64::try_from(after).unwrap_or(i64::MAX), i64::from(limit));
        let parameters: [SqlParameter<'_>; 3] = [(&number, Type::INT2), (&after, Type::INT8), (&max, Type::INT8)];
        let rows = self.query(CHANGED, &parameters).await?;
        let rows: Result<Vec<PageRow>, Error> = rows.iter().map(PageRow::read).collect();
        let rows = rows.map_err(|why| self.column_error(&why))?;
        let last = rows.last().ok_or_else(incomplete)?;
        let is_last_page = rows.len() < limit as usize || last.position.is_none();
        let position = last.position.filter(|_| !is_last_page).unwrap_or(last.newest);
        let (newest, count) = (last.newest, last.count);
        Ok(ValueChanges { values: rows.into_iter().filter_map(|row| row.value).collect(), position, newest, count })
    }
}
