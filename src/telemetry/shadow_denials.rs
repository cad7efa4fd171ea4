//! The rules in shadow mode that would have refused a call.

use super::metric_labels::ShadowRule;

/// A set of rules in shadow mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShadowDenials(u16);

impl ShadowDenials {
    /// No rule.
    pub const NONE: Self = Self(0);

    /// Adds a rule.
    pub fn insert(&mut self, rule: ShadowRule) {
        self.0 |= 1 << rule as u16;
    }

    /// Returns the rules of both sets.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns whether no rule would have refused the call.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the rules in their order.
    pub fn rules(self) -> impl Iterator<Item = ShadowRule> {
        ShadowRule::ALL.iter().copied().filter(move |rule| self.0 & (1 << *rule as u16) != 0)
    }
}
