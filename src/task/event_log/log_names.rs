//! The names of the logs in the shared state: hashes, because readers derive them from what a caller sends.

use crate::values::sha256;

/// Returns the name of the log of a task's events.
pub(super) fn events_of_task(id: &str) -> u128 {
    hash("task-events", id)
}

/// Returns the name of the log of commands to a gateway.
pub(super) fn commands_to_gateway(gateway: &str) -> u128 {
    hash("stream-commands", gateway)
}

fn hash(kind: &str, name: &str) -> u128 {
    let hash = sha256(format!("{kind}:{name}").as_bytes());
    hash.iter().take(16).fold(0, |number, byte| number << 8 | u128::from(*byte))
}
