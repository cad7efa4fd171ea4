//! Whether the statuses of agents are read from one broker. Some brokers close the connection of a client that
//! subscribes to a topic that they do not permit, and with it the calls of all agents.

use std::time::{Duration, Instant};

/// After so many connections in a row that ended during a subscription to statuses, none are read for a while. A single
/// end may have other reasons.
pub(super) const MAX_ENDS: u32 = 2;
/// How long no statuses are read then.
const PAUSE: Duration = Duration::from_secs(600);
/// How long after the pause the first subscription waits for a moment without other calls, which it could end.
const MAX_WAIT: Duration = PAUSE;

/// What became of the subscriptions to statuses on one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StatusRequests {
    /// There were none.
    None,
    /// The broker answered all of them.
    Answered,
    /// The connection ended before the broker answered.
    EndedConnection,
}

/// Returns whether statuses are not read at `now`, because of a pause until `until`. After the pause, the first
/// subscription waits for a moment without other calls, but not for longer than [`MAX_WAIT`].
pub(super) fn is_paused(until: Option<Instant>, now: Instant, has_other_calls: impl FnOnce() -> bool) -> bool {
    until.is_some_and(|until| now < until || (now < until + MAX_WAIT && has_other_calls()))
}

/// The history of the connections to one broker.
#[derive(Debug, Default)]
pub(super) struct StatusReading {
    /// The number of connections in a row that ended during a subscription to statuses.
    ends: u32,
    paused_until: Option<Instant>,
}

impl StatusReading {
    /// The time before which no statuses are read.
    pub(super) fn paused_until(&self) -> Option<Instant> {
        self.paused_until
    }

    /// Records the end of a connection; returns how long no statuses are read if that begins now.
    pub(super) fn record_end(&mut self, requests: StatusRequests, now: Instant) -> Option<Duration> {
        match requests {
            StatusRequests::None => {}
            StatusRequests::Answered => *self = Self::default(),
            StatusRequests::EndedConnection => {
                self.ends = self.ends.saturating_add(1);
                if self.ends >= MAX_ENDS {
                    self.paused_until = Some(now + PAUSE);
                    return Some(PAUSE);
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::{StatusRequests::*, *};

    #[test]
    fn r119_the_first_subscription_after_a_pause_waits_for_a_moment_without_calls_but_not_for_ever() {
        let now = Instant::now();
        let is_paused_after =
            |passed: Duration, has_calls: bool| is_paused(Some(now + PAUSE), now + passed, || has_calls);
        let second = Duration::from_secs(1);
        assert_eq!([PAUSE - second, PAUSE].map(|passed| is_paused_after(passed, false)), [true, false]);
        let times = [PAUSE, PAUSE + MAX_WAIT - second, PAUSE + MAX_WAIT];
        assert_eq!(times.map(|passed| is_paused_after(passed, true)), [true, true, false]);
        assert!(!is_paused(Option::None, now, || panic!("calls are not counted without a pause")));
    }

    #[test]
    fn r119_statuses_are_not_read_for_a_while_after_a_second_consecutive_end() {
        let (mut reading, now) = (StatusReading::default(), Instant::now());
        for requests in [EndedConnection, Answered, EndedConnection, None] {
            assert!(reading.record_end(requests, now).is_none() && reading.paused_until().is_none(), "{requests:?}");
        }
        assert_eq!(reading.record_end(EndedConnection, now), Some(PAUSE));
        assert_eq!(reading.paused_until(), Some(now + PAUSE));
        // A connection that reads no statuses changes nothing. The first attempt after the pause decides.
        assert!(reading.record_end(None, now).is_none() && reading.paused_until() == Some(now + PAUSE));
        let later = now + PAUSE;
        assert!(
            reading.record_end(EndedConnection, later) == Some(PAUSE) && reading.paused_until() == Some(later + PAUSE)
        );
        assert!(reading.record_end(Answered, later).is_none() && reading.paused_until().is_none());
    }
}
