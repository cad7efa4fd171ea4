//! Health probe of one bridged agent: probes periodically whether the gateway can reach the agent. The bridge announces
//! only reachable agents as available (R118). A probe calls no agent, and its result affects no task.

use super::AgentInvoker;
use crate::values::jittered;
use std::{sync::Arc, time::Duration};
use tokio::{sync::watch, task::JoinSet};

/// Interval between two probes of a reachable agent, and of an unreachable one, before jitter.
const REACHABLE_PROBE_INTERVAL: Duration = Duration::from_secs(4);
const UNREACHABLE_PROBE_INTERVAL: Duration = Duration::from_secs(2);
/// How much the interval varies in either direction, as a share of it.
const PROBE_JITTER: f64 = 0.5;

/// Result of the last probe; `None` before the first probe.
pub(super) type AgentHealth = watch::Receiver<Option<bool>>;

/// Starts probing `agent`. Dropping the returned set stops the probes.
pub(super) fn spawn_health_probe(invoker: &Arc<dyn AgentInvoker>, agent: &str) -> (AgentHealth, JoinSet<()>) {
    let (results, health) = watch::channel(None);
    let (invoker, agent, mut task) = (Arc::clone(invoker), agent.to_owned(), JoinSet::new());
    task.spawn(async move {
        loop {
            let is_reachable = invoker.is_reachable(&agent).await;
            results.send_if_modified(|last| last.replace(is_reachable) != Some(is_reachable));
            let interval = if is_reachable { REACHABLE_PROBE_INTERVAL } else { UNREACHABLE_PROBE_INTERVAL };
            tokio::time::sleep(jittered(interval, PROBE_JITTER)).await;
        }
    });
    (health, task)
}
