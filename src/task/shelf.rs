//! Event buffer of one stream: the newest events, within limits.

use super::events::Piece;
use bytes::Bytes;
use std::collections::VecDeque;

/// Limits of an event buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// Maximum size of all events, in bytes.
    pub(super) size: usize,
    /// Maximum number of events.
    pub(super) events: usize,
    /// Whether no event is evicted before a reader has read it: the agent's stream waits instead.
    pub(super) lossless: bool,
}

/// The buffer.
#[derive(Debug)]
pub(super) struct Shelf {
    room: Room,
    pieces: VecDeque<Piece>,
    /// Index of the first buffered chunk in the stream.
    first: u64,
    bytes: usize,
    /// All chunks before this index were read.
    read: u64,
    /// The chunk that was evicted last: its event number, and whether it completed the event.
    gone: (u64, bool),
}

impl Shelf {
    pub(super) fn new(room: Room) -> Self {
        Self { room, pieces: VecDeque::new(), first: 0, bytes: 0, read: 0, gone: (0, true) }
    }

    /// Returns the number of the last event.
    pub(super) fn last(&self) -> u64 {
        self.pieces.back().map_or(self.gone.0, |piece| piece.number)
    }

    /// Whether the last event is complete.
    pub(super) fn is_between(&self) -> bool {
        self.pieces.back().map_or(self.gone.1, |piece| piece.ends)
    }

    /// Whether `piece` fits after evicting chunks that were read.
    pub(super) fn fits(&self, piece: &Piece) -> bool {
        let (mut bytes, mut count, mut first) = (self.bytes, self.pieces.len(), self.first);
        for old in &self.pieces {
            if bytes + piece.bytes.len() <= self.room.size && count < self.room.events {
                return true;
            }
            if first >= self.read {
                return false;
            }
            (bytes, count, first) = (bytes - old.bytes.len(), count - 1, first + 1);
        }
        true
    }

    /// Appends a chunk, and evicts the oldest chunks to make room.
    pub(super) fn put(&mut self, piece: Piece) {
        while self.bytes + piece.bytes.len() > self.room.size || self.pieces.len() >= self.room.events {
            let Some(old) = self.pieces.pop_front() else { break };
            self.bytes -= old.bytes.len();
            self.first += 1;
            self.gone = (old.number, old.ends);
        }
        self.bytes += piece.bytes.len();
        self.pieces.push_back(piece);
    }

    /// Returns the index of the chunk after event `after`; 0 is the start of the stream.
    pub(super) fn behind(&self, after: u64) -> Option<u64> {
        match self.pieces.iter().rposition(|piece| piece.number <= after) {
            Some(at) => {
                let exact = self.pieces.get(at).is_some_and(|piece| piece.number == after && piece.ends);
                exact.then_some(self.first + at as u64 + 1)
            }
            None => (self.gone == (after, true)).then_some(self.first),
        }
    }

    /// Returns the index of the oldest complete event.
    pub(super) fn oldest(&self) -> u64 {
        if self.gone.1 {
            return self.first;
        }
        let torn = self.pieces.iter().position(|piece| piece.ends).map_or(self.pieces.len(), |at| at + 1);
        self.first + torn as u64
    }

    /// Returns the chunk at an index, or `None` if it has not arrived yet.
    ///
    /// # Errors
    /// The chunk was evicted.
    pub(super) fn read(&mut self, at: u64) -> Result<Option<(Bytes, bool)>, ()> {
        let place = at.checked_sub(self.first).ok_or(())?;
        let piece = usize::try_from(place).ok().and_then(|place| self.pieces.get(place));
        let Some(piece) = piece else { return Ok(None) };
        self.read = self.read.max(at + 1);
        Ok(Some((piece.bytes.clone(), piece.ends)))
    }
}
