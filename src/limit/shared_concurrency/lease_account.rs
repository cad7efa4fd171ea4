//! One agent's slots in one gateway: those that are leased, those that calls use, and the calls that wait. It decides
//! nothing by itself: each method gets the circumstances, and the exchanger makes the trips.

use crate::{
    limit::on_error::OnError,
    store::{LeaseEntry, LeaseReply},
    values::random_duration,
};
use std::{collections::VecDeque, time::Duration};
use tokio::sync::oneshot;

/// Time between two exchanges of an agent with calls in progress.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(1);
/// Time between two exchanges of an agent with slots that no call uses, and the periods for whose peak slots are kept: a
/// slot that was not used for two of them is given back.
const IDLE_INTERVAL: Duration = Duration::from_millis(250);
const PEAK_PERIOD: Duration = Duration::from_millis(500);
/// Time after which slots are given back, so that several are given back in one trip.
const RETURN_DELAY: Duration = Duration::from_millis(10);
/// Bounds of the time between two draws for calls that wait.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(20);
const MAX_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// How much earlier than the server a gateway takes a lease for ended, because clocks run differently.
const LEASE_MARGIN: Duration = Duration::from_millis(500);
/// Trips without a reply after which calls are decided without the server.
const MAX_FAILURES: u32 = 3;
/// Maximum of slots that calls which do not wait ask for between two exchanges.
const MAX_HINTS: u32 = 16;

/// Circumstances of a decision.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeaseTimes {
    /// Time since the gateway started.
    pub(super) now: Duration,
    /// Whether the server answers, as far as is known.
    pub(super) is_available: bool,
    /// Gateways that were alive last.
    pub(super) gateways: u32,
    /// What decides while the server cannot be reached.
    pub(super) on_error: OnError,
}

/// What became of a call that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotOutcome {
    /// It has a slot, which the account counts as used.
    Granted,
    /// No slot is free.
    Refused,
    /// The server cannot be reached, and calls are refused then.
    Unavailable,
}

/// What a call finds without waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotAttempt {
    /// It has a slot, which the account counts as used.
    Granted,
    /// The server has to be asked.
    MustDraw,
    /// No slot is free; the call may wait in the queue.
    MustQueue,
    /// The server cannot be reached, and calls are refused then.
    Unavailable,
}

/// A call that waits.
type Waiter = oneshot::Sender<SlotOutcome>;

/// One agent's slots in one gateway.
#[derive(Debug)]
pub(super) struct LeaseAccount {
    max: u32,
    /// Slots that are leased, without those that are given back in a trip under way.
    slots: u32,
    lease_end: Duration,
    /// Slots that calls use; more than are leased while the server cannot be reached.
    in_use: u32,
    /// Slots of all gateways, and the share of this one, at the last reply.
    total: u32,
    share: u32,
    /// Maximum of used slots in this period and the one before.
    peak: u32,
    previous_peak: u32,
    period_end: Duration,
    /// Whether slots are kept for later calls at all.
    keeps_slots: bool,
    /// Slots that calls which do not wait would have used.
    hints: u32,
    /// Calls that wait for the next reply.
    drawing: VecDeque<Waiter>,
    /// How many of them the trip under way asks for.
    sent_draws: usize,
    /// Calls that wait until a slot becomes free.
    queued: VecDeque<Waiter>,
    /// Whether the server knows of calls that wait.
    reported_waiting: bool,
    /// Trips without a reply since the last reply.
    failures: u32,
    /// When the exchanger was asked to visit the account.
    wake_at: Option<Duration>,
}

impl LeaseAccount {
    pub(super) fn new(max: u32) -> Self {
        Self {
            max,
            slots: 0,
            lease_end: Duration::ZERO,
            in_use: 0,
            total: 0,
            share: max,
            peak: 0,
            previous_peak: 0,
            period_end: Duration::ZERO,
            keeps_slots: true,
            hints: 0,
            drawing: VecDeque::new(),
            sent_draws: 0,
            queued: VecDeque::new(),
            reported_waiting: false,
            failures: 0,
            wake_at: None,
        }
    }

    pub(super) fn max(&self) -> u32 {
        self.max
    }

    /// Changes the maximum. Calls in progress go on.
    pub(super) fn set_max(&mut self, max: u32) {
        if self.max != max {
            self.max = max;
            self.share = max;
        }
    }

    /// Stops keeping slots for later calls, because the gateway stops.
    pub(super) fn stop_keeping(&mut self) {
        self.keeps_slots = false;
    }

    /// Takes a slot for a call, if the gateway has one and no call waits for it.
    pub(super) fn try_take(&mut self, times: LeaseTimes) -> SlotAttempt {
        let has_waiting_calls = self.has_waiting_calls();
        if !has_waiting_calls && self.in_use < self.usable(times) {
            self.take();
            return SlotAttempt::Granted;
        }
        match times.on_error {
            _ if times.is_available => {
                let has_queue = self.queued.iter().any(|waiter| !waiter.is_closed());
                if has_queue { SlotAttempt::MustQueue } else { SlotAttempt::MustDraw }
            }
            OnError::Closed => SlotAttempt::Unavailable,
            OnError::Local | OnError::Open => SlotAttempt::MustQueue,
        }
    }

    /// Decides a call for which the server has not answered in time. It takes no slot for which others are queued.
    pub(super) fn take_without_server(&mut self, times: LeaseTimes) -> SlotOutcome {
        let times = LeaseTimes { is_available: false, ..times };
        let has_queue = self.queued.iter().any(|waiter| !waiter.is_closed());
        if !has_queue && self.in_use < self.usable(times) {
            self.take();
            return SlotOutcome::Granted;
        }
        match times.on_error {
            OnError::Closed => SlotOutcome::Unavailable,
            OnError::Local | OnError::Open => SlotOutcome::Refused,
        }
    }

    /// Asks for one slot more with the next exchange, for a call that does not wait.
    pub(super) fn hint(&mut self) {
        self.hints = self.hints.saturating_add(1).min(MAX_HINTS);
        // So that the slot is kept for it, while slots are.
        self.peak = self.peak.max(self.in_use.saturating_add(self.hints));
    }

    /// Adds a call that waits for the reply of the server.
    pub(super) fn draw(&mut self) -> oneshot::Receiver<SlotOutcome> {
        let (waiter, outcome) = oneshot::channel();
        self.drawing.push_back(waiter);
        outcome
    }

    /// Adds a call that waits until a slot becomes free. It may have one at once.
    pub(super) fn enqueue(&mut self, times: LeaseTimes) -> oneshot::Receiver<SlotOutcome> {
        let (waiter, outcome) = oneshot::channel();
        self.queued.push_back(waiter);
        self.grant_up_to(self.usable(times));
        outcome
    }

    /// Gives back the slot of a call that has ended. A call that waits gets it, unless calls of other gateways wait and
    /// this gateway has its share.
    pub(super) fn release(&mut self, times: LeaseTimes) {
        self.in_use = self.in_use.saturating_sub(1);
        self.grant_up_to(self.usable(times));
    }

    /// Returns whether a call would get a slot, as far as is known: one that the gateway has, or one that the server has.
    pub(super) fn is_free(&self, times: LeaseTimes) -> bool {
        let may_draw = times.is_available && self.total < self.max;
        !self.has_waiting_calls() && (may_draw || self.in_use < self.usable(times))
    }

    /// Returns whether calls are refused because the server cannot be reached.
    pub(super) fn is_closed(&self, times: LeaseTimes) -> bool {
        !times.is_available && times.on_error == OnError::Closed && self.in_use >= self.usable(times)
    }

    /// Begins an exchange: returns what to send, and keeps no more slots than that.
    pub(super) fn begin_exchange(&mut self, id: u128, times: LeaseTimes) -> LeaseEntry {
        self.wake_at = None;
        self.begin_period(times.now);
        for waiters in [&mut self.drawing, &mut self.queued] {
            waiters.retain(|waiter| !waiter.is_closed());
        }
        let leased = self.leased(times.now);
        let kept = if self.keeps_idle_slots() { self.peak.max(self.previous_peak) } else { 0 };
        let held = self.in_use.max(kept.min(leased));
        let waiting = u32::try_from(self.drawing.len() + self.queued.len()).unwrap_or(u32::MAX);
        let hints = std::mem::take(&mut self.hints);
        let is_returning = held < leased;
        // What is given back because calls of others wait is not drawn again before they have asked for it.
        let wanted = if is_returning && self.others_wait() {
            held
        } else {
            held.max(self.in_use.saturating_add(waiting).saturating_add(hints)).saturating_add(self.reserve(waiting))
        };
        self.slots = held;
        self.sent_draws = self.drawing.len();
        self.reported_waiting = waiting > 0;
        LeaseEntry { id, max: self.max, held, wanted: wanted.min(self.max.max(held)), waiting }
    }

    /// Applies a reply to what was sent at `sent_at`. Calls that wait get the slots that were added.
    pub(super) fn finish_exchange(&mut self, reply: LeaseReply, sent_at: Duration, lifetime: Duration) {
        self.failures = 0;
        self.slots = reply.slots;
        self.lease_end = sent_at + lifetime.saturating_sub(LEASE_MARGIN);
        (self.total, self.share) = (reply.total, reply.share.min(self.max));
        // Also beyond the share: the server has granted what shares leave over.
        self.grant_up_to(self.slots);
        self.refuse_draws();
    }

    /// Records that there is no reply. While the server is taken for available, calls wait for the next trips, those of
    /// draws as long as a draw may take; after some trips, or if it is not available, they are decided without it.
    pub(super) fn fail_exchange(&mut self, times: LeaseTimes) {
        self.failures = self.failures.saturating_add(1);
        self.wake_at = None;
        if times.is_available && self.failures < MAX_FAILURES {
            return;
        }
        let times = LeaseTimes { is_available: false, ..times };
        // Also those that have arrived since.
        self.sent_draws = self.drawing.len();
        self.grant_up_to(self.usable(times));
        if times.on_error == OnError::Closed {
            for waiter in self.drawing.drain(..).chain(self.queued.drain(..)) {
                // A call that waits no more needs no answer.
                let _ = waiter.send(SlotOutcome::Unavailable);
            }
        }
        self.refuse_draws();
    }

    /// Returns how long the next exchange has time; `None` if the server need not hear of the agent.
    pub(super) fn next_exchange(&self, times: LeaseTimes) -> Option<Duration> {
        let idle = self.leased(times.now).saturating_sub(self.in_use);
        if self.failures > 0 && !self.has_waiting_calls() {
            // The server may be busy, and may count slots that the gateway has given back.
            Some(IDLE_INTERVAL)
        } else if self.has_waiting_calls() {
            Some(MIN_POLL_INTERVAL + random_duration(MAX_POLL_INTERVAL - MIN_POLL_INTERVAL))
        } else if self.hints > 0 {
            Some(Duration::ZERO)
        } else if idle > 0 && self.keeps_idle_slots() {
            Some(IDLE_INTERVAL)
        } else if idle > 0 || self.reported_waiting {
            Some(RETURN_DELAY)
        } else {
            (self.in_use > 0).then_some(RENEWAL_INTERVAL)
        }
    }

    /// Returns when the exchanger must be asked to visit the account, if it was not asked for that time or an earlier one.
    pub(super) fn needed_wake(&mut self, delay: Duration, now: Duration) -> Option<Duration> {
        let at = now + delay;
        let is_needed = self.wake_at.is_none_or(|asked| at < asked);
        is_needed.then(|| *self.wake_at.insert(at))
    }

    /// Returns how soon the server must hear of a call that has begun without it.
    pub(super) fn report_delay(&self, times: LeaseTimes) -> Option<Duration> {
        (self.in_use > self.leased(times.now)).then_some(IDLE_INTERVAL)
    }

    /// Returns how soon slots must be given back after a call has ended, if they must before the next renewal.
    pub(super) fn return_delay(&self, times: LeaseTimes) -> Option<Duration> {
        let is_idle = self.leased(times.now) > self.in_use;
        (is_idle && !self.keeps_idle_slots() && times.is_available).then_some(RETURN_DELAY)
    }

    fn has_waiting_calls(&self) -> bool {
        self.queued.iter().chain(&self.drawing).any(|waiter| !waiter.is_closed())
    }

    fn others_wait(&self) -> bool {
        self.share < self.max
    }

    /// Whether slots that no call uses are kept: the gateways use at most half of the maximum.
    fn keeps_idle_slots(&self) -> bool {
        self.keeps_slots && !self.others_wait() && self.total <= self.max / 2
    }

    fn leased(&self, now: Duration) -> u32 {
        if now < self.lease_end { self.slots } else { 0 }
    }

    /// Returns how many slots calls may use.
    fn usable(&self, times: LeaseTimes) -> u32 {
        let leased = self.leased(times.now);
        match times.on_error {
            _ if times.is_available => leased.min(self.share),
            // Not more if more are leased: others may have begun to count for themselves.
            OnError::Local => (self.max / times.gateways.max(1)).max(1),
            OnError::Open => u32::MAX,
            OnError::Closed => leased,
        }
    }

    /// Returns how many slots to draw beyond those that calls wait for, so that the next calls need no trip.
    fn reserve(&self, waiting: u32) -> u32 {
        let has_room = waiting > 0 && self.keeps_idle_slots();
        let room = (self.max / 2).saturating_sub(self.total.saturating_add(waiting)) / 4;
        if has_room { room.min(self.in_use / 4 + 1) } else { 0 }
    }

    fn take(&mut self) {
        self.in_use += 1;
        self.peak = self.peak.max(self.in_use);
    }

    fn begin_period(&mut self, now: Duration) {
        if now >= self.period_end {
            self.previous_peak = self.peak;
            self.peak = self.in_use;
            self.period_end = now + PEAK_PERIOD;
        }
    }

    /// Gives slots to the calls that wait, in order of arrival, while calls use fewer than `limit`.
    fn grant_up_to(&mut self, limit: u32) {
        while self.in_use < limit {
            let waiter = match self.queued.pop_front() {
                Some(waiter) => waiter,
                None => match self.drawing.pop_front() {
                    Some(waiter) => {
                        self.sent_draws = self.sent_draws.saturating_sub(1);
                        waiter
                    }
                    None => return,
                },
            };
            if waiter.send(SlotOutcome::Granted).is_ok() {
                self.take();
            }
        }
    }

    /// Tells the calls of the last trip that no slot is free.
    fn refuse_draws(&mut self) {
        for waiter in self.drawing.drain(..self.sent_draws.min(self.drawing.len())) {
            // A call that waits no more needs no answer.
            let _ = waiter.send(SlotOutcome::Refused);
        }
        self.sent_draws = 0;
    }
}
