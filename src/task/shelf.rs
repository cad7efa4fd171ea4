//! The events of one stream that are kept, the newest, within bounds.

use super::events::Piece;
use bytes::Bytes;
use std::collections::VecDeque;

/// The bounds of what is kept of one stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// Bytes of events.
    pub(super) size: usize,
    /// Events.
    pub(super) events: usize,
    /// Nothing is let go before somebody has read it: the agent waits instead.
    pub(super) lossless: bool,
}

/// What is kept.
#[derive(Debug)]
pub(super) struct Shelf {
    room: Room,
    pieces: VecDeque<Piece>,
    /// The place of the first piece among all that there were.
    first: u64,
    bytes: usize,
    /// Pieces up to here were read by somebody.
    read: u64,
    /// The last piece that was let go: its number, and whether its event ended with it.
    gone: (u64, bool),
}

impl Shelf {
    pub(super) fn new(room: Room) -> Self {
        Self { room, pieces: VecDeque::new(), first: 0, bytes: 0, read: 0, gone: (0, true) }
    }

    /// The number of the last event.
    pub(super) fn last(&self) -> u64 {
        self.pieces.back().map_or(self.gone.0, |piece| piece.number)
    }

    /// Whether the last event is whole.
    pub(super) fn is_between(&self) -> bool {
        self.pieces.back().map_or(self.gone.1, |piece| piece.ends)
    }

    /// Whether `piece` fits once what was read is let go.
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

    /// Keeps a piece, and lets the oldest go for it.
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

    /// The place behind the event `after`; 0 is the beginning.
    pub(super) fn behind(&self, after: u64) -> Option<u64> {
        match self.pieces.iter().rposition(|piece| piece.number <= after) {
            Some(at) => {
                let exact = self.pieces.get(at).is_some_and(|piece| piece.number == after && piece.ends);
                exact.then_some(self.first + at as u64 + 1)
            }
            None => (self.gone == (after, true)).then_some(self.first),
        }
    }

    /// The place of the oldest event that is whole.
    pub(super) fn oldest(&self) -> u64 {
        if self.gone.1 {
            return self.first;
        }
        let torn = self.pieces.iter().position(|piece| piece.ends).map_or(self.pieces.len(), |at| at + 1);
        self.first + torn as u64
    }

    /// The piece at a place, none where it has not come yet.
    ///
    /// # Errors
    /// It was let go.
    pub(super) fn read(&mut self, at: u64) -> Result<Option<(Bytes, bool)>, ()> {
        let place = at.checked_sub(self.first).ok_or(())?;
        let piece = usize::try_from(place).ok().and_then(|place| self.pieces.get(place));
        let Some(piece) = piece else { return Ok(None) };
        self.read = self.read.max(at + 1);
        Ok(Some((piece.bytes.clone(), piece.ends)))
    }
}
