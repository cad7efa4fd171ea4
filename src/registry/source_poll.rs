//! What a poll of a source brings, and what the catalogue makes of it.

use super::feed::PollResult;
use std::time::SystemTime;

/// Generation of the set of sources; each change of the configured sources begins another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Generation(pub(super) u64);

/// Result of one poll of a source.
#[derive(Debug)]
pub struct SourcePoll {
    /// Index of the source in its generation.
    pub source: usize,
    /// What the feed reported.
    pub result: PollResult,
    /// When the source was last polled successfully, if the content was read from disk.
    pub stored_at: Option<SystemTime>,
}

/// Outcome of ingesting one poll result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IngestOutcome {
    /// The update is in force.
    Accepted {
        /// Whether any agent changed.
        changed: bool,
    },
    /// The poll failed; parts that it reported nevertheless are in force.
    Failed,
    /// The loss guard withholds the update until it is confirmed.
    Withheld,
    /// The update is rejected as a whole; the feed has to report everything again.
    Rejected,
    /// The update belongs to an earlier generation.
    Outdated,
}
