//! Health probe of one bridged agent: probes periodically whether the gateway can reach the agent. The bridge announces
//! only reachable agents as available (R118). A probe calls no agent, and its result affects no task.

use super::AgentInvoker;
use crate::mqtt_client::jittered_pause;
use std::{sync::Arc, time::Duration};
use tokio::{sync::watch, task::JoinSet};

/// Interval between two probes: of a reachable agent, and of an unreachable one.
const PROBE_INTERVALS: (Duration, Duration) = (Duration::from_secs(4), Duration::from_secs(2));

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
            tokio::time::sleep(jittered_pause(if is_reachable { PROBE_INTERVALS.0 } else { PROBE_INTERVALS.1 })).await;
        }
    });
    (health, task)
}
