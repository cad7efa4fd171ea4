//! Bytes, durations and attempts of a call.

use crate::telemetry::ShadowDenials;
use std::time::{Duration, Instant};

/// Bytes, durations and attempts of a call.
#[derive(Debug, Default)]
pub(super) struct CallStats {
    pub(super) bytes_in: u64,
    pub(super) bytes_out: u64,
    pub(super) upstream_duration: Option<Duration>,
    pub(super) attempts: u32,
    /// The rules in shadow mode that would have refused the call.
    pub(super) shadow_denials: ShadowDenials,
    /// Time up to the head of the response in which the agent was not waited for.
    pub(super) gateway_duration: Option<Duration>,
    /// When the agent sent what the gateway had waited for, until the head of the response is written.
    pub(super) replied_at: Option<Instant>,
}

impl CallStats {
    /// Returns whether an attempt was made to send the call to the agent.
    pub(super) fn is_sent(&self) -> bool {
        self.gateway_duration.is_some()
    }
}
