//! Resolver of `agent://` names (R46–R64): from a name to its agent's endpoint, through the operator's map, documents
//! that the domain publishes, and https as the fallback. It calls no agent, and takes only addresses from documents:
//! every fetch is bounded, and goes to public addresses.

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
