//! Somebody who reads a stream's events, at its own pace.

use super::Live;
use bytes::{Bytes, BytesMut};
use std::sync::Arc;
use tokio::sync::watch;

/// What a follower finds.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// A whole event, or a part of one that is very long; and whether the event ends with it.
    Bytes(Bytes, bool),
    /// Nothing follows.
    End,
    /// What would follow is no longer kept.
    Lost,
}

/// Somebody who follows; when this is dropped, nobody does.
#[derive(Debug)]
pub struct Follower {
    live: Arc<Live>,
    next: u64,
    changed: watch::Receiver<u64>,
}

impl Follower {
    pub(super) fn new(live: Arc<Live>, next: u64, changed: watch::Receiver<u64>) -> Self {
        Self { live, next, changed }
    }

    /// What comes next. Nothing is lost when this is dropped half-way.
    pub async fn next(&mut self) -> Next {
        loop {
            // Seen before the look: whatever changes after it is waited for.
            self.changed.mark_unchanged();
            if let Some(next) = self.look() {
                return next;
            }
            if self.changed.changed().await.is_err() {
                return Next::End;
            }
        }
    }

    /// `first`, and what there is behind it already, until that is `most` bytes long: written at once it costs one write.
    pub fn gather(&mut self, (first, mut ends): (Bytes, bool), most: usize) -> (Bytes, bool) {
        let mut all = BytesMut::new();
        while first.len().max(all.len()) < most {
            // An end, or a gap, is found again when it is asked for.
            let Some(Next::Bytes(more, whole)) = self.look() else { break };
            if all.is_empty() {
                all.extend_from_slice(&first);
            }
            all.extend_from_slice(&more);
            ends = whole;
        }
        if all.is_empty() { (first, ends) } else { (all.freeze(), ends) }
    }

    fn look(&mut self) -> Option<Next> {
        match self.live.look(self.next) {
            (Ok(Some((bytes, ends))), _) => {
                self.next += 1;
                Some(Next::Bytes(bytes, ends))
            }
            (Ok(None), ended) => ended.then_some(Next::End),
            (Err(()), _) => Some(Next::Lost),
        }
    }

    /// What is followed.
    pub fn live(&self) -> &Arc<Live> {
        &self.live
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.live.left();
    }
}
