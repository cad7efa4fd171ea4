//! A task or stream that runs here: its events, kept within bounds for whoever follows, and what has become of it.

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

/// Something that runs here, or has ended a moment ago.
#[derive(Debug)]
pub struct Live {
    pub(super) owner: Arc<str>,
    room: Room,
    inner: Mutex<Inner>,
    changed: watch::Sender<u64>,
    canceled: watch::Sender<bool>,
    /// Places among the streams that are kept, or the tasks that run.
    _place: OwnedSemaphorePermit,
}

#[derive(Debug)]
struct Inner {
    task: Task,
    outcome: Option<Outcome>,
    cutter: Cutter,
    shelf: Shelf,
    followers: usize,
    /// Since when nobody follows.
    alone: Instant,
    ended: Option<Instant>,
    saved: bool,
}

impl Live {
    pub(super) fn new(task: Task, owner: Arc<str>, room: Room, place: OwnedSemaphorePermit) -> Self {
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
            _place: place,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self) {
        self.changed.send_modify(|count| *count += 1);
    }

    /// How it stands.
    pub fn task(&self) -> Task {
        self.lock().task.clone()
    }

    /// Its id.
    pub fn id(&self) -> Arc<str> {
        Arc::clone(&self.lock().task.id)
    }

    /// How it ended, once it has.
    pub fn outcome(&self) -> Option<Outcome> {
        self.lock().outcome.clone()
    }

    /// Resolves when it has ended.
    pub async fn ended(&self) {
        let mut changed = self.changed.subscribe();
        while self.lock().ended.is_none() && changed.changed().await.is_ok() {}
    }

    /// Asks that the agent be left.
    pub fn cancel(&self) {
        self.canceled.send_replace(true);
    }

    /// Resolves when that was asked.
    pub async fn canceled(&self) {
        let mut canceled = self.canceled.subscribe();
        // The sender lives as long as this does.
        if canceled.wait_for(|canceled| *canceled).await.is_err() {
            std::future::pending().await
        }
    }

    /// Resolves when nobody has followed for `window`.
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

    /// Takes a piece of the agent's stream; waits where that would lose what nobody has read.
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

    /// The agent's stream is at its end.
    pub async fn rest(&self) {
        let piece = self.lock().cutter.rest();
        if let Some(piece) = piece {
            self.keep(piece).await;
        }
    }

    /// An event of the gateway's own.
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

    /// It is over. `last` says so to followers, unless the stream needs no word.
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

    /// Whether it is a stream, of which nothing is kept.
    pub(super) fn is_stream(&self) -> bool {
        self.room.lossless
    }

    pub(super) fn saved(&self) {
        self.lock().saved = true;
    }

    /// Its end is not kept yet.
    pub(super) fn is_unsaved(&self) -> bool {
        let inner = self.lock();
        inner.ended.is_some() && !inner.saved
    }

    /// Nobody needs it any longer: it ended, that is kept, and whoever lost its events had `window` to come back.
    pub(super) fn is_done(&self, window: Duration) -> bool {
        let inner = self.lock();
        let past = |since: Instant| since.elapsed() >= window;
        // What the agent streamed is only here; everything else is kept.
        let needed = inner.task.streamed && !inner.ended.is_some_and(past);
        inner.saved && inner.followers == 0 && inner.ended.is_some() && !needed
    }

    /// The piece at a place: none where it has not come, an error where it was let go; and whether there is an end.
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

    /// A follower has gone.
    pub(super) fn left(&self) {
        let mut inner = self.lock();
        inner.followers -= 1;
        inner.alone = Instant::now();
        drop(inner);
        self.tell();
    }

    /// Follows it from behind the event `after`; 0 is the beginning. `None` if what follows that event is no longer
    /// kept, or there was no such event.
    pub fn follow(self: &Arc<Self>, after: u64) -> Option<Follower> {
        let inner = self.lock();
        let next = inner.shelf.behind(after)?;
        Some(self.followed(inner, next))
    }

    /// Follows it from the oldest event that is kept whole.
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
