//! State of one source in the catalogue: its parts in force, the update that the loss guard withholds, and the time of
//! its last successful poll.

use super::{
    feed::{FeedPart, PartUpdate, PollResult},
    loss_guard::WithheldLoss,
    route_compilation::CompiledDocument,
    source_health::{DocumentWarnings, SourceHealth},
    source_poll::IngestOutcome,
    source_spec::SourceSpec,
};
use crate::agent::AgentId;
use foldhash::fast::RandomState;
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    path::Path,
    sync::Arc,
    time::SystemTime,
};

/// Maximum number of documents whose warnings are kept for operators.
const MAX_REPORTED_WARNINGS: usize = 20;

/// Content of one part of a source.
pub(super) struct PartContent<R> {
    pub(super) documents: Vec<Arc<CompiledDocument<R>>>,
    pub(super) error: Option<String>,
}

/// A part in force, with its place among the lists of its source.
#[derive(Clone, Copy)]
pub(super) struct RankedPart<'a, R> {
    /// The list that has the part: the lower one precedes the higher one.
    pub(super) list: usize,
    pub(super) name: &'a Arc<str>,
    pub(super) content: &'a PartContent<R>,
}

/// Updated parts; `None` is a part that is removed.
pub(super) type CompiledParts<R> = BTreeMap<Arc<str>, Option<Vec<Arc<CompiledDocument<R>>>>>;

/// A source with its content in force.
pub(super) struct SourceState<R> {
    pub(super) spec: SourceSpec,
    pub(super) parts: BTreeMap<Arc<str>, PartContent<R>>,
    /// The parts that are lists of their own, in order of precedence; all others are one list after them.
    lists: Vec<Arc<str>>,
    /// What operators should know about the source.
    warnings: Vec<String>,
    /// Updated parts that the loss guard withholds.
    withheld: CompiledParts<R>,
    withheld_loss: Option<WithheldLoss>,
    /// Whether a poll succeeded in this generation.
    pub(super) polled: bool,
    /// Whether the source was read once, from its server or from disk. Never becomes false again.
    is_read: bool,
    last_success: Option<SystemTime>,
    from_disk: bool,
    error: Option<String>,
    pub(super) stale: bool,
    agent_count: usize,
    /// What operators should know about the documents in force.
    document_warnings: Arc<DocumentWarnings>,
    /// The documents in force of what the gateway does not call.
    unsupported_documents: Arc<DocumentWarnings>,
    revision: u64,
}

impl<R> SourceState<R> {
    pub(super) fn new(spec: SourceSpec) -> Self {
        Self {
            spec,
            parts: BTreeMap::new(),
            lists: Vec::new(),
            warnings: Vec::new(),
            withheld: BTreeMap::new(),
            withheld_loss: None,
            polled: false,
            is_read: false,
            last_success: None,
            from_disk: false,
            error: None,
            stale: false,
            agent_count: 0,
            document_warnings: Arc::default(),
            unsupported_documents: Arc::default(),
            revision: 0,
        }
    }

    /// Carries the source over to another configuration.
    pub(super) fn with_spec(self, spec: SourceSpec) -> Self {
        Self { spec, polled: false, ..self }
    }

    /// Returns whether this is the source of `spec`, and a poll of it succeeded.
    pub(super) fn matches(&self, spec: &SourceSpec) -> bool {
        self.spec.identity() == spec.identity() && self.last_success.is_some()
    }

    /// Returns the number of documents in force.
    pub(super) fn len(&self) -> usize {
        self.parts.values().map(|entries| entries.documents.len()).sum()
    }

    /// Returns the parts in force in order of precedence.
    pub(super) fn parts_by_precedence(&self) -> Vec<RankedPart<'_, R>> {
        let ranks = self.list_ranks();
        let rank = |name: &Arc<str>| ranks.get(name).copied().unwrap_or(self.lists.len());
        let parts = self.parts.iter().map(|(name, content)| RankedPart { list: rank(name), name, content });
        let mut parts: Vec<_> = parts.collect();
        parts.sort_by_key(|part| part.list);
        parts
    }

    fn list_ranks(&self) -> HashMap<&Arc<str>, usize, RandomState> {
        self.lists.iter().enumerate().map(|(rank, name)| (name, rank)).collect()
    }

    /// Sets the order of the lists; returns whether it differs from the previous one.
    pub(super) fn set_lists(&mut self, lists: Vec<Arc<str>>) -> bool {
        let changed = !lists.is_empty() && lists != self.lists;
        if changed {
            self.lists = lists;
            self.revision += 1;
        }
        changed
    }

    /// Sets what operators should know about the source.
    pub(super) fn set_warnings(&mut self, warnings: Vec<String>) {
        if warnings != self.warnings {
            for warning in &warnings {
                tracing::warn!(source = %self.spec.name, "{warning}");
            }
            self.warnings = warnings;
        }
    }

    /// Returns whether parts that `result` does not report are removed.
    pub(super) fn is_replaced_by(&self, result: &PollResult) -> bool {
        result.error.is_none() && (result.replaces_all || !self.polled)
    }

    /// Returns the number of documents after `result` is applied, as far as it is known without parsing them.
    pub(super) fn len_after(&self, result: &PollResult) -> usize {
        let current_count = |name: &Arc<str>| self.parts.get(name).map_or(0, |entries| entries.documents.len());
        let replaces_all = self.is_replaced_by(result);
        let initial = if replaces_all { 0 } else { self.len() };
        result.parts.iter().fold(initial, |count, part| match &part.update {
            PartUpdate::Replaced(documents) if replaces_all => count + documents.len(),
            PartUpdate::Replaced(documents) => (count + documents.len()).saturating_sub(current_count(&part.name)),
            PartUpdate::Removed if !replaces_all => count.saturating_sub(current_count(&part.name)),
            PartUpdate::Unreadable(_) | PartUpdate::ReadableAgain if replaces_all => count + current_count(&part.name),
            PartUpdate::Removed | PartUpdate::Unreadable(_) | PartUpdate::ReadableAgain => count,
        })
    }

    /// Withholds the last lists with which the source would have too many agents: they keep their previous agents. The first
    /// list is the source's own, which decides about the source.
    pub(super) fn keep_lists_within_bounds(&self, result: &mut PollResult) {
        let nested: Vec<Arc<str>> = result.lists.iter().skip(1).rev().cloned().collect();
        for name in nested {
            if self.len_after(result) <= self.spec.max_agents {
                return;
            }
            let replaced = |part: &&mut FeedPart| part.name == name && matches!(part.update, PartUpdate::Replaced(_));
            if let Some(part) = result.parts.iter_mut().find(replaced) {
                let why = format!("with it the source would have more than {} agents", self.spec.max_agents);
                part.update = PartUpdate::Unreadable(why);
            }
        }
    }

    /// Records that the poll failed or was rejected.
    pub(super) fn record_failure(&mut self, why: String) {
        self.error = Some(why);
        if let Some(withheld) = &mut self.withheld_loss {
            withheld.reset_polls();
        }
    }

    /// Returns the parts that a result with all parts does not report. They are removed, unless they are in a folder or
    /// namespace that could not be listed.
    pub(super) fn unreported_parts(&self, result: &PollResult) -> Vec<Arc<str>> {
        let reported: HashSet<&str> = result.parts.iter().map(|part| &*part.name).collect();
        let unreadable: Vec<&Path> = result
            .parts
            .iter()
            .filter(|part| matches!(part.update, PartUpdate::Unreadable(_)))
            .map(|part| Path::new(&*part.name))
            .collect();
        let is_unreported = |name: &&Arc<str>| {
            !reported.contains(&***name)
                && !unreadable.iter().any(|unreadable| Path::new(&***name).starts_with(unreadable))
        };
        self.parts.keys().filter(is_unreported).cloned().collect()
    }

    /// Records that a part cannot be read, or can be read again.
    pub(super) fn set_part_error(&mut self, part: Arc<str>, error: Option<String>) {
        match (self.parts.get_mut(&part), error) {
            (Some(entries), error) => entries.error = error,
            (None, None) => {}
            (None, error) => drop(self.parts.insert(part, PartContent { documents: Vec::new(), error })),
        }
    }

    /// Accepts updated parts, or withholds them. `polled_at` is the time of the poll, if it succeeded as a whole.
    pub(super) fn apply_update(
        &mut self,
        parts: CompiledParts<R>,
        polled_at: Option<SystemTime>,
        from_disk: bool,
    ) -> IngestOutcome {
        if let Some(polled_at) = polled_at {
            self.polled |= !from_disk;
            self.record_success(polled_at);
            self.from_disk = from_disk;
        }
        let was_stale = polled_at.is_some() && std::mem::replace(&mut self.stale, false);
        self.withheld.extend(parts);
        let lost_agents = self.count_lost_agents();
        if let Some(policy) = self.spec.loss_guard.filter(|policy| policy.withholds(lost_agents, self.agent_count)) {
            let withheld = self.withheld_loss.get_or_insert_with(WithheldLoss::new);
            withheld.record_update(lost_agents, polled_at.is_some());
            if !withheld.is_confirmed(&policy) {
                self.accept_parts_without_loss();
                return IngestOutcome::Withheld;
            }
        }
        let changed = self.accept_withheld() || was_stale;
        self.is_read |= polled_at.is_some() && self.has_readable_part();
        IngestOutcome::Accepted { changed }
    }

    /// Records that the last poll succeeded.
    pub(super) fn record_success(&mut self, polled_at: SystemTime) {
        (self.last_success, self.error) = (Some(polled_at), None);
    }

    /// Whether a poll that finds nothing new changes nothing here: all of the last one is in force.
    pub(super) fn is_up_to_date(&self) -> bool {
        let is_in_force = self.withheld.is_empty() && self.withheld_loss.is_none() && !self.stale;
        self.polled && !self.from_disk && self.is_read && is_in_force
    }

    /// Returns whether a part can be read, or the source is empty. A source of which every part is unreadable was not
    /// read: its agents are unknown.
    fn has_readable_part(&self) -> bool {
        self.parts.is_empty() || self.parts.values().any(|part| part.error.is_none())
    }

    /// Puts the withheld update in force; returns whether there was one.
    pub(super) fn accept_withheld(&mut self) -> bool {
        self.withheld_loss = None;
        let parts = std::mem::take(&mut self.withheld);
        self.accept_parts(parts)
    }

    /// Puts those parts of a withheld update in force that lose no agent and take no id of another part: what one owner
    /// removes must not delay what changes for the agents of others. A list that has an id twice loses its agent.
    fn accept_parts_without_loss(&mut self) {
        let in_force: HashSet<&AgentId, RandomState> =
            self.parts.values().flat_map(|content| ids_of(&content.documents)).collect();
        let is_harmless = |name: &Arc<str>, documents: &[Arc<CompiledDocument<R>>]| {
            let own = || self.parts.get(name).into_iter().flat_map(|content| ids_of(&content.documents));
            let (before, after): (HashSet<_>, HashSet<_>) = (own().collect(), ids_of(documents).collect());
            let has_each_once = after.len() == ids_of(documents).count();
            has_each_once && before.is_subset(&after) && after.difference(&before).all(|id| !in_force.contains(*id))
        };
        let (harmless, withheld): (CompiledParts<R>, CompiledParts<R>) = self
            .withheld
            .iter()
            .map(|(name, documents)| (Arc::clone(name), documents.clone()))
            .partition(|(name, documents)| is_harmless(name, documents.as_deref().unwrap_or_default()));
        self.withheld = withheld;
        self.accept_parts(harmless);
    }

    /// Puts parts in force; returns whether there are any.
    fn accept_parts(&mut self, parts: CompiledParts<R>) -> bool {
        let changed = !parts.is_empty();
        for (name, documents) in parts {
            match documents {
                Some(documents) => drop(self.parts.insert(name, PartContent { documents, error: None })),
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
        self.withheld_loss.is_some()
    }

    /// Returns every document, in force or withheld, possibly with duplicates.
    pub(super) fn all_documents(&self) -> impl Iterator<Item = &Arc<CompiledDocument<R>>> {
        let withheld = self.withheld.values().flatten().flatten();
        self.parts.values().flat_map(|entries| &entries.documents).chain(withheld)
    }

    /// Returns the documents in force of the parts that `result` neither replaces nor removes.
    pub(super) fn unchanged_documents(&self, result: &PollResult) -> impl Iterator<Item = &Arc<CompiledDocument<R>>> {
        let is_changed = |update: &PartUpdate| matches!(update, PartUpdate::Replaced(_) | PartUpdate::Removed);
        let changed: HashSet<&str> =
            result.parts.iter().filter(|part| is_changed(&part.update)).map(|part| &*part.name).collect();
        let reported: HashSet<&str> = result.parts.iter().map(|part| &*part.name).collect();
        let replaces_all = self.is_replaced_by(result);
        let stays = move |name: &str| !changed.contains(name) && (!replaces_all || reported.contains(name));
        let unchanged = self.parts.iter().filter(move |(name, _)| stays(name));
        unchanged.flat_map(|(_, entries)| &entries.documents)
    }

    /// Replaces the documents of every part by the result of `map`.
    pub(super) fn map_documents(
        &mut self,
        map: impl Fn(Vec<Arc<CompiledDocument<R>>>) -> Vec<Arc<CompiledDocument<R>>>,
    ) {
        let parts = self.parts.values_mut().map(|entries| &mut entries.documents);
        for documents in parts.chain(self.withheld.values_mut().flatten()) {
            *documents = map(std::mem::take(documents));
        }
        self.count_agents();
    }

    fn count_agents(&mut self) {
        let documents = || self.parts.values().flat_map(|entries| &entries.documents);
        let line = |document: &CompiledDocument<R>, texts: &[String]| match &document.agent {
            Some(agent) => format!("{}: {}", agent.id, texts.join("; ")),
            None => texts.join("; "),
        };
        let with_warnings = || documents().filter(|document| !document.warnings.is_empty());
        let first = with_warnings().take(MAX_REPORTED_WARNINGS).map(|document| line(document, &document.warnings));
        let warnings = DocumentWarnings { documents: with_warnings().count(), first: first.collect() };
        let unsupported = || documents().filter(|document| document.is_unsupported);
        let first = unsupported().take(MAX_REPORTED_WARNINGS).map(|document| {
            let reasons = document.route.as_ref().err().map(Vec::as_slice).unwrap_or_default();
            line(document, reasons)
        });
        let unsupported = DocumentWarnings { documents: unsupported().count(), first: first.collect() };
        self.agent_count = documents().filter(|document| document.callable_id().is_some()).count();
        self.document_warnings = Arc::new(warnings);
        self.unsupported_documents = Arc::new(unsupported);
    }

    /// Counts the agents in force that the withheld update would remove.
    fn count_lost_agents(&self) -> usize {
        if self.spec.loss_guard.is_none() {
            return 0;
        }
        let ranks = self.list_ranks();
        let rank = |name: &Arc<str>| ranks.get(name).copied().unwrap_or(self.lists.len());
        let in_force = || self.parts.iter().map(|(name, content)| (rank(name), content.documents.as_slice()));
        let unchanged = self.parts.iter().filter(|(name, _)| !self.withheld.contains_key(*name));
        let unchanged = unchanged.map(|(name, content)| (rank(name), content.documents.as_slice()));
        let updated = self.withheld.iter().filter_map(|(name, documents)| Some((rank(name), documents.as_deref()?)));
        let before = served_ids(in_force());
        let after = served_ids(unchanged.chain(updated));
        before.difference(&after).count()
    }

    /// Marks the source stale if its last successful poll is too long ago; returns whether this removes agents.
    pub(super) fn mark_stale_if_expired(&mut self) -> bool {
        let (Some(max_staleness), Some(last_success), false) = (self.spec.max_staleness, self.last_success, self.stale)
        else {
            return false;
        };
        self.stale = SystemTime::now().duration_since(last_success).is_ok_and(|age| age > max_staleness);
        self.stale && !self.parts.is_empty()
    }

    /// Returns the first parts of a remote source that cannot be read, each with the reason.
    fn unreadable_parts(&self) -> Vec<String> {
        let unreadable = self.parts.iter().filter(|_| self.spec.kind != SourceSpec::FILES_KIND);
        let unreadable = unreadable.filter_map(|(name, part)| Some(format!("{name}: {}", part.error.as_deref()?)));
        unreadable.take(MAX_REPORTED_WARNINGS).collect()
    }

    pub(super) fn health(&self) -> SourceHealth {
        SourceHealth {
            name: Arc::clone(&self.spec.name),
            kind: self.spec.kind,
            is_required: self.spec.is_required,
            is_read: self.is_read,
            agents: self.agent_count,
            revision: self.revision,
            last_success: self.last_success,
            stale: self.stale,
            from_disk: self.from_disk,
            error: self.error.clone(),
            unreadable_parts: self.unreadable_parts(),
            warnings: self.warnings.clone(),
            withheld_loss: self.withheld_loss.as_ref().map(WithheldLoss::lost_agents),
            document_warnings: Arc::clone(&self.document_warnings),
            unsupported_documents: Arc::clone(&self.unsupported_documents),
        }
    }
}

/// Returns the ids of the documents that can be called.
fn ids_of<R>(documents: &[Arc<CompiledDocument<R>>]) -> impl Iterator<Item = &AgentId> {
    documents.iter().filter_map(|document| document.callable_id())
}

/// Returns the ids that are served: those that the first list that has them has once. A list that has every id twice loses
/// every agent.
fn served_ids<'a, R: 'a>(
    parts: impl Iterator<Item = (usize, &'a [Arc<CompiledDocument<R>>])>,
) -> HashSet<&'a AgentId, RandomState> {
    let mut claims: HashMap<&AgentId, (usize, u32), RandomState> = HashMap::default();
    for (list, documents) in parts {
        for id in ids_of(documents) {
            let (first, times) = claims.entry(id).or_insert((list, 0));
            if list < *first {
                (*first, *times) = (list, 0);
            }
            *times += u32::from(list == *first);
        }
    }
    claims.into_iter().filter(|(_, (_, times))| *times == 1).map(|(id, _)| id).collect()
}
