//! The calls of one account that await replies. A reply counts only if its sender is the call's agent, in the agent's
//! room, and if it relates to the call's event; late, duplicate and unrelated messages are dropped.

use super::reply_message::{ReplyContent, RoomMessage};
use crate::fault::{Fault, FaultCode};
use parking_lot::Mutex;
use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};
use tokio::sync::oneshot;

/// The maximum number of calls that await replies.
const MAX_PENDING_CALLS: usize = 10_000;

/// The maximum number of replies kept that arrived before the homeserver returned the id of the event they answer.
const MAX_EARLY_REPLIES: usize = 64;

/// The calls of one account that await replies.
#[derive(Debug, Default)]
pub(super) struct PendingCalls(Mutex<PendingCallState>);

#[derive(Debug, Default)]
struct PendingCallState {
    waiting: HashMap<String, PendingCall>,
    early_replies: VecDeque<(String, RoomMessage)>,
}

#[derive(Debug)]
struct PendingCall {
    room: String,
    user: String,
    /// The id of the call's event, once the homeserver has returned it.
    event: Option<String>,
    reply: oneshot::Sender<Result<ReplyContent, Fault>>,
}

impl PendingCall {
    fn is_answered_by(&self, token: &str, room: &str, message: &RoomMessage) -> bool {
        let is_related =
            message.call.as_deref() == Some(token) || self.event.is_some() && self.event == message.in_reply_to;
        is_related && self.room == room && self.user == message.sender
    }
}

/// Keeps a call registered. Dropping it removes the call.
#[derive(Debug)]
pub(super) struct PendingCallGuard {
    calls: Arc<PendingCalls>,
    token: String,
}

/// A call that awaits its reply.
#[derive(Debug)]
pub(super) struct RegisteredCall {
    pub(super) guard: PendingCallGuard,
    pub(super) reply: oneshot::Receiver<Result<ReplyContent, Fault>>,
}

impl PendingCalls {
    /// Registers the call `token`, before its event is sent.
    ///
    /// # Errors
    /// Too many calls await replies.
    pub(super) fn register(self: &Arc<Self>, token: &str, room: &str, user: &str) -> Result<RegisteredCall, Fault> {
        let (sender, reply) = oneshot::channel();
        let call = PendingCall { room: room.to_owned(), user: user.to_owned(), event: None, reply: sender };
        let mut calls = self.0.lock();
        if calls.waiting.len() >= MAX_PENDING_CALLS {
            return Err(Fault::new(FaultCode::Overloaded, "Too many calls wait for agents on Matrix"));
        }
        calls.waiting.insert(token.to_owned(), call);
        Ok(RegisteredCall { guard: PendingCallGuard { calls: Arc::clone(self), token: token.to_owned() }, reply })
    }

    /// Delivers a message of `room` to the calls that it answers.
    pub(super) fn deliver(&self, room: &str, message: RoomMessage) {
        let mut calls = self.0.lock();
        let answered: Vec<String> = calls
            .waiting
            .iter()
            .filter(|(token, call)| call.is_answered_by(token, room, &message))
            .map(|(token, _)| token.clone())
            .collect();
        for token in &answered {
            if let Some(call) = calls.waiting.remove(token) {
                // The caller may have left.
                let _ = call.reply.send(Ok(message.content.clone()));
            }
        }
        let is_sending = calls.waiting.values().any(|call| call.event.is_none() && call.room == room);
        if answered.is_empty() && is_sending {
            if calls.early_replies.len() >= MAX_EARLY_REPLIES {
                calls.early_replies.pop_front();
            }
            calls.early_replies.push_back((room.to_owned(), message));
        }
    }

    /// Ends every waiting call with `fault`.
    pub(super) fn fail_all(&self, fault: &Fault) {
        let mut calls = self.0.lock();
        for (_, call) in calls.waiting.drain() {
            let _ = call.reply.send(Err(fault.clone()));
        }
        calls.early_replies.clear();
    }
}

impl PendingCallGuard {
    /// Records the id of the call's event, and delivers a reply that arrived earlier.
    pub(super) fn set_event(&self, event: String) {
        let mut calls = self.calls.0.lock();
        if let Some(call) = calls.waiting.get_mut(&self.token) {
            call.event = Some(event);
        }
        let early_index = match calls.waiting.get(&self.token) {
            Some(call) => {
                calls.early_replies.iter().position(|(room, message)| call.is_answered_by(&self.token, room, message))
            }
            None => None,
        };
        if let Some((_, message)) = early_index.and_then(|index| calls.early_replies.remove(index))
            && let Some(call) = calls.waiting.remove(&self.token)
        {
            let _ = call.reply.send(Ok(message.content));
        }
    }
}

impl Drop for PendingCallGuard {
    fn drop(&mut self) {
        let mut calls = self.calls.0.lock();
        calls.waiting.remove(&self.token);
        if calls.waiting.values().all(|slot| slot.event.is_some()) {
            calls.early_replies.clear();
        }
    }
}
