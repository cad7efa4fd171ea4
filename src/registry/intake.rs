//! Ingests poll results: bounds them, compiles their documents in parallel, and lets each source accept or withhold
//! its update.

use super::{
    MOST_AGENTS,
    catalogue::Era,
    feed::{Change, Document, News},
    settle::{Compiler, Known, Schemas, settle},
    source::{Parts, SourceState},
};
use foldhash::fast::RandomState;
use std::{collections::HashSet, sync::Arc, time::SystemTime};

/// Result of one poll of a source.
#[derive(Debug)]
pub struct Look {
    /// Index of the source in its generation.
    pub source: usize,
    /// What the feed reported.
    pub change: Change,
    /// Where the content was read from disk instead of polled: when the source was last polled successfully.
    pub remembered: Option<SystemTime>,
}

/// Outcome of ingesting one poll result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The update is in force.
    Taken {
        /// Whether any agent changed.
        changed: bool,
    },
    /// The poll failed; parts that it reported nevertheless are in force.
    Failed,
    /// The loss guard withholds the update until it is confirmed.
    Held,
    /// The update is rejected as a whole; the feed has to report everything again.
    Refused,
    /// The update belongs to an earlier generation.
    Late,
}

/// State behind the catalogue's snapshot: the sources and their compiled documents.
pub(super) struct State<R> {
    pub(super) era: Era,
    pub(super) compiler: Compiler<R>,
    schemas: Schemas,
    /// In order of precedence.
    pub(super) sources: Vec<SourceState<R>>,
}

/// A poll result without its documents, which are compiled together with those of other poll results.
struct Plan {
    source: usize,
    /// The number of documents of each part; `None` where the part is removed.
    parts: Vec<(Arc<str>, Option<usize>)>,
    /// When the source was polled, if the poll succeeded.
    good: Option<SystemTime>,
    remembered: bool,
}

/// Documents of several poll results, and the number that may still be added.
struct Gathered {
    documents: Vec<Document>,
    room: usize,
}

impl<R> State<R> {
    pub(super) fn new(compiler: Compiler<R>) -> Self {
        Self { era: Era::default(), compiler, schemas: Schemas::default(), sources: Vec::new() }
    }
}

impl<R: Send + Sync + 'static> State<R> {
    /// Returns the documents that are compiled already, by digest.
    fn known(&self, documents: &[Document]) -> Known<R> {
        if documents.is_empty() {
            return Known::default();
        }
        let wanted: HashSet<&[u8; 32], RandomState> = documents.iter().map(|document| &document.digest).collect();
        let held = self.sources.iter().flat_map(SourceState::everything);
        held.filter(|held| wanted.contains(&held.digest)).map(|held| (held.digest, Arc::clone(held))).collect()
    }

    /// Ingests poll results, each of a different source.
    pub(super) fn take(&mut self, looks: Vec<Look>) -> Vec<Verdict> {
        let room = MOST_AGENTS.saturating_sub(self.sources.iter().map(SourceState::len).sum());
        let mut gathered = Gathered { documents: Vec::new(), room };
        let plans: Vec<_> = looks.into_iter().map(|look| self.plan(look, &mut gathered)).collect();
        let documents = gathered.documents;
        // All documents in one batch, so that a folder of many small files uses all cores, as one large file does.
        let known = self.known(&documents);
        let mut held = settle(documents, &known, &self.compiler, &self.schemas).into_iter();
        let verdicts = plans.into_iter().map(|plan| {
            let plan = match plan {
                Ok(plan) => plan,
                Err(verdict) => return verdict,
            };
            let parts: Parts<R> = plan
                .parts
                .into_iter()
                .map(|(name, size)| (name, size.map(|size| held.by_ref().take(size).collect())))
                .collect();
            let Some(source) = self.sources.get_mut(plan.source) else { return Verdict::Late };
            let verdict = source.take(parts, plan.good, plan.remembered);
            if plan.good.is_some() { verdict } else { Verdict::Failed }
        });
        let verdicts = verdicts.collect();
        drop(known);
        self.schemas.sweep();
        verdicts
    }

    /// Moves the documents of a poll result to the batch, or returns the outcome of a result that is not ingested.
    fn plan(&mut self, look: Look, to: &mut Gathered) -> Result<Plan, Verdict> {
        let Look { source: at, mut change, remembered } = look;
        let source = self.sources.get_mut(at).ok_or(Verdict::Late)?;
        let after = source.len_after(&change);
        if after > source.origin.most {
            source.fail(format!("it has {after} agents (at most {})", source.origin.most));
            return Err(Verdict::Refused);
        }
        let mut plan = Plan { source: at, parts: Vec::new(), good: None, remembered: remembered.is_some() };
        match change.trouble.take() {
            Some(why) => source.fail(why),
            None => {
                plan.good = Some(remembered.unwrap_or_else(SystemTime::now));
                let gone = if source.looked { Vec::new() } else { source.unmentioned(&change) };
                plan.parts.extend(gone.into_iter().map(|name| (name, None)));
            }
        }
        for part in change.parts {
            let before = source.parts.get(&part.name).map_or(0, |entries| entries.held.len());
            match part.news {
                News::Whole(found) if found.len() > to.room + before => {
                    let why = format!("with it there would be more than {MOST_AGENTS} agents");
                    source.mark(part.name, Some(why));
                }
                News::Whole(found) => {
                    to.room = to.room + before - found.len();
                    plan.parts.push((part.name, Some(found.len())));
                    to.documents.extend(found);
                }
                News::Kept(why) => source.mark(part.name, Some(why)),
                News::Steady => source.mark(part.name, None),
                News::Gone => {
                    to.room += before;
                    plan.parts.push((part.name, None));
                }
            }
        }
        Ok(plan)
    }
}
