//! The registry: which agents exist. Feeds say what documents there are, the catalogue turns them into routes, and a
//! call finds its route in a snapshot without a lock.
//! It refuses to lose agents to a feed's trouble: what could not be read leaves what was read before.
//! What a route is, and what a call does with it, it does not know.

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

/// Agents in one gateway, whatever their feeds.
pub const MOST_AGENTS: usize = 200_000;

/// Where agents come from.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The sources; the earlier wins.
    pub from: Vec<Source>,
    /// How often files are looked at.
    pub poll: Span,
    /// The folder in which is kept what sources beyond this machine said last; `None` keeps nothing.
    pub last_known_good: Option<PathBuf>,
    /// How far servers' words about caching count.
    pub cache: Caching,
    /// Whether this is only tried: nothing beyond this machine is asked then, and nothing is written.
    pub rehearsal: bool,
}

#[cfg(test)]
mod tests;
