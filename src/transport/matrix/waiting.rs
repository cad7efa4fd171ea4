//! The calls of one account that await replies. A reply counts only if its sender is the call's agent, in the agent's
//! room, and if it relates to the call's event; late, duplicate and unrelated messages are dropped.

use super::answer::{Message, Said};
use crate::fault::{Code, Fault};
use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, PoisonError},
};
use tokio::sync::oneshot;

/// The maximum number of calls that await replies.
const MOST: usize = 10_000;

/// The maximum number of replies kept that arrived before the homeserver returned the id of the event they answer.
const EARLY: usize = 64;

/// The calls of one account that await replies.
#[derive(Debug, Default)]
pub(super) struct Waiting(Mutex<Calls>);

#[derive(Debug, Default)]
struct Calls {
    open: HashMap<String, Slot>,
    early: VecDeque<(String, Message)>,
}

#[derive(Debug)]
struct Slot {
    room: String,
    user: String,
    /// The id of the call's event, once the homeserver has returned it.
    event: Option<String>,
    tell: oneshot::Sender<Result<Said, Fault>>,
}

impl Slot {
    fn is_answered_by(&self, token: &str, room: &str, message: &Message) -> bool {
        let related = message.call.as_deref() == Some(token) || self.event.is_some() && self.event == message.event;
        related && self.room == room && self.user == message.sender
    }
}

/// Keeps a call registered. Dropping it removes the call.
#[derive(Debug)]
pub(super) struct Ticket {
    waiting: Arc<Waiting>,
    token: String,
}

impl Waiting {
    /// Registers the call `token`, before its event is sent.
    ///
    /// # Errors
    /// Too many calls await replies.
    pub(super) fn open(
        self: &Arc<Self>,
        token: &str,
        room: &str,
        user: &str,
    ) -> Result<(Ticket, oneshot::Receiver<Result<Said, Fault>>), Fault> {
        let (tell, hears) = oneshot::channel();
        let slot = Slot { room: room.to_owned(), user: user.to_owned(), event: None, tell };
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if calls.open.len() >= MOST {
            return Err(Fault::new(Code::Overloaded, "Too many calls wait for agents on Matrix"));
        }
        calls.open.insert(token.to_owned(), slot);
        Ok((Ticket { waiting: Arc::clone(self), token: token.to_owned() }, hears))
    }

    /// Delivers a message of `room` to the calls that it answers.
    pub(super) fn deliver(&self, room: &str, message: Message) {
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let answered: Vec<String> = calls
            .open
            .iter()
            .filter(|(token, slot)| slot.is_answered_by(token, room, &message))
            .map(|(token, _)| token.clone())
            .collect();
        for token in &answered {
            if let Some(slot) = calls.open.remove(token) {
                // The caller may have left.
                let _ = slot.tell.send(Ok(message.said.clone()));
            }
        }
        let sending = calls.open.values().any(|slot| slot.event.is_none() && slot.room == room);
        if answered.is_empty() && sending {
            if calls.early.len() >= EARLY {
                calls.early.pop_front();
            }
            calls.early.push_back((room.to_owned(), message));
        }
    }

    /// Ends every waiting call with `fault`.
    pub(super) fn fail(&self, fault: &Fault) {
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (_, slot) in calls.open.drain() {
            let _ = slot.tell.send(Err(fault.clone()));
        }
        calls.early.clear();
    }
}

impl Ticket {
    /// Records the id of the call's event, and delivers a reply that arrived earlier.
    pub(super) fn confirm(&self, event: String) {
        let mut calls = self.waiting.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = calls.open.get_mut(&self.token) {
            slot.event = Some(event);
        }
        let early = match calls.open.get(&self.token) {
            Some(slot) => calls.early.iter().position(|(room, early)| slot.is_answered_by(&self.token, room, early)),
            None => None,
        };
        if let Some((_, message)) = early.and_then(|at| calls.early.remove(at))
            && let Some(slot) = calls.open.remove(&self.token)
        {
            let _ = slot.tell.send(Ok(message.said));
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut calls = self.waiting.0.lock().unwrap_or_else(PoisonError::into_inner);
        calls.open.remove(&self.token);
        if calls.open.values().all(|slot| slot.event.is_some()) {
            calls.early.clear();
        }
    }
}
