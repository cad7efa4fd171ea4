//! Calls that are answered later, and streams that are taken up again: a task's record and states, the events that are
//! kept of it, telling of its end, and its end in a process that died. Tasks belong to whoever began them.
//! Nothing is called and nothing is answered here: both are `gateway`'s.

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

pub use callback::Callbacks as CallbackConfig;
pub use config::{Config, Resume};
pub use desk::{Desk, New, Services};
pub use events::position;
pub use follower::{Follower, Next};
pub use live::Live;
pub use record::{Answer, Outcome, State, Task};

#[cfg(test)]
mod tests;
