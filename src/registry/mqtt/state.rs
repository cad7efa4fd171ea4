//! What is known of a broker's agents at one moment, and what of it there is to tell.
//! It decides nothing about what is let in: that is the board's.

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

/// Without a further retained status for so long, all have come.
pub(super) const QUIET: Duration = Duration::from_millis(300);

pub(super) type Name = Arc<str>;
pub(super) type Digest = [u8; 32];

#[derive(Debug)]
pub(super) struct State {
    pub(super) agents: HashMap<Name, Standing>,
    pub(super) bytes: usize,
    pub(super) link: Link,
    /// Counts connections: an agent that has shown itself in this one is marked with it.
    pub(super) session: u64,
    /// Agents that were known before this connection have had their time.
    pub(super) settled: bool,
    /// What the registry has not heard.
    pub(super) changed: HashSet<Name>,
    /// What it was told last, by digest, until it says that this is in force.
    pub(super) telling: Option<Telling>,
    /// It was told everything once.
    pub(super) whole: bool,
    /// Its last look came before everything had come.
    pub(super) early: bool,
    /// The connection in which there was no room for an agent.
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
    /// Since when there was nothing new from before.
    Up(Instant),
    Down(String),
}

#[derive(Debug, Default)]
pub(super) struct Standing {
    pub(super) document: Option<(Bytes, Digest)>,
    /// The document that the registry has in force.
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

    /// A time that no clock can read is told once, and decides nothing.
    pub(super) fn mark_time(&mut self, name: &Name, odd: bool) {
        let Some(standing) = self.agents.get_mut(name) else { return };
        if odd && !standing.odd_time {
            tracing::warn!(agent = %name, "an agent's status has no timestamp in RFC 3339 with Z; it is taken all the same");
        }
        standing.odd_time = odd;
    }

    /// A look without parts; with the reason, where it cannot be relied on.
    pub(super) fn reliable(&self) -> Change {
        match &self.link {
            Link::Down(why) => Change::failed(why.clone()),
            Link::Trying => Change::failed("the broker has not answered yet"),
            Link::Up(since) if !self.whole && !self.settled && since.elapsed() < QUIET => {
                Change { soon: true, ..Change::failed("the statuses that the broker keeps are still coming in") }
            }
            Link::Up(_) => Change::default(),
        }
    }
}

impl Standing {
    /// What there is to tell, the digest of the document that is in force then, and whether there is more.
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
