//! How many bytes the documents of a source's lists may have: all together, and those of each nested catalogue.

use super::list_budget::equal_share;
use std::collections::HashMap;

/// Maximum size in bytes of all documents of one source.
const MAX_TOTAL_SIZE: usize = 256 << 20;

/// The catalogue of the source's own list that a document belongs to; 0 for documents of the own list.
pub(super) type Branch = usize;

/// The sizes of the documents of each branch.
#[derive(Debug)]
pub(super) struct DocumentShares {
    max_total: usize,
    total: usize,
    by_branch: HashMap<Branch, usize>,
    share: usize,
}

/// A document that another one replaces.
#[derive(Clone, Copy, Debug)]
pub(super) struct SizeChange {
    pub(super) branch: Branch,
    pub(super) previous: usize,
    pub(super) next: usize,
}

impl DocumentShares {
    /// Creates the shares of this number of branches; the own list has as much as one.
    pub(super) fn new(branches: usize) -> Self {
        Self::with_total(MAX_TOTAL_SIZE, branches)
    }

    fn with_total(max_total: usize, branches: usize) -> Self {
        let share = equal_share(max_total, 0, branches + 1);
        Self { max_total, total: 0, by_branch: HashMap::new(), share }
    }

    /// Records a document that stays.
    pub(super) fn record(&mut self, branch: Branch, size: usize) {
        self.total += size;
        *self.by_branch.entry(branch).or_default() += size;
    }

    /// Charges a document that replaces another one.
    ///
    /// # Errors
    /// Which bound it exceeds; nothing is charged.
    pub(super) fn replace(&mut self, change: SizeChange) -> Result<(), String> {
        let SizeChange { branch, previous, next } = change;
        let of_branch = self.by_branch.entry(branch).or_default();
        let (total, after) =
            ((self.total + next).saturating_sub(previous), (*of_branch + next).saturating_sub(previous));
        if next > previous && branch > 0 && after > self.share {
            let share = self.share;
            return Err(format!("the documents of its catalogue and of those below it have more than {share} bytes"));
        }
        if next > previous && total > self.max_total {
            return Err(format!("all documents of the source together have more than {} bytes", self.max_total));
        }
        (self.total, *of_branch) = (total, after);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_catalogue_with_large_documents_leaves_the_others_their_share() {
        let mut shares = DocumentShares::with_total(1_000, 3);
        let new = |branch, next| SizeChange { branch, previous: 0, next };
        for _ in 0..2 {
            assert!(shares.replace(new(1, 100)).is_ok());
        }
        assert!(shares.replace(new(1, 51)).unwrap_err().contains("more than 250 bytes"));
        assert!(shares.replace(SizeChange { branch: 1, previous: 100, next: 150 }).is_ok());
        assert!(shares.replace(new(2, 250)).is_ok());
        assert!(shares.replace(new(0, 501)).unwrap_err().contains("more than 1000 bytes"));
        assert!(shares.replace(new(0, 500)).is_ok());
        assert!(shares.replace(SizeChange { branch: 2, previous: 250, next: 10 }).is_ok(), "less is always possible");
    }
}
