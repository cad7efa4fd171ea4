//! A former name in a configuration text.

use super::{config_problem::ConfigProblem, key_path::join_path};
use std::ops::Range;

/// One use of a former name in a configuration text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RenamedKey {
    /// The path of the section that holds the key, in current names.
    pub(super) section: String,
    /// The name in the text.
    pub(super) former: String,
    /// The current name; `a.b` is the key `b` of the nested section `a`.
    pub(super) current: &'static str,
    /// The line of the key.
    pub(super) line: u64,
    /// The byte range of the key.
    pub(super) key: Option<Range<usize>>,
    /// The byte range of the value.
    pub(super) value: Option<Range<usize>>,
}

impl RenamedKey {
    /// Returns the warning for the operator.
    pub(super) fn warning(&self) -> ConfigProblem {
        let path = join_path(&self.section, &self.former);
        let current = join_path(&self.section, self.current);
        ConfigProblem {
            path,
            line: Some(self.line),
            message: format!("is now '{current}' (gatepost check --migrate rewrites the file)"),
        }
    }

    /// Returns the nested section and the key in it, if the current name is in a nested section.
    pub(super) fn nested(&self) -> Option<(&'static str, &'static str)> {
        self.current.split_once('.')
    }

    /// Returns whether both keys move into the same nested section.
    pub(super) fn moves_with(&self, other: &Self) -> bool {
        let nested = self.nested().map(|(nested, _)| nested);
        nested.is_some() && nested == other.nested().map(|(nested, _)| nested) && self.section == other.section
    }
}
