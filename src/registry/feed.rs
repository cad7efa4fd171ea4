//! The `Feed` trait, which reads one source of agents: files, a registry over the network, or a broker.
//! A feed polls once when asked and reports what changed; it owns no timer, stores no agent and compiles nothing.

use bytes::Bytes;
use serde_json::Value;
use std::{sync::Arc, time::Duration};

/// Reads one source of agents.
#[async_trait::async_trait]
pub trait Feed: Send + 'static {
    /// Polls once. Parts that the result does not contain are unchanged.
    async fn next(&mut self) -> Change;

    /// Resolves when a poll before the next interval is worthwhile; never, for a feed that cannot know.
    async fn wake(&mut self) {
        std::future::pending().await
    }

    /// Acknowledges the last poll result: it is in force.
    fn taken(&mut self) {}

    /// Discards the last poll result: the next poll reports everything again.
    fn forget(&mut self) {}

    /// Returns the delay that the source asks for before the next poll; the poller applies its own bounds.
    fn again(&self) -> Option<Duration> {
        None
    }
}

/// Result of one poll.
#[derive(Debug, Default)]
pub struct Change {
    /// The parts that changed.
    pub parts: Vec<Part>,
    /// Whether something is in the middle of changing, so that the next poll should come early.
    pub soon: bool,
    /// Why the poll as a whole failed. Previous content stays; parts that are reported nevertheless are ingested.
    pub trouble: Option<String>,
}

impl Change {
    /// Returns the result of a failed poll.
    pub fn failed(why: impl Into<String>) -> Self {
        Self { trouble: Some(why.into()), ..Self::default() }
    }
}

/// One file, page or topic of a feed.
#[derive(Debug)]
pub struct Part {
    /// Name, unique within the feed and meant for operators.
    pub name: Arc<str>,
    /// What changed.
    pub news: News,
}

/// Change of a part.
#[derive(Debug)]
pub enum News {
    /// All documents that the part now has.
    Whole(Vec<Document>),
    /// The part cannot be read, for this reason: its previous content stays.
    Kept(String),
    /// The part can be read again, and its content is unchanged.
    Steady,
    /// The part is removed, and its agents with it.
    Gone,
}

/// One agent's document, not yet validated.
#[derive(Debug)]
pub struct Document {
    /// SHA-256 of the text: documents with equal digests are equal, and are not parsed again.
    pub digest: [u8; 32],
    /// The content.
    pub body: Body,
}

/// Content of a document.
#[derive(Debug)]
pub enum Body {
    /// JSON that is not parsed yet, and need not be if its digest is known.
    Text(Bytes),
    /// A value that was parsed from another format.
    Value(Value),
    /// Nothing that can be validated, and why.
    Broken(String),
}
