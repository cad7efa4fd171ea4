//! What a proxy keeps: resident memory at its start, after the calls, and with many callers
//! connected that ask for nothing.

use crate::client::Connection;
use crate::load::Target;
use crate::process::Process;
use anyhow::Context as _;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files that the run needs besides the idle connections.
const OWN_FILES: u64 = 500;

/// Raises the limit of open files, for us and for what we start, as far as it may go; the
/// answer is how many of the wanted connections fit.
pub(crate) fn make_room(wanted: u64) -> anyhow::Result<u64> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    let room = limit.maximum.unwrap_or(u64::MAX).saturating_sub(OWN_FILES);
    Ok(wanted.min(room))
}

/// Opens `count` connections, makes one call on each, keeps them all, and reads what the
/// process then holds, in KiB.
pub(crate) fn with_idle(process: &Process, target: &Target, count: u64) -> anyhow::Result<u64> {
    let mut idle = Vec::new();
    for number in 1..=count {
        let mut connection = Connection::open(target.address)?.small();
        let status = connection.call(&target.request);
        let status = status.with_context(|| format!("idle connection {number}"))?;
        anyhow::ensure!(status == 200, "idle connection {number} was answered {status}");
        idle.push(connection);
    }
    process.resident()
}
