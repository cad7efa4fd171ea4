//! The least rate at which a caller must send its body. Only the time counts in which the gateway waits for the caller:
//! an agent that takes a streamed body slowly is not the caller's fault.

use std::{pin::Pin, time::Duration};
use tokio::time::{Instant, timeout_at};

/// The time over which the rate is measured.
const WINDOW: Duration = Duration::from_secs(10);

/// Why a part of a body did not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyTimeout {
    /// Nothing arrived for too long.
    Idle,
    /// Less arrived than the rate requires.
    TooSlow,
}

/// Measures how fast one body arrives.
#[derive(Debug)]
pub(super) struct BodyRateMeter {
    /// The bytes that must arrive in each window; 0 requires none.
    min_bytes: usize,
    /// What arrived in the window, and how long the gateway has waited in it.
    received: usize,
    waited: Duration,
}

/// A wait for the caller, which counts also if it is cancelled.
struct CountedWait<'a> {
    waited: &'a mut Duration,
    since: Instant,
}

impl Drop for CountedWait<'_> {
    fn drop(&mut self) {
        *self.waited += self.since.elapsed();
    }
}

impl BodyRateMeter {
    /// Creates a meter that requires `min_rate` bytes per second.
    pub(super) fn new(min_rate: usize) -> Self {
        let min_bytes = min_rate.saturating_mul(WINDOW.as_secs() as usize);
        Self { min_bytes, received: 0, waited: Duration::ZERO }
    }

    /// Records a part that arrived.
    pub(super) fn record(&mut self, bytes: usize) {
        self.received = self.received.saturating_add(bytes);
    }

    /// Waits for the next part until `deadline`.
    pub(super) async fn wait<T>(
        &mut self,
        mut part: Pin<&mut impl Future<Output = T>>,
        deadline: Instant,
    ) -> Result<T, BodyTimeout> {
        loop {
            let since = Instant::now();
            let window_end = since + WINDOW.saturating_sub(self.waited);
            let wait_until = if self.min_bytes == 0 { deadline } else { deadline.min(window_end) };
            let counted = CountedWait { waited: &mut self.waited, since };
            let arrived = timeout_at(wait_until, part.as_mut()).await;
            drop(counted);
            if let Ok(part) = arrived {
                return Ok(part);
            }
            if wait_until == deadline {
                return Err(BodyTimeout::Idle);
            }
            if self.received < self.min_bytes {
                return Err(BodyTimeout::TooSlow);
            }
            (self.received, self.waited) = (0, Duration::ZERO);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{future::pending, pin::pin};
    use tokio::time::{sleep, timeout};

    const FAR: Duration = Duration::from_secs(3_600);

    /// Receives parts of `bytes` bytes, one in each `interval`; returns how the body ends within ten minutes.
    async fn receive(mut meter: BodyRateMeter, bytes: usize, interval: Duration) -> Option<BodyTimeout> {
        let receive = async {
            loop {
                match meter.wait(pin!(sleep(interval)), Instant::now() + FAR).await {
                    Ok(()) => meter.record(bytes),
                    Err(timeout) => return timeout,
                }
            }
        };
        timeout(Duration::from_secs(600), receive).await.ok()
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_below_the_rate_ends_after_ten_seconds_and_one_above_it_never() {
        let started_at = Instant::now();
        assert_eq!(receive(BodyRateMeter::new(1_024), 1, Duration::from_secs(1)).await, Some(BodyTimeout::TooSlow));
        assert_eq!(started_at.elapsed(), WINDOW);
        assert_eq!(receive(BodyRateMeter::new(1_024), 20_480, Duration::from_secs(9)).await, None);
        assert_eq!(receive(BodyRateMeter::new(1_024), 1_000, Duration::from_millis(900)).await, None);
        assert_eq!(receive(BodyRateMeter::new(0), 1, Duration::from_secs(60)).await, None, "no rate is required");
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_counts_in_its_own_window_only() {
        let mut meter = BodyRateMeter::new(1_024);
        meter.record(1 << 20);
        let started_at = Instant::now();
        let ended = meter.wait(pin!(pending::<()>()), Instant::now() + FAR).await;
        assert_eq!((ended, started_at.elapsed()), (Err(BodyTimeout::TooSlow), 2 * WINDOW));
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_time_of_waiting_for_the_caller_counts_and_a_cancelled_wait_counts_too() {
        let mut meter = BodyRateMeter::new(1_024);
        let mut nothing = pin!(pending::<()>());
        let cancelled = meter.wait(nothing.as_mut(), Instant::now() + FAR);
        assert!(timeout(Duration::from_secs(4), cancelled).await.is_err());
        // The agent takes the body slowly.
        sleep(Duration::from_secs(100)).await;
        let started_at = Instant::now();
        let ended = meter.wait(pin!(pending::<()>()), Instant::now() + FAR).await;
        assert_eq!((ended, started_at.elapsed()), (Err(BodyTimeout::TooSlow), Duration::from_secs(6)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_that_is_too_long_ends_the_body_before_the_window() {
        let mut meter = BodyRateMeter::new(1_024);
        let ended = meter.wait(pin!(pending::<()>()), Instant::now() + Duration::from_secs(2)).await;
        assert_eq!(ended, Err(BodyTimeout::Idle));
    }
}
