//! The seam to whatever knows agents: files here, registries over the network elsewhere.
//! A feed looks once when asked and says what changed; it owns no clock, keeps no agent and compiles nothing.

use bytes::Bytes;
use serde_json::Value;
use std::{sync::Arc, time::Duration};

/// One way to learn of agents.
#[async_trait::async_trait]
pub trait Feed: Send + 'static {
    /// Looks once. Parts that are not mentioned stay as they were.
    async fn next(&mut self) -> Change;

    /// Resolves when it is worth looking before the usual time; never, for a feed that cannot know.
    async fn wake(&mut self) {
        std::future::pending().await
    }

    /// What it said last is in force.
    fn taken(&mut self) {}

    /// What it said last is lost: the next look says everything again.
    fn forget(&mut self) {}

    /// How soon what it looks at asks to be looked at again; the driver keeps within its own bounds.
    fn again(&self) -> Option<Duration> {
        None
    }
}

/// What one look found.
#[derive(Debug, Default)]
pub struct Change {
    /// The parts that changed; none if nothing did.
    pub parts: Vec<Part>,
    /// Something is in the middle of changing: look again before the usual time.
    pub soon: bool,
    /// Why the look as a whole brought nothing that can be relied on; what was known stays, parts that are mentioned
    /// all the same are taken in.
    pub trouble: Option<String>,
}

impl Change {
    /// A look that failed.
    pub fn failed(why: impl Into<String>) -> Self {
        Self { trouble: Some(why.into()), ..Self::default() }
    }
}

/// One file, page or topic of a feed.
#[derive(Debug)]
pub struct Part {
    /// Its name, unique within its feed; operators read it.
    pub name: Arc<str>,
    /// What became of it.
    pub news: News,
}

/// What became of a part.
#[derive(Debug)]
pub enum News {
    /// All documents that it holds now.
    Whole(Vec<Document>),
    /// It could not be read, for this reason: what it held before stays.
    Kept(String),
    /// It can be read again, and holds what it held.
    Steady,
    /// It is gone, and its agents with it.
    Gone,
}

/// One agent's document, not yet judged.
#[derive(Debug)]
pub struct Document {
    /// SHA-256 of its text: equal digests are equal documents, and are not read again.
    pub digest: [u8; 32],
    /// What stands there.
    pub body: Body,
}

/// A document's content.
#[derive(Debug)]
pub enum Body {
    /// JSON that was not parsed yet, and need not be if its digest is known.
    Text(Bytes),
    /// A value that another format was read into.
    Value(Value),
    /// Nothing that can be judged; why.
    Broken(String),
}
