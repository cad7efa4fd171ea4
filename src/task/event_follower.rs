//! Reader of the events of a task that runs in this gateway or in another one.

use super::{
    event_log::RemoteEventReader,
    event_reader::{EventReader, NextEvent},
    task_record::TaskOutcome,
};
use bytes::{Bytes, BytesMut};

/// Reads the events of a task or stream.
#[derive(Debug)]
pub enum EventFollower {
    /// The task runs in this gateway.
    Local(EventReader),
    /// The task runs in another gateway.
    Remote(Box<RemoteEventReader>),
}

impl EventFollower {
    /// Waits for the next event. Cancel-safe.
    pub async fn next(&mut self) -> NextEvent {
        match self {
            Self::Local(reader) => reader.next().await,
            Self::Remote(reader) => reader.next().await,
        }
    }

    /// Appends the available events to `first`, up to about `max_bytes`, so that they need one write. Returns the bytes,
    /// and whether they end an event, as `ends_event` says of `first`.
    pub fn coalesce(&mut self, first: Bytes, mut ends_event: bool, max_bytes: usize) -> (Bytes, bool) {
        let mut coalesced = BytesMut::new();
        while first.len().max(coalesced.len()) < max_bytes {
            // An end or a gap is found again by the next read.
            let Some(NextEvent::Bytes(bytes, is_complete)) = self.try_next() else { break };
            if coalesced.is_empty() {
                coalesced.extend_from_slice(&first);
            }
            coalesced.extend_from_slice(&bytes);
            ends_event = is_complete;
        }
        if coalesced.is_empty() { (first, ends_event) } else { (coalesced.freeze(), ends_event) }
    }

    /// Returns how the task ended, if it runs here and has ended.
    pub fn outcome(&self) -> Option<TaskOutcome> {
        match self {
            Self::Local(reader) => reader.task().outcome(),
            Self::Remote(_) => None,
        }
    }

    fn try_next(&mut self) -> Option<NextEvent> {
        match self {
            Self::Local(reader) => reader.try_next(),
            Self::Remote(reader) => reader.try_next(),
        }
    }
}
