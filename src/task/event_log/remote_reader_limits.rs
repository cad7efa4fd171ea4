//! Bounds on the readers of tasks and streams of other gateways: each holds a page of events and polls the shared state.

use crate::{
    fault::{Fault, FaultCode, Result},
    values::{ClientKey, CountedHold, KeyedCounts, MaxShare},
};
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum number of readers of one task at one gateway that does not run it.
pub(in crate::task) const MAX_READERS_PER_TASK: usize = 16;

/// The bounds: of all readers of this gateway, of one client, and of one task.
#[derive(Debug)]
pub(in crate::task) struct RemoteReaderLimits {
    max: usize,
    all: Arc<Semaphore>,
    of_clients: Arc<KeyedCounts<ClientKey>>,
    of_tasks: Arc<KeyedCounts<u128>>,
}

/// The place of one reader, until it is dropped.
#[derive(Debug)]
pub(in crate::task) struct ReaderPermit {
    _of_all: OwnedSemaphorePermit,
    _of_client: CountedHold<ClientKey>,
    _of_task: CountedHold<u128>,
}

impl RemoteReaderLimits {
    /// Allows `max` readers.
    pub(in crate::task) fn new(max: usize) -> Self {
        let all = Arc::new(Semaphore::new(max.min(Semaphore::MAX_PERMITS)));
        Self { max, all, of_clients: Arc::default(), of_tasks: Arc::default() }
    }

    /// Takes a place for a reader of the task with a valid id.
    ///
    /// # Errors
    /// `RateLimited` if the client has its share of all readers, or the task has all readers that it may have;
    /// `Overloaded` if there are too many in all.
    pub(in crate::task) fn acquire(&self, client: ClientKey, id: &str, share: MaxShare) -> Result<ReaderPermit> {
        let task = u128::from_str_radix(id, 16).unwrap_or_default();
        let of_client = self.of_clients.try_hold(client, 1, share.of(self.max)).ok_or_else(|| {
            let text = "The caller follows its share of the tasks of other gateways (limits.max_share)";
            Fault::new(FaultCode::RateLimited, text)
        })?;
        let of_task = self.of_tasks.try_hold(task, 1, MAX_READERS_PER_TASK).ok_or_else(|| {
            let text = format!("The task has {MAX_READERS_PER_TASK} readers at this gateway, which does not run it");
            Fault::new(FaultCode::RateLimited, text)
        })?;
        let of_all = Arc::clone(&self.all)
            .try_acquire_owned()
            .map_err(|_| Fault::new(FaultCode::Overloaded, "Too many tasks of other gateways are followed"))?;
        Ok(ReaderPermit { _of_all: of_all, _of_client: of_client, _of_task: of_task })
    }
}
