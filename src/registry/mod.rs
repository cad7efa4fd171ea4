//! Agent registry: which agents exist. Feeds report documents, the catalogue compiles them into routes, and a call
//! looks its route up in a snapshot without a lock.
//! A source that fails loses no agents: what cannot be read keeps its last good content.
//! The registry does not know what a route is or how a call uses it.

mod catalogue;
mod config;
mod desk;
mod embedded;
mod feed;
mod file;
mod health;
mod intake;
mod keep;
mod kinds;
mod lazy;
mod looker;
mod lookup;
mod merge;
mod mqtt;
mod open;
#[cfg(test)]
mod plain;
mod read;
mod settle;
mod snapshot;
mod source;
mod split;
mod watch;
mod web;

pub use catalogue::{Catalogue, Era};
pub use config::{Caching, Kind, Remote, Source};
pub use embedded::{
    Past, PublishConfig, Published, Publisher, PublisherRule, Registry, Restored, Saved, Stored, Taken, Told, When,
};
pub use feed::{Body, Change, Document, Feed, News, Part};
pub use file::Files;
pub use health::SourceHealth;
pub use intake::{Look, Verdict};
pub use lazy::{Lazy, Lookup, Memory};
pub use lookup::{Lookups, lookups};
pub use mqtt::{Mqtt, MqttSettings};
pub use open::{Means, Sources, usual_folder};
pub use settle::Compile;
pub use snapshot::{Refusal, Snapshot};
pub use source::Origin;
pub use watch::Watch;

use crate::unit::Span;
use std::path::PathBuf;

/// Maximum number of agents in one gateway, over all sources.
pub const MOST_AGENTS: usize = 200_000;

/// Configuration of the agent sources.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The sources in order of precedence: on a conflict of ids the earlier source wins.
    pub from: Vec<Source>,
    /// Interval between two polls of a file or folder.
    pub poll: Span,
    /// Folder of the last known good agents of remote sources; `None` stores nothing.
    pub last_known_good: Option<PathBuf>,
    /// Bounds on the cache lifetimes that servers declare.
    pub cache: Caching,
    /// Whether the configuration is only checked: no remote source is contacted, and nothing is written.
    pub rehearsal: bool,
}

#[cfg(test)]
mod tests;
