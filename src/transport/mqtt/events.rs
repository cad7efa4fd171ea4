//! Progress as server-sent events, for callers that accept them: `event: progress` with each message of the agent, then
//! `event: result` with the reply. A later failure ends the body; the gateway decides how the caller sees it.

use super::way::{Asking, Came};
use crate::{
    fault::{Code, Fault},
    transport::ReplyBody,
};
use bytes::Bytes;
use http::{HeaderMap, header};
use std::time::Duration;
use tokio::{
    sync::mpsc,
    time::{Instant, timeout_at},
};

/// The maximum number of events queued for the caller.
const QUEUE: usize = 4;

/// Whether `Accept` names server-sent events, and gives JSON no or less weight.
pub(super) fn wanted(headers: &HeaderMap) -> bool {
    let quality = |media: &str| {
        let values = headers.get_all(header::ACCEPT).into_iter().filter_map(|value| value.to_str().ok());
        let ranges = values.flat_map(|value| value.split(','));
        let qualities = ranges.filter_map(|range| {
            let mut parts = range.split(';').map(str::trim);
            parts.next().filter(|name| name.eq_ignore_ascii_case(media))?;
            let told = parts.find_map(|part| part.strip_prefix("q=").or(part.strip_prefix("Q=")));
            told.map_or(Some(1.0), |q| q.parse::<f32>().ok())
        });
        qualities.fold(0.0, f32::max)
    };
    let events = quality("text/event-stream");
    events > 0.0 && events > quality("application/json")
}

fn event(name: &str, data: &[u8]) -> Bytes {
    let mut text = format!("event: {name}\ndata: ").into_bytes();
    // JSON allows line breaks only between tokens, where a space means the same.
    text.extend(data.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte }));
    text.extend_from_slice(b"\n\n");
    text.into()
}

/// Formats the reply as an event.
pub(super) fn result(answer: &[u8]) -> Bytes {
    event("result", answer)
}

/// Streams the events that begin with `first` and end with the reply; `pause` bounds the time between two events.
pub(super) fn stream(asking: Asking, first: String, (pause, deadline): (Duration, Instant)) -> ReplyBody {
    let (tell, pieces) = mpsc::channel(QUEUE);
    tokio::spawn(async move {
        let gone = tell.clone();
        tokio::select! {
            () = tell_all(asking, first, (pause, deadline), tell) => {}
            // The caller has left; dropping the task handle ends the conversation.
            () = gone.closed() => {}
        }
    });
    ReplyBody::pieces(pieces)
}

async fn tell_all(
    mut asking: Asking,
    first: String,
    (pause, deadline): (Duration, Instant),
    tell: mpsc::Sender<Result<Bytes, Fault>>,
) {
    let mut piece = event("progress", first.as_bytes());
    loop {
        if tell.send(Ok(piece)).await.is_err() {
            return;
        }
        let until = deadline.min(Instant::now() + pause);
        let came = timeout_at(until, asking.next()).await;
        let last = match came {
            Ok(Ok(Came::Progress(text))) => {
                piece = event("progress", text.as_bytes());
                continue;
            }
            Ok(Ok(Came::Answer(answer))) => Ok(result(&answer)),
            Ok(Err(fault)) => Err(fault),
            Err(_) => Err(Fault::new(Code::Timeout, "The agent did not answer in time")),
        };
        // A caller that has left does not need the result.
        let _ = tell.send(last).await;
        return;
    }
}
