//! How many entries a trip to the shared state carries.

/// Minimum of entries of a trip, and how many more a trip may carry after a full one was answered.
const STEP: usize = 16;

/// The maximum size of trips, which follows the server: it is halved when a trip is not answered in time, and grows while
/// full trips are answered.
#[derive(Debug)]
pub(super) struct TripSize {
    max: usize,
    current: usize,
}

impl TripSize {
    pub(super) fn new(max: usize) -> Self {
        Self { max, current: max }
    }

    pub(super) fn get(&self) -> usize {
        self.current
    }

    /// Records that a trip of `entries` was answered in time.
    pub(super) fn record_reply(&mut self, entries: usize) {
        if entries >= self.current {
            self.current = (self.current + STEP).min(self.max);
        }
    }

    /// Records that a trip of `entries` was not answered in time.
    pub(super) fn record_timeout(&mut self, entries: usize) {
        self.current = (self.current.min(entries) / 2).max(STEP.min(self.max));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_is_halved_after_a_timeout_and_grows_with_full_trips() {
        let mut size = TripSize::new(256);
        size.record_reply(256);
        assert_eq!(size.get(), 256);
        size.record_timeout(256);
        assert_eq!(size.get(), 128);
        size.record_reply(100);
        assert_eq!(size.get(), 128, "a smaller trip proves nothing");
        size.record_reply(128);
        assert_eq!(size.get(), 144);
        (0..9).for_each(|_| size.record_timeout(144));
        assert_eq!(size.get(), STEP);
        (0..99).for_each(|_| size.record_reply(size.get()));
        assert_eq!(size.get(), 256);
    }
}
