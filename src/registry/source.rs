//! State of one source in the catalogue: its parts in force, the update that the loss guard withholds, and the time of
//! its last successful poll. The loss guard rejects a poll result that would remove most of a source's agents.

use super::{
    feed::{Change, News},
    health::SourceHealth,
    intake::Verdict,
    settle::Held,
};
use crate::agent::AgentId;
use foldhash::fast::RandomState;
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime},
};

/// Number of consecutive polls that must agree before the loss guard accepts a loss.
const CONFIRMING: u32 = 3;
/// Minimum number of agents for the loss threshold, which is a share, to apply.
const COUNTED: usize = 10;

/// Settings of a source that the catalogue uses.
#[derive(Clone, Debug)]
pub struct Origin {
    /// Name, unique among the sources.
    pub name: Arc<str>,
    /// Protocol of the source.
    pub kind: &'static str,
    /// Location. A source at another location is a different source, even with the same name.
    pub place: Arc<str>,
    /// Loss guard: the share of the agents that one poll may remove, and how long a greater loss must last before it is
    /// accepted; `None` accepts every loss at once.
    pub hold: Option<(f64, Duration)>,
    /// Time without a successful poll after which the source's agents are removed.
    pub stale_after: Option<Duration>,
    /// Maximum number of agents.
    pub most: usize,
}

impl Origin {
    /// Returns what identifies the source across configurations.
    pub(super) fn identity(&self) -> (Arc<str>, &'static str, Arc<str>) {
        (Arc::clone(&self.name), self.kind, Arc::clone(&self.place))
    }
}

/// Content of one part of a source.
pub(super) struct Entries<R> {
    pub(super) held: Vec<Arc<Held<R>>>,
    pub(super) trouble: Option<String>,
}

/// Updated parts; `None` is a part that is removed.
pub(super) type Parts<R> = BTreeMap<Arc<str>, Option<Vec<Arc<Held<R>>>>>;

/// A source with its content in force.
pub(super) struct SourceState<R> {
    pub(super) origin: Origin,
    pub(super) parts: BTreeMap<Arc<str>, Entries<R>>,
    /// Updated parts that the loss guard withholds.
    beyond: Parts<R>,
    held: Option<Waiting>,
    /// Whether a poll succeeded in this generation.
    pub(super) looked: bool,
    good: Option<SystemTime>,
    remembered: bool,
    trouble: Option<String>,
    pub(super) stale: bool,
    agents: usize,
    revision: u64,
}

/// An update that the loss guard withholds.
struct Waiting {
    losing: usize,
    looks: u32,
    since: SystemTime,
}

impl<R> SourceState<R> {
    pub(super) fn new(origin: Origin) -> Self {
        Self {
            origin,
            parts: BTreeMap::new(),
            beyond: BTreeMap::new(),
            held: None,
            looked: false,
            good: None,
            remembered: false,
            trouble: None,
            stale: false,
            agents: 0,
            revision: 0,
        }
    }

    /// Carries the source over to another configuration.
    pub(super) fn again(self, origin: Origin) -> Self {
        Self { origin, looked: false, ..self }
    }

    /// Whether this is the source that `origin` describes and a poll of it succeeded.
    pub(super) fn is(&self, origin: &Origin) -> bool {
        self.origin.identity() == origin.identity() && self.good.is_some()
    }

    /// Returns the number of documents in force.
    pub(super) fn len(&self) -> usize {
        self.parts.values().map(|entries| entries.held.len()).sum()
    }

    /// Returns the number of documents after `change`, as far as it is known without parsing them.
    pub(super) fn len_after(&self, change: &Change) -> usize {
        let before = |name: &Arc<str>| self.parts.get(name).map_or(0, |entries| entries.held.len());
        let whole = !self.looked && change.trouble.is_none();
        let base = if whole { 0 } else { self.len() };
        change.parts.iter().fold(base, |count, part| match &part.news {
            News::Whole(found) if whole => count + found.len(),
            News::Whole(found) => (count + found.len()).saturating_sub(before(&part.name)),
            News::Gone if !whole => count.saturating_sub(before(&part.name)),
            News::Kept(_) | News::Steady if whole => count + before(&part.name),
            News::Gone | News::Kept(_) | News::Steady => count,
        })
    }

    /// Records that the poll failed or was rejected.
    pub(super) fn fail(&mut self, why: String) {
        self.trouble = Some(why);
        if let Some(held) = &mut self.held {
            held.looks = 0;
        }
    }

    /// Returns the parts that the first poll of a generation does not report. They are removed, unless they are in a
    /// folder that could not be listed.
    pub(super) fn unmentioned(&self, change: &Change) -> Vec<Arc<str>> {
        let named: HashSet<&str> = change.parts.iter().map(|part| &*part.name).collect();
        let kept: Vec<&Path> = change
            .parts
            .iter()
            .filter(|part| matches!(part.news, News::Kept(_)))
            .map(|part| Path::new(&*part.name))
            .collect();
        let gone = |name: &&Arc<str>| {
            !named.contains(&***name) && !kept.iter().any(|kept| Path::new(&***name).starts_with(kept))
        };
        self.parts.keys().filter(gone).cloned().collect()
    }

    /// Records that a part cannot be read, or can be read again.
    pub(super) fn mark(&mut self, part: Arc<str>, trouble: Option<String>) {
        match (self.parts.get_mut(&part), trouble) {
            (Some(entries), trouble) => entries.trouble = trouble,
            (None, None) => {}
            (None, trouble) => drop(self.parts.insert(part, Entries { held: Vec::new(), trouble })),
        }
    }

    /// Accepts updated parts, or withholds them. `good` is the time of the poll, if it succeeded as a whole.
    pub(super) fn take(&mut self, parts: Parts<R>, good: Option<SystemTime>, remembered: bool) -> Verdict {
        if good.is_some() {
            self.looked |= !remembered;
            (self.good, self.trouble) = (good, None);
            self.remembered = remembered;
        }
        let revived = good.is_some() && std::mem::replace(&mut self.stale, false);
        self.beyond.extend(parts);
        let losing = self.losing();
        if !self.loses_too_much(losing) {
            return Verdict::Taken { changed: self.commit() || revived };
        }
        let now = SystemTime::now();
        let held = self.held.get_or_insert(Waiting { losing, looks: 0, since: now });
        if held.looks == 0 {
            held.since = now;
        }
        (held.losing, held.looks) = (losing, held.looks + u32::from(good.is_some()));
        let lasted = now.duration_since(held.since).unwrap_or_default();
        let long = self.origin.hold.is_none_or(|(_, time)| lasted >= time);
        match held.looks >= CONFIRMING && long {
            true => Verdict::Taken { changed: self.commit() || revived },
            false => Verdict::Held,
        }
    }

    /// Puts the withheld update in force; returns whether there was one.
    pub(super) fn commit(&mut self) -> bool {
        self.held = None;
        let changed = !self.beyond.is_empty();
        for (name, held) in std::mem::take(&mut self.beyond) {
            match held {
                Some(held) => drop(self.parts.insert(name, Entries { held, trouble: None })),
                None => drop(self.parts.remove(&name)),
            }
        }
        if changed {
            self.revision += 1;
            self.recount();
        }
        changed
    }

    pub(super) fn waits(&self) -> bool {
        self.held.is_some()
    }

    /// Returns every document, in force or withheld, possibly with duplicates.
    pub(super) fn everything(&self) -> impl Iterator<Item = &Arc<Held<R>>> {
        let beyond = self.beyond.values().flatten().flatten();
        self.parts.values().flat_map(|entries| &entries.held).chain(beyond)
    }

    /// Replaces the documents of every part by what `again` makes of them.
    pub(super) fn remake(&mut self, again: impl Fn(Vec<Arc<Held<R>>>) -> Vec<Arc<Held<R>>>) {
        let parts = self.parts.values_mut().map(|entries| &mut entries.held);
        for held in parts.chain(self.beyond.values_mut().flatten()) {
            *held = again(std::mem::take(held));
        }
        self.recount();
    }

    fn recount(&mut self) {
        self.agents =
            self.parts.values().flat_map(|entries| &entries.held).filter(|held| held.usable().is_some()).count();
    }

    /// Counts the agents in force that the withheld update would remove.
    fn losing(&self) -> usize {
        if self.origin.hold.is_none() {
            return 0;
        }
        // A duplicate id is not served at all: a list that contains every id twice loses every agent.
        let mut after: HashMap<&AgentId, u32, RandomState> = HashMap::default();
        for id in self.beyond.values().flatten().flatten().filter_map(|held| held.usable()) {
            *after.entry(id).or_default() += 1;
        }
        let touched = self.beyond.keys().filter_map(|name| self.parts.get(name));
        let before = touched.flat_map(|entries| &entries.held).filter_map(|held| held.usable());
        before.filter(|id| after.get(id) != Some(&1)).count()
    }

    fn loses_too_much(&self, losing: usize) -> bool {
        let Some((share, _)) = self.origin.hold.filter(|(share, _)| *share < 1.0) else { return false };
        let many = self.agents >= COUNTED && losing as f64 > share * self.agents as f64;
        many || (self.agents > 1 && losing == self.agents)
    }

    /// Marks the source stale once its last successful poll is too long ago; returns whether agents are removed by it.
    pub(super) fn goes_stale(&mut self) -> bool {
        let (Some(bound), Some(good), false) = (self.origin.stale_after, self.good, self.stale) else { return false };
        self.stale = SystemTime::now().duration_since(good).is_ok_and(|age| age > bound);
        self.stale && !self.parts.is_empty()
    }

    pub(super) fn health(&self) -> SourceHealth {
        SourceHealth {
            name: Arc::clone(&self.origin.name),
            kind: self.origin.kind,
            agents: self.agents,
            revision: self.revision,
            good: self.good,
            stale: self.stale,
            remembered: self.remembered,
            trouble: self.trouble.clone(),
            losing: self.held.as_ref().map(|held| held.losing),
        }
    }
}
