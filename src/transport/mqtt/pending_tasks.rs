//! The conversations of one broker connection: those that are ready for a call, and those that await a reply. Each
//! message goes to the call that it belongs to, or is dropped. This module uses neither sockets nor timers.

use super::{
    agent_statuses::AgentStatuses,
    reply_message::{self, ReplyMessage},
};
use crate::{
    fault::{CallProgress, Fault, FaultCode},
    mqtt_client::IncomingMessage,
};
use bytes::Bytes;
use std::{collections::HashMap, time::Instant};
use tokio::sync::{mpsc, oneshot};

/// The maximum number of progress messages queued for a slow caller; further ones are dropped.
pub(super) const MAX_QUEUED_PROGRESS: usize = 64;

/// A task whose reply is awaited.
#[derive(Debug)]
pub(super) struct PendingTask {
    /// The task's id.
    pub(super) task: String,
    /// The id of the agent that replies.
    pub(super) agent_id: String,
    pub(super) reply: oneshot::Sender<Result<Bytes, Fault>>,
    /// Receives progress messages, if the caller wants them.
    pub(super) progress: Option<mpsc::Sender<String>>,
}

/// What happened to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MessageOutcome {
    /// Delivered to a call.
    Delivered,
    /// No call awaits it from this sender: late, a duplicate, or for another call.
    Unmatched,
    /// A retained message, which cannot be the reply to a current task (R106).
    Retained,
    /// The message cannot be parsed.
    Unreadable,
}

/// The tasks of one connection that await their replies, by conversation.
#[derive(Debug, Default)]
pub(super) struct PendingTasks {
    pub(super) waiting: HashMap<String, PendingTask>,
    /// Conversations that are subscribed to and not in use.
    pub(super) spare_conversations: Vec<String>,
    /// The agents that have lately been called over this connection.
    pub(super) statuses: AgentStatuses,
    /// Whether the connection is lost, so that no task can be added.
    pub(super) closed: bool,
}

impl PendingTasks {
    /// Takes agents whose statuses are of no use because they had no call for some time.
    pub(super) fn take_idle_agents(&mut self, now: Instant) -> Vec<String> {
        if !self.statuses.must_search_idle(now) {
            return Vec::new();
        }
        let in_flight = self.waiting.values().map(|pending| pending.agent_id.as_str()).collect();
        self.statuses.take_idle(&in_flight, now)
    }

    /// Delivers `message` to the call that it belongs to.
    pub(super) fn deliver(&mut self, message: &IncomingMessage) -> MessageOutcome {
        let Ok(topic) = std::str::from_utf8(&message.topic) else { return MessageOutcome::Unreadable };
        let topic = crate::mqtt_client::canonical_topic(topic);
        let levels: Vec<&str> = topic.split('/').skip(1).collect();
        match levels.as_slice() {
            ["control", "agents", agent, "status"] => {
                if !self.statuses.record_status(agent, &message.payload, message.retained) {
                    return MessageOutcome::Unmatched;
                }
                self.end_calls(agent);
                MessageOutcome::Delivered
            }
            _ if message.retained => MessageOutcome::Retained,
            ["conversations", conversation, agent] => self.deliver_reply(conversation, agent, &message.payload),
            ["control", "agents", agent, "progress", ..] => self.deliver_progress(agent, &message.payload),
            _ => MessageOutcome::Unmatched,
        }
    }

    fn deliver_reply(&mut self, conversation: &str, agent: &str, payload: &Bytes) -> MessageOutcome {
        let Some(pending) = self.waiting.get(conversation) else { return MessageOutcome::Unmatched };
        if pending.agent_id != agent {
            return MessageOutcome::Unmatched;
        }
        let result = match reply_message::parse_reply(payload, &pending.task) {
            ReplyMessage::OtherTask => return MessageOutcome::Unmatched,
            ReplyMessage::Output(output) => Ok(output),
            ReplyMessage::Error(fault) => Err(fault),
        };
        // The first reply counts; later ones match no task.
        if let Some(pending) = self.waiting.remove(conversation) {
            // The caller may have left.
            let _ = pending.reply.send(result);
        }
        MessageOutcome::Delivered
    }

    /// Ends the calls of an agent whose connection broke.
    fn end_calls(&mut self, agent: &str) {
        for (_, pending) in self.waiting.extract_if(|_, pending| pending.agent_id == agent) {
            let fault = Fault::new(FaultCode::AgentError, "The agent disconnected before it replied")
                .with_detail("the MQTT broker published the agent's last will")
                .with_progress(CallProgress::PossiblySent);
            // The caller may have left.
            let _ = pending.reply.send(Err(fault));
        }
    }

    fn deliver_progress(&mut self, agent: &str, payload: &[u8]) -> MessageOutcome {
        let Some(progress) = reply_message::parse_progress(payload) else { return MessageOutcome::Unreadable };
        let Some(pending) = self.waiting.get(&progress.conversation) else { return MessageOutcome::Unmatched };
        let is_sender = pending.agent_id == agent;
        match &pending.progress {
            Some(sender) if is_sender && pending.task == progress.task => {
                // A slow caller misses progress, never the reply.
                let _ = sender.try_send(progress.text);
                MessageOutcome::Delivered
            }
            _ => MessageOutcome::Unmatched,
        }
    }
}
