//! What was reported of each list of a source, so that a poll reports only the lists that changed.

use super::pagination::DigestKey;
use crate::registry::{FeedPart, PartUpdate, RawDocument};
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

/// Number of polls in which a list may be reported as incomplete because documents are still being fetched.
const MAX_INCOMPLETE_POLLS: u8 = 3;

/// The documents of a list.
pub(super) struct ListContent {
    pub(super) documents: Vec<RawDocument>,
    /// Digest of all documents.
    pub(super) digest: DigestKey,
    /// Number of documents that are not refused.
    pub(super) usable_count: usize,
    /// Why the first of the others is refused.
    pub(super) first_error: Option<String>,
    /// Whether documents were not fetched yet.
    pub(super) is_incomplete: bool,
}

/// What was reported of every list.
#[derive(Default)]
pub(super) struct ListReports {
    lists: HashMap<Arc<str>, ListReport>,
}

/// What was reported of one list.
#[derive(Default)]
struct ListReport {
    reported: Option<DigestKey>,
    accepted: Option<DigestKey>,
    /// Whether the list ever had a usable agent.
    had_agents: bool,
    /// Polls before the first accepted result that had no time for all documents.
    incomplete_polls: u8,
    error: Option<String>,
    is_removed: bool,
}

impl ListReports {
    /// Checks whether the content of a list replaces what is in force.
    ///
    /// # Errors
    /// The list says nothing about its agents, or not enough yet.
    pub(super) fn check(&mut self, name: &Arc<str>, content: &mut ListContent) -> Result<(), String> {
        let report = self.lists.entry(Arc::clone(name)).or_default();
        if content.is_incomplete && report.accepted.is_none() && report.incomplete_polls < MAX_INCOMPLETE_POLLS {
            // What was in force before this feed was created may be more than what is fetched so far.
            report.incomplete_polls += 1;
            return Err(format!("{name}: documents are still being fetched"));
        }
        if let Some(why) = content.first_error.take().filter(|_| content.usable_count == 0 && report.had_agents) {
            return Err(format!("none of the {} entries can be used ({why})", content.documents.len()));
        }
        report.had_agents |= content.usable_count > 0;
        Ok(())
    }

    /// Returns the update of a list that was read, if it differs from what was reported last.
    pub(super) fn update(&mut self, name: &Arc<str>, content: ListContent) -> Option<FeedPart> {
        let report = self.lists.entry(Arc::clone(name)).or_default();
        report.is_removed = false;
        report.reported = Some(content.digest);
        let had_error = report.error.take().is_some();
        let update = if report.accepted != report.reported {
            Some(PartUpdate::Replaced(content.documents))
        } else {
            had_error.then_some(PartUpdate::ReadableAgain)
        };
        update.map(|update| FeedPart { name: Arc::clone(name), update })
    }

    /// Returns the update of a list whose previous agents stay, if this is new.
    pub(super) fn keep_previous(&mut self, name: &Arc<str>, why: String) -> Option<FeedPart> {
        let report = self.lists.entry(Arc::clone(name)).or_default();
        report.is_removed = false;
        report.reported = report.accepted;
        if report.error.as_ref() == Some(&why) {
            return None;
        }
        report.error = Some(why.clone());
        Some(FeedPart { name: Arc::clone(name), update: PartUpdate::Unreadable(why) })
    }

    /// Returns the removal of every list that is not among `names`.
    pub(super) fn remove_others(&mut self, names: &[Arc<str>]) -> Vec<FeedPart> {
        let current: HashSet<&Arc<str>> = names.iter().collect();
        let others = self.lists.iter_mut().filter(|(name, _)| !current.contains(name));
        let removals = others.map(|(name, report)| {
            report.is_removed = true;
            FeedPart { name: Arc::clone(name), update: PartUpdate::Removed }
        });
        removals.collect()
    }

    /// Records that the last result is in force.
    pub(super) fn acknowledge(&mut self) {
        self.lists.retain(|_, report| !report.is_removed);
        self.lists.values_mut().for_each(|report| report.accepted = report.reported);
    }

    /// Reports every list again.
    pub(super) fn reset(&mut self) {
        for report in self.lists.values_mut() {
            (report.accepted, report.error) = (None, None);
        }
    }
}
