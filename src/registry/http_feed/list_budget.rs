//! What the lists of a source may take in one poll: pages, entries and bytes, charged while pages are read.
//! A nested catalogue, together with those below it, has a share: what it takes beyond its share fails this catalogue only.

use crate::registry::MAX_AGENTS;
use parking_lot::Mutex;
use std::sync::Arc;

/// What a list takes or may take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ListSize {
    /// Number of pages.
    pub(super) pages: usize,
    /// Number of entries.
    pub(super) entries: usize,
    /// Size of all pages in bytes.
    pub(super) bytes: usize,
}

impl ListSize {
    /// What all lists of a source may take.
    const SOURCE: Self = Self { pages: 1_000, entries: MAX_AGENTS, bytes: 256 << 20 };
    /// What one nested catalogue may take, within its share.
    const CATALOG: Self = Self { pages: 100, entries: MAX_AGENTS, bytes: 32 << 20 };
    /// The request of one page.
    pub(super) const PAGE: Self = Self { pages: 1, entries: 0, bytes: 0 };

    /// Returns the size of a page that was requested already.
    pub(super) fn of_page(entries: usize, bytes: usize) -> Self {
        Self { pages: 0, entries, bytes }
    }

    /// Applies `map` to each measure of both sizes.
    fn combine(self, other: Self, map: impl Fn(usize, usize) -> usize) -> Self {
        Self {
            pages: map(self.pages, other.pages),
            entries: map(self.entries, other.entries),
            bytes: map(self.bytes, other.bytes),
        }
    }

    /// Returns the measure that exceeds `limit`, with the limit.
    fn excess(self, limit: Self) -> Option<String> {
        let measures = [
            (self.pages, limit.pages, "pages"),
            (self.entries, limit.entries, "entries"),
            (self.bytes, limit.bytes, "bytes"),
        ];
        let exceeded = measures.into_iter().find(|(used, limit, _)| used > limit);
        exceeded.map(|(_, limit, unit)| format!("more than {limit} {unit}"))
    }
}

/// Returns the share of one of `count` nested catalogues: an equal part of what is left of `total`, and at least a tenth
/// of it all.
pub(super) fn equal_share(total: usize, used: usize, count: usize) -> usize {
    (total.saturating_sub(used) / count.max(1)).max(total / 10)
}

/// A budget within that of its parent. Several lists charge it at once.
#[derive(Debug)]
pub(super) struct ListBudget {
    /// What the budget is for, in messages.
    scope: &'static str,
    limit: ListSize,
    used: Mutex<ListSize>,
    parent: Option<Arc<Self>>,
}

impl ListBudget {
    /// Returns the budget of one poll of a source.
    pub(super) fn of_source() -> Arc<Self> {
        let (scope, used) = ("the lists of the source", Mutex::default());
        Arc::new(Self { scope, limit: ListSize::SOURCE, used, parent: None })
    }

    /// Returns the budget of one of `count` catalogues that the source's own list names, with those below it. The source
    /// may have `max_agents` agents.
    pub(super) fn of_branch(source: &Arc<Self>, max_agents: usize, count: usize) -> Arc<Self> {
        let mut total = source.limit;
        total.entries = total.entries.min(max_agents);
        let limit = total.combine(*source.used.lock(), |total, used| equal_share(total, used, count));
        let (scope, parent) = ("the catalogue and those below it", Some(Arc::clone(source)));
        Arc::new(Self { scope, limit, used: Mutex::default(), parent })
    }

    /// Returns the budget of one nested catalogue.
    pub(super) fn of_catalog(branch: &Arc<Self>) -> Self {
        let parent = Some(Arc::clone(branch));
        Self { scope: "the list", limit: ListSize::CATALOG, used: Mutex::default(), parent }
    }

    /// Charges what a list takes, here and to the parents.
    ///
    /// # Errors
    /// Which bound is exceeded.
    pub(super) fn charge(&self, size: ListSize) -> Result<(), String> {
        let mut next = Some(self);
        while let Some(budget) = next {
            let mut used = budget.used.lock();
            let total = used.combine(size, usize::saturating_add);
            if let Some(excess) = total.excess(budget.limit) {
                return Err(format!("{excess} in {}", budget.scope));
            }
            *used = total;
            next = budget.parent.as_deref();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_an_equal_part_and_at_least_a_tenth() {
        assert_eq!(equal_share(1_000, 100, 1), 900);
        assert_eq!(equal_share(1_000, 100, 3), 300);
        assert_eq!(equal_share(1_000, 100, 100), 100);
        assert_eq!(equal_share(1_000, 2_000, 0), 100);
    }

    #[test]
    fn a_branch_that_uses_up_its_share_leaves_the_others_theirs() {
        let source = ListBudget::of_source();
        source.charge(ListSize { pages: 1, entries: 100, bytes: 0 }).unwrap();
        let branches: Vec<_> = (0..2).map(|_| ListBudget::of_branch(&source, 1_000, 2)).collect();
        let entries = |entries| ListSize { entries, ..ListSize::default() };
        let why = ListBudget::of_catalog(&branches[0]).charge(entries(MAX_AGENTS + 1)).unwrap_err();
        assert!(why.contains("entries in the list"), "{why}");
        for _ in 0..2 {
            ListBudget::of_catalog(&branches[0]).charge(entries(225)).unwrap();
        }
        let why = ListBudget::of_catalog(&branches[0]).charge(entries(1)).unwrap_err();
        assert!(why.contains("more than 450 entries in the catalogue and those below it"), "{why}");
        ListBudget::of_catalog(&branches[1]).charge(entries(450)).unwrap();
    }

    #[test]
    fn pages_of_all_catalogues_count_for_the_source() {
        let source = ListBudget::of_source();
        let branches: Vec<_> = (0..20).map(|_| ListBudget::of_branch(&source, 1_000, 20)).collect();
        let read = |branch| {
            let catalog = ListBudget::of_catalog(branch);
            (0..1_000).take_while(|_| catalog.charge(ListSize::PAGE).is_ok()).count()
        };
        assert_eq!(branches.iter().map(read).sum::<usize>(), 1_000);
    }
}
