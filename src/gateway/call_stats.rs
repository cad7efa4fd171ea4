//! Bytes, durations and attempts of a call.

use crate::{telemetry::ShadowDenials, transport::AttemptCount};
use std::{
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

/// Bytes, durations and attempts of a call.
#[derive(Debug, Default)]
pub(super) struct CallStats {
    pub(super) bytes_in: u64,
    pub(super) bytes_out: u64,
    pub(super) upstream_duration: Option<Duration>,
    attempts: AttemptCount,
    /// The tries of a background call, which may outlive the request.
    background_attempts: OnceLock<Arc<AttemptCount>>,
    /// The rules in shadow mode that would have refused the call.
    pub(super) shadow_denials: ShadowDenials,
    /// Time up to the head of the response in which the agent was not waited for.
    pub(super) gateway_duration: Option<Duration>,
    /// When the agent sent what the gateway had waited for, until the head of the response is written.
    pub(super) replied_at: Option<Instant>,
}

impl CallStats {
    /// Returns the number of tries to reach the agent, which the transport counts.
    pub(super) fn attempts(&self) -> &AttemptCount {
        &self.attempts
    }

    /// Returns the number of tries of a background call.
    pub(super) fn background_attempts(&self) -> Arc<AttemptCount> {
        Arc::clone(self.background_attempts.get_or_init(Arc::default))
    }

    /// Returns how many tries to reach the agent have begun.
    pub(super) fn attempted(&self) -> u32 {
        self.attempts.get() + self.background_attempts.get().map_or(0, |attempts| attempts.get())
    }

    /// Returns whether an attempt was made to send the call to the agent.
    pub(super) fn is_sent(&self) -> bool {
        self.gateway_duration.is_some()
    }
}
