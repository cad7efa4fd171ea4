//! Resident memory of a proxy with many idle connections, and the limit of open files that they need.

use crate::http1_client::Http1Connection;
use crate::load::CallTarget;
use crate::process::ServerProcess;
use anyhow::Context as _;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Open files that the run needs besides the idle connections.
const OTHER_OPEN_FILES: u64 = 500;

/// Raises the limit of open files to its maximum, for this process and the processes that it starts. Returns how many
/// of the `wanted` connections the limit allows.
pub(crate) fn raise_open_file_limit(wanted: u64) -> anyhow::Result<u64> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    let available = limit.maximum.unwrap_or(u64::MAX).saturating_sub(OTHER_OPEN_FILES);
    Ok(wanted.min(available))
}

/// Opens `count` connections, makes one call on each, and returns the resident memory of the process while all of them
/// are open, in KiB.
pub(crate) fn resident_with_idle_connections(
    process: &ServerProcess,
    target: &CallTarget,
    count: u64,
) -> anyhow::Result<u64> {
    let mut idle = Vec::new();
    for number in 1..=count {
        let mut connection = Http1Connection::connect_plain(target.address)?.with_small_buffer();
        let status = connection.call(&target.request);
        let status = status.with_context(|| format!("idle connection {number}"))?;
        anyhow::ensure!(status == 200, "idle connection {number} got status {status}");
        idle.push(connection);
    }
    process.resident_memory()
}
