//! One source as the catalogue holds it: its parts in force, what it says beyond that while it is held back, and how
//! long ago it was well. It refuses to lose most of a source's agents to one look.

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

/// Looks in a row that must say the same before a loss is believed.
const CONFIRMING: u32 = 3;
/// Agents from which on a share of them is a share.
const COUNTED: usize = 10;

/// What the catalogue is told of a source when an era begins.
#[derive(Clone, Debug)]
pub struct Origin {
    /// Its name, unique among the sources.
    pub name: Arc<str>,
    /// What it speaks.
    pub kind: &'static str,
    /// Where it is: a source at another place is another source, whatever its name.
    pub place: Arc<str>,
    /// The share of its agents that one look may lose, and how long a greater loss must last to be believed; `None`
    /// believes everything at once.
    pub hold: Option<(f64, Duration)>,
    /// After so long without a good look its agents are taken out.
    pub stale_after: Option<Duration>,
    /// Agents that it may have.
    pub most: usize,
}

impl Origin {
    /// What makes it the same source under another configuration.
    pub(super) fn identity(&self) -> (Arc<str>, &'static str, Arc<str>) {
        (Arc::clone(&self.name), self.kind, Arc::clone(&self.place))
    }
}

/// What a source has in one part.
pub(super) struct Entries<R> {
    pub(super) held: Vec<Arc<Held<R>>>,
    pub(super) trouble: Option<String>,
}

/// Parts as a look leaves them; none is a part that is gone.
pub(super) type Parts<R> = BTreeMap<Arc<str>, Option<Vec<Arc<Held<R>>>>>;

/// A source with what it has in force.
pub(super) struct SourceState<R> {
    pub(super) origin: Origin,
    pub(super) parts: BTreeMap<Arc<str>, Entries<R>>,
    /// What it says beyond its parts in force, while that is not believed.
    beyond: Parts<R>,
    held: Option<Waiting>,
    /// Whether there was a good look in this era.
    pub(super) looked: bool,
    good: Option<SystemTime>,
    remembered: bool,
    trouble: Option<String>,
    pub(super) stale: bool,
    agents: usize,
}

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
        }
    }

    /// The same source under another configuration.
    pub(super) fn again(self, origin: Origin) -> Self {
        Self { origin, looked: false, ..self }
    }

    /// Whether it is the source that `origin` describes, and anything is known of it.
    pub(super) fn is(&self, origin: &Origin) -> bool {
        self.origin.identity() == origin.identity() && self.good.is_some()
    }

    /// Documents in force.
    pub(super) fn len(&self) -> usize {
        self.parts.values().map(|entries| entries.held.len()).sum()
    }

    /// Documents that there would be after `change`, as far as that can be told without reading them.
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

    /// The look failed, or is refused.
    pub(super) fn fail(&mut self, why: String) {
        self.trouble = Some(why);
        if let Some(held) = &mut self.held {
            held.looks = 0;
        }
    }

    /// What a first look of an era does not mention is gone, except what lies in a folder that it could not list.
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

    /// A part cannot be read, or can be again.
    pub(super) fn mark(&mut self, part: Arc<str>, trouble: Option<String>) {
        match (self.parts.get_mut(&part), trouble) {
            (Some(entries), trouble) => entries.trouble = trouble,
            (None, None) => {}
            (None, trouble) => drop(self.parts.insert(part, Entries { held: Vec::new(), trouble })),
        }
    }

    /// Takes a look's parts in, or holds them back. `good` is when the look was, if it was good as a whole.
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

    /// Puts what is held back in force; answers whether there was anything.
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
            self.recount();
        }
        changed
    }

    pub(super) fn waits(&self) -> bool {
        self.held.is_some()
    }

    /// Every document, of which there may be some twice.
    pub(super) fn everything(&self) -> impl Iterator<Item = &Arc<Held<R>>> {
        let beyond = self.beyond.values().flatten().flatten();
        self.parts.values().flat_map(|entries| &entries.held).chain(beyond)
    }

    /// Makes everything anew.
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

    /// Agents in force that would go.
    fn losing(&self) -> usize {
        if self.origin.hold.is_none() {
            return 0;
        }
        // An id that stands twice is served for neither: a list that comes twice over loses everything.
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

    /// Whether it was well too long ago since the last time this was asked.
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
            good: self.good,
            stale: self.stale,
            remembered: self.remembered,
            trouble: self.trouble.clone(),
            losing: self.held.as_ref().map(|held| held.losing),
        }
    }
}
