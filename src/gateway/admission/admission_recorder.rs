//! What the admission pipeline reports while it judges a call, so that a refused call is recorded like an admitted one.

use crate::{
    auth::{AccessRule, Caller},
    explain::{DeadlineSource, DecisionStep},
    fault::{Result, Violation},
    gateway::route::Route,
    limit::{LimitInspection, RateLimitStatus},
    telemetry::ShadowDenials,
    trace::{CallPhase, SpanScope},
};
use bytes::Bytes;
use parking_lot::Mutex;
use std::{
    sync::{Arc, OnceLock},
    time::Instant,
};

/// Receives what the pipeline finds out about a call.
pub(in crate::gateway) trait AdmissionRecorder {
    /// Returns the call id.
    fn call_id(&self) -> &str;

    /// Returns when the call arrived.
    fn arrived_at(&self) -> Instant;

    /// Returns whether the call, or the call that it is a part of, passed load shedding already.
    fn is_exempt_from_shedding(&self) -> bool;

    /// Returns where the input is kept if it may be JSON-RPC: a fault is then written as a JSON-RPC error with the
    /// request's id.
    fn buffered_input(&self) -> &OnceLock<Bytes>;

    /// Records the authenticated caller, also of a call that is refused.
    fn record_caller(&mut self, caller: &Arc<Caller>);

    /// Records the agent, once the caller may know that it exists.
    fn record_route(&mut self, route: &Arc<Route>);

    /// Records the operation that is called, as its index in the route.
    fn record_operation(&mut self, operation: usize);

    /// Records the rules in shadow mode that would have refused the call.
    fn record_shadow_denials(&mut self, _: ShadowDenials) {}

    /// Returns the place of the call in its trace, if it has one.
    fn trace_scope(&self) -> Option<&SpanScope> {
        None
    }

    /// Records that the call passed the steps before this one, and that this one decides next.
    fn begin_step(&mut self, _: DecisionStep) {}

    /// Records what refuses the caller at the agent of this id.
    fn record_access_refusal(&mut self, _: AccessRule, _agent: &str) {}

    /// Records what bounds the time of the call.
    fn record_deadline(&mut self, _: DeadlineSource) {}

    /// Returns whether the call is a dry run: its limits are asked and not charged, and nothing is counted.
    fn is_dry_run(&self) -> bool {
        false
    }

    /// Records what the limits would decide of a dry run, and returns it.
    ///
    /// # Errors
    /// The refusal of the first limit that refuses.
    fn record_limits(&mut self, inspection: LimitInspection) -> Result<Option<RateLimitStatus>> {
        inspection.result
    }

    /// Records the share of calls of the caller's tier that load shedding refuses now, in a dry run.
    ///
    /// # Errors
    /// The refusal, if every call is refused.
    fn record_shed_share(&mut self, share: Result<f64>) -> Result<()> {
        share.map(drop)
    }

    /// Returns where a dry run collects the violations of a contract that is not enforced.
    fn unenforced_violations(&self) -> Option<&Mutex<Vec<Violation>>> {
        None
    }

    /// Ends the span of the current step, and begins that of the next one, if there is one.
    fn enter_phase(&mut self, _: Option<CallPhase>) {}
}
