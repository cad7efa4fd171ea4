//! The bridge: agents of the gateway as agents of the 2389 protocol on a broker (R104–R134). What arrives is judged here
//! in the order that the protocol says, and what is published is written here. It makes no call to an agent itself, and
//! decides nothing about who may call or which agents are offered: that is asked of its [`House`].

mod config;
mod memory;
mod presence;
mod session;
mod task;
mod topic;
mod words;

pub use config::Config;
pub use presence::{Offer, Presence};
pub use task::instructed;
pub use words::Card;

use crate::fault::Fault;
use bytes::Bytes;

/// How many steps may follow one another (R121).
pub const DEEPEST: usize = 16;

/// Whoever makes the calls that tasks ask for.
#[async_trait::async_trait]
pub trait House: Send + Sync {
    /// Calls `agent` for the task with the id `task`; `input` is one JSON text, and so is the answer.
    ///
    /// # Errors
    /// Whatever a caller over HTTP would be answered.
    async fn call(&self, agent: &str, task: &str, input: Bytes) -> Result<String, Fault>;
}
