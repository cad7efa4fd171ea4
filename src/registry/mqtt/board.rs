//! Status table: the last status of each agent of one broker, and what of it is not reported to the registry yet. The
//! status that arrived last counts, whatever its timestamp; an agent whose status is invalid keeps its document.
//! The table is bounded in agents and bytes, and independent of sockets and MQTT packets.

use super::{
    state::{Link, Name, QUIET, Standing, State, Telling},
    status::{self, Status},
};
use crate::{
    registry::{
        feed::{Change, News, Part},
        read::sha256,
    },
    unit::json::cut,
};
use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{sync::Notify, time::Instant};

/// Maximum size in bytes of all documents together.
const MOST_BYTES: usize = 256 << 20;
/// Name of the part that reports agents which did not fit.
pub(super) const BEYOND: &str = "/control/agents/+/status";

/// The status table, shared by the feed and its subscriber.
#[derive(Debug)]
pub(super) struct Board {
    /// URL of the broker, with which agents' endpoints begin.
    broker: String,
    most: usize,
    most_bytes: usize,
    state: Mutex<State>,
    news: Notify,
}

impl Board {
    pub(super) fn new(broker: String, most: usize) -> Self {
        Self::bounded(broker, most, MOST_BYTES)
    }

    pub(super) fn bounded(broker: String, most: usize, most_bytes: usize) -> Self {
        let state = State {
            agents: HashMap::new(),
            bytes: 0,
            link: Link::Trying,
            session: 0,
            settled: false,
            changed: HashSet::new(),
            telling: None,
            whole: false,
            early: false,
            beyond: None,
        };
        Self { broker, most, most_bytes, state: Mutex::new(state), news: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a new connection.
    pub(super) fn begin(&self) {
        let mut state = self.state();
        state.session += 1;
        state.settled = false;
    }

    /// Records that the subscription was accepted.
    pub(super) fn granted(&self) {
        self.state().link = Link::Up(Instant::now());
        self.news.notify_one();
    }

    /// Records that the connection is lost. Known agents stay.
    pub(super) fn lost(&self, why: String) {
        self.state().link = Link::Down(why);
        self.news.notify_one();
    }

    /// Removes the agents that did not publish again in this connection, once they have had time to.
    pub(super) fn settle(&self) {
        let mut state = self.state();
        let session = state.session;
        let missing: Vec<Name> = state
            .agents
            .iter()
            .filter(|(_, standing)| standing.session != session)
            .map(|(name, _)| Arc::clone(name))
            .collect();
        for name in missing {
            state.remove(&name);
        }
        if state.beyond.take_if(|seen| *seen != session).is_some() {
            state.changed.insert(BEYOND.into());
        }
        state.settled = true;
        self.news.notify_one();
    }

    /// Processes one message.
    pub(super) fn hear(&self, topic: &[u8], payload: &[u8], retained: bool) {
        let Some(id) = std::str::from_utf8(topic).ok().and_then(status::agent_of) else { return };
        let read = status::read(&id, payload);
        let name: Name = cut(&id, 128).into();
        let mut state = self.state();
        if retained && let Link::Up(since) = &mut state.link {
            *since = Instant::now();
        }
        match read {
            Ok(told) if told.status == Status::Cleared => state.remove(&name),
            Ok(told) => {
                let fields = match told.status {
                    Status::Available(fields) => Ok(fields),
                    _ => Err(()),
                };
                self.stand(&mut state, &name, fields);
                state.mark_time(&name, told.odd_time);
            }
            Err(why) => self.trouble(&mut state, &name, why),
        }
        if !state.changed.is_empty() {
            self.news.notify_one();
        }
    }

    /// Records that the agent is available with these fields, or not available.
    fn stand(&self, state: &mut State, name: &Name, fields: Result<serde_json::Map<String, serde_json::Value>, ()>) {
        let known = state.agents.get(name).and_then(|standing| standing.document.as_ref());
        let available = fields.is_ok();
        // An unavailable status has no other fields (R113): the previous ones stay.
        let fields = fields
            .unwrap_or_else(|()| known.and_then(|(text, _)| serde_json::from_slice(text).ok()).unwrap_or_default());
        let text = status::document(fields, name, &self.broker, available);
        let (before, session) = (known.map_or(0, |(text, _)| text.len()), state.session);
        let bytes = state.bytes + text.len() - before;
        if bytes > self.most_bytes || !self.has_room(state, name) {
            return state.no_room();
        }
        let digest = sha256(&text);
        let standing = state.agents.entry(Arc::clone(name)).or_default();
        let same = standing.trouble.is_none() && standing.document.as_ref().is_some_and(|(_, known)| *known == digest);
        standing.session = session;
        if !same {
            standing.document = Some((text, digest));
            standing.trouble = None;
            state.bytes = bytes;
            state.changed.insert(Arc::clone(name));
        }
    }

    /// Records that the agent's status is invalid: its previous document stays.
    fn trouble(&self, state: &mut State, name: &Name, why: String) {
        if !self.has_room(state, name) {
            return state.no_room();
        }
        let session = state.session;
        let standing = state.agents.entry(Arc::clone(name)).or_default();
        standing.session = session;
        if standing.trouble.as_ref() != Some(&why) {
            standing.trouble = Some(why);
            state.changed.insert(Arc::clone(name));
        }
    }

    fn has_room(&self, state: &State, name: &Name) -> bool {
        state.agents.len() < self.most || state.agents.contains_key(name)
    }

    /// Returns what is not reported yet; everything, when the statuses are complete for the first time.
    pub(super) fn change(&self) -> Change {
        let mut state = self.state();
        let mut change = state.reliable();
        state.early = change.soon;
        let whole = change.trouble.is_none() && !state.whole;
        let mut names = std::mem::take(&mut state.changed);
        names.extend(state.telling.take().into_iter().flat_map(|telling| telling.parts.into_keys()));
        if whole {
            names.extend(state.agents.keys().cloned());
        }
        let mut telling = Telling { parts: HashMap::with_capacity(names.len()), whole };
        for name in names {
            let (news, digest, more) = match &*name {
                BEYOND => (self.beyond(&state), None, false),
                _ => state.agents.get(&name).map_or((News::Gone, None, false), Standing::news),
            };
            if more {
                change.soon = true;
                state.changed.insert(Arc::clone(&name));
            }
            telling.parts.insert(Arc::clone(&name), digest);
            change.parts.push(Part { name, news });
        }
        state.telling = Some(telling);
        change
    }

    fn beyond(&self, state: &State) -> News {
        match state.beyond {
            Some(_) => News::Kept(format!(
                "more agents publish a status than fit (at most {} agents and {} MiB together)",
                self.most,
                self.most_bytes >> 20
            )),
            None => News::Gone,
        }
    }

    /// Acknowledges the last report.
    pub(super) fn taken(&self) {
        let mut state = self.state();
        let Some(telling) = state.telling.take() else { return };
        state.whole |= telling.whole;
        for (name, digest) in telling.parts {
            if let Some(standing) = state.agents.get_mut(&name) {
                standing.in_force = digest;
            }
        }
    }

    /// Discards the last report: everything is reported again.
    pub(super) fn forget(&self) {
        let mut state = self.state();
        let told = state.telling.take().into_iter().flat_map(|telling| telling.parts.into_keys());
        let told: Vec<Name> = told.collect();
        state.changed.extend(told);
        state.whole = false;
        for standing in state.agents.values_mut() {
            standing.in_force = None;
        }
    }

    /// Resolves when there is something to report, or when the retained statuses are complete after a poll that was too
    /// early.
    pub(super) async fn woken(&self) {
        let quiet = match &*self.state() {
            State { early: true, link: Link::Up(since), .. } => Some(*since + QUIET),
            _ => None,
        };
        tokio::select! {
            () = self.news.notified() => {}
            () = tokio::time::sleep_until(quiet.unwrap_or_else(Instant::now)), if quiet.is_some() => {}
        }
    }

    /// Waits until all retained statuses are received or the connection fails, but no longer than `most`.
    pub(super) async fn first(&self, most: Duration) {
        let until = Instant::now() + most;
        loop {
            let next = match &self.state().link {
                Link::Down(_) => return,
                Link::Up(since) => *since + QUIET,
                Link::Trying => until,
            };
            if next <= Instant::now() || until <= Instant::now() {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep_until(next.min(until)) => {}
                () = self.news.notified() => {}
            }
        }
    }
}
