//! The moments of a load at a constant rate, as nanoseconds of the machine's monotonic clock.

use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{ClockId, Timespec};

/// Nanoseconds from the start of a load at a constant rate until its first call is due.
pub(super) const START_DELAY_NANOS: u64 = 20_000_000;

/// Blocks the thread until a moment. Returns at once if the moment has passed.
pub(crate) fn wait_until(moment: u64) -> anyhow::Result<()> {
    let moment = i64::try_from(moment)?;
    let time = Timespec { tv_sec: moment / 1_000_000_000, tv_nsec: moment % 1_000_000_000 };
    Ok(clock_nanosleep_absolute(ClockId::Monotonic, &time)?)
}
