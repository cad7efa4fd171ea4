//! The registry: which agents exist. Feeds say what documents there are, the catalogue turns them into routes, and a
//! call finds its route in a snapshot without a lock.
//! It refuses to lose agents to a feed's trouble: what could not be read leaves what was read before.
//! What a route is, and what a call does with it, it does not know.

mod catalogue;
mod embedded;
mod feed;
mod file;
mod read;
mod settle;
mod snapshot;
mod split;
mod watch;

pub use catalogue::{Catalogue, Era};
pub use embedded::{
    Past, PublishConfig, Published, Publisher, PublisherRule, Registry, Restored, Saved, Stored, Taken, Told, When,
};
pub use feed::{Body, Change, Document, Feed, News, Part};
pub use file::Files;
pub use settle::Compile;
pub use snapshot::{Refusal, Snapshot};
pub use watch::Watch;

use crate::unit::Span;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Agents in one gateway, whatever their feeds.
pub const MOST_AGENTS: usize = 200_000;

/// Where agents' documents are.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Files of metadata documents (JSON or YAML: one document, an array, or an object with `agents`), or folders of
    /// such files (*.json, *.yaml, *.yml; not the folders within). At most 256MiB a file, 1MiB a document.
    pub from: Vec<PathBuf>,
    /// How often they are looked at for changes; 50ms to 1h, default 500ms. Looking less often is chosen by itself
    /// where looking takes long.
    pub poll: Span,
}

impl Default for Config {
    fn default() -> Self {
        Self { from: Vec::new(), poll: Span::millis(500) }
    }
}

impl Config {
    /// Every value that cannot be used, by its path within this section.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for (at, path) in self.from.iter().enumerate() {
            if let Err(why) = std::fs::metadata(path) {
                problems.push(format!("from[{at}]: {} cannot be read ({why})", path.display()));
            }
            if self.from.iter().take(at).any(|earlier| earlier == path) {
                problems.push(format!("from[{at}]: {} stands twice", path.display()));
            }
        }
        let bounds = Span::millis(50)..=Span::secs(3_600);
        if !bounds.contains(&self.poll) {
            problems.push(format!("poll: must be 50ms to 1h, not {}", self.poll));
        }
        problems
    }
}

#[cfg(test)]
mod tests;
