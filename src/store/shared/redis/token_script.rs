//! The script that exchanges tokens. It is called a hundred times a second with hundreds of entries, so that entries and
//! replies are packed instead of written as numbers in text.

use super::{
    redis_connection::RedisLink,
    redis_script::{RedisScript, ScriptSource},
};
use crate::store::shared::token_exchange::{MAX_LEVEL, TokenBatch, TokenEntry, TokenLimit, TokenReply};
use redis::{Cmd, RedisResult};
use std::time::Duration;

/// Bytes of an entry in the argument of the script.
const ENTRY_LENGTH: usize = 45;
/// Bytes of an entry in the reply of the script.
const REPLY_LENGTH: usize = 12;
/// Hexadecimal digits of an id.
const ID_LENGTH: usize = 32;

/// The script that exchanges tokens.
#[derive(Debug)]
pub(super) struct TokenScript(RedisScript);

/// The keys and arguments of a batch.
pub(super) struct PackedBatch<'a> {
    batch: &'a TokenBatch,
    /// Key of the number of the gateway's last batch.
    sequence_key: Vec<u8>,
    /// What the keys of entries begin with; the id follows.
    entry_prefix: Vec<u8>,
    entries: Vec<u8>,
}

impl<'a> PackedBatch<'a> {
    pub(super) fn new(batch: &'a TokenBatch, sequence_key: Vec<u8>, entry_prefix: Vec<u8>) -> Self {
        let mut entries = Vec::with_capacity(batch.entries.len() * ENTRY_LENGTH);
        batch.entries.iter().for_each(|entry| pack_entry(entry, &mut entries));
        Self { batch, sequence_key, entry_prefix, entries }
    }

    fn command(&self, source: ScriptSource<'_>) -> Cmd {
        let count = self.batch.entries.len();
        let length = count * (self.entry_prefix.len() + ID_LENGTH) + self.entries.len() + self.sequence_key.len();
        let mut command = Cmd::with_capacity(count + 8, length + 128);
        command.arg(source.command).arg(source.script).arg(count + 1).arg(&self.sequence_key);
        let mut key = self.entry_prefix.clone();
        for entry in &self.batch.entries {
            key.truncate(self.entry_prefix.len());
            key.extend_from_slice(&to_hexadecimal(entry.id));
            command.arg(&key);
        }
        command.arg(self.batch.sequence).arg(self.batch.confirmed).arg(MAX_LEVEL).arg(&self.entries);
        command
    }
}

impl TokenScript {
    pub(super) fn new() -> Self {
        Self(RedisScript::new(include_str!("tokens.lua")))
    }

    /// Exchanges a batch. `None` if the reply is not one of the script.
    pub(super) async fn run(
        &self,
        link: &mut RedisLink,
        batch: &PackedBatch<'_>,
    ) -> RedisResult<Option<Vec<TokenReply>>> {
        let reply: Vec<u8> = self.0.run_command(link, |source| batch.command(source)).await?;
        let Some((was_behind, packed)) = reply.split_first() else { return Ok(None) };
        let (replies, rest) = packed.as_chunks();
        let is_complete = replies.len() == batch.batch.entries.len() && rest.is_empty();
        let unpack = |reply| TokenReply { was_behind: *was_behind != 0, ..unpack_reply(reply) };
        Ok(is_complete.then(|| replies.iter().map(unpack).collect()))
    }
}

/// Appends an entry in the format `<dI8i8I4I8I8B` of Lua's `struct.unpack`.
fn pack_entry(entry: &TokenEntry, to: &mut Vec<u8>) {
    let (interval, max, lifetime) = match entry.limit {
        TokenLimit::Rate { refill_interval, burst } => (refill_interval, u64::from(burst), Duration::ZERO),
        TokenLimit::Quota { max, lifetime } => (Duration::ZERO, max, lifetime),
    };
    let lifetime = u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX).max(1);
    to.extend_from_slice(&(interval.as_secs_f64() * 1e6).to_le_bytes());
    to.extend_from_slice(&max.to_le_bytes());
    to.extend_from_slice(&entry.settled.to_le_bytes());
    to.extend_from_slice(&entry.drawn.to_le_bytes());
    to.extend_from_slice(&entry.known_level.to_le_bytes());
    to.extend_from_slice(&lifetime.to_le_bytes());
    to.push(u8::from(entry.restores));
}

/// Reads a reply in the format `<I4I8` of Lua's `struct.pack`.
fn unpack_reply(reply: &[u8; REPLY_LENGTH]) -> TokenReply {
    let [g0, g1, g2, g3, level @ ..] = *reply;
    let granted = u32::from_le_bytes([g0, g1, g2, g3]);
    TokenReply { granted, level: u64::from_le_bytes(level), was_behind: false }
}

/// Returns the digits of an id. They are formatted for every entry of a trip, which `format!` is too slow for.
fn to_hexadecimal(id: u128) -> [u8; ID_LENGTH] {
    let digit = |half: u8| if half < 10 { b'0' + half } else { b'a' + half - 10 };
    let mut digits = [0; ID_LENGTH];
    for (pair, byte) in digits.as_chunks_mut::<2>().0.iter_mut().zip(id.to_be_bytes()) {
        *pair = [digit(byte >> 4), digit(byte & 15)];
    }
    digits
}
