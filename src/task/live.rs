//! A running task or stream: its event buffer, its readers and its outcome.

use super::{
    Follower,
    events::{Cutter, Piece, own},
    record::{Outcome, State, Task},
    shelf::{Room, Shelf},
};
use bytes::Bytes;
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use tokio::sync::{OwnedSemaphorePermit, watch};

/// A task or stream that runs in this process, or ended recently.
#[derive(Debug)]
pub struct Live {
    pub(super) owner: Arc<str>,
    room: Room,
    inner: Mutex<Inner>,
    changed: watch::Sender<u64>,
    canceled: watch::Sender<bool>,
    /// Permit of the limit on running tasks, or on resumable streams.
    _permit: OwnedSemaphorePermit,
}

#[derive(Debug)]
struct Inner {
    task: Task,
    outcome: Option<Outcome>,
    cutter: Cutter,
    shelf: Shelf,
    followers: usize,
    /// Since when there is no reader.
    alone: Instant,
    ended: Option<Instant>,
    saved: bool,
}

impl Live {
    pub(super) fn new(task: Task, owner: Arc<str>, room: Room, permit: OwnedSemaphorePermit) -> Self {
        let now = Instant::now();
        let inner = Inner {
            task,
            outcome: None,
            cutter: Cutter::default(),
            shelf: Shelf::new(room),
            followers: 0,
            alone: now,
            ended: None,
            saved: false,
        };
        Self {
            owner,
            room,
            inner: Mutex::new(inner),
            changed: watch::Sender::new(0),
            canceled: watch::Sender::new(false),
            _permit: permit,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self) {
        self.changed.send_modify(|count| *count += 1);
    }

    /// Returns the current record.
    pub fn task(&self) -> Task {
        self.lock().task.clone()
    }

    /// Returns the id.
    pub fn id(&self) -> Arc<str> {
        Arc::clone(&self.lock().task.id)
    }

    /// Returns the outcome; `None` while it runs.
    pub fn outcome(&self) -> Option<Outcome> {
        self.lock().outcome.clone()
    }

    /// Resolves when the task ended.
    pub async fn ended(&self) {
        let mut changed = self.changed.subscribe();
        while self.lock().ended.is_none() && changed.changed().await.is_ok() {}
    }

    /// Requests cancellation of the call to the agent.
    pub fn cancel(&self) {
        self.canceled.send_replace(true);
    }

    /// Resolves when cancellation was requested.
    pub async fn canceled(&self) {
        let mut canceled = self.canceled.subscribe();
        // The sender lives as long as `self`.
        if canceled.wait_for(|canceled| *canceled).await.is_err() {
            std::future::pending().await
        }
    }

    /// Resolves when there has been no reader for `window`.
    pub async fn abandoned(&self, window: Duration) {
        loop {
            let (followers, alone) = {
                let inner = self.lock();
                (inner.followers, inner.alone)
            };
            let left = window.saturating_sub(alone.elapsed());
            match followers {
                0 if left.is_zero() => return,
                0 => tokio::time::sleep(left).await,
                _ => {
                    let mut changed = self.changed.subscribe();
                    if self.lock().followers > 0 && changed.changed().await.is_err() {
                        return std::future::pending().await;
                    }
                }
            }
        }
    }

    /// Appends bytes of the agent's stream. Waits while that would evict events that no reader has read.
    pub async fn push(&self, bytes: &[u8]) {
        let pieces = {
            let mut inner = self.lock();
            inner.task.streamed = true;
            inner.cutter.push(bytes, self.room.size)
        };
        for piece in pieces {
            self.keep(piece).await;
        }
    }

    /// Appends the remaining event at the end of the agent's stream.
    pub async fn rest(&self) {
        let piece = self.lock().cutter.rest();
        if let Some(piece) = piece {
            self.keep(piece).await;
        }
    }

    /// Appends an event of the gateway.
    pub fn say(&self, name: &str, data: &str) {
        let mut inner = self.lock();
        let number = inner.cutter.number();
        inner.shelf.put(Piece { number, ends: true, bytes: own(number, name, data) });
        drop(inner);
        self.tell();
    }

    async fn keep(&self, piece: Piece) {
        let mut changed = self.changed.subscribe();
        loop {
            {
                let mut inner = self.lock();
                if !self.room.lossless || inner.shelf.fits(&piece) {
                    inner.shelf.put(piece);
                    break;
                }
            }
            if changed.changed().await.is_err() {
                return;
            }
        }
        self.tell();
    }

    /// Ends the task or stream. `last` builds the final event, or `None` if readers need none.
    pub(super) fn end(
        &self,
        outcome: &Outcome,
        keep: Duration,
        last: impl FnOnce(&Task) -> Option<(&'static str, String)>,
    ) -> Option<Task> {
        let mut inner = self.lock();
        if inner.ended.is_some() {
            return None;
        }
        inner.task.ends(outcome, keep);
        inner.outcome = Some(outcome.clone());
        if let Some((name, data)) = last(&inner.task).filter(|_| inner.shelf.is_between()) {
            let number = inner.cutter.number();
            inner.shelf.put(Piece { number, ends: true, bytes: own(number, name, &data) });
        }
        inner.task.last = inner.shelf.last();
        inner.ended = Some(Instant::now());
        let task = inner.task.clone();
        drop(inner);
        self.tell();
        Some(task)
    }

    pub(super) fn is_working(&self) -> bool {
        self.lock().task.state == State::Working
    }

    /// Whether it is a stream, which is not stored.
    pub(super) fn is_stream(&self) -> bool {
        self.room.lossless
    }

    pub(super) fn saved(&self) {
        self.lock().saved = true;
    }

    /// Whether it ended and its end is not saved yet.
    pub(super) fn is_unsaved(&self) -> bool {
        let inner = self.lock();
        inner.ended.is_some() && !inner.saved
    }

    /// Whether it can be dropped: it ended, the end is saved, and readers had `window` to resume.
    pub(super) fn is_done(&self, window: Duration) -> bool {
        let inner = self.lock();
        let past = |since: Instant| since.elapsed() >= window;
        // The agent's events are only in memory; everything else is stored.
        let needed = inner.task.streamed && !inner.ended.is_some_and(past);
        inner.saved && inner.followers == 0 && inner.ended.is_some() && !needed
    }

    /// Returns the chunk at an index (`None` if it has not arrived, an error if it was evicted), and whether it ended.
    pub(super) fn look(&self, at: u64) -> (Result<Option<(Bytes, bool)>, ()>, bool) {
        let mut inner = self.lock();
        let read = inner.shelf.read(at);
        let ended = inner.ended.is_some();
        drop(inner);
        if matches!(read, Ok(Some(_))) {
            self.tell();
        }
        (read, ended)
    }

    /// Unregisters a reader.
    pub(super) fn left(&self) {
        let mut inner = self.lock();
        inner.followers -= 1;
        inner.alone = Instant::now();
        drop(inner);
        self.tell();
    }

    /// Creates a reader that starts after event `after`; 0 is the start. `None` if the next event was evicted, or there
    /// was no such event.
    pub fn follow(self: &Arc<Self>, after: u64) -> Option<Follower> {
        let inner = self.lock();
        let next = inner.shelf.behind(after)?;
        Some(self.followed(inner, next))
    }

    /// Creates a reader that starts with the oldest complete event.
    pub fn follow_all(self: &Arc<Self>) -> Follower {
        let inner = self.lock();
        let next = inner.shelf.oldest();
        self.followed(inner, next)
    }

    fn followed(self: &Arc<Self>, mut inner: MutexGuard<'_, Inner>, next: u64) -> Follower {
        inner.followers += 1;
        drop(inner);
        self.tell();
        Follower::new(Arc::clone(self), next, self.changed.subscribe())
    }
}
