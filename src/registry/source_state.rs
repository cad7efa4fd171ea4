//! State of one source in the catalogue: its parts in force, the update that the loss guard withholds, and the time of
//! its last successful poll. The loss guard rejects a poll result that would remove most of a source's agents.

use super::{
    compile_documents::CompiledDocument,
    feed::{PartUpdate, PollResult},
    ingest::IngestOutcome,
    source_health::SourceHealth,
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
const CONFIRMING_POLLS: u32 = 3;
/// Minimum number of agents for the loss threshold, which is a share, to apply.
const MIN_AGENTS_FOR_SHARE: usize = 10;

/// Settings of a source that the catalogue uses.
#[derive(Clone, Debug)]
pub struct SourceSpec {
    /// Name, unique among the sources.
    pub name: Arc<str>,
    /// Protocol of the source.
    pub kind: &'static str,
    /// Location. A source at another location is a different source, even with the same name.
    pub location: Arc<str>,
    /// Loss guard: the share of the agents that one poll may remove, and how long a greater loss must last before it is
    /// accepted; `None` accepts every loss at once.
    pub loss_guard: Option<(f64, Duration)>,
    /// Time without a successful poll after which the source's agents are removed.
    pub stale_after: Option<Duration>,
    /// Maximum number of agents.
    pub max_agents: usize,
}

impl SourceSpec {
    /// Returns what identifies the source across configurations.
    pub(super) fn identity(&self) -> (Arc<str>, &'static str, Arc<str>) {
        (Arc::clone(&self.name), self.kind, Arc::clone(&self.location))
    }
}

/// Content of one part of a source.
pub(super) struct PartContent<R> {
    pub(super) documents: Vec<Arc<CompiledDocument<R>>>,
    pub(super) error: Option<String>,
}

/// Updated parts; `None` is a part that is removed.
pub(super) type CompiledParts<R> = BTreeMap<Arc<str>, Option<Vec<Arc<CompiledDocument<R>>>>>;

/// A source with its content in force.
pub(super) struct SourceState<R> {
    pub(super) spec: SourceSpec,
    pub(super) parts: BTreeMap<Arc<str>, PartContent<R>>,
    /// Updated parts that the loss guard withholds.
    withheld: CompiledParts<R>,
    loss_guard: Option<WithheldUpdate>,
    /// Whether a poll succeeded in this generation.
    pub(super) polled: bool,
    last_success: Option<SystemTime>,
    from_disk: bool,
    error: Option<String>,
    pub(super) stale: bool,
    agent_count: usize,
    revision: u64,
}

/// An update that the loss guard withholds.
struct WithheldUpdate {
    lost_agents: usize,
    polls: u32,
    since: SystemTime,
}

impl<R> SourceState<R> {
    pub(super) fn new(spec: SourceSpec) -> Self {
        Self {
            spec,
            parts: BTreeMap::new(),
            withheld: BTreeMap::new(),
            loss_guard: None,
            polled: false,
            last_success: None,
            from_disk: false,
            error: None,
            stale: false,
            agent_count: 0,
            revision: 0,
        }
    }

    /// Carries the source over to another configuration.
    pub(super) fn with_spec(self, spec: SourceSpec) -> Self {
        Self { spec, polled: false, ..self }
    }

    /// Whether this is the source that `origin` describes and a poll of it succeeded.
    pub(super) fn matches(&self, spec: &SourceSpec) -> bool {
        self.spec.identity() == spec.identity() && self.last_success.is_some()
    }

    /// Returns the number of documents in force.
    pub(super) fn len(&self) -> usize {
        self.parts.values().map(|entries| entries.documents.len()).sum()
    }

    /// Returns the number of documents after `change`, as far as it is known without parsing them.
    pub(super) fn len_after(&self, change: &PollResult) -> usize {
        let before = |name: &Arc<str>| self.parts.get(name).map_or(0, |entries| entries.documents.len());
        let whole = !self.polled && change.error.is_none();
        let base = if whole { 0 } else { self.len() };
        change.parts.iter().fold(base, |count, part| match &part.update {
            PartUpdate::Replaced(found) if whole => count + found.len(),
            PartUpdate::Replaced(found) => (count + found.len()).saturating_sub(before(&part.name)),
            PartUpdate::Removed if !whole => count.saturating_sub(before(&part.name)),
            PartUpdate::Unreadable(_) | PartUpdate::ReadableAgain if whole => count + before(&part.name),
            PartUpdate::Removed | PartUpdate::Unreadable(_) | PartUpdate::ReadableAgain => count,
        })
    }

    /// Records that the poll failed or was rejected.
    pub(super) fn record_failure(&mut self, why: String) {
        self.error = Some(why);
        if let Some(held) = &mut self.loss_guard {
            held.polls = 0;
        }
    }

    /// Returns the parts that the first poll of a generation does not report. They are removed, unless they are in a
    /// folder that could not be listed.
    pub(super) fn unreported_parts(&self, change: &PollResult) -> Vec<Arc<str>> {
        let named: HashSet<&str> = change.parts.iter().map(|part| &*part.name).collect();
        let kept: Vec<&Path> = change
            .parts
            .iter()
            .filter(|part| matches!(part.update, PartUpdate::Unreadable(_)))
            .map(|part| Path::new(&*part.name))
            .collect();
        let gone = |name: &&Arc<str>| {
            !named.contains(&***name) && !kept.iter().any(|kept| Path::new(&***name).starts_with(kept))
        };
        self.parts.keys().filter(gone).cloned().collect()
    }

    /// Records that a part cannot be read, or can be read again.
    pub(super) fn set_part_error(&mut self, part: Arc<str>, trouble: Option<String>) {
        match (self.parts.get_mut(&part), trouble) {
            (Some(entries), trouble) => entries.error = trouble,
            (None, None) => {}
            (None, trouble) => drop(self.parts.insert(part, PartContent { documents: Vec::new(), error: trouble })),
        }
    }

    /// Accepts updated parts, or withholds them. `good` is the time of the poll, if it succeeded as a whole.
    pub(super) fn apply_update(
        &mut self,
        parts: CompiledParts<R>,
        polled_at: Option<SystemTime>,
        from_disk: bool,
    ) -> IngestOutcome {
        if polled_at.is_some() {
            self.polled |= !from_disk;
            (self.last_success, self.error) = (polled_at, None);
            self.from_disk = from_disk;
        }
        let revived = polled_at.is_some() && std::mem::replace(&mut self.stale, false);
        self.withheld.extend(parts);
        let losing = self.count_lost_agents();
        if !self.exceeds_loss_threshold(losing) {
            return IngestOutcome::Accepted { changed: self.accept_withheld() || revived };
        }
        let now = SystemTime::now();
        let held = self.loss_guard.get_or_insert(WithheldUpdate { lost_agents: losing, polls: 0, since: now });
        if held.polls == 0 {
            held.since = now;
        }
        (held.lost_agents, held.polls) = (losing, held.polls + u32::from(polled_at.is_some()));
        let lasted = now.duration_since(held.since).unwrap_or_default();
        let long = self.spec.loss_guard.is_none_or(|(_, time)| lasted >= time);
        match held.polls >= CONFIRMING_POLLS && long {
            true => IngestOutcome::Accepted { changed: self.accept_withheld() || revived },
            false => IngestOutcome::Withheld,
        }
    }

    /// Puts the withheld update in force; returns whether there was one.
    pub(super) fn accept_withheld(&mut self) -> bool {
        self.loss_guard = None;
        let changed = !self.withheld.is_empty();
        for (name, held) in std::mem::take(&mut self.withheld) {
            match held {
                Some(held) => drop(self.parts.insert(name, PartContent { documents: held, error: None })),
                None => drop(self.parts.remove(&name)),
            }
        }
        if changed {
            self.revision += 1;
            self.count_agents();
        }
        changed
    }

    pub(super) fn is_withholding(&self) -> bool {
        self.loss_guard.is_some()
    }

    /// Returns every document, in force or withheld, possibly with duplicates.
    pub(super) fn all_documents(&self) -> impl Iterator<Item = &Arc<CompiledDocument<R>>> {
        let beyond = self.withheld.values().flatten().flatten();
        self.parts.values().flat_map(|entries| &entries.documents).chain(beyond)
    }

    /// Replaces the documents of every part by what `again` makes of them.
    pub(super) fn map_documents(
        &mut self,
        map: impl Fn(Vec<Arc<CompiledDocument<R>>>) -> Vec<Arc<CompiledDocument<R>>>,
    ) {
        let parts = self.parts.values_mut().map(|entries| &mut entries.documents);
        for held in parts.chain(self.withheld.values_mut().flatten()) {
            *held = map(std::mem::take(held));
        }
        self.count_agents();
    }

    fn count_agents(&mut self) {
        self.agent_count = self
            .parts
            .values()
            .flat_map(|entries| &entries.documents)
            .filter(|held| held.callable_id().is_some())
            .count();
    }

    /// Counts the agents in force that the withheld update would remove.
    fn count_lost_agents(&self) -> usize {
        if self.spec.loss_guard.is_none() {
            return 0;
        }
        // A duplicate id is not served at all: a list that contains every id twice loses every agent.
        let mut after: HashMap<&AgentId, u32, RandomState> = HashMap::default();
        for id in self.withheld.values().flatten().flatten().filter_map(|held| held.callable_id()) {
            *after.entry(id).or_default() += 1;
        }
        let touched = self.withheld.keys().filter_map(|name| self.parts.get(name));
        let before = touched.flat_map(|entries| &entries.documents).filter_map(|held| held.callable_id());
        before.filter(|id| after.get(id) != Some(&1)).count()
    }

    fn exceeds_loss_threshold(&self, losing: usize) -> bool {
        let Some((share, _)) = self.spec.loss_guard.filter(|(share, _)| *share < 1.0) else { return false };
        let many = self.agent_count >= MIN_AGENTS_FOR_SHARE && losing as f64 > share * self.agent_count as f64;
        many || (self.agent_count > 1 && losing == self.agent_count)
    }

    /// Marks the source stale once its last successful poll is too long ago; returns whether agents are removed by it.
    pub(super) fn mark_stale_if_expired(&mut self) -> bool {
        let (Some(bound), Some(good), false) = (self.spec.stale_after, self.last_success, self.stale) else {
            return false;
        };
        self.stale = SystemTime::now().duration_since(good).is_ok_and(|age| age > bound);
        self.stale && !self.parts.is_empty()
    }

    pub(super) fn health(&self) -> SourceHealth {
        SourceHealth {
            name: Arc::clone(&self.spec.name),
            kind: self.spec.kind,
            agents: self.agent_count,
            revision: self.revision,
            last_success: self.last_success,
            stale: self.stale,
            from_disk: self.from_disk,
            error: self.error.clone(),
            withheld_loss: self.loss_guard.as_ref().map(|held| held.lost_agents),
        }
    }
}
