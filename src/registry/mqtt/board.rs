//! What the agents of one broker have said, and what of it the registry has not heard yet. What arrived last counts,
//! whatever its timestamp says; an agent whose status cannot be read stays as it was.
//! It is bounded in agents and in bytes, and knows neither sockets nor MQTT.

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

/// Bytes of all documents together.
const MOST_BYTES: usize = 256 << 20;
/// The part that tells of agents for which there was no room.
pub(super) const BEYOND: &str = "/control/agents/+/status";

/// What is known, shared by the feed and its connection.
#[derive(Debug)]
pub(super) struct Board {
    /// The broker, as agents' endpoints begin.
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

    /// A connection was made.
    pub(super) fn begin(&self) {
        let mut state = self.state();
        state.session += 1;
        state.settled = false;
    }

    /// Statuses will come over it.
    pub(super) fn granted(&self) {
        self.state().link = Link::Up(Instant::now());
        self.news.notify_one();
    }

    /// There is no connection. What is known stays.
    pub(super) fn lost(&self, why: String) {
        self.state().link = Link::Down(why);
        self.news.notify_one();
    }

    /// Agents that were known before this connection have had their time: those that did not come again are gone.
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

    /// Takes in one message.
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

    /// The agent is available with these fields, or it is not available.
    fn stand(&self, state: &mut State, name: &Name, fields: Result<serde_json::Map<String, serde_json::Value>, ()>) {
        let known = state.agents.get(name).and_then(|standing| standing.document.as_ref());
        let available = fields.is_ok();
        // An agent that goes says no more than that (R113): the rest stays as it was.
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

    /// The agent's status cannot be read: what it said before stays.
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

    /// What the registry has not heard; everything, when it can be relied on for the first time.
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
                "more agents show a status than are taken in ({} agents of {} MiB together)",
                self.most,
                self.most_bytes >> 20
            )),
            None => News::Gone,
        }
    }

    /// What was told last is in force.
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

    /// What was told is lost: everything is told again.
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

    /// Resolves when there is something that the registry has not heard, or when everything has come and it looked
    /// too early.
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

    /// Waits until everything that the broker kept has come, or nothing will, but not for longer than `most`.
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
