//! The events of a stream on their way to the followers of a task.

use crate::{fault::Result, task::RunningTask, transport::UpstreamReply};
use bytes::Bytes;

/// The text of a stream that was published.
pub(super) struct PublishedText {
    pub(super) text: Bytes,
    /// Whether the stream was longer than the text.
    pub(super) truncated: bool,
}

/// Publishes a stream of events to the task's followers. Returns the first `max_bytes` of its text.
///
/// # Errors
/// The stream broke off.
pub(super) async fn publish_events(
    reply: &mut UpstreamReply,
    task: &RunningTask,
    max_bytes: usize,
) -> Result<PublishedText> {
    let (mut text, mut truncated) = (Vec::new(), false);
    while let Some(bytes) = reply.body.next_chunk().await.transpose()? {
        truncated |= text.len() + bytes.len() > max_bytes;
        if !truncated {
            text.extend_from_slice(&bytes);
        }
        task.push_agent_bytes(&bytes).await;
    }
    task.finish_agent_stream().await;
    Ok(PublishedText { text: text.into(), truncated })
}
