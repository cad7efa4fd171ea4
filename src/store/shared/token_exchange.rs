//! What a gateway tells the shared state of its tokens, and what it learns: for each bucket or quota the tokens that it
//! has spent, and those that it draws.

use std::time::Duration;

/// The entries of one trip that one server process handles at once.
#[derive(Clone, Debug)]
pub struct TokenBatch {
    /// Number of the batch, which grows with each one of this gateway and shard. The server applies a batch once: the last
    /// batch that is sent again after a lost reply only reads, and has the granted tokens of the first reply.
    pub sequence: u64,
    /// Number of the last batch to which the gateway has a reply, or 0. A server that does not know it has lost data, for
    /// example because it is a replica that was promoted: it restores the levels of the entries from those that the gateway
    /// knows.
    pub confirmed: u64,
    /// The shard that holds every entry, from [`SharedState::shard_of`](super::SharedState::shard_of).
    pub shard: u8,
    /// The entries; each id once.
    pub entries: Vec<TokenEntry>,
}

/// One bucket or quota.
#[derive(Clone, Copy, Debug)]
pub struct TokenEntry {
    /// Names the bucket or quota, equal in every gateway.
    pub id: u128,
    /// What is counted.
    pub limit: TokenLimit,
    /// Tokens that the gateway has spent since its last exchange; negative if it refunds some. The server counts them even
    /// if they exceed the limit.
    pub settled: i64,
    /// Tokens that the gateway asks for. 0 only settles.
    pub drawn: u32,
    /// What the gateway knows of the level, in the unit of [`TokenReply::level`]. It is where the server begins if it has
    /// no entry, because it lost its data.
    pub known_level: u64,
    /// Whether the server has lost data since it reported `known_level`. Then the level is at least that one. Otherwise it
    /// may be less, because other gateways have given tokens back.
    pub restores: bool,
}

impl TokenEntry {
    /// Lowers the known level of a bucket by what it has gained in so many microseconds.
    pub fn age_known_level(&mut self, micros: u64) {
        if matches!(self.limit, TokenLimit::Rate { .. }) {
            self.known_level = self.known_level.saturating_sub(micros);
        }
    }
}

/// The limit of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenLimit {
    /// A bucket that gains a token every `refill_interval` and holds `burst` of them.
    Rate {
        /// Time in which the bucket gains one token.
        refill_interval: Duration,
        /// Tokens of a full bucket.
        burst: u32,
    },
    /// A count that only grows until it is deleted.
    Quota {
        /// Maximum of the count.
        max: u64,
        /// Time from now after which the server may delete the count.
        lifetime: Duration,
    },
}

/// What the server replies for an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenReply {
    /// How many of the drawn tokens were granted: those for which there was room.
    pub granted: u32,
    /// The level after the exchange: microseconds until the bucket is full, or the count of the quota.
    pub level: u64,
    /// Whether the server did not know [`TokenBatch::confirmed`].
    pub was_behind: bool,
}

/// How far the level of a bucket may exceed its burst, as a multiple of the burst, after gateways have settled what they
/// spent. It bounds the time for which a caller is refused, also if the clock of a new server is behind.
pub(super) const MAX_LEVEL: f64 = 2.0;
