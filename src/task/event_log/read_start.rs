//! Where a reader of a log begins: after the event that its caller has, or with the oldest complete event.

use super::log_entry::LogEntry;

/// Where a reader begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadStart {
    /// With the oldest complete event.
    Oldest,
    /// After the event with this number; 0 is the start of the log.
    After(u64),
}

/// The position of an entry, as seen by a reader that looks for its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryPosition {
    /// The entry is before the start.
    BeforeStart,
    /// The reader begins with this entry.
    AtStart,
    /// The entry that the reader begins with is missing: it was evicted, or there was no such event.
    AfterGap,
}

impl ReadStart {
    /// Returns the index from which the log is read, which is not beyond the last entry of the event that the caller has:
    /// each event has at least one entry.
    pub(super) fn first_index(self) -> u64 {
        match self {
            Self::Oldest => 0,
            Self::After(number) => number.saturating_sub(1),
        }
    }

    /// Returns the position of an entry.
    pub(super) fn position_of(self, entry: &LogEntry) -> EntryPosition {
        match self {
            Self::Oldest if entry.begins_event => EntryPosition::AtStart,
            Self::After(number) if entry.number == number + 1 && entry.begins_event => EntryPosition::AtStart,
            Self::After(number) if entry.number > number => EntryPosition::AfterGap,
            Self::Oldest | Self::After(_) => EntryPosition::BeforeStart,
        }
    }

    /// Returns whether the event that the caller has is the last of a log, so that the reader begins with the next entry.
    /// `last` is the last entry, if one was read; `first_index` is the index of the oldest entry of the log.
    pub(super) fn is_end(self, last: Option<&LogEntry>, first_index: u64) -> bool {
        match (self, last) {
            // Without an entry, an oldest event may have begun before the log.
            (Self::Oldest, _) => false,
            (Self::After(number), None) => number == 0 && first_index == 0,
            (Self::After(number), Some(last)) => last.number == number && last.ends_event,
        }
    }
}
