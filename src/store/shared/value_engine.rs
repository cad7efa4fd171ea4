//! Small values with a lifetime, bounded in number for each kind: codes, keys of pages, revocations.

use super::{state_error::StateError, value_kind::ValueKind};
use std::time::Duration;

/// The name of a value: a hash, so that no name and no secret is in the store.
pub type ValueKey = [u8; 32];

/// A value to store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewValue {
    /// The name. A value of the same name is replaced.
    pub key: ValueKey,
    /// The value; at most a few hundred bytes.
    pub value: Vec<u8>,
    /// How long from now the store keeps it.
    pub lifetime: Duration,
}

/// A value in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredValue {
    /// The name.
    pub key: ValueKey,
    /// The value.
    pub value: Vec<u8>,
    /// How long from now the store keeps it.
    pub lifetime: Duration,
}

/// Result of presenting what a value must be equal to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redemption {
    /// It was equal, and the value is taken: no other attempt redeems it.
    Redeemed,
    /// It was not equal. After the last permitted attempt the value is deleted.
    Mismatch,
    /// There is no such value.
    Absent,
}

/// A page of the values of a kind, in the order in which they were stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ValueChanges {
    /// The values that were stored after the position that the reader has.
    pub values: Vec<StoredValue>,
    /// The position from which the next page is read: that of the newest value if no other follows.
    pub position: u64,
    /// The position of the newest value that the store ever had; less than the reader's if the store lost its data.
    pub newest: u64,
    /// The number of values of the kind.
    pub count: u64,
}

impl ValueChanges {
    /// Returns whether other values follow the page.
    pub fn has_more(&self) -> bool {
        self.position < self.newest
    }
}

/// Stores small values. Each method is one trip; the server's clock ends lifetimes.
#[async_trait::async_trait]
pub(in crate::store) trait ValueEngine {
    /// Stores values of a kind, at most [`MAX_VALUES_PER_TRIP`]. Where the kind is full, the values that end first make
    /// room, or the new ones are refused ([`ValueKind::replaces_oldest`]). Returns for each whether it is stored.
    async fn put_values(&self, kind: ValueKind, values: &[NewValue]) -> Result<Vec<bool>, StateError>;

    /// Returns a value.
    async fn get_value(&self, kind: ValueKind, key: &ValueKey) -> Result<Option<Vec<u8>>, StateError>;

    /// Takes a value if it is equal to `presented`; deletes it at the `max_mismatches`th mismatch.
    async fn redeem_value(
        &self,
        kind: ValueKind,
        key: &ValueKey,
        attempt: RedemptionAttempt<'_>,
    ) -> Result<Redemption, StateError>;

    /// Returns the values of a kind that were stored after a position, at most `limit`. Position 0 is the start.
    async fn changed_values(&self, kind: ValueKind, after: u64, limit: u32) -> Result<ValueChanges, StateError>;
}

/// An attempt to redeem a value.
#[derive(Clone, Copy, Debug)]
pub struct RedemptionAttempt<'a> {
    /// What the value must be equal to.
    pub presented: &'a [u8],
    /// The number of mismatches that delete the value.
    pub max_mismatches: u32,
}

/// The number of values that one trip may store.
pub const MAX_VALUES_PER_TRIP: usize = 500;
