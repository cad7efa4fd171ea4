//! An entry of an event log: an event, or a part of a very long one.

use crate::task::sse_splitter::EventChunk;
use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};

const ENDS_EVENT: u8 = 1;
const BEGINS_EVENT: u8 = 2;
/// Bytes of an entry besides the event: flags and the number.
pub(super) const ENTRY_OVERHEAD: usize = 9;

/// An entry of an event log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LogEntry {
    /// Number of the event.
    pub(super) number: u64,
    /// Whether the event begins with this part.
    pub(super) begins_event: bool,
    /// Whether the event ends with this part.
    pub(super) ends_event: bool,
    /// The part.
    pub(super) bytes: Bytes,
}

impl LogEntry {
    /// Encodes a part of an event for the log: flags, the number in eight bytes, and the part.
    pub(super) fn encode(chunk: &EventChunk, begins_event: bool) -> Bytes {
        let mut entry = BytesMut::with_capacity(ENTRY_OVERHEAD + chunk.bytes.len());
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        entry.put_u8(flag(chunk.ends_event, ENDS_EVENT) | flag(begins_event, BEGINS_EVENT));
        entry.put_u64(chunk.number);
        entry.put_slice(&chunk.bytes);
        entry.freeze()
    }

    /// Reads an entry; `None` if another program wrote it.
    pub(super) fn decode(mut entry: Bytes) -> Option<Self> {
        let flags = entry.try_get_u8().ok()?;
        let number = entry.try_get_u64().ok()?;
        let (begins_event, ends_event) = (flags & BEGINS_EVENT != 0, flags & ENDS_EVENT != 0);
        Some(Self { number, begins_event, ends_event, bytes: entry })
    }
}
