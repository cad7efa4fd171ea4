//! Ingests poll results: bounds them, compiles their documents in parallel, and lets each source accept or withhold
//! its update.

use super::{
    MAX_AGENTS,
    catalogue::Generation,
    compile_documents::{CompiledByDigest, SchemaInterner, SharedCompiler, compile_documents},
    feed::{PartUpdate, PollResult, RawDocument},
    source_state::{CompiledParts, SourceState},
};
use foldhash::fast::RandomState;
use std::{collections::HashSet, sync::Arc, time::SystemTime};

/// Result of one poll of a source.
#[derive(Debug)]
pub struct SourcePoll {
    /// Index of the source in its generation.
    pub source: usize,
    /// What the feed reported.
    pub result: PollResult,
    /// Where the content was read from disk instead of polled: when the source was last polled successfully.
    pub stored_at: Option<SystemTime>,
}

/// Outcome of ingesting one poll result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IngestOutcome {
    /// The update is in force.
    Accepted {
        /// Whether any agent changed.
        changed: bool,
    },
    /// The poll failed; parts that it reported nevertheless are in force.
    Failed,
    /// The loss guard withholds the update until it is confirmed.
    Withheld,
    /// The update is rejected as a whole; the feed has to report everything again.
    Rejected,
    /// The update belongs to an earlier generation.
    Outdated,
}

/// State behind the catalogue's snapshot: the sources and their compiled documents.
pub(super) struct CatalogueState<R> {
    pub(super) generation: Generation,
    pub(super) compiler: SharedCompiler<R>,
    schemas: SchemaInterner,
    /// In order of precedence.
    pub(super) sources: Vec<SourceState<R>>,
}

/// A poll result without its documents, which are compiled together with those of other poll results.
struct IngestPlan {
    source: usize,
    /// The number of documents of each part; `None` where the part is removed.
    parts: Vec<(Arc<str>, Option<usize>)>,
    /// When the source was polled, if the poll succeeded.
    polled_at: Option<SystemTime>,
    from_disk: bool,
}

/// Documents of several poll results, and the number that may still be added.
struct IngestBatch {
    documents: Vec<RawDocument>,
    capacity: usize,
}

impl<R> CatalogueState<R> {
    pub(super) fn new(compiler: SharedCompiler<R>) -> Self {
        Self { generation: Generation::default(), compiler, schemas: SchemaInterner::default(), sources: Vec::new() }
    }
}

impl<R: Send + Sync + 'static> CatalogueState<R> {
    /// Returns the documents that are compiled already, by digest.
    fn compiled_by_digest(&self, documents: &[RawDocument]) -> CompiledByDigest<R> {
        if documents.is_empty() {
            return CompiledByDigest::default();
        }
        let wanted: HashSet<&[u8; 32], RandomState> = documents.iter().map(|document| &document.digest).collect();
        let held = self.sources.iter().flat_map(SourceState::all_documents);
        held.filter(|held| wanted.contains(&held.digest)).map(|held| (held.digest, Arc::clone(held))).collect()
    }

    /// Ingests poll results, each of a different source.
    pub(super) fn ingest(&mut self, polls: Vec<SourcePoll>) -> Vec<IngestOutcome> {
        let room = MAX_AGENTS.saturating_sub(self.sources.iter().map(SourceState::len).sum());
        let mut gathered = IngestBatch { documents: Vec::new(), capacity: room };
        let plans: Vec<_> = polls.into_iter().map(|look| self.plan_ingest(look, &mut gathered)).collect();
        let documents = gathered.documents;
        // All documents in one batch, so that a folder of many small files uses all cores, as one large file does.
        let known = self.compiled_by_digest(&documents);
        let mut compiled = compile_documents(documents, &known, &self.compiler, &self.schemas).into_iter();
        let verdicts = plans.into_iter().map(|plan| {
            let plan = match plan {
                Ok(plan) => plan,
                Err(verdict) => return verdict,
            };
            let parts: CompiledParts<R> = plan
                .parts
                .into_iter()
                .map(|(name, size)| (name, size.map(|size| compiled.by_ref().take(size).collect())))
                .collect();
            let Some(source) = self.sources.get_mut(plan.source) else { return IngestOutcome::Outdated };
            let verdict = source.apply_update(parts, plan.polled_at, plan.from_disk);
            if plan.polled_at.is_some() { verdict } else { IngestOutcome::Failed }
        });
        let verdicts = verdicts.collect();
        drop(known);
        self.schemas.remove_unused();
        verdicts
    }

    /// Moves the documents of a poll result to the batch, or returns the outcome of a result that is not ingested.
    fn plan_ingest(&mut self, poll: SourcePoll, batch: &mut IngestBatch) -> Result<IngestPlan, IngestOutcome> {
        let SourcePoll { source: at, result: mut change, stored_at: remembered } = poll;
        let source = self.sources.get_mut(at).ok_or(IngestOutcome::Outdated)?;
        let after = source.len_after(&change);
        if after > source.spec.max_agents {
            source.record_failure(format!("it has {after} agents (at most {})", source.spec.max_agents));
            return Err(IngestOutcome::Rejected);
        }
        let mut plan = IngestPlan { source: at, parts: Vec::new(), polled_at: None, from_disk: remembered.is_some() };
        match change.error.take() {
            Some(why) => source.record_failure(why),
            None => {
                plan.polled_at = Some(remembered.unwrap_or_else(SystemTime::now));
                let gone = if source.polled { Vec::new() } else { source.unreported_parts(&change) };
                plan.parts.extend(gone.into_iter().map(|name| (name, None)));
            }
        }
        for part in change.parts {
            let before = source.parts.get(&part.name).map_or(0, |entries| entries.documents.len());
            match part.update {
                PartUpdate::Replaced(found) if found.len() > batch.capacity + before => {
                    let why = format!("with it there would be more than {MAX_AGENTS} agents");
                    source.set_part_error(part.name, Some(why));
                }
                PartUpdate::Replaced(found) => {
                    batch.capacity = batch.capacity + before - found.len();
                    plan.parts.push((part.name, Some(found.len())));
                    batch.documents.extend(found);
                }
                PartUpdate::Unreadable(why) => source.set_part_error(part.name, Some(why)),
                PartUpdate::ReadableAgain => source.set_part_error(part.name, None),
                PartUpdate::Removed => {
                    batch.capacity += before;
                    plan.parts.push((part.name, None));
                }
            }
        }
        Ok(plan)
    }
}
