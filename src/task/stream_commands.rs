//! Commands of other gateways to the streams of this one: that they are read there, and that they are canceled.

use super::{running_task::RunningTask, task_registry::TaskRegistry};
use crate::values::jittered;
use std::{
    sync::{Arc, Weak},
    time::Duration,
};
use tokio::time::{Instant, sleep};

/// Time between two reads of commands, and while another gateway reads a stream; each is varied by a fifth.
const IDLE_INTERVAL: Duration = Duration::from_millis(250);
const ACTIVE_INTERVAL: Duration = Duration::from_millis(50);
/// How long after the last command a stream counts as read elsewhere.
const ACTIVE_TIME: Duration = Duration::from_secs(1);

/// Applies commands to the streams of `registry`, until it is dropped. Nothing is read while no stream runs.
pub(super) async fn apply_stream_commands(registry: Weak<TaskRegistry>) {
    let (mut position, mut last_command) = (0, None::<Instant>);
    loop {
        let is_active = last_command.is_some_and(|last| last.elapsed() < ACTIVE_TIME);
        sleep(jittered(if is_active { ACTIVE_INTERVAL } else { IDLE_INTERVAL }, 0.2)).await;
        let Some(registry) = registry.upgrade() else { return };
        let Some(events) = registry.shared_events.as_ref().filter(|_| has_streams(&registry)) else { continue };
        for commands in events.read_commands(&mut position).await {
            last_command = Some(Instant::now());
            for read in &commands.reads {
                if let Some(stream) = find_stream(&registry, &read.id) {
                    stream.record_remote_read(read.next_index);
                }
            }
            for id in &commands.cancels {
                find_stream(&registry, id).iter().for_each(|stream| stream.cancel());
            }
        }
    }
}

fn has_streams(registry: &TaskRegistry) -> bool {
    registry.lock_running().values().any(|task| task.is_stream() && task.is_working())
}

fn find_stream(registry: &TaskRegistry, id: &str) -> Option<Arc<RunningTask>> {
    registry.lock_running().get(id).filter(|task| task.is_stream()).cloned()
}
