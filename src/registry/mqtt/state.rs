//! State of the status table: the agents of a broker at one moment, and what of it is not reported yet.
//! The status table decides which agents are admitted.

use super::board::BEYOND;
use crate::registry::{
    feed::{Body, Change, Document, News},
    read::sha256,
};
use bytes::Bytes;
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};
use tokio::time::Instant;

/// The retained statuses are complete after this time without a further one.
pub(super) const QUIET: Duration = Duration::from_millis(300);

pub(super) type Name = Arc<str>;
pub(super) type Digest = [u8; 32];

#[derive(Debug)]
pub(super) struct State {
    pub(super) agents: HashMap<Name, Standing>,
    pub(super) bytes: usize,
    pub(super) link: Link,
    /// Counts connections; each agent stores the number of the connection in which it last published.
    pub(super) session: u64,
    /// Whether agents of earlier connections have had time to publish again.
    pub(super) settled: bool,
    /// Parts that are not reported yet.
    pub(super) changed: HashSet<Name>,
    /// The last report, by digest, until the registry acknowledges it.
    pub(super) telling: Option<Telling>,
    /// Whether a complete report was acknowledged.
    pub(super) whole: bool,
    /// Whether the last poll came before the retained statuses were complete.
    pub(super) early: bool,
    /// The connection in which an agent did not fit.
    pub(super) beyond: Option<u64>,
}

#[derive(Debug, Default)]
pub(super) struct Telling {
    pub(super) parts: HashMap<Name, Option<Digest>>,
    pub(super) whole: bool,
}

#[derive(Debug)]
pub(super) enum Link {
    Trying,
    /// Time of the last retained status, or of the subscription.
    Up(Instant),
    Down(String),
}

#[derive(Debug, Default)]
pub(super) struct Standing {
    pub(super) document: Option<(Bytes, Digest)>,
    /// Digest of the document that the registry has in force.
    pub(super) in_force: Option<Digest>,
    pub(super) trouble: Option<String>,
    pub(super) session: u64,
    pub(super) odd_time: bool,
}

impl State {
    pub(super) fn remove(&mut self, name: &Name) {
        if let Some(standing) = self.agents.remove(name) {
            self.bytes -= standing.document.map_or(0, |(text, _)| text.len());
            self.changed.insert(Arc::clone(name));
        }
    }

    pub(super) fn no_room(&mut self) {
        if self.beyond.replace(self.session).is_none() {
            self.changed.insert(BEYOND.into());
        }
    }

    /// Logs an invalid timestamp once; nothing depends on it.
    pub(super) fn mark_time(&mut self, name: &Name, odd: bool) {
        let Some(standing) = self.agents.get_mut(name) else { return };
        if odd && !standing.odd_time {
            tracing::warn!(agent = %name, "status accepted without a valid timestamp (RFC 3339 with Z is required)");
        }
        standing.odd_time = odd;
    }

    /// Returns a result without parts, which is an error where the broker's statuses are not complete.
    pub(super) fn reliable(&self) -> Change {
        match &self.link {
            Link::Down(why) => Change::failed(why.clone()),
            Link::Trying => Change::failed("the broker has not responded yet"),
            Link::Up(since) if !self.whole && !self.settled && since.elapsed() < QUIET => {
                Change { soon: true, ..Change::failed("the broker's retained statuses are still being received") }
            }
            Link::Up(_) => Change::default(),
        }
    }
}

impl Standing {
    /// Returns the update, the digest of the document that is in force then, and whether another update follows.
    pub(super) fn news(&self) -> (News, Option<Digest>, bool) {
        match (&self.document, &self.trouble) {
            (Some((_, digest)), Some(why)) if self.in_force == Some(*digest) => {
                (News::Kept(why.clone()), self.in_force, false)
            }
            (Some((text, digest)), trouble) => {
                let document = Document { digest: *digest, body: Body::Text(text.clone()) };
                (News::Whole(vec![document]), Some(*digest), trouble.is_some())
            }
            (None, why) => {
                let why = why.clone().unwrap_or_default();
                let digest = sha256(format!("no document: {why}").as_bytes());
                (News::Whole(vec![Document { digest, body: Body::Broken(why) }]), None, false)
            }
        }
    }
}
