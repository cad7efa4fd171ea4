//! The scripts of idempotency keys, and how their arguments and replies are written.

use super::{
    outcome_reads::MAX_INLINE_OUTCOME,
    redis_script::{RedisScript, ScriptArguments},
};
use crate::store::shared::{
    idempotency_engine::{
        ClaimReply, ClaimRequest, ExtensionReply, KeyBounds, KeyReply, KeyShard, OutcomeReply, OutcomeRequest,
        ShardReply, UpkeepReply, UpkeepRequest,
    },
    state_error::StateError,
};
use bytes::Bytes;
use std::time::Duration;

/// Names of the keys of a shard, in the order in which the scripts expect them.
pub(super) const KEY_NAMES: [&str; 9] =
    ["keys", "outcomes", "expiry", "completed", "with-outcome", "clients", "sizes", "marks", "seen"];
/// Expired records that one script removes at most.
const MAX_EXPIRED: u32 = 200;

/// The scripts. Each has the functions of `common.lua` before it.
#[derive(Debug)]
pub(super) struct IdempotencyScripts {
    pub(super) claim: RedisScript,
    pub(super) look_up: RedisScript,
    pub(super) complete: RedisScript,
    pub(super) release: RedisScript,
    pub(super) maintain: RedisScript,
}

macro_rules! with_common {
    ($file:literal) => {
        RedisScript::new(concat!(include_str!("idempotency/common.lua"), include_str!($file)))
    };
}

impl IdempotencyScripts {
    pub(super) fn new() -> Self {
        Self {
            claim: with_common!("idempotency/claim.lua"),
            look_up: with_common!("idempotency/look_up.lua"),
            complete: with_common!("idempotency/complete.lua"),
            release: with_common!("idempotency/release.lua"),
            maintain: with_common!("idempotency/maintain.lua"),
        }
    }
}

/// Appends what every script with a history begins with.
pub(super) fn push_history(arguments: &mut ScriptArguments, gateway: &str, shard: KeyShard) {
    arguments.push(gateway);
    arguments.push(shard.epoch.map(epoch_text).unwrap_or_default());
    arguments.push(epoch_text(shard.new_epoch));
    arguments.push_number(shard.confirmed);
    arguments.push_number(millis(shard.ttl));
    arguments.push_number(millis(shard.lease));
}

pub(super) fn push_claim_request(arguments: &mut ScriptArguments, request: &ClaimRequest) {
    arguments.push(request.claim.key);
    arguments.push(request.claim.digest);
    arguments.push(client_text(request.claim.client));
    arguments.push_number(request.claim.number);
    arguments.push_number(millis(request.not_after));
    arguments.push_number(u8::from(request.refuses_after_loss));
    push_bounds(arguments, &request.bounds);
    arguments.push_number(MAX_INLINE_OUTCOME);
}

pub(super) fn push_outcome_request(arguments: &mut ScriptArguments, request: &OutcomeRequest) {
    arguments.push(request.claim.key);
    arguments.push(request.claim.digest);
    arguments.push(client_text(request.claim.client));
    arguments.push_number(request.claim.number);
    arguments.push_number(request.number);
    arguments.push(&*request.outcome);
    push_bounds(arguments, &request.bounds);
}

pub(super) fn push_upkeep_request(arguments: &mut ScriptArguments, request: &UpkeepRequest) {
    push_bounds(arguments, &request.bounds);
    arguments.push_number(MAX_EXPIRED);
    for claim in &request.claims {
        arguments.push(claim.key);
        arguments.push(claim.digest);
        arguments.push(client_text(claim.client));
        arguments.push_number(claim.number);
    }
}

fn push_bounds(arguments: &mut ScriptArguments, bounds: &KeyBounds) {
    let KeyBounds { max_keys, max_size, max_client_keys, max_client_size, record_size } = *bounds;
    for bound in [max_keys, max_size, max_client_keys, max_client_size, record_size] {
        arguments.push_number(bound);
    }
}

/// A reply of a script with a history: what became of the request, the epoch, a text, and the milliseconds for which no key
/// is claimed.
pub(super) type HistoryReply = (String, String, Vec<u8>, u64);

pub(super) fn read_claim_reply(gateway: &str, reply: HistoryReply) -> Result<ShardReply<ClaimReply>, StateError> {
    let (name, epoch, text, lost_for) = reply;
    let lost_for = Duration::from_millis(lost_for);
    let value = match name.as_str() {
        "claimed" => ClaimReply::Claimed,
        "running" => ClaimReply::Running { own_number: own_number(gateway, &text) },
        "completed" => ClaimReply::Completed(stored_outcome(text)),
        "unknown" => ClaimReply::Unknown,
        "different" => ClaimReply::DifferentRequest,
        "client" => ClaimReply::TooManyOfClient,
        "all" => ClaimReply::TooManyInProgress,
        "late" => ClaimReply::TooLate,
        "lost" => ClaimReply::DataLost { remaining: lost_for },
        _ => return Err(unreadable()),
    };
    Ok(ShardReply { epoch: read_epoch(&epoch)?, lost_for, value })
}

pub(super) fn read_outcome_reply(reply: HistoryReply) -> Result<ShardReply<OutcomeReply>, StateError> {
    let (name, epoch, _, lost_for) = reply;
    let value = match name.as_str() {
        "stored" => OutcomeReply::Stored,
        "lost" => OutcomeReply::Lost,
        "again" => OutcomeReply::MakingRoom,
        _ => return Err(unreadable()),
    };
    Ok(ShardReply { epoch: read_epoch(&epoch)?, lost_for: Duration::from_millis(lost_for), value })
}

pub(super) fn read_key_reply(name: &str, outcome: Vec<u8>) -> Result<KeyReply, StateError> {
    match name {
        "absent" => Ok(KeyReply::Absent),
        "running" => Ok(KeyReply::Running),
        "completed" => Ok(KeyReply::Completed(stored_outcome(outcome))),
        "unknown" => Ok(KeyReply::Unknown),
        _ => Err(unreadable()),
    }
}

/// A letter for each claim, the epoch, whether records are left to be removed, the records, their bytes, and the
/// milliseconds for which no key is claimed.
pub(super) type MaintainReply = (Vec<u8>, String, u8, u64, u64, u64);

pub(super) fn read_upkeep_reply(reply: MaintainReply) -> Result<ShardReply<UpkeepReply>, StateError> {
    let (letters, epoch, has_more, keys, size, lost_for) = reply;
    let extension = |letter: u8| match letter {
        b'e' => Ok(ExtensionReply::Extended),
        b'r' => Ok(ExtensionReply::Restored),
        b'c' => Ok(ExtensionReply::Completed),
        b'l' => Ok(ExtensionReply::Lost),
        _ => Err(unreadable()),
    };
    let extensions = letters.into_iter().map(extension).collect::<Result<Vec<_>, _>>()?;
    let value = UpkeepReply { extensions, has_more: has_more == 1, keys, size };
    Ok(ShardReply { epoch: read_epoch(&epoch)?, lost_for: Duration::from_millis(lost_for), value })
}

fn stored_outcome(text: Vec<u8>) -> Option<Bytes> {
    (!text.is_empty()).then(|| Bytes::from(text))
}

/// Returns the number of a claim of this gateway.
fn own_number(gateway: &str, claim: &[u8]) -> Option<u64> {
    let (owner, number) = std::str::from_utf8(claim).ok()?.split_once(':')?;
    if owner == gateway { number.parse().ok() } else { None }
}

fn epoch_text(epoch: u128) -> String {
    format!("{epoch:032x}")
}

fn client_text(client: u64) -> String {
    format!("{client:016x}")
}

fn read_epoch(text: &str) -> Result<u128, StateError> {
    u128::from_str_radix(text, 16).map_err(|_| unreadable())
}

fn unreadable() -> StateError {
    StateError::Failed("Redis: a reply about an idempotency key cannot be read".to_owned())
}

/// Returns whole milliseconds.
pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
