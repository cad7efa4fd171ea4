//! Event buffer of one stream: the newest events, within limits.

use super::sse_splitter::EventChunk;
use bytes::Bytes;
use std::collections::VecDeque;

/// Limits of an event buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct EventLimits {
    /// Maximum size of all events, in bytes.
    pub(super) max_bytes: usize,
    /// Maximum number of events.
    pub(super) max_events: usize,
    /// Whether no event is evicted before a reader has read it: the agent's stream waits instead.
    pub(super) lossless: bool,
}

/// The result of reading one chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum BufferRead {
    /// The chunk, and whether the event ends with it.
    Chunk { bytes: Bytes, ends_event: bool },
    /// The chunk has not arrived yet.
    Pending,
    /// The chunk was evicted.
    Evicted,
}

/// The buffer.
#[derive(Debug)]
pub(super) struct EventBuffer {
    limits: EventLimits,
    chunks: VecDeque<EventChunk>,
    /// Index of the first buffered chunk in the stream.
    first_index: u64,
    bytes: usize,
    /// All chunks before this index were read.
    read_up_to: u64,
    /// The chunk that was evicted last: its event number, and whether it completed the event.
    last_evicted: (u64, bool),
}

impl EventBuffer {
    pub(super) fn new(limits: EventLimits) -> Self {
        Self { limits, chunks: VecDeque::new(), first_index: 0, bytes: 0, read_up_to: 0, last_evicted: (0, true) }
    }

    /// Returns the number of the last event.
    pub(super) fn last_number(&self) -> u64 {
        self.chunks.back().map_or(self.last_evicted.0, |chunk| chunk.number)
    }

    /// Whether the last event is complete.
    pub(super) fn ends_with_complete_event(&self) -> bool {
        self.chunks.back().map_or(self.last_evicted.1, |chunk| chunk.ends_event)
    }

    /// Whether `chunk` fits after evicting chunks that were read.
    pub(super) fn fits(&self, chunk: &EventChunk) -> bool {
        let (mut bytes, mut chunk_count, mut first) = (self.bytes, self.chunks.len(), self.first_index);
        for oldest in &self.chunks {
            if bytes + chunk.bytes.len() <= self.limits.max_bytes && chunk_count < self.limits.max_events {
                return true;
            }
            if first >= self.read_up_to {
                return false;
            }
            (bytes, chunk_count, first) = (bytes - oldest.bytes.len(), chunk_count - 1, first + 1);
        }
        true
    }

    /// Appends a chunk, and evicts the oldest chunks to make room.
    pub(super) fn push(&mut self, chunk: EventChunk) {
        while self.bytes + chunk.bytes.len() > self.limits.max_bytes || self.chunks.len() >= self.limits.max_events {
            let Some(oldest) = self.chunks.pop_front() else { break };
            self.bytes -= oldest.bytes.len();
            self.first_index += 1;
            self.last_evicted = (oldest.number, oldest.ends_event);
        }
        self.bytes += chunk.bytes.len();
        self.chunks.push_back(chunk);
    }

    /// Returns the index of the chunk after event `after`; 0 is the start of the stream.
    pub(super) fn index_after(&self, after: u64) -> Option<u64> {
        match self.chunks.iter().rposition(|chunk| chunk.number <= after) {
            Some(position) => {
                let exact = self.chunks.get(position).is_some_and(|chunk| chunk.number == after && chunk.ends_event);
                exact.then_some(self.first_index + position as u64 + 1)
            }
            None => (self.last_evicted == (after, true)).then_some(self.first_index),
        }
    }

    /// Returns the index of the oldest complete event.
    pub(super) fn oldest_index(&self) -> u64 {
        if self.last_evicted.1 {
            return self.first_index;
        }
        let partial =
            self.chunks.iter().position(|chunk| chunk.ends_event).map_or(self.chunks.len(), |position| position + 1);
        self.first_index + partial as u64
    }

    /// Records that all chunks before an index were read, so that they may be evicted.
    pub(super) fn set_read_up_to(&mut self, index: u64) {
        self.read_up_to = self.read_up_to.max(index.min(self.first_index + self.chunks.len() as u64));
    }

    /// Reads the chunk at an index, which may then be evicted.
    pub(super) fn read_at(&mut self, index: u64) -> BufferRead {
        let Some(offset) = index.checked_sub(self.first_index) else { return BufferRead::Evicted };
        let chunk = usize::try_from(offset).ok().and_then(|position| self.chunks.get(position));
        let Some(chunk) = chunk else { return BufferRead::Pending };
        self.read_up_to = self.read_up_to.max(index + 1);
        BufferRead::Chunk { bytes: chunk.bytes.clone(), ends_event: chunk.ends_event }
    }
}
