//! The settings of resolution. A value that cannot be used is told by its name; none is repaired.

use crate::{
    agent::AgentUri,
    net::Url,
    unit::{Size, Span},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, ops::RangeInclusive};

/// Names in the map.
const MOST: usize = 10_000;

/// How `agent://` names are resolved.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "Names")]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// What names lead to, before anybody is asked: `agent://name` or `agent://name/path`, which counts for everything
    /// below it, to an endpoint (https and the other kinds that agents may have), to another name, or to a descriptor
    /// (a URL whose path ends in .json). At most 10,000. Whoever may resolve names is told what they lead to, and whoever
    /// may publish agents can give them these names for endpoints. Default: none.
    pub map: BTreeMap<String, String>,
    /// Whether a name for which nothing is published is called over https at its own host and path (R54).
    /// Default: true.
    pub fallback: bool,
    /// How long resolving one name may take, all fetches together; 100ms to 1m. Default 10s.
    pub timeout: Span,
    /// The largest document; 1KiB to 16MiB. Default 1MiB.
    pub max_size: Size,
    /// Names that are resolved at once for callers, of whom each has half of the places at most, and as many for agents
    /// that have names; more are told to come back. 1 to 10,000. Default 64.
    pub most_at_once: usize,
    /// What is remembered of documents.
    pub cache: Cache,
}

/// What is remembered of documents. Their own words (Cache-Control, Expires) count within these bounds.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "NamesCache")]
#[serde(deny_unknown_fields, default)]
pub struct Cache {
    /// Bytes of all documents together; 1MiB to 4GiB. Default 16MiB.
    pub size: Size,
    /// How long a document is used that does not say; 1s to 1d. Default 1m.
    pub usual: Span,
    /// The longest that any is used, whatever it says; 1s to 1d. Default 1h.
    pub max: Span,
    /// How long it is remembered that there is none, or none that can be used; 1s to 1h. Default 10s.
    pub missing: Span,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            map: BTreeMap::new(),
            fallback: true,
            timeout: Span::secs(10),
            max_size: Size::kib(1 << 10),
            most_at_once: 64,
            cache: Cache::default(),
        }
    }
}

impl Default for Cache {
    fn default() -> Self {
        Self { size: Size::kib(16 << 10), usual: Span::secs(60), max: Span::secs(3_600), missing: Span::secs(10) }
    }
}

/// What a name of the map leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The endpoint, as it is called.
    Endpoint(String),
    /// Another name.
    Name(AgentUri),
    /// A descriptor.
    Descriptor(Url),
}

impl Config {
    /// Every value that cannot be used, by its path within this section.
    pub fn problems(&self) -> Vec<String> {
        let mut problems: Vec<String> = self.read_map().err().unwrap_or_default();
        let mut spans = |name: &str, span: Span, bounds: RangeInclusive<Span>| {
            if !bounds.contains(&span) {
                problems.push(format!("{name}: must be {} to {}, not {span}", bounds.start(), bounds.end()));
            }
        };
        spans("timeout", self.timeout, Span::millis(100)..=Span::secs(60));
        spans("cache.usual", self.cache.usual, Span::secs(1)..=Span::secs(86_400));
        spans("cache.max", self.cache.max, Span::secs(1)..=Span::secs(86_400));
        spans("cache.missing", self.cache.missing, Span::secs(1)..=Span::secs(3_600));
        let mut sizes = |name: &str, size: Size, bounds: RangeInclusive<usize>| {
            if !bounds.contains(&size.get()) {
                let (least, most) = (bounds.start() >> 10, bounds.end() >> 10);
                problems.push(format!("{name}: must be {least}KiB to {most}KiB, not {size}"));
            }
        };
        sizes("max_size", self.max_size, 1 << 10..=16 << 20);
        sizes("cache.size", self.cache.size, 1 << 20..=4 << 30);
        if !(1..=10_000).contains(&self.most_at_once) {
            problems.push(format!("most_at_once: must be 1 to 10000, not {}", self.most_at_once));
        }
        problems
    }

    /// The map, read.
    ///
    /// # Errors
    /// Every entry that cannot be used.
    pub(super) fn read_map(&self) -> Result<Vec<(AgentUri, Target)>, Vec<String>> {
        if self.map.len() > MOST {
            return Err(vec![format!("map: has {} names (at most {MOST})", self.map.len())]);
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
        return Err("must be agent:// with a host or DID, and a path at most".to_owned());
    }
    if target.len() > 2_048 {
        return Err("leads to more than 2048 characters".to_owned());
    }
    let target = match target.split_once("://") {
        Some(("agent", _)) => Target::Name(target.parse()?),
        Some(("https" | "http", _)) => {
            let url = Url::parse(target).map_err(|_| "leads to what is no URL".to_owned())?;
            let plain = url.username().is_empty() && url.password().is_none() && url.fragment().is_none();
            match plain {
                true if url.path().ends_with(".json") => Target::Descriptor(url),
                true => Target::Endpoint(target.to_owned()),
                false => return Err("leads to a URL with a user, a password or a fragment".to_owned()),
            }
        }
        Some(_) => Target::Endpoint(target.to_owned()),
        None => return Err("must lead to a URL or to another name".to_owned()),
    };
    Ok((name, target))
}
