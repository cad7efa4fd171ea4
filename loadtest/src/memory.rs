//! Resident memory of a proxy with many idle connections, and the limit of open files that they need.

use crate::client::Connection;
use crate::load::Target;
use crate::process::Process;
use anyhow::Context as _;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Open files that the run needs besides the idle connections.
const OWN_FILES: u64 = 500;

/// Raises the limit of open files to its maximum, for this process and the processes that it starts. Returns how many
/// of the `wanted` connections the limit allows.
pub(crate) fn make_room(wanted: u64) -> anyhow::Result<u64> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    let available = limit.maximum.unwrap_or(u64::MAX).saturating_sub(OWN_FILES);
    Ok(wanted.min(available))
}

/// Opens `count` connections, makes one call on each, and returns the resident memory of the process while all of them
/// are open, in KiB.
pub(crate) fn with_idle(process: &Process, target: &Target, count: u64) -> anyhow::Result<u64> {
    let mut idle = Vec::new();
    for number in 1..=count {
        let mut connection = Connection::open(target.address)?.small();
        let status = connection.call(&target.request);
        let status = status.with_context(|| format!("idle connection {number}"))?;
        anyhow::ensure!(status == 200, "idle connection {number} got status {status}");
        idle.push(connection);
    }
    process.resident()
}
