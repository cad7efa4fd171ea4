//! Ranks of the priorities in use: load shedding refuses the lowest rank first.

use super::config::TierConfig;

/// Priority of callers without a tier, and of tiers without a priority.
pub(super) const DEFAULT_PRIORITY: u8 = 5;

/// Rank of each priority in use; the lowest is 0.
#[derive(Debug)]
pub(super) struct PriorityRanks(Vec<u8>);

impl PriorityRanks {
    pub(super) fn new<'a>(tiers: impl Iterator<Item = &'a TierConfig>) -> Self {
        let mut priorities: Vec<u8> =
            tiers.map(|tier| tier.priority.unwrap_or(DEFAULT_PRIORITY)).chain([DEFAULT_PRIORITY]).collect();
        priorities.sort_unstable();
        priorities.dedup();
        Self(priorities)
    }

    pub(super) fn rank_of(&self, priority: u8) -> u32 {
        u32::try_from(self.0.iter().filter(|each| **each < priority).count()).unwrap_or_default()
    }

    pub(super) fn count(&self) -> u32 {
        u32::try_from(self.0.len()).unwrap_or(u32::MAX)
    }
}
