//! How looks are taken in: bounded, their documents read and compiled all at once, and each source left to judge
//! whether it believes its own.

use super::{
    MOST_AGENTS,
    catalogue::Era,
    feed::{Change, Document, News},
    settle::{Compiler, Known, Schemas, settle},
    source::{Parts, SourceState},
};
use foldhash::fast::RandomState;
use std::{collections::HashSet, sync::Arc, time::SystemTime};

/// One look at a source.
#[derive(Debug)]
pub struct Look {
    /// Which source, in the order of the era.
    pub source: usize,
    /// What it said.
    pub change: Change,
    /// Where nobody looked, but the last good look was read from disk: when that was.
    pub remembered: Option<SystemTime>,
}

/// What became of a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is in force; whether anything changed by it.
    Taken {
        /// Whether agents changed.
        changed: bool,
    },
    /// It failed by its own word; the parts that it brought all the same are in force.
    Failed,
    /// It would lose too much, and waits to be confirmed.
    Held,
    /// It is refused as a whole, and the feed should say everything again.
    Refused,
    /// It belongs to an era that is over.
    Late,
}

/// What the catalogue knows beyond its snapshot.
pub(super) struct State<R> {
    pub(super) era: Era,
    pub(super) compiler: Compiler<R>,
    schemas: Schemas,
    /// In the order of their precedence.
    pub(super) sources: Vec<SourceState<R>>,
}

/// A look whose documents were taken out to be settled.
struct Plan {
    source: usize,
    /// How many documents each part has, or that it is gone.
    parts: Vec<(Arc<str>, Option<usize>)>,
    /// When the look was, if it was good.
    good: Option<SystemTime>,
    remembered: bool,
}

/// Documents of several looks, and how many more may come.
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
    /// What is held of these documents, by digest.
    fn known(&self, documents: &[Document]) -> Known<R> {
        if documents.is_empty() {
            return Known::default();
        }
        let wanted: HashSet<&[u8; 32], RandomState> = documents.iter().map(|document| &document.digest).collect();
        let held = self.sources.iter().flat_map(SourceState::everything);
        held.filter(|held| wanted.contains(&held.digest)).map(|held| (held.digest, Arc::clone(held))).collect()
    }

    /// Takes in looks, each of another source.
    pub(super) fn take(&mut self, looks: Vec<Look>) -> Vec<Verdict> {
        let room = MOST_AGENTS.saturating_sub(self.sources.iter().map(SourceState::len).sum());
        let mut gathered = Gathered { documents: Vec::new(), room };
        let plans: Vec<_> = looks.into_iter().map(|look| self.plan(look, &mut gathered)).collect();
        let documents = gathered.documents;
        // All at once, so that a folder of many small files is spread over the cores as one large file is.
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

    /// What a look amounts to, or what became of it at once.
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
