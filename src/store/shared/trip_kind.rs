//! What a trip to the server is for. The kinds have different deadlines, so that a server may be too slow for one of them and
//! fast enough for another.

use crate::telemetry::StoreKind;

/// What a trip is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TripKind {
    /// Tokens of rates and quotas.
    Tokens,
    /// Slots of agents.
    Leases,
    /// Idempotency keys.
    Keys,
    /// Small values and logs.
    Values,
}

/// A kind of trip, and the shard that it is about.
#[derive(Clone, Copy, Debug)]
pub(super) struct TripScope {
    pub(super) kind: TripKind,
    /// Matters for idempotency keys only: the trips of the other kinds are about several shards.
    pub(super) shard: u8,
}

impl TripKind {
    pub(super) const ALL: [Self; 4] = [Self::Tokens, Self::Leases, Self::Keys, Self::Values];

    /// Returns the scope of trips about a shard.
    pub(super) const fn of_shard(self, shard: u8) -> TripScope {
        TripScope { kind: self, shard }
    }

    /// Returns the label of the metrics.
    pub(super) const fn store(self) -> StoreKind {
        match self {
            Self::Tokens => StoreKind::Limits,
            Self::Leases => StoreKind::Leases,
            Self::Keys => StoreKind::Idempotency,
            Self::Values => StoreKind::SharedState,
        }
    }

    /// Returns what happens to calls while trips of this kind fail, for the log.
    pub(super) const fn consequence(self) -> &'static str {
        match self {
            Self::Tokens => "limits.on_error decides about rates and quotas",
            Self::Leases => "limits.on_error decides about shared slots of agents",
            Self::Keys => "calls with an Idempotency-Key are refused",
            Self::Values => "revocations, paired pages and events of tasks wait",
        }
    }
}

impl From<TripKind> for TripScope {
    fn from(kind: TripKind) -> Self {
        kind.of_shard(0)
    }
}
