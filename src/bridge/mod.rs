//! The bridge: agents of the gateway as agents of the 2389 protocol on a broker (R104–R134). What arrives is judged here
//! in the order that the protocol says, and what is published is written here. It makes no call to an agent itself, and
//! decides nothing about who may call or which agents are offered: that is asked of its [`House`].

mod config;
mod health;
mod instruction;
mod memory;
mod presence;
mod session;
mod task;
mod topic;
mod words;
mod work;

pub use config::Config;
pub use instruction::instructed;
pub use presence::{Offer, Presence};
pub use words::Card;

use crate::fault::Fault;
use bytes::Bytes;

/// How many steps may follow one another (R121).
pub const DEEPEST: usize = 16;

/// Whoever makes the calls that tasks ask for.
#[async_trait::async_trait]
pub trait House: Send + Sync {
    /// Calls an agent; the answer is one JSON text.
    ///
    /// # Errors
    /// Whatever a caller over HTTP would be answered.
    async fn call(&self, asked: Asked<'_>) -> Result<String, Fault>;

    /// Whether an agent could be called now, as far as that can be told without calling it.
    async fn reaches(&self, agent: &str) -> bool;
}

/// What a task asks for.
#[derive(Clone, Debug)]
pub struct Asked<'a> {
    /// The agent.
    pub agent: &'a str,
    /// The id of the task.
    pub task: &'a str,
    /// What the agent is to do, if told; see [`instructed`].
    pub instruction: Option<&'a str>,
    /// One JSON text.
    pub input: Bytes,
}
