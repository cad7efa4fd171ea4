//! The conversations of one broker connection: those that are ready for a call, and those that await a reply. Each
//! message goes to the call that it belongs to, or is dropped. This module uses neither sockets nor timers.

use super::answer::{self, Said};
use crate::{broker::Message, fault::Fault};
use bytes::Bytes;
use std::collections::HashMap;
use tokio::sync::{mpsc, oneshot};

/// The maximum number of progress messages queued for a slow caller; further ones are dropped.
pub(super) const WAITING: usize = 64;

/// A task whose reply is awaited.
#[derive(Debug)]
pub(super) struct Expected {
    /// The task's id.
    pub(super) task: String,
    /// The id of the agent that replies.
    pub(super) from: String,
    pub(super) answer: oneshot::Sender<Result<Bytes, Fault>>,
    /// Receives progress messages, if the caller wants them.
    pub(super) progress: Option<mpsc::Sender<String>>,
}

/// What happened to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// Delivered to a call.
    Delivered,
    /// No call awaits it from this sender: late, a duplicate, or for another call.
    Foreign,
    /// A retained message, which cannot be the reply to a current task (R106).
    Retained,
    /// The message cannot be parsed.
    Unreadable,
}

/// The tasks of one connection that await their replies, by conversation.
#[derive(Debug, Default)]
pub(super) struct Desk {
    pub(super) open: HashMap<String, Expected>,
    /// Conversations that are subscribed to and not in use.
    pub(super) ready: Vec<String>,
    /// Whether the connection is lost, so that no task can be added.
    pub(super) closed: bool,
}

impl Desk {
    /// Delivers `message` to the call that it belongs to.
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
        // The first reply counts; later ones match no task.
        if let Some(expected) = self.open.remove(conversation) {
            // The caller may have left.
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
                // A slow caller misses progress, never the reply.
                let _ = teller.try_send(progress.text);
                Fate::Delivered
            }
            _ => Fate::Foreign,
        }
    }
}
