//! The order in which due callbacks are delivered: clients in turn, and one client has at most a share of the places.

use crate::{
    store::DueCallback,
    values::{ClientKey, CountedHold, KeyedCounts},
};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

/// Callbacks that are due, by client. Callbacks of tasks whose client is not stored count as those of one client.
#[derive(Debug, Default)]
pub(super) struct CallbackQueue {
    due: BTreeMap<ClientKey, VecDeque<Arc<str>>>,
    running: Arc<KeyedCounts<ClientKey>>,
}

impl CallbackQueue {
    /// Replaces what is due.
    pub(super) fn set_due(&mut self, callbacks: Vec<DueCallback>) {
        self.due.clear();
        for DueCallback { task, client } in callbacks {
            self.due.entry(client).or_default().push_back(task);
        }
    }

    /// Takes the next callback, of the client that has the fewest places, if it has less than `max_per_client`. The place
    /// is held until the returned hold is dropped.
    pub(super) fn take_next(&mut self, max_per_client: usize) -> Option<(Arc<str>, CountedHold<ClientKey>)> {
        let client = *self.due.keys().min_by_key(|client| self.running.held(**client))?;
        let hold = self.running.try_hold(client, 1, max_per_client)?;
        let tasks = self.due.get_mut(&client)?;
        let task = tasks.pop_front();
        if tasks.is_empty() {
            self.due.remove(&client);
        }
        Some((task?, hold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(client: u64, count: usize) -> impl Iterator<Item = DueCallback> {
        (0..count).map(move |at| DueCallback { task: format!("{client}-{at}").into(), client: ClientKey::new(client) })
    }

    #[test]
    fn clients_take_turns_and_one_client_has_its_share_only() {
        let mut queue = CallbackQueue::default();
        queue.set_due(due(1, 100).chain(due(2, 3)).collect());
        let taken: Vec<_> = std::iter::from_fn(|| queue.take_next(32)).collect();
        let of = |client: &str| taken.iter().filter(|(task, _)| task.starts_with(client)).count();
        assert_eq!((of("1-"), of("2-")), (32, 3));
        assert!(taken.iter().take(6).filter(|(task, _)| task.starts_with("2-")).count() == 3, "in turn");
        queue.set_due(due(1, 100).chain(due(3, 1)).collect());
        assert_eq!(&*queue.take_next(32).unwrap().0, "3-0");
        assert!(queue.take_next(32).is_none(), "the share is used up");
        drop(taken);
        assert_eq!(&*queue.take_next(32).unwrap().0, "1-0");
    }
}
