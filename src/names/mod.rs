//! `agent://` names resolved (R46–R64): from a name to where its agent is called, by what the operator wrote, what the
//! domain publishes, and what the standards say where neither says anything. It calls no agent, and believes of a
//! document only where it leads: everything is fetched in bounds, from addresses that anybody could reach.

mod config;
mod did;
mod domain;
mod explicit;
mod finger;
pub mod hints;
mod led;
mod library;
pub mod members;
mod place;
mod resolved;
mod resolver;
mod trail;
mod turns;

pub use config::{Cache, Config, Target};
pub use place::{on_origin, version_place};
pub use resolved::Resolved;
pub use resolver::Resolver;
pub use trail::{Outcome, Step};

#[cfg(test)]
mod tests;
