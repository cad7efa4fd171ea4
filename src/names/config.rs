//! Configuration of the `agent://` resolver. An invalid value is reported by its key; none is corrected.

use crate::{
    agent::AgentUri,
    net::Url,
    unit::{Size, Span},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, ops::RangeInclusive};

/// Maximum number of entries of the map.
const MOST: usize = 10_000;

/// How `agent://` names are resolved.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "Names")]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Targets of names, consulted before any network request: from `agent://name` or `agent://name/path`, which
    /// includes every name below it, to an endpoint (https or another endpoint kind of agents), to another name, or to
    /// a descriptor (a URL whose path ends in .json). At most 10,000 entries. Callers that may resolve names can read
    /// the targets, and publishers of agents can use these names as endpoints. Default: none.
    pub map: BTreeMap<String, String>,
    /// Whether a name for which nothing is published resolves to https at its own host and path (R54).
    /// Default: true.
    pub https_fallback: bool,
    /// Time limit for resolving one name, all fetches together; 100ms to 1m. Default: 10s.
    pub resolution_timeout: Span,
    /// Maximum size of a fetched document; 1KiB to 16MiB. Default: 1MiB.
    pub max_document_size: Size,
    /// Maximum number of names resolved at once for callers, of which one caller may use half; agents whose endpoint
    /// is a name have a separate limit of the same size. Calls beyond it get 503. 1 to 10,000. Default: 64.
    pub max_concurrency: usize,
    /// Cache of fetched documents.
    pub cache: Cache,
}

/// Cache of fetched documents. Their own freshness (Cache-Control, Expires) applies within these bounds.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "NamesCache")]
#[serde(deny_unknown_fields, default)]
pub struct Cache {
    /// Total size of the cached documents; 1MiB to 4GiB. Default: 16MiB.
    pub max_size: Size,
    /// Lifetime of a document that states none; 1s to 1d. Default: 1m.
    pub default_ttl: Span,
    /// Upper bound of a document's lifetime, whatever it states; 1s to 1d. Default: 1h.
    pub max_ttl: Span,
    /// How long a missing or unusable document is remembered as such; 1s to 1h. Default: 10s.
    pub negative_ttl: Span,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            map: BTreeMap::new(),
            https_fallback: true,
            resolution_timeout: Span::secs(10),
            max_document_size: Size::kib(1 << 10),
            max_concurrency: 64,
            cache: Cache::default(),
        }
    }
}

impl Default for Cache {
    fn default() -> Self {
        Self {
            max_size: Size::kib(16 << 10),
            default_ttl: Span::secs(60),
            max_ttl: Span::secs(3_600),
            negative_ttl: Span::secs(10),
        }
    }
}

/// Target of an entry of the map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Endpoint of the agent.
    Endpoint(String),
    /// Another name.
    Name(AgentUri),
    /// URL of a descriptor.
    Descriptor(Url),
}

impl Config {
    /// Returns one message for each invalid value, by its key within this section.
    pub fn problems(&self) -> Vec<String> {
        let mut problems: Vec<String> = self.read_map().err().unwrap_or_default();
        let mut spans = |name: &str, span: Span, bounds: RangeInclusive<Span>| {
            if !bounds.contains(&span) {
                problems.push(format!("{name}: must be {} to {}, not {span}", bounds.start(), bounds.end()));
            }
        };
        spans("timeout", self.resolution_timeout, Span::millis(100)..=Span::secs(60));
        spans("cache.usual", self.cache.default_ttl, Span::secs(1)..=Span::secs(86_400));
        spans("cache.max", self.cache.max_ttl, Span::secs(1)..=Span::secs(86_400));
        spans("cache.missing", self.cache.negative_ttl, Span::secs(1)..=Span::secs(3_600));
        let mut sizes = |name: &str, size: Size, bounds: RangeInclusive<usize>| {
            if !bounds.contains(&size.get()) {
                let (least, most) = (bounds.start() >> 10, bounds.end() >> 10);
                problems.push(format!("{name}: must be {least}KiB to {most}KiB, not {size}"));
            }
        };
        sizes("max_size", self.max_document_size, 1 << 10..=16 << 20);
        sizes("cache.size", self.cache.max_size, 1 << 20..=4 << 30);
        if !(1..=10_000).contains(&self.max_concurrency) {
            problems.push(format!("most_at_once: must be 1 to 10000, not {}", self.max_concurrency));
        }
        problems
    }

    /// Parses the map.
    ///
    /// # Errors
    /// Returns one message for each invalid entry.
    pub(super) fn read_map(&self) -> Result<Vec<(AgentUri, Target)>, Vec<String>> {
        if self.map.len() > MOST {
            return Err(vec![format!("map: has {} entries (at most {MOST})", self.map.len())]);
        }
        let (mut entries, mut problems) = (Vec::new(), Vec::new());
        for (name, target) in &self.map {
            match entry(name, target) {
                Ok(entry) => entries.push(entry),
                Err(why) => problems.push(format!("map.{name}: {why}")),
            }
        }
        if problems.is_empty() { Ok(entries) } else { Err(problems) }
    }
}

fn entry(name: &str, target: &str) -> Result<(AgentUri, Target), String> {
    let name: AgentUri = name.parse()?;
    if name.protocol().is_some() || name.query().is_some() || name.fragment().is_some() {
        return Err("must be agent:// with a host or DID and an optional path".to_owned());
    }
    if target.len() > 2_048 {
        return Err("target is longer than 2048 characters".to_owned());
    }
    let target = match target.split_once("://") {
        Some(("agent", _)) => Target::Name(target.parse()?),
        Some(("https" | "http", _)) => {
            let url = Url::parse(target).map_err(|_| "target is not a URL".to_owned())?;
            let plain = url.username().is_empty() && url.password().is_none() && url.fragment().is_none();
            match plain {
                true if url.path().ends_with(".json") => Target::Descriptor(url),
                true => Target::Endpoint(target.to_owned()),
                false => return Err("target URL has a user, a password or a fragment".to_owned()),
            }
        }
        Some(_) => Target::Endpoint(target.to_owned()),
        None => return Err("target must be a URL or another agent:// name".to_owned()),
    };
    Ok((name, target))
}
