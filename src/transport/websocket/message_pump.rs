//! Forwards the messages of an agent to a caller that reads a stream.

use super::{
    reply_message::{ReplyPart, ReplyReader, reports_failure},
    request_message::ReplyFormat,
};
use crate::{
    agent::DeclaredMembers,
    fault::{Fault, FaultCode},
};
use bytes::Bytes;
use tokio::sync::mpsc;

/// Forwards messages at the caller's pace, until the reply ends, its time is over, or the caller leaves.
pub(super) struct MessagePump {
    pub(super) reader: ReplyReader,
    pub(super) format: ReplyFormat,
    /// Members that are data of the operation's output.
    pub(super) declared_members: DeclaredMembers,
    pub(super) chunks: ChunkSender,
}

impl MessagePump {
    /// Forwards `first` and the messages after it.
    pub(super) async fn run(mut self, first: ReplyPart) {
        let mut next = Ok(first);
        let close_frame = loop {
            let (name, data, is_last) = match next {
                Ok(ReplyPart::Item(name, data)) => (name, data, false),
                Ok(ReplyPart::Last(data)) => (None, data, true),
                Ok(ReplyPart::End) => break (1000, ""),
                Ok(ReplyPart::Failure(_, error)) => break send_fault(&self.chunks, agent_failed_fault(&error)).await,
                Err(fault) => break send_fault(&self.chunks, fault).await,
            };
            if reports_failure(&data, self.declared_members) {
                break send_fault(&self.chunks, agent_failed_fault(&data)).await;
            }
            let chunk = encode_message(self.format, name.as_deref(), &data);
            if self.chunks.send(Ok(chunk)).await.is_err() {
                break (1001, "");
            }
            if is_last {
                break (1000, "");
            }
            next = tokio::select! {
                biased;
                () = self.chunks.closed() => break (1001, ""),
                part = self.reader.next_part() => part,
            };
        };
        drop(self.chunks);
        self.reader.connection.close(Some(close_frame)).await;
    }
}

pub(super) type ChunkSender = mpsc::Sender<Result<Bytes, Fault>>;

async fn send_fault(chunks: &ChunkSender, fault: Fault) -> (u16, &'static str) {
    // A caller that has left needs no reason.
    drop(chunks.send(Err(fault)).await);
    (1000, "")
}

/// The fault of a failure within a stream; the agent's words go to the log (R41).
fn agent_failed_fault(error: &[u8]) -> Fault {
    let detail: String = String::from_utf8_lossy(error).chars().take(2048).collect();
    Fault::from(FaultCode::AgentError).with_detail(detail)
}

/// Encodes a message in the caller's format.
pub(super) fn encode_message(format: ReplyFormat, name: Option<&str>, data: &[u8]) -> Bytes {
    let text = String::from_utf8_lossy(data);
    if format == ReplyFormat::Lines {
        return Bytes::from(format!("{}\n", text.replace(['\r', '\n'], " ")));
    }
    let mut event = String::with_capacity(text.len() + 32);
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._/-".contains(c);
    // The event name `error` is reserved for the gateway's own event at the end of a stream.
    if let Some(name) = name.filter(|name| *name != "error" && name.len() <= 64 && name.chars().all(is_plain)) {
        event.push_str("event: ");
        event.push_str(name);
        event.push('\n');
    }
    for line in text.split(['\r', '\n']).filter(|line| !line.is_empty()) {
        event.push_str("data: ");
        event.push_str(line);
        event.push('\n');
    }
    event.push('\n');
    Bytes::from(event)
}
