//! Deduplication of tasks (R125): remembers the ids of recent tasks, bounded in number and time.

use std::{
    collections::{HashSet, VecDeque},
    time::{Duration, Instant},
};
use uuid::Uuid;

/// Ids of recent tasks, oldest first.
#[derive(Debug)]
pub(super) struct RecentTaskIds {
    capacity: usize,
    ttl: Duration,
    ids: HashSet<Uuid>,
    order: VecDeque<(Instant, Uuid)>,
}

impl RecentTaskIds {
    pub(super) fn new(capacity: usize, ttl: Duration) -> Self {
        Self { capacity, ttl, ids: HashSet::new(), order: VecDeque::new() }
    }

    /// Records ids of tasks that finished this long before `now`, oldest first.
    pub(super) fn restore(&mut self, finished: impl IntoIterator<Item = (Uuid, Duration)>, now: Instant) {
        for (id, age) in finished {
            self.insert_if_new(id, now.checked_sub(age).unwrap_or(now));
        }
    }

    /// Forgets an id.
    pub(super) fn remove(&mut self, id: &Uuid) {
        if self.ids.remove(id) {
            self.order.retain(|(_, recent)| recent != id);
        }
    }

    /// An empty memory of another size, in which ids expire after the same time.
    pub(super) fn with_capacity(&self, capacity: usize) -> Self {
        Self::new(capacity, self.ttl)
    }

    /// Returns whether `id` was recorded and has not expired.
    pub(super) fn contains(&mut self, id: &Uuid, now: Instant) -> bool {
        self.drop_expired(now);
        self.ids.contains(id)
    }

    fn drop_expired(&mut self, now: Instant) {
        while let Some((received_at, oldest)) = self.order.front()
            && now.saturating_duration_since(*received_at) >= self.ttl
        {
            self.ids.remove(oldest);
            self.order.pop_front();
        }
    }

    /// Records `id` and returns whether it is new.
    pub(super) fn insert_if_new(&mut self, id: Uuid, now: Instant) -> bool {
        self.drop_expired(now);
        if !self.ids.insert(id) {
            return false;
        }
        self.order.push_back((now, id));
        if self.order.len() > self.capacity
            && let Some((_, oldest)) = self.order.pop_front()
        {
            self.ids.remove(&oldest);
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
        let (mut recent_ids, start) = (RecentTaskIds::new(10, Duration::from_secs(60)), Instant::now());
        let id = Uuid::new_v4();
        assert!(recent_ids.insert_if_new(id, start));
        assert!(!recent_ids.insert_if_new(id, start + Duration::from_secs(59)));
        assert!(recent_ids.insert_if_new(id, start + Duration::from_secs(60)));
    }

    #[test]
    fn r125_a_forgotten_id_is_new_and_then_expires_later() {
        let (mut recent_ids, start) = (RecentTaskIds::new(10, Duration::from_secs(60)), Instant::now());
        let id = Uuid::new_v4();
        assert!(recent_ids.insert_if_new(id, start));
        recent_ids.remove(&id);
        assert!(recent_ids.insert_if_new(id, start + Duration::from_secs(30)));
        assert!(!recent_ids.insert_if_new(id, start + Duration::from_secs(60)), "it expires later than the first one");
    }

    #[test]
    fn r125_restored_ids_expire_when_they_would_have_without_the_restart() {
        let (mut recent_ids, now) = (RecentTaskIds::new(10, Duration::from_secs(60)), Instant::now());
        let (older, newer) = (Uuid::new_v4(), Uuid::new_v4());
        recent_ids.restore([(older, Duration::from_secs(50)), (newer, Duration::ZERO)], now);
        assert!(!recent_ids.insert_if_new(older, now) && !recent_ids.insert_if_new(newer, now));
        let later = now + Duration::from_secs(59);
        // A machine that started less than 50 s ago cannot express the older time.
        assert!(recent_ids.insert_if_new(older, later) || now.checked_sub(Duration::from_secs(50)).is_none());
        assert!(!recent_ids.insert_if_new(newer, later));
    }

    proptest! {
        #[test]
        fn r125_memory_is_bounded_and_keeps_the_newest(ids in prop::collection::vec(0u128..40, 0..200), capacity in 1usize..20) {
            let (mut recent_ids, now) = (RecentTaskIds::new(capacity, Duration::from_secs(60)), Instant::now());
            let mut seen: Vec<u128> = Vec::new();
            for id in ids {
                let expected = !seen.iter().rev().take(capacity).any(|recent| *recent == id);
                prop_assert_eq!(recent_ids.insert_if_new(Uuid::from_u128(id), now), expected);
                if expected {
                    seen.push(id);
                }
                prop_assert!(recent_ids.order.len() <= capacity && recent_ids.ids.len() == recent_ids.order.len());
            }
        }
    }
}
