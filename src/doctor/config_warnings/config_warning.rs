//! One warning about a configuration, before and after its line is known.

use crate::{config::ConfigProblem, doctor::finding_codes::FindingCode};

/// A warning about a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigWarning {
    /// Its code.
    pub code: FindingCode,
    /// What is dangerous, with its line and what to do.
    pub problem: ConfigProblem,
}

/// A warning that has no line yet.
pub(super) struct UnlocatedWarning {
    pub(super) code: FindingCode,
    /// Formatted as `path: danger (what to do)`.
    pub(super) text: String,
}

impl UnlocatedWarning {
    pub(super) fn new(code: FindingCode, text: String) -> Self {
        Self { code, text }
    }
}
