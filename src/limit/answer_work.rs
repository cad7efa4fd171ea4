//! Turns for making answers that take longer than a call may hold a thread, such as large documents, lists and pages. Each
//! client makes one at a time, as many clients as there are cores make theirs at once, and further ones wait in order. So
//! a client that asks for much waits for itself.

use super::client_shares::{ClientShares, ClientSlot};
use crate::{
    fault::{Fault, FaultCode},
    values::ClientKey,
};
use std::time::Duration;
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::timeout,
};

/// Maximum number of answers that wait for one client.
const MAX_WAITING: u32 = 256;
/// Maximum time that an answer waits for those of its client, and then for those of others.
const MAX_WAIT: Duration = Duration::from_secs(30);
/// `Retry-After` of a request beyond either.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The answers that are made and that wait.
#[derive(Debug)]
pub(super) struct AnswerWork {
    places: Semaphore,
    clients: ClientShares,
}

/// The turn of one answer, until this is dropped.
#[derive(Debug)]
pub struct AnswerTurn<'a> {
    _place: SemaphorePermit<'a>,
    /// Dropped last, so that the next answer of the client waits behind those of other clients.
    _of_client: ClientSlot,
}

impl Default for AnswerWork {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self { places: Semaphore::new(cores), clients: ClientShares::default() }
    }
}

impl AnswerWork {
    /// Waits for the turn of an answer of `client`.
    ///
    /// # Errors
    /// 429 when too many answers of the client wait, or one has waited for too long; 503 when it has waited as long for
    /// those of other clients.
    pub(super) async fn await_turn(&self, client: ClientKey) -> Result<AnswerTurn<'_>, Fault> {
        let usage = self.clients.usage(client);
        let of_client = match usage.try_acquire(1) {
            Some(slot) => slot,
            None => usage.acquire(1, MAX_WAITING, MAX_WAIT, || ()).await.ok_or_else(|| {
                let text = "Too many documents, lists or pages are made for the caller at once";
                Fault::new(FaultCode::RateLimited, text).with_retry_after(RETRY_AFTER)
            })?,
        };
        // The semaphore is never closed.
        let place = timeout(MAX_WAIT, self.places.acquire()).await.ok().and_then(Result::ok).ok_or_else(|| {
            let text = "Too many documents, lists and pages are made at once";
            Fault::new(FaultCode::Overloaded, text).with_retry_after(RETRY_AFTER)
        })?;
        Ok(AnswerTurn { _place: place, _of_client: of_client })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::{FutureExt, poll};
    use std::pin::pin;

    #[tokio::test(start_paused = true)]
    async fn r5_answers_of_one_client_wait_for_each_other_and_not_for_those_of_others() {
        let work = AnswerWork { places: Semaphore::new(2), clients: ClientShares::default() };
        let first = work.await_turn(ClientKey::new(1)).await.unwrap();
        let mut second = pin!(work.await_turn(ClientKey::new(1)));
        assert!(poll!(second.as_mut()).is_pending());
        let other = work.await_turn(ClientKey::new(2)).await.unwrap();
        // All places are taken.
        let mut third_client = pin!(work.await_turn(ClientKey::new(3)));
        assert!(poll!(third_client.as_mut()).is_pending());
        drop(first);
        let third = third_client.now_or_never().unwrap().unwrap();
        assert!(poll!(second.as_mut()).is_pending(), "another client came before it");
        drop((other, third));
        second.now_or_never().unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn r5_what_waits_for_one_client_is_bounded_in_number_and_time() {
        let work = AnswerWork::default();
        let _first = work.await_turn(ClientKey::new(1)).await.unwrap();
        let mut waiting: Vec<_> = (0..MAX_WAITING).map(|_| Box::pin(work.await_turn(ClientKey::new(1)))).collect();
        for turn in &mut waiting {
            assert!(poll!(turn.as_mut()).is_pending());
        }
        let fault = work.await_turn(ClientKey::new(1)).await.unwrap_err();
        assert_eq!((fault.http_status(), fault.retry_after_secs()), (429, Some(1)), "{fault}");
        let started = tokio::time::Instant::now();
        assert_eq!(waiting.pop().unwrap().await.unwrap_err().http_status(), 429);
        assert_eq!(started.elapsed(), MAX_WAIT);
        let work = AnswerWork { places: Semaphore::new(1), clients: ClientShares::default() };
        let _first = work.await_turn(ClientKey::new(1)).await.unwrap();
        assert_eq!(work.await_turn(ClientKey::new(2)).await.unwrap_err().http_status(), 503);
    }
}
