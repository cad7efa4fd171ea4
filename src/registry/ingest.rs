//! Ingests poll results: bounds them, compiles their documents in parallel, and lets each source accept or withhold
//! its update.

use super::{
    MAX_AGENTS,
    feed::PartUpdate,
    route_compilation::{
        CompiledByIdentity, CompiledDocument, PendingDocument, SchemaInterner, SharedCompiler, SourceBudgets,
        SourcedDocument, compile_documents,
    },
    source_poll::{Generation, IngestOutcome, SourcePoll},
    source_state::{CompiledParts, SourceState},
};
use foldhash::fast::RandomState;
use std::{collections::HashSet, sync::Arc, time::SystemTime};

/// Maximum number of parts of all sources for which a poll that found nothing new is ingested at once.
const MAX_PARTS_OF_SMALL_CATALOGUE: usize = 1_000;
/// Maximum number of documents with warnings that are logged individually for one update.
const MAX_LOGGED_WARNINGS: usize = 20;

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
    /// Whether the lists of the source have another order.
    reordered: bool,
}

/// Documents of several poll results, and the number that may still be added.
struct IngestBatch {
    documents: Vec<PendingDocument>,
    capacity: usize,
}

impl<R> CatalogueState<R> {
    pub(super) fn new(compiler: SharedCompiler<R>) -> Self {
        Self { generation: Generation::default(), compiler, schemas: SchemaInterner::default(), sources: Vec::new() }
    }
}

impl<R: Send + Sync + 'static> CatalogueState<R> {
    /// Returns the documents that are compiled already.
    fn compiled_by_identity(&self, documents: &[PendingDocument]) -> CompiledByIdentity<R> {
        if documents.is_empty() {
            return CompiledByIdentity::default();
        }
        let digests: HashSet<&[u8; 32], RandomState> =
            documents.iter().map(|pending| &pending.document.identity.digest).collect();
        let compiled = self.sources.iter().flat_map(SourceState::all_documents);
        compiled
            .filter(|document| document.is_reusable() && digests.contains(&document.identity.digest))
            .map(|document| (document.identity.clone(), Arc::clone(document)))
            .collect()
    }

    /// Whether what operators read about the sources is put together in no time.
    pub(super) fn is_small(&self) -> bool {
        self.sources.iter().map(|source| source.parts.len()).sum::<usize>() <= MAX_PARTS_OF_SMALL_CATALOGUE
    }

    /// Whether the polls found nothing new at sources that are as they were last read.
    pub(super) fn is_unchanged_by(&self, polls: &[SourcePoll]) -> bool {
        polls.iter().all(|poll| {
            let source = self.sources.get(poll.source);
            poll.stored_at.is_none() && poll.result.is_unchanged() && source.is_some_and(SourceState::is_up_to_date)
        })
    }

    /// Ingests poll results, each of a different source.
    pub(super) fn ingest(&mut self, polls: Vec<SourcePoll>) -> Vec<IngestOutcome> {
        if self.is_unchanged_by(&polls) {
            return polls.into_iter().map(|poll| self.record_unchanged(poll)).collect();
        }
        let capacity = MAX_AGENTS.saturating_sub(self.sources.iter().map(SourceState::len).sum());
        let mut batch = IngestBatch { documents: Vec::new(), capacity };
        let plans: Vec<_> = polls.into_iter().map(|poll| self.plan_ingest(poll, &mut batch)).collect();
        let documents = batch.documents;
        // All documents in one batch, so that a folder of many small files uses all cores, as one large file does.
        let reusable = self.compiled_by_identity(&documents);
        let compiled = compile_documents(documents, &reusable, &self.compiler, &self.schemas);
        log_warnings(compiled.iter().filter(|document| !reusable.contains_key(&document.identity)));
        let mut compiled = compiled.into_iter();
        let outcomes = plans.into_iter().map(|plan| {
            let plan = match plan {
                Ok(plan) => plan,
                Err(outcome) => return outcome,
            };
            let parts: CompiledParts<R> = plan
                .parts
                .into_iter()
                .map(|(name, size)| (name, size.map(|size| compiled.by_ref().take(size).collect())))
                .collect();
            let Some(source) = self.sources.get_mut(plan.source) else { return IngestOutcome::Outdated };
            let mut outcome = source.apply_update(parts, plan.polled_at, plan.from_disk);
            if let IngestOutcome::Accepted { changed } = &mut outcome {
                *changed |= plan.reordered;
            }
            if plan.polled_at.is_some() { outcome } else { IngestOutcome::Failed }
        });
        let outcomes = outcomes.collect();
        drop(reusable);
        self.schemas.remove_unused();
        outcomes
    }

    fn record_unchanged(&mut self, poll: SourcePoll) -> IngestOutcome {
        let Some(source) = self.sources.get_mut(poll.source) else { return IngestOutcome::Outdated };
        source.set_warnings(poll.result.warnings);
        source.record_success(SystemTime::now());
        IngestOutcome::Accepted { changed: false }
    }

    /// Moves the documents of a poll result to the batch, or returns the outcome of a result that is not ingested.
    fn plan_ingest(&mut self, poll: SourcePoll, batch: &mut IngestBatch) -> Result<IngestPlan, IngestOutcome> {
        let SourcePoll { source: index, mut result, stored_at } = poll;
        let limits = self.compiler.schema_limits();
        let source = self.sources.get_mut(index).ok_or(IngestOutcome::Outdated)?;
        source.keep_lists_within_bounds(&mut result);
        let agent_count = source.len_after(&result);
        if agent_count > source.spec.max_agents {
            source.record_failure(format!("it has {agent_count} agents (at most {})", source.spec.max_agents));
            return Err(IngestOutcome::Rejected);
        }
        let budgets = SourceBudgets::new(limits);
        source.unchanged_documents(&result).for_each(|document| budgets.record(document));
        let budgets = Arc::new(budgets);
        let mut plan = IngestPlan {
            source: index,
            parts: Vec::new(),
            polled_at: None,
            from_disk: stored_at.is_some(),
            reordered: source.set_lists(std::mem::take(&mut result.lists)),
        };
        let replaces_all = source.is_replaced_by(&result);
        match result.error.take() {
            Some(why) => source.record_failure(why),
            None => {
                source.set_warnings(std::mem::take(&mut result.warnings));
                plan.polled_at = Some(stored_at.unwrap_or_else(SystemTime::now));
                let removed = if replaces_all { source.unreported_parts(&result) } else { Vec::new() };
                plan.parts.extend(removed.into_iter().map(|name| (name, None)));
            }
        }
        for part in result.parts {
            let previous_count = source.parts.get(&part.name).map_or(0, |entries| entries.documents.len());
            match part.update {
                PartUpdate::Replaced(documents) if documents.len() > batch.capacity + previous_count => {
                    let why = format!("with it there would be more than {MAX_AGENTS} agents");
                    source.set_part_error(part.name, Some(why));
                }
                PartUpdate::Replaced(documents) => {
                    batch.capacity = batch.capacity + previous_count - documents.len();
                    plan.parts.push((part.name, Some(documents.len())));
                    let unpublished = Arc::new(source.spec.agent_source(None));
                    batch.documents.extend(documents.into_iter().map(|mut document| {
                        let source = match document.publisher.take() {
                            Some(publisher) => Arc::new(source.spec.agent_source(Some(publisher))),
                            None => Arc::clone(&unpublished),
                        };
                        let document = SourcedDocument::new(document, source);
                        PendingDocument { document, budgets: Arc::clone(&budgets) }
                    }));
                }
                PartUpdate::Unreadable(why) => source.set_part_error(part.name, Some(why)),
                PartUpdate::ReadableAgain => source.set_part_error(part.name, None),
                PartUpdate::Removed => {
                    batch.capacity += previous_count;
                    plan.parts.push((part.name, None));
                }
            }
        }
        Ok(plan)
    }
}

/// Logs the warnings about new documents, one line for each document; a source decides how many there are, so that only
/// the first ones are logged individually.
fn log_warnings<'a, R: 'a>(documents: impl Iterator<Item = &'a Arc<CompiledDocument<R>>>) {
    let with_warnings = documents.filter(|document| !document.warnings.is_empty());
    let mut count = 0;
    for document in with_warnings {
        count += 1;
        if count <= MAX_LOGGED_WARNINGS {
            let agent = document.agent.as_ref().map(|agent| agent.id.as_str()).unwrap_or_default();
            let source = &*document.identity.source.name;
            tracing::info!(agent, source, "agent document has findings: {}", document.warnings.join("; "));
        }
    }
    if count > MAX_LOGGED_WARNINGS {
        let omitted = count - MAX_LOGGED_WARNINGS;
        tracing::info!(
            documents = omitted,
            "further agent documents have findings (see /sources on the admin listener)"
        );
    }
}
