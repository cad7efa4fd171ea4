//! MQTT bridge: exposes agents of the gateway on an MQTT broker as agents of the 2389 protocol (R104–R134). Validates
//! incoming tasks in the order of the protocol's steps and builds the published messages. Its [`AgentInvoker`] calls the
//! agents and checks grants; its users choose which agents are exposed.

mod agent_connection;
mod agent_health;
mod agent_presence;
mod agent_session;
mod config;
mod deduplication;
mod delivery;
mod exposure;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod merge_instruction;
mod mqtt_topic;
mod payload;
mod running_tasks;
mod task_envelope;
mod task_id_file;
mod task_runner;

pub use agent_presence::AgentPresence;
pub use config::{MqttBridgeConfig, ResolvedBridgeConfig};
pub use exposure::Exposure;
pub use merge_instruction::merge_instruction;
pub use payload::StatusDetails;

use crate::fault::Fault;
use bytes::Bytes;

/// Maximum number of further steps in a task's pipeline (R121).
pub const MAX_PIPELINE_STEPS: usize = 16;

/// Calls agents on behalf of tasks.
#[async_trait::async_trait]
pub trait AgentInvoker: Send + Sync {
    /// Calls an agent and returns its response as one JSON text.
    ///
    /// # Errors
    /// Fails with the fault that a caller over HTTP would receive.
    async fn invoke(&self, invocation: TaskInvocation<'_>) -> Result<String, Fault>;

    /// Whether the trace context of a task counts, and passes on to the next agent of its pipeline.
    fn records_traces(&self) -> bool {
        false
    }

    /// Whether the gateway can reach the agent, as far as it can tell without a call.
    async fn is_reachable(&self, agent: &str) -> bool;
}

/// The call that a task requests.
#[derive(Clone, Debug)]
pub struct TaskInvocation<'a> {
    /// Id of the agent.
    pub agent: &'a str,
    /// Id of the task.
    pub task_id: &'a str,
    /// The session that the sender's caller named (R78).
    pub session_id: Option<&'a str>,
    /// The task that the sender's caller named (R78); not the task of the protocol.
    pub caller_task_id: Option<&'a str>,
    /// Instruction for the agent, if the task has one; see [`merge_instruction()`].
    pub instruction: Option<&'a str>,
    /// The input, one JSON text.
    pub input: Bytes,
    /// The trace context of the message, as header fields.
    pub trace_context: &'a [(String, String)],
}
