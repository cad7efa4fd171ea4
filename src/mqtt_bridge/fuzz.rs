//! Entry points for fuzzing: task envelopes.

use super::{
    deduplication::RecentTaskIds,
    task_envelope::{IncomingTask, TaskValidator, TaskVerdict},
};
use std::time::{Duration, Instant};

/// Validates an envelope twice: a task is processed once, and what is published is JSON.
pub fn check_task_envelope(data: &[u8]) {
    let mut validator = TaskValidator::new("a", RecentTaskIds::new(100, Duration::from_secs(60)), vec!["#".to_owned()]);
    let message = IncomingTask { topic: "/control/agents/a/input", payload: data, retained: false, repeated: false };
    let now = Instant::now();
    match validator.validate_and_deduplicate(&message, now) {
        TaskVerdict::Process(_) => {
            let again = validator.validate_and_deduplicate(&message, now);
            assert!(matches!(again, TaskVerdict::Duplicate(_)), "a task was processed twice");
        }
        TaskVerdict::Refuse(outgoing) => {
            assert!(serde_json::from_slice::<serde_json::Value>(&outgoing.payload).is_ok(), "not JSON");
        }
        TaskVerdict::Discard(_) | TaskVerdict::Duplicate(_) => {}
    }
}
