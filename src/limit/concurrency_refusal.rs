//! The faults of calls that get no slot of an agent's concurrency.

use super::{
    config::ConcurrencyConfig,
    limit_refusal::{LimitRefusal, setting_of},
};
use crate::{
    agent::AgentId,
    fault::{Fault, FaultCode, NamedTimeout, TimeoutSource},
    telemetry::LimitKind,
    values::ConfigDuration,
};
use std::{fmt::Display, num::NonZeroU32, time::Duration};

/// Why a call gets no slot.
#[derive(Clone, Copy, Debug)]
pub(super) enum ConcurrencyRefusal<'a> {
    /// The client has its share of the slots.
    Share { max_slots: u32, max_concurrency: u32, retry_after: Duration },
    /// The client has its share of the wait queue.
    QueueShare { max_queued: u32, retry_after: Duration },
    /// The fixed maximum is reached.
    Fixed { max_concurrency: NonZeroU32, retry_after: Duration, why: &'a str },
    /// The adaptive limit is reached.
    Adaptive { limit: u32, retry_after: Duration, why: &'a str },
    /// The maximum of all gateways is reached.
    Shared { max_concurrency: u32, retry_after: Duration, why: &'a str },
    /// The maximum of all gateways cannot be checked, and calls are refused then.
    Unavailable,
}

impl ConcurrencyRefusal<'_> {
    /// Returns the limit that refuses.
    pub(super) const fn limit(&self) -> LimitKind {
        match self {
            Self::Share { .. } | Self::QueueShare { .. } => LimitKind::ConcurrencyShare,
            Self::Fixed { .. } => LimitKind::Concurrency,
            Self::Adaptive { .. } => LimitKind::AdaptiveConcurrency,
            Self::Shared { .. } | Self::Unavailable => LimitKind::SharedConcurrency,
        }
    }

    /// Builds the fault of a call to `agent`.
    pub(super) fn fault(&self, agent: &AgentId) -> Fault {
        let with_detail = |fault: Fault, retry_after: Duration, detail: &dyn Display| {
            let detail = format_args!("agent {agent}: {detail}");
            fault.with_retry_after(retry_after).with_detail(detail).with_setting(setting_of(self.limit()))
        };
        match *self {
            Self::Share { max_slots, max_concurrency, retry_after } => {
                let text = format!(
                    "The caller has {max_slots} calls to this agent in progress, its share of {max_concurrency} (limits.max_share)"
                );
                let fault = Fault::new(FaultCode::RateLimited, text);
                with_detail(fault, retry_after, &"the caller's share of the concurrency limit is used up")
            }
            Self::QueueShare { max_queued, retry_after } => {
                let text =
                    format!("The caller has {max_queued} calls waiting for this agent, its share (limits.max_share)");
                let fault = Fault::new(FaultCode::RateLimited, text);
                with_detail(fault, retry_after, &"the caller's share of the wait queue is used up")
            }
            Self::Fixed { max_concurrency, retry_after, why } => {
                let fault = agent_overloaded("The agent is at its concurrency limit, which all callers share");
                let fault = name_wait(fault, why, Some(retry_after));
                with_detail(fault, retry_after, &format_args!("concurrency limit {max_concurrency} reached, {why}"))
            }
            Self::Adaptive { limit, retry_after, why } => {
                let fault = agent_overloaded("The agent is at its adaptive concurrency limit, which all callers share");
                // A call of a congested queue waits for less.
                let fault = name_wait(fault, why, None);
                with_detail(fault, retry_after, &format_args!("adaptive concurrency limit {limit} reached, {why}"))
            }
            Self::Shared { max_concurrency, retry_after, why } => {
                let text = "The agent is at its concurrency limit, which all callers of all gateways share";
                let detail = format!("shared concurrency limit {max_concurrency} reached, {why}");
                with_detail(name_wait(agent_overloaded(text), why, Some(retry_after)), retry_after, &detail)
            }
            Self::Unavailable => LimitRefusal::StoreUnavailable(LimitKind::SharedConcurrency).into_fault(),
        }
    }
}

/// Why a call gets no slot that waited in vain.
pub(super) const QUEUE_TIMEOUT_ELAPSED: &str = "queue_timeout elapsed";

/// Says in the fault of a call that waited in vain which timeout ended the wait.
fn name_wait(fault: Fault, why: &str, after: Option<Duration>) -> Fault {
    if why != QUEUE_TIMEOUT_ELAPSED {
        return fault;
    }
    let after = after.map(|after| ConfigDuration::from_millis(after.as_millis() as u64).to_string());
    let source = TimeoutSource::Setting(QUEUE_TIMEOUT.to_owned());
    fault.with_named_timeout(&NamedTimeout { name: QUEUE_TIMEOUT, after, source })
}

/// The setting that bounds the wait.
const QUEUE_TIMEOUT: &str = "limits.concurrency.queue_timeout";

/// Returns the 503 for a call beyond the agent's concurrency. The fault names the agent as the cause, so that callers
/// do not look for a limit of their own.
fn agent_overloaded(text: &'static str) -> Fault {
    Fault::new(FaultCode::Overloaded, text).with_member("overloaded", "agent".into())
}

/// Returns the fault of a call of a caller that has `max` calls in progress.
pub(super) fn caller_concurrency_fault(max: NonZeroU32, config: &ConcurrencyConfig) -> Fault {
    let text = format!("The caller has {max} calls in progress (limits.concurrency.max_per_caller)");
    let fault = Fault::new(FaultCode::RateLimited, text).with_retry_after(config.queue_timeout.get());
    fault.with_setting(setting_of(LimitKind::CallerConcurrency))
}
