//! Progress as server-sent events, for callers that ask for them: `event: progress` with each message of the agent's,
//! then `event: result` with the answer. A failure after that ends the body; how it is told is the gateway's.

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

/// Events that wait for the caller.
const QUEUE: usize = 4;

/// Whether the caller would rather have events than JSON: it names them in `Accept`, and JSON not or less.
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
    // Between the tokens of a JSON text a line break is as good as a space; inside of them there is none.
    text.extend(data.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte }));
    text.extend_from_slice(b"\n\n");
    text.into()
}

/// The answer as an event.
pub(super) fn result(answer: &[u8]) -> Bytes {
    event("result", answer)
}

/// The body that begins with `first` and ends with the answer; `pause` bounds the time between two events.
pub(super) fn stream(asking: Asking, first: String, (pause, deadline): (Duration, Instant)) -> ReplyBody {
    let (tell, pieces) = mpsc::channel(QUEUE);
    tokio::spawn(async move {
        let gone = tell.clone();
        tokio::select! {
            () = tell_all(asking, first, (pause, deadline), tell) => {}
            // The caller has left: the conversation ends with this.
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
            Err(_) => Err(Fault::new(Code::Timeout, "The agent did not answer in time.")),
        };
        // A caller that has left does not need to hear it.
        let _ = tell.send(last).await;
        return;
    }
}
