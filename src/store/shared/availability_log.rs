//! Limits how often the log says that something is unavailable and available again. Something that changes every second
//! would fill the log otherwise.

use parking_lot::Mutex;
use std::time::Duration;
use tokio::time::Instant;

/// At most `MAX_WARNINGS` are logged within `WARNING_PERIOD`.
const MAX_WARNINGS: usize = 3;
const WARNING_PERIOD: Duration = Duration::from_secs(180);

/// What was logged last.
#[derive(Debug, Default)]
pub(super) struct AvailabilityLog(Mutex<LogState>);

#[derive(Debug, Default)]
struct LogState {
    /// When the last warnings were logged, the oldest first.
    warnings: [Option<Instant>; MAX_WARNINGS],
    /// Whether the last entry is a warning.
    is_warned: bool,
    /// Outages that no warning has mentioned.
    unreported: u32,
}

impl AvailabilityLog {
    /// Records an outage that begins. Returns how many outages a warning is to mention, if one is due.
    pub(super) fn record_outage(&self) -> Option<u32> {
        self.0.lock().unreported += 1;
        self.due_warning()
    }

    /// Returns how many outages a warning is to mention, if one is due. For outages that last, whose beginning was not
    /// logged.
    pub(super) fn due_warning(&self) -> Option<u32> {
        let mut state = self.0.lock();
        let [oldest, ..] = state.warnings;
        let is_due = oldest.is_none_or(|at| at.elapsed() >= WARNING_PERIOD);
        if state.is_warned || state.unreported == 0 || !is_due {
            return None;
        }
        state.warnings.rotate_left(1);
        let [.., newest] = &mut state.warnings;
        *newest = Some(Instant::now());
        state.is_warned = true;
        Some(std::mem::take(&mut state.unreported))
    }

    /// Records the end of an outage, and returns whether it is to be logged: its beginning was.
    pub(super) fn record_recovery(&self) -> bool {
        std::mem::take(&mut self.0.lock().is_warned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn many_short_outages_cause_few_warnings_and_none_that_lasts_is_hidden() {
        let log = AvailabilityLog::default();
        for _ in 0..MAX_WARNINGS {
            assert_eq!(log.record_outage(), Some(1));
            assert!(log.record_recovery());
        }
        for _ in 0..30 {
            assert_eq!(log.record_outage(), None);
            assert!(!log.record_recovery(), "the end of an outage that was not logged is not logged");
        }
        assert_eq!(log.record_outage(), None);
        tokio::time::advance(WARNING_PERIOD).await;
        assert_eq!(log.due_warning(), Some(31), "an outage that lasts is logged later");
        assert_eq!(log.due_warning(), None);
        assert!(log.record_recovery());
    }
}
