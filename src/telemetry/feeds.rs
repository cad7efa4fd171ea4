//! What is measured of each source of agents. The label is the configured name, so there are as many series as the
//! configuration names sources.

use super::labels::label;
use prometheus::{Error, GaugeVec, IntCounterVec, IntGaugeVec, Opts, Registry};
use std::{collections::BTreeSet, sync::Mutex};

label! {
    /// How a look at a source ended.
    LookOutcome {
        Good "good" "It was good, and is in force.";
        Failed "failed" "It could not be made, or what came cannot be relied on.";
        Held "held" "It would lose too many agents, and waits to be confirmed.";
        Refused "refused" "It brought more than the source may have.";
    }
}

/// The metrics of all sources.
#[derive(Debug)]
pub struct FeedMetrics {
    age: GaugeVec,
    agents: IntGaugeVec,
    held: IntGaugeVec,
    looks: IntCounterVec,
    names: Mutex<BTreeSet<Box<str>>>,
}

impl FeedMetrics {
    pub(super) fn register(with: &Registry) -> Result<Self, Error> {
        let opts = |name, help| Opts::new(name, help);
        let made = Self {
            age: GaugeVec::new(
                opts("gatepost_feed_age_seconds", "Time since the last good look at a source of agents."),
                &["feed"],
            )?,
            agents: IntGaugeVec::new(opts("gatepost_feed_agents", "Agents that a source has."), &["feed"])?,
            held: IntGaugeVec::new(
                opts("gatepost_feed_held", "Agents that would go by a look that waits to be confirmed."),
                &["feed"],
            )?,
            looks: IntCounterVec::new(
                opts("gatepost_feed_looks_total", "Looks at a source of agents, by how they ended."),
                &["feed", "outcome"],
            )?,
            names: Mutex::default(),
        };
        with.register(Box::new(made.age.clone()))?;
        with.register(Box::new(made.agents.clone()))?;
        with.register(Box::new(made.held.clone()))?;
        with.register(Box::new(made.looks.clone()))?;
        Ok(made)
    }

    /// Puts the names of the configured sources in force; the series of others go.
    pub fn name(&self, names: impl Iterator<Item = Box<str>>) {
        let mut known = self.names.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let next: BTreeSet<Box<str>> = names.collect();
        for gone in known.difference(&next) {
            // Errors say that there was no such series.
            drop(self.age.remove_label_values(&[gone]));
            drop(self.agents.remove_label_values(&[gone]));
            drop(self.held.remove_label_values(&[gone]));
            for outcome in LookOutcome::NAMES {
                drop(self.looks.remove_label_values(&[&**gone, *outcome]));
            }
        }
        for name in &next {
            for outcome in LookOutcome::NAMES {
                self.looks.with_label_values(&[&**name, *outcome]);
            }
        }
        *known = next;
    }

    /// Says how a source is; one that was never well has no age.
    pub fn is(&self, name: &str, age: Option<f64>, agents: usize, held: usize) {
        if !self.knows(name) {
            return;
        }
        if let Some(age) = age {
            self.age.with_label_values(&[name]).set(age);
        }
        let count = |count| i64::try_from(count).unwrap_or(i64::MAX);
        self.agents.with_label_values(&[name]).set(count(agents));
        self.held.with_label_values(&[name]).set(count(held));
    }

    /// Counts a look.
    pub fn looked(&self, name: &str, outcome: LookOutcome) {
        if self.knows(name) {
            self.looks.with_label_values(&[name, outcome.name()]).inc();
        }
    }

    fn knows(&self, name: &str) -> bool {
        self.names.lock().unwrap_or_else(std::sync::PoisonError::into_inner).contains(name)
    }
}
