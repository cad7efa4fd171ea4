//! The wait for the first call with a key.

use super::first_outcome::FirstOutcome;
use futures_util::future::BoxFuture;
use std::fmt;

/// Waits for the first call with the same key.
pub struct FirstCallWaiter(BoxFuture<'static, Option<FirstOutcome>>);

impl FirstCallWaiter {
    /// Creates a waiter. The future returns the outcome, or `None` when the key is released. It must not miss a change
    /// between this moment and its first poll.
    pub fn new(outcome: impl Future<Output = Option<FirstOutcome>> + Send + 'static) -> Self {
        Self(Box::pin(outcome))
    }

    /// Waits for the outcome of the first call; `None` if that call did not reach the agent.
    pub async fn wait(self) -> Option<FirstOutcome> {
        self.0.await
    }
}

impl fmt::Debug for FirstCallWaiter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("FirstCallWaiter")
    }
}
