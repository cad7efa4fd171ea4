//! Deduplication of tasks (R125): remembers the ids of recent tasks, bounded in number and time.

use std::{
    collections::{HashSet, VecDeque},
    time::{Duration, Instant},
};
use uuid::Uuid;

/// Ids of recent tasks, oldest first.
#[derive(Debug)]
pub(super) struct Memory {
    most: usize,
    lasts: Duration,
    known: HashSet<Uuid>,
    order: VecDeque<(Instant, Uuid)>,
}

impl Memory {
    pub(super) fn new(most: usize, lasts: Duration) -> Self {
        Self { most, lasts, known: HashSet::new(), order: VecDeque::new() }
    }

    /// Records `id` and returns whether it is new.
    pub(super) fn is_first(&mut self, id: Uuid, now: Instant) -> bool {
        while let Some((came, oldest)) = self.order.front()
            && now.saturating_duration_since(*came) >= self.lasts
        {
            self.known.remove(oldest);
            self.order.pop_front();
        }
        if !self.known.insert(id) {
            return false;
        }
        self.order.push_back((now, id));
        if self.order.len() > self.most
            && let Some((_, oldest)) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn r125_a_task_id_is_a_duplicate_until_it_expires() {
        let (mut memory, began) = (Memory::new(10, Duration::from_secs(60)), Instant::now());
        let id = Uuid::new_v4();
        assert!(memory.is_first(id, began));
        assert!(!memory.is_first(id, began + Duration::from_secs(59)));
        assert!(memory.is_first(id, began + Duration::from_secs(60)));
    }

    proptest! {
        #[test]
        fn r125_memory_is_bounded_and_keeps_the_newest(ids in prop::collection::vec(0u128..40, 0..200), most in 1usize..20) {
            let (mut memory, now) = (Memory::new(most, Duration::from_secs(60)), Instant::now());
            let mut seen: Vec<u128> = Vec::new();
            for id in ids {
                let expected = !seen.iter().rev().take(most).any(|known| *known == id);
                prop_assert_eq!(memory.is_first(Uuid::from_u128(id), now), expected);
                if expected {
                    seen.push(id);
                }
                prop_assert!(memory.order.len() <= most && memory.known.len() == memory.order.len());
            }
        }
    }
}
