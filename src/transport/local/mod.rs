//! Local runtimes: agents on this machine that register themselves (R51), with a descriptor in a private folder or
//! with a lease over the admin listener. Each call looks the address up, so that a stopped runtime disappears at once.
//! This module starts no runtime, and trusts no file that another user of the machine could have written.

mod local_runtime_config;
mod local_runtimes;
mod local_transport;
mod runtime_folder;
mod runtime_lease;

pub use local_runtime_config::LocalRuntimeConfig;
pub(super) use local_runtimes::LocalRuntimes;
pub(super) use local_transport::LocalTransports;
pub use runtime_lease::LeaseGrant;
