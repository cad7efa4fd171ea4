//! How a source is, for operators.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

/// How a source is.
#[derive(Clone, Debug)]
pub struct SourceHealth {
    /// Its name.
    pub name: Arc<str>,
    /// What it speaks.
    pub kind: &'static str,
    /// Agents that its documents make.
    pub agents: usize,
    /// When it was last well.
    pub good: Option<SystemTime>,
    /// Whether that is too long ago, so that its agents are not served.
    pub stale: bool,
    /// Whether what it holds was read from disk, and not from itself since the start.
    pub remembered: bool,
    /// What was wrong with the last look.
    pub trouble: Option<String>,
    /// Agents that would go by a look that waits to be confirmed.
    pub losing: Option<usize>,
}

impl SourceHealth {
    /// How long ago it was last well.
    pub fn age(&self) -> Option<Duration> {
        self.good.map(|good| SystemTime::now().duration_since(good).unwrap_or_default())
    }

    /// What an operator should know of it, if anything.
    pub fn warning(&self) -> Option<String> {
        let trouble = self.trouble.as_deref().unwrap_or("it has not answered yet");
        match (self.losing, self.age()) {
            (Some(losing), _) => Some(format!(
                "{losing} of {} agents would go; that waits for confirmation (POST /feeds/{}/confirm)",
                self.agents, self.name
            )),
            (None, Some(age)) if self.stale => {
                Some(format!("not well for {}s: its agents are not served ({trouble})", age.as_secs()))
            }
            (None, Some(age)) if self.remembered => {
                Some(format!("what it said {}s ago is served from disk ({trouble})", age.as_secs()))
            }
            (None, Some(age)) if self.trouble.is_some() => {
                Some(format!("what it said {}s ago is served ({trouble})", age.as_secs()))
            }
            (None, None) => Some(format!("nothing is known of its agents ({trouble})")),
            _ => None,
        }
    }
}
