//! The `Feed` trait, which reads one source of agents: files, a registry over the network, or a broker.
//! A feed polls once for each call and reports the changes; it owns no timer, stores no agent and compiles nothing.

use crate::agent::ServerAddress;
use bytes::Bytes;
use serde_json::Value;
use std::{sync::Arc, time::Duration};

/// Reads one source of agents.
#[async_trait::async_trait]
pub trait Feed: Send + 'static {
    /// Polls once. Parts that the result does not contain are unchanged.
    async fn poll(&mut self) -> PollResult;

    /// Resolves when a poll before the next interval is worthwhile; never, for a feed that cannot know.
    async fn wait_for_update(&mut self) {
        std::future::pending().await
    }

    /// Acknowledges the last poll result: it is in force.
    fn acknowledge(&mut self) {}

    /// Discards the last poll result: the next poll reports everything again.
    fn reset(&mut self) {}

    /// Prepares a poll that an operator wants: it reads everything again, whatever the feed has in a cache.
    fn refresh(&mut self) {
        self.reset();
    }

    /// Returns the delay that the source asks for before the next poll; the poller applies its own bounds.
    fn requested_delay(&self) -> Option<Duration> {
        None
    }
}

/// Result of one poll.
#[derive(Debug, Default)]
pub struct PollResult {
    /// The parts that changed.
    pub parts: Vec<FeedPart>,
    /// The parts that are lists of their own, in order of precedence; none if the order is unchanged. The parts of a source
    /// without an order are one list.
    pub lists: Vec<Arc<str>>,
    /// What operators should know about the source, after a poll that succeeded.
    pub warnings: Vec<String>,
    /// Whether something is in the middle of changing, so that the next poll should come early.
    pub poll_soon: bool,
    /// Whether the parts are all that the source has, so that others are removed. The first result that succeeds has all.
    pub replaces_all: bool,
    /// Why the poll as a whole failed. Previous content stays; parts that are reported nevertheless are ingested.
    pub error: Option<String>,
}

impl PollResult {
    /// Returns the result of a failed poll.
    pub fn failed(why: impl Into<String>) -> Self {
        Self { error: Some(why.into()), ..Self::default() }
    }

    /// Whether the poll succeeded and no part changed.
    pub(super) fn is_unchanged(&self) -> bool {
        let Self { parts, lists, warnings: _, poll_soon: _, replaces_all, error } = self;
        parts.is_empty() && lists.is_empty() && !replaces_all && error.is_none()
    }
}

/// One file, page or topic of a feed.
#[derive(Debug)]
pub struct FeedPart {
    /// Name, unique within the feed and meant for operators.
    pub name: Arc<str>,
    /// What changed.
    pub update: PartUpdate,
}

/// Change of a part.
#[derive(Debug)]
pub enum PartUpdate {
    /// All documents that the part now has.
    Replaced(Vec<RawDocument>),
    /// The part cannot be read, for this reason: its previous content stays.
    Unreadable(String),
    /// The part can be read again, and its content is unchanged.
    ReadableAgain,
    /// The part is removed, and its agents with it.
    Removed,
}

/// One agent's document, not yet validated.
#[derive(Debug)]
pub struct RawDocument {
    /// SHA-256 of the text: documents with equal digests are equal, and are not parsed again.
    pub digest: [u8; 32],
    /// The content.
    pub body: DocumentBody,
    /// The caller who published the document, in the built-in registry.
    pub publisher: Option<Arc<str>>,
    /// The addresses of the agent's server, where the feed knows them. They are no part of the document: its writer
    /// cannot name them, and no caller reads them.
    pub addresses: Arc<[ServerAddress]>,
    /// What operators should know about how the feed made the document from another one.
    pub notes: Arc<[String]>,
}

impl RawDocument {
    /// Creates a document without a publisher.
    pub fn new(digest: [u8; 32], body: DocumentBody) -> Self {
        Self { digest, body, publisher: None, addresses: Arc::default(), notes: Arc::default() }
    }

    /// Returns the document with these addresses of the agent's server.
    pub(super) fn with_addresses(self, addresses: Arc<[ServerAddress]>) -> Self {
        Self { addresses, ..self }
    }

    /// Returns the document with these notes.
    pub(super) fn with_notes(self, notes: Arc<[String]>) -> Self {
        Self { notes, ..self }
    }
}

/// Content of a document.
#[derive(Debug)]
pub enum DocumentBody {
    /// JSON that is not parsed yet, and need not be if its digest is known.
    Text(Bytes),
    /// A value that was parsed from another format.
    Value(Value),
    /// Nothing that can be validated, and why.
    Invalid(String),
    /// Something that the gateway does not call, such as an agent of a protocol that it does not speak, and why. It says
    /// nothing against its source.
    Unsupported(String),
}

impl DocumentBody {
    /// Returns the length of JSON that is not parsed yet, in bytes; 0 for other bodies.
    pub(super) fn text_length(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Value(_) | Self::Invalid(_) | Self::Unsupported(_) => 0,
        }
    }
}
