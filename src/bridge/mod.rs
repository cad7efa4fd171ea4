//! The bridge: agents of the gateway as agents of the 2389 protocol on a broker (R104–R134). What arrives is judged here
//! in the order that the protocol says, and what is published is written here. It makes no call to an agent itself, and
//! decides nothing about who may call: that is asked of whoever made it.

mod memory;
mod task;
mod topic;
mod words;

pub use task::instructed;

/// How many steps may follow one another (R121).
pub const DEEPEST: usize = 16;
/// Bytes of one message, in both directions (R116).
pub const LARGEST: usize = 256 << 10;
