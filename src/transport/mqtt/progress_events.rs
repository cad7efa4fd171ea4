//! Progress as server-sent events, for callers that accept them: `event: progress` with each message of the agent, then
//! `event: result` with the reply. A later failure ends the body; the gateway decides how the caller sees it.

use super::published_task::{PublishedTask, TaskEvent};
use crate::{
    fault::Fault,
    transport::{
        ReplyBody,
        timeouts::{CallEnd, TimeoutKind, UpstreamTimeouts},
    },
};
use bytes::Bytes;
use tokio::{
    sync::mpsc,
    time::{Instant, timeout_at},
};

/// The maximum number of events queued for the caller.
const MAX_QUEUED_EVENTS: usize = 4;

fn format_event(name: &str, data: &[u8]) -> Bytes {
    let mut text = format!("event: {name}\ndata: ").into_bytes();
    // JSON allows line breaks only between tokens, where a space means the same.
    text.extend(data.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte }));
    text.extend_from_slice(b"\n\n");
    text.into()
}

/// Formats the reply as an event.
pub(super) fn result_event(reply: &[u8]) -> Bytes {
    format_event("result", reply)
}

/// Streams the events that begin with `first` and end with the reply; `timeouts` bounds the time between two
/// events.
pub(super) fn stream_events(
    task: PublishedTask,
    first: String,
    timeouts: UpstreamTimeouts,
    deadline: Instant,
) -> ReplyBody {
    let (sender, chunks) = mpsc::channel(MAX_QUEUED_EVENTS);
    tokio::spawn(async move {
        let caller_channel = sender.clone();
        tokio::select! {
            () = send_events(task, first, timeouts, deadline, sender) => {}
            // The caller has left; dropping the published task ends the conversation.
            () = caller_channel.closed() => {}
        }
    });
    ReplyBody::from_channel(chunks)
}

async fn send_events(
    mut task: PublishedTask,
    first: String,
    timeouts: UpstreamTimeouts,
    deadline: Instant,
    sender: mpsc::Sender<Result<Bytes, Fault>>,
) {
    let mut event = format_event("progress", first.as_bytes());
    loop {
        if sender.send(Ok(event)).await.is_err() {
            return;
        }
        let until = deadline.min(Instant::now() + timeouts.idle);
        let next_event = timeout_at(until, task.next_event()).await;
        let final_chunk = match next_event {
            Ok(Ok(TaskEvent::Progress(text))) => {
                event = format_event("progress", text.as_bytes());
                continue;
            }
            Ok(Ok(TaskEvent::Reply(reply))) => Ok(result_event(&reply)),
            Ok(Err(fault)) => Err(fault),
            Err(_) => {
                let end = CallEnd { until, deadline };
                Err(timeouts.fault_at(TimeoutKind::Idle, end, "no further message on the conversation"))
            }
        };
        // A caller that has left does not need the result.
        let _ = sender.send(final_chunk).await;
        return;
    }
}
