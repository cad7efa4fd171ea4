//! Writes the events of a streamed answer, and records how the call ended.

use super::completion_stream::CompletionStream;
use crate::{
    fault::Fault,
    gateway::{call::CallState, exchange::Exchange},
    http_server::ServeOutcome,
};
use bytes::Bytes;
use http::StatusCode;

/// Writes the events of a stream whose head is written.
pub(super) struct StreamWriter<'r, 'a> {
    pub(super) exchange: &'r mut Exchange<'a>,
}

impl StreamWriter<'_, '_> {
    /// Writes a part; returns whether the caller is still there.
    pub(super) async fn write(&mut self, bytes: Bytes, is_last: bool) -> bool {
        if bytes.is_empty() && !is_last {
            return true;
        }
        self.exchange.call.stats.bytes_out += bytes.len() as u64;
        let is_written = self.exchange.session.write_body(bytes, is_last).await.is_ok();
        if !is_written {
            self.caller_gone();
        }
        is_written
    }

    /// Writes the last events, one after the other: each is made when the one before is written.
    pub(super) async fn finish(&mut self, events: impl Iterator<Item = Bytes>) -> ServeOutcome {
        for event in events {
            if !self.write(event, false).await {
                return ServeOutcome::Aborted;
            }
        }
        if !self.write(Bytes::new(), true).await {
            return ServeOutcome::Aborted;
        }
        self.exchange.call.state = CallState::Answered(StatusCode::OK.as_u16());
        ServeOutcome::Complete
    }

    pub(super) fn caller_gone(&mut self) -> ServeOutcome {
        self.exchange.call.state = CallState::CallerGone(StatusCode::OK.as_u16());
        ServeOutcome::Aborted
    }

    /// Ends the stream with the event of a failure.
    pub(super) async fn fail(&mut self, stream: &mut CompletionStream<'_>, fault: Fault) -> ServeOutcome {
        let event = stream.failure(&fault);
        let is_written = self.write(event, true).await;
        self.exchange.call.state = CallState::FailedMidResponse(StatusCode::OK.as_u16(), fault);
        if is_written { ServeOutcome::Complete } else { ServeOutcome::Aborted }
    }
}
