//! The conversations of one connection: those that are ready for a call, and those that await an answer. It hands each
//! message to the call that it is for, or to nobody; it knows neither sockets nor clocks.

use super::answer::{self, Said};
use crate::{broker::Message, fault::Fault};
use bytes::Bytes;
use std::collections::HashMap;
use tokio::sync::{mpsc, oneshot};

/// Messages of progress that wait for a slow caller; further ones are left out.
pub(super) const WAITING: usize = 64;

/// What a call expects.
#[derive(Debug)]
pub(super) struct Expected {
    /// The task's id.
    pub(super) task: String,
    /// Who answers.
    pub(super) from: String,
    pub(super) answer: oneshot::Sender<Result<Bytes, Fault>>,
    /// For progress, where the caller wants to see it.
    pub(super) progress: Option<mpsc::Sender<String>>,
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// A call has it.
    Delivered,
    /// Nobody waits for it, or not from there: late, doubled or somebody else's.
    Foreign,
    /// The broker had kept it: no answer to anything asked now (R106).
    Retained,
    /// It says nothing that can be used.
    Unreadable,
}

/// Calls of one connection that await their answers, by conversation.
#[derive(Debug, Default)]
pub(super) struct Desk {
    pub(super) open: HashMap<String, Expected>,
    /// Conversations that are subscribed to and not used yet.
    pub(super) ready: Vec<String>,
    /// The connection is lost: nothing is opened any more.
    pub(super) closed: bool,
}

impl Desk {
    /// Hands `message` to the call that it is for.
    pub(super) fn deliver(&mut self, message: &Message) -> Fate {
        if message.retained {
            return Fate::Retained;
        }
        let Ok(topic) = std::str::from_utf8(&message.topic) else { return Fate::Unreadable };
        let topic = crate::broker::canonical(topic);
        let levels: Vec<&str> = topic.split('/').skip(1).collect();
        match levels.as_slice() {
            ["conversations", conversation, agent] => self.answered(conversation, agent, &message.payload),
            ["control", "agents", agent, "progress", ..] => self.moved(agent, &message.payload),
            _ => Fate::Foreign,
        }
    }

    fn answered(&mut self, conversation: &str, agent: &str, payload: &Bytes) -> Fate {
        let Some(expected) = self.open.get(conversation) else { return Fate::Foreign };
        if expected.from != agent {
            return Fate::Foreign;
        }
        let result = match answer::read(payload, &expected.task) {
            Said::Foreign => return Fate::Foreign,
            Said::Answer(answer) => Ok(answer),
            Said::Error(fault) => Err(fault),
        };
        // The first counts; whatever comes after it finds nobody.
        if let Some(expected) = self.open.remove(conversation) {
            // The caller may have left in this moment.
            let _ = expected.answer.send(result);
        }
        Fate::Delivered
    }

    fn moved(&mut self, agent: &str, payload: &[u8]) -> Fate {
        let Some(progress) = answer::progress(payload) else { return Fate::Unreadable };
        let Some(expected) = self.open.get(&progress.conversation) else { return Fate::Foreign };
        let from = expected.from == agent;
        match &expected.progress {
            Some(teller) if from && expected.task == progress.task => {
                // A caller that reads too slowly misses progress, never the answer.
                let _ = teller.try_send(progress.text);
                Fate::Delivered
            }
            _ => Fate::Foreign,
        }
    }
}
