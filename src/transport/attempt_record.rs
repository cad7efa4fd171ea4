//! The record of one try at an endpoint in the metrics of its agent, however the try ends.

use super::upstream_reply::UpstreamReply;
use crate::{
    fault::Fault,
    telemetry::{AgentMetrics, AttemptResult},
};

/// A try at an endpoint. A record that is dropped before the try ended counts the try as aborted.
pub(super) struct AttemptRecord<'a>(Option<&'a AgentMetrics>);

impl<'a> AttemptRecord<'a> {
    pub(super) fn start(metrics: Option<&'a AgentMetrics>) -> Self {
        Self(metrics)
    }

    /// Records the response to a call, or why there is none.
    pub(super) fn finish(self, outcome: &Result<UpstreamReply, Fault>) {
        self.finish_with(match outcome {
            Ok(reply) if reply.status.is_server_error() => AttemptResult::ErrorResponse,
            Ok(_) => AttemptResult::Success,
            Err(fault) => AttemptResult::of_fault(fault),
        });
    }

    pub(super) fn finish_with(mut self, result: AttemptResult) {
        if let Some(metrics) = self.0.take() {
            metrics.record_attempt(result);
        }
    }
}

impl Drop for AttemptRecord<'_> {
    fn drop(&mut self) {
        if let Some(metrics) = self.0 {
            metrics.record_attempt(AttemptResult::Aborted);
        }
    }
}
