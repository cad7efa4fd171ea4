//! Asynchronous tasks and resumable event streams: a task's record and states, the buffer of its events, its callback,
//! and the cleanup after a gateway process that died. A task belongs to the caller that started it. This module calls
//! no agent and writes no response: `gateway` does.

mod callback;
mod config;
mod desk;
mod events;
mod follower;
mod house;
mod live;
mod make;
mod record;
mod shelf;

pub use callback::CallbackConfig;
pub use config::{Config, Resume};
pub use desk::{Desk, New, Services};
pub use events::position;
pub use follower::{Follower, Next};
pub use live::Live;
pub use record::{Answer, Outcome, State, Task};

#[cfg(test)]
mod tests;
