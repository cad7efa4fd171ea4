//! Append-only logs with a lifetime, bounded in entries and bytes: the events of tasks and streams, which other gateways
//! read while they are written.

use super::state_error::StateError;
use bytes::Bytes;
use std::time::Duration;

/// An append to a log.
#[derive(Clone, Debug)]
pub struct LogAppend {
    /// The name of the log: a hash, equal in every gateway.
    pub log: u128,
    /// Information for readers besides the entries. It replaces the header that the log has, unless the append was
    /// delayed: the log has entries after those of the append.
    pub header: Bytes,
    /// The index of the first entry, if one writer numbers the entries of the log: entries that the log has already are
    /// not appended again, and a gap removes the entries before it. `None` appends after the last entry of any writer.
    pub first_index: Option<u64>,
    /// The entries.
    pub entries: Vec<Bytes>,
    /// Bounds of the log. The oldest entries are removed to keep them; the newest entry is always kept.
    pub max_entries: u32,
    /// Bound in bytes, without the header.
    pub max_bytes: u64,
    /// The lifetime of the log from now on. The server deletes the log at its end.
    pub lifetime: Duration,
}

/// A part of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPage {
    /// The header.
    pub header: Bytes,
    /// The index of the oldest entry that the log has.
    pub first_index: u64,
    /// The index that the next entry will have.
    pub next_index: u64,
    /// The entries from the position of the reader, or from the oldest if that is later.
    pub entries: Vec<Bytes>,
}

/// Stores logs. Each method is one trip; the server's clock ends lifetimes.
#[async_trait::async_trait]
pub(in crate::store) trait LogEngine {
    /// Appends to logs independently of each other: after an error, some of them may have been appended. Repeating an append
    /// of numbered entries changes nothing.
    async fn append_to_logs(&self, appends: &[LogAppend]) -> Result<(), StateError>;

    /// Reads entries from an index, of about `max_bytes`, at least one if there is one; `None` if there is no such log.
    async fn read_log(&self, log: u128, from: u64, max_bytes: u32) -> Result<Option<LogPage>, StateError>;

    /// Returns whether the last heartbeat of a gateway arrived within its lifetime.
    async fn check_gateway(&self, gateway: &str) -> Result<bool, StateError>;
}

/// The number of entries that one trip may return.
pub(in crate::store) const MAX_PAGE_ENTRIES: u32 = 1_000;
