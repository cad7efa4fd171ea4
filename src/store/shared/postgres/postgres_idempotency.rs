//! Idempotency keys in PostgreSQL.

use super::{postgres_connection::SqlParameter, postgres_engine::PostgresEngine};
use crate::store::shared::{
    idempotency_engine::{
        ClaimRelease, ClaimReply, ClaimRequest, ExtensionReply, IdempotencyEngine, KeyBounds, KeyClaim, KeyReply,
        KeyShard, OutcomeReply, OutcomeRequest, ShardReply, UpkeepReply, UpkeepRequest,
    },
    state_error::StateError,
};
use bytes::Bytes;
use std::time::Duration;
use tokio_postgres::{
    Row,
    types::{FromSql, Type},
};

const CLAIM: &str = "select result, epoch, lost_for, own_number, stored_outcome from gatepost_shared_claim_key(
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, ($13, $14, $15, $16, $17)::gatepost_shared_key_bounds)";
const LOOK_UP: &str = "select result, stored_outcome from gatepost_shared_look_up_key($1, $2)";
const COMPLETE: &str = "select result, epoch, lost_for from gatepost_shared_complete_key(
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, ($13, $14, $15, $16, $17)::gatepost_shared_key_bounds)";
const RELEASE: &str = "select settled from gatepost_shared_release_keys($1, $2, $3, $4)";
const MAINTAIN: &str = "select letters, epoch, lost_for, has_more, all_keys, all_size
    from gatepost_shared_maintain_keys($1, $2, $3, $4, $5, $6, $7, $8, $9, $10,
        ($11, $12, $13, $14, $15)::gatepost_shared_key_bounds)";

/// Where the functions' times begin, as a time of the Unix epoch.
const TIME_ORIGIN: Duration = Duration::from_secs(1_700_000_000);

/// What every request with a history begins with.
struct HistoryParameters<'a> {
    gateway: &'a str,
    epoch: String,
    new_epoch: String,
    confirmed: i64,
    ttl: f64,
    lease: f64,
}

impl<'a> HistoryParameters<'a> {
    fn new(gateway: &'a str, shard: KeyShard) -> Self {
        let text = |epoch: u128| format!("{epoch:032x}");
        Self {
            gateway,
            epoch: shard.epoch.map(text).unwrap_or_default(),
            new_epoch: text(shard.new_epoch),
            confirmed: bigint(shard.confirmed),
            ttl: micros(shard.ttl),
            lease: micros(shard.lease),
        }
    }

    fn parameters(&self) -> Vec<SqlParameter<'_>> {
        vec![
            (&self.gateway, Type::TEXT),
            (&self.epoch, Type::TEXT),
            (&self.new_epoch, Type::TEXT),
            (&self.confirmed, Type::INT8),
            (&self.ttl, Type::FLOAT8),
            (&self.lease, Type::FLOAT8),
        ]
    }
}

/// The columns of one claim.
struct ClaimColumns {
    key: Vec<u8>,
    digest: Vec<u8>,
    client: i64,
    number: i64,
}

impl ClaimColumns {
    fn new(claim: &KeyClaim) -> Self {
        let KeyClaim { key, digest, client, number } = claim;
        Self { key: key.to_vec(), digest: digest.to_vec(), client: client.cast_signed(), number: bigint(*number) }
    }

    fn parameters(&self) -> [SqlParameter<'_>; 4] {
        [(&self.key, Type::BYTEA), (&self.digest, Type::BYTEA), (&self.client, Type::INT8), (&self.number, Type::INT8)]
    }
}

#[async_trait::async_trait]
impl IdempotencyEngine for PostgresEngine {
    async fn claim_key(
        &self,
        gateway: &str,
        shard: KeyShard,
        request: &ClaimRequest,
    ) -> Result<ShardReply<ClaimReply>, StateError> {
        let (history, claim) = (HistoryParameters::new(gateway, shard), ClaimColumns::new(&request.claim));
        let (not_after, bounds) = (micros_after_origin(request.not_after), bounds_columns(&request.bounds));
        let mut parameters = history.parameters();
        parameters.extend(claim.parameters());
        parameters.push((&not_after, Type::FLOAT8));
        parameters.push((&request.refuses_after_loss, Type::BOOL));
        parameters.extend(bounds_parameters(&bounds));
        let row = query_one(self, CLAIM, &parameters).await?;
        let (lost_for, own_number) = (lost_for(&row)?, column::<Option<i64>>(&row, 3)?);
        let value = match column::<Option<&str>>(&row, 0)? {
            Some("claimed") => ClaimReply::Claimed,
            Some("running") => ClaimReply::Running { own_number: own_number.map(i64::cast_unsigned) },
            Some("completed") => ClaimReply::Completed(stored_outcome(&row, 4)?),
            Some("unknown") => ClaimReply::Unknown,
            Some("different") => ClaimReply::DifferentRequest,
            Some("client") => ClaimReply::TooManyOfClient,
            Some("all") => ClaimReply::TooManyInProgress,
            Some("late") => ClaimReply::TooLate,
            Some("lost") => ClaimReply::DataLost { remaining: lost_for },
            _ => return Err(unreadable()),
        };
        Ok(ShardReply { epoch: epoch(&row)?, lost_for, value })
    }

    async fn look_up_key(&self, _shard: u8, key: &[u8; 32], digest: &[u8; 32]) -> Result<KeyReply, StateError> {
        let (key, digest) = (key.to_vec(), digest.to_vec());
        let row = query_one(self, LOOK_UP, &[(&key, Type::BYTEA), (&digest, Type::BYTEA)]).await?;
        match column::<&str>(&row, 0)? {
            "absent" => Ok(KeyReply::Absent),
            "running" => Ok(KeyReply::Running),
            "completed" => Ok(KeyReply::Completed(stored_outcome(&row, 1)?)),
            "unknown" => Ok(KeyReply::Unknown),
            _ => Err(unreadable()),
        }
    }

    async fn complete_key(
        &self,
        gateway: &str,
        shard: KeyShard,
        request: &OutcomeRequest,
    ) -> Result<ShardReply<OutcomeReply>, StateError> {
        let (history, claim) = (HistoryParameters::new(gateway, shard), ClaimColumns::new(&request.claim));
        let (number, bounds) = (bigint(request.number), bounds_columns(&request.bounds));
        let outcome = (!request.outcome.is_empty()).then_some(&*request.outcome);
        let mut parameters = history.parameters();
        parameters.extend(claim.parameters());
        parameters.push((&number, Type::INT8));
        parameters.push((&outcome, Type::BYTEA));
        parameters.extend(bounds_parameters(&bounds));
        let row = query_one(self, COMPLETE, &parameters).await?;
        let value = match column::<&str>(&row, 0)? {
            "stored" => OutcomeReply::Stored,
            "lost" => OutcomeReply::Lost,
            "again" => OutcomeReply::MakingRoom,
            _ => return Err(unreadable()),
        };
        Ok(ShardReply { epoch: epoch(&row)?, lost_for: lost_for(&row)?, value })
    }

    async fn release_keys(
        &self,
        gateway: &str,
        _shard: u8,
        releases: &[ClaimRelease],
    ) -> Result<Vec<bool>, StateError> {
        let keys: Vec<Vec<u8>> = releases.iter().map(|release| release.claim.key.to_vec()).collect();
        let numbers: Vec<i64> = releases.iter().map(|release| bigint(release.claim.number)).collect();
        let not_after: Vec<f64> = releases.iter().map(|release| micros_after_origin(release.not_after)).collect();
        let parameters: [SqlParameter<'_>; 4] = [
            (&gateway, Type::TEXT),
            (&keys, Type::BYTEA_ARRAY),
            (&numbers, Type::INT8_ARRAY),
            (&not_after, Type::FLOAT8_ARRAY),
        ];
        column(&query_one(self, RELEASE, &parameters).await?, 0)
    }

    async fn maintain_keys(
        &self,
        gateway: &str,
        shard: KeyShard,
        request: &UpkeepRequest,
    ) -> Result<ShardReply<UpkeepReply>, StateError> {
        let (history, bounds) = (HistoryParameters::new(gateway, shard), bounds_columns(&request.bounds));
        let keys: Vec<Vec<u8>> = request.claims.iter().map(|claim| claim.key.to_vec()).collect();
        let digests: Vec<Vec<u8>> = request.claims.iter().map(|claim| claim.digest.to_vec()).collect();
        let clients: Vec<i64> = request.claims.iter().map(|claim| claim.client.cast_signed()).collect();
        let numbers: Vec<i64> = request.claims.iter().map(|claim| bigint(claim.number)).collect();
        let mut parameters = history.parameters();
        parameters.push((&keys, Type::BYTEA_ARRAY));
        parameters.push((&digests, Type::BYTEA_ARRAY));
        parameters.push((&clients, Type::INT8_ARRAY));
        parameters.push((&numbers, Type::INT8_ARRAY));
        parameters.extend(bounds_parameters(&bounds));
        let row = query_one(self, MAINTAIN, &parameters).await?;
        let extension = |letter: &str| match letter {
            "e" => Ok(ExtensionReply::Extended),
            "r" => Ok(ExtensionReply::Restored),
            "c" => Ok(ExtensionReply::Completed),
            "l" => Ok(ExtensionReply::Lost),
            _ => Err(unreadable()),
        };
        let extensions = column::<Vec<&str>>(&row, 0)?.into_iter().map(extension).collect::<Result<_, _>>()?;
        let total = |at: usize| Ok(u64::try_from(column::<i64>(&row, at)?).unwrap_or_default());
        let value = UpkeepReply { extensions, has_more: column(&row, 3)?, keys: total(4)?, size: total(5)? };
        Ok(ShardReply { epoch: epoch(&row)?, lost_for: lost_for(&row)?, value })
    }
}

async fn query_one(engine: &PostgresEngine, sql: &str, parameters: &[SqlParameter<'_>]) -> Result<Row, StateError> {
    engine.query(sql, parameters).await?.into_iter().next().ok_or_else(unreadable)
}

fn bounds_columns(bounds: &KeyBounds) -> [i64; 5] {
    let KeyBounds { max_keys, max_size, max_client_keys, max_client_size, record_size } = *bounds;
    [max_keys, max_size, max_client_keys, max_client_size, record_size].map(bigint)
}

fn bounds_parameters(bounds: &[i64; 5]) -> impl Iterator<Item = SqlParameter<'_>> {
    bounds.iter().map(|bound| -> SqlParameter<'_> { (bound, Type::INT8) })
}

fn column<'a, T: FromSql<'a>>(row: &'a Row, at: usize) -> Result<T, StateError> {
    row.try_get(at).map_err(|_| unreadable())
}

/// Reads the epoch, the second column of a reply with a history.
fn epoch(row: &Row) -> Result<u128, StateError> {
    u128::from_str_radix(column(row, 1)?, 16).map_err(|_| unreadable())
}

/// Reads for how long no key is claimed, the third column of a reply with a history.
fn lost_for(row: &Row) -> Result<Duration, StateError> {
    let micros: f64 = column(row, 2)?;
    Ok(Duration::try_from_secs_f64(micros / 1e6).unwrap_or_default())
}

fn stored_outcome(row: &Row, at: usize) -> Result<Option<Bytes>, StateError> {
    Ok(column::<Option<Vec<u8>>>(row, at)?.map(Bytes::from))
}

fn bigint(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

fn micros_after_origin(unix_time: Duration) -> f64 {
    micros(unix_time.saturating_sub(TIME_ORIGIN))
}

fn unreadable() -> StateError {
    StateError::Failed("PostgreSQL: a reply about an idempotency key cannot be read".to_owned())
}
