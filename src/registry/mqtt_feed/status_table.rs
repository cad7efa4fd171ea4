//! Status table: the last status of each agent of one broker, and the updates not yet reported to the registry. The
//! status that arrived last counts, whatever its timestamp; an agent whose status is invalid keeps its document.
//! The table is bounded in agents and bytes, and independent of sockets and MQTT packets.

use super::{
    status_message::{self, Availability},
    status_table_state::{
        AgentEntry, OVERFLOW_PART, PartName, PendingReport, QUIET_PERIOD, StatusTableState, SubscriptionState,
    },
};
use crate::{
    registry::feed::{FeedPart, PartUpdate, PollResult},
    values::{json::truncate, sha256},
};
use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};
use tokio::{sync::Notify, time::Instant};

/// Maximum size in bytes of all documents together.
const MAX_TOTAL_SIZE: usize = 256 << 20;

/// The status table, shared by the feed and its subscriber.
#[derive(Debug)]
pub(super) struct StatusTable {
    /// URL of the broker, with which agents' endpoints begin.
    broker: String,
    max_agents: usize,
    max_bytes: usize,
    state: Mutex<StatusTableState>,
    notify: Notify,
}

impl StatusTable {
    pub(super) fn new(broker: String, max_agents: usize) -> Self {
        Self::with_max_bytes(broker, max_agents, MAX_TOTAL_SIZE)
    }

    pub(super) fn with_max_bytes(broker: String, max_agents: usize, max_bytes: usize) -> Self {
        let state = StatusTableState {
            agents: HashMap::new(),
            bytes: 0,
            subscription: SubscriptionState::Connecting,
            session: 0,
            missing_removed: false,
            unreported: HashSet::new(),
            pending_report: None,
            complete_acknowledged: false,
            polled_early: false,
            overflowed_in: None,
        };
        Self { broker, max_agents, max_bytes, state: Mutex::new(state), notify: Notify::new() }
    }

    fn lock_state(&self) -> MutexGuard<'_, StatusTableState> {
        self.state.lock()
    }

    /// Records a new connection.
    pub(super) fn record_connected(&self) {
        let mut state = self.lock_state();
        state.session += 1;
        state.missing_removed = false;
    }

    /// Records that the subscription was accepted.
    pub(super) fn record_subscribed(&self) {
        self.lock_state().subscription = SubscriptionState::Subscribed(Instant::now());
        self.notify.notify_one();
    }

    /// Whether there is no connection, nor an attempt that has not failed yet.
    pub(super) fn is_disconnected(&self) -> bool {
        matches!(self.lock_state().subscription, SubscriptionState::Disconnected(_))
    }

    /// Records that the connection is lost. Known agents stay.
    pub(super) fn record_disconnected(&self, why: String) {
        self.lock_state().subscription = SubscriptionState::Disconnected(why);
        self.notify.notify_one();
    }

    /// Removes the agents that did not publish again in this connection, once they have had time to.
    pub(super) fn remove_missing_agents(&self) {
        let mut state = self.lock_state();
        let session = state.session;
        let missing: Vec<PartName> = state
            .agents
            .iter()
            .filter(|(_, entry)| entry.session != session)
            .map(|(name, _)| Arc::clone(name))
            .collect();
        for name in missing {
            state.remove_agent(&name);
        }
        if state.overflowed_in.take_if(|overflow_session| *overflow_session != session).is_some() {
            state.unreported.insert(OVERFLOW_PART.into());
        }
        state.missing_removed = true;
        self.notify.notify_one();
    }

    /// Processes one message.
    pub(super) fn process_message(&self, topic: &[u8], payload: &[u8], retained: bool) {
        let Some(id) = std::str::from_utf8(topic).ok().and_then(status_message::agent_id_of_topic) else { return };
        let parsed = status_message::parse_status(&id, payload);
        let name: PartName = truncate(&id, 128).into();
        let mut state = self.lock_state();
        if retained && let SubscriptionState::Subscribed(since) = &mut state.subscription {
            *since = Instant::now();
        }
        match parsed {
            Ok(message) if message.availability == Availability::Cleared => state.remove_agent(&name),
            Ok(message) => {
                let fields = match message.availability {
                    Availability::Available(fields) => Ok(fields),
                    _ => Err(()),
                };
                self.update_agent(&mut state, &name, fields);
                state.record_timestamp_validity(&name, message.invalid_timestamp);
            }
            Err(why) => self.record_invalid_status(&mut state, &name, why),
        }
        if !state.unreported.is_empty() {
            self.notify.notify_one();
        }
    }

    /// Records that the agent is available with these fields, or not available.
    fn update_agent(
        &self,
        state: &mut StatusTableState,
        name: &PartName,
        fields: Result<serde_json::Map<String, serde_json::Value>, ()>,
    ) {
        let previous = state.agents.get(name).and_then(|entry| entry.document.as_ref());
        let available = fields.is_ok();
        // An unavailable status has no other fields (R113): the previous ones stay.
        let fields = fields
            .unwrap_or_else(|()| previous.and_then(|(text, _)| serde_json::from_slice(text).ok()).unwrap_or_default());
        let text = status_message::build_document(fields, name, &self.broker, available);
        let (previous_size, session) = (previous.map_or(0, |(text, _)| text.len()), state.session);
        let bytes = state.bytes + text.len() - previous_size;
        if bytes > self.max_bytes || !self.has_capacity(state, name) {
            return state.record_overflow();
        }
        let digest = sha256(&text);
        let entry = state.agents.entry(Arc::clone(name)).or_default();
        let unchanged =
            entry.error.is_none() && entry.document.as_ref().is_some_and(|(_, previous)| *previous == digest);
        entry.session = session;
        if !unchanged {
            entry.document = Some((text, digest));
            entry.error = None;
            state.bytes = bytes;
            state.unreported.insert(Arc::clone(name));
        }
    }

    /// Records that the agent's status is invalid: its previous document stays.
    fn record_invalid_status(&self, state: &mut StatusTableState, name: &PartName, why: String) {
        if !self.has_capacity(state, name) {
            return state.record_overflow();
        }
        let session = state.session;
        let entry = state.agents.entry(Arc::clone(name)).or_default();
        entry.session = session;
        if entry.error.as_ref() != Some(&why) {
            entry.error = Some(why);
            state.unreported.insert(Arc::clone(name));
        }
    }

    fn has_capacity(&self, state: &StatusTableState, name: &PartName) -> bool {
        state.agents.len() < self.max_agents || state.agents.contains_key(name)
    }

    /// Returns the updates not yet reported; all agents, when the statuses are complete for the first time.
    pub(super) fn take_report(&self) -> PollResult {
        let mut state = self.lock_state();
        let mut result = state.base_result();
        state.polled_early = result.poll_soon;
        let complete = result.error.is_none() && !state.complete_acknowledged;
        let mut names = std::mem::take(&mut state.unreported);
        names.extend(state.pending_report.take().into_iter().flat_map(|report| report.parts.into_keys()));
        if complete {
            names.extend(state.agents.keys().cloned());
        }
        let mut report = PendingReport { parts: HashMap::with_capacity(names.len()), complete };
        for name in names {
            let (update, digest, follow_up) = match &*name {
                OVERFLOW_PART => (self.overflow_update(&state), None, false),
                _ => state.agents.get(&name).map_or((PartUpdate::Removed, None, false), AgentEntry::update),
            };
            if follow_up {
                result.poll_soon = true;
                state.unreported.insert(Arc::clone(&name));
            }
            report.parts.insert(Arc::clone(&name), digest);
            result.parts.push(FeedPart { name, update });
        }
        state.pending_report = Some(report);
        result
    }

    fn overflow_update(&self, state: &StatusTableState) -> PartUpdate {
        match state.overflowed_in {
            Some(_) => PartUpdate::Unreadable(format!(
                "more agents publish a status than fit (at most {} agents and {} MiB together)",
                self.max_agents,
                self.max_bytes >> 20
            )),
            None => PartUpdate::Removed,
        }
    }

    /// Acknowledges the last report.
    pub(super) fn acknowledge(&self) {
        let mut state = self.lock_state();
        let Some(report) = state.pending_report.take() else { return };
        state.complete_acknowledged |= report.complete;
        for (name, digest) in report.parts {
            if let Some(entry) = state.agents.get_mut(&name) {
                entry.in_force = digest;
            }
        }
    }

    /// Discards the last report: everything is reported again.
    pub(super) fn discard_report(&self) {
        let mut state = self.lock_state();
        let names = state.pending_report.take().into_iter().flat_map(|report| report.parts.into_keys());
        let names: Vec<PartName> = names.collect();
        state.unreported.extend(names);
        state.complete_acknowledged = false;
        for entry in state.agents.values_mut() {
            entry.in_force = None;
        }
    }

    /// Resolves when there is something to report, or when the retained statuses are complete after a poll that was too
    /// early.
    pub(super) async fn wait_for_update(&self) {
        let complete_at = match &*self.lock_state() {
            StatusTableState { polled_early: true, subscription: SubscriptionState::Subscribed(since), .. } => {
                Some(*since + QUIET_PERIOD)
            }
            _ => None,
        };
        tokio::select! {
            () = self.notify.notified() => {}
            () = tokio::time::sleep_until(complete_at.unwrap_or_else(Instant::now)), if complete_at.is_some() => {}
        }
    }

    /// Waits until all retained statuses are received or the connection fails, but no longer than `timeout`.
    pub(super) async fn wait_until_complete(&self, timeout: Duration) {
        let deadline = Instant::now() + timeout;
        loop {
            let wake_at = match &self.lock_state().subscription {
                SubscriptionState::Disconnected(_) => return,
                SubscriptionState::Subscribed(since) => *since + QUIET_PERIOD,
                SubscriptionState::Connecting => deadline,
            };
            if wake_at <= Instant::now() || deadline <= Instant::now() {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep_until(wake_at.min(deadline)) => {}
                () = self.notify.notified() => {}
            }
        }
    }
}
