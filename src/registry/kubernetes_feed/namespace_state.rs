//! What is known of each namespace: whether its objects were listed, and why it cannot be read. A namespace that cannot be
//! read does not affect the others.

use super::watch_scope::{NamespaceName, WatchScope};
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};
use tokio::time::Instant;

/// Why nothing is known yet.
pub(super) const NO_ANSWER: &str = "the API server has not answered yet";

/// What one watch knows of its objects.
#[derive(Debug, Default)]
pub(super) struct WatchState {
    /// Whether the objects of the scope were listed once.
    pub(super) is_listed: bool,
    /// Why the objects may be out of date, and since when.
    failure: Option<(String, Instant)>,
}

impl WatchState {
    /// Records why the objects may be out of date; returns whether this is news.
    pub(super) fn record_failure(&mut self, why: String) -> bool {
        let since = self.failure.as_ref().map_or_else(Instant::now, |(_, since)| *since);
        let is_new = self.failure.as_ref().is_none_or(|(known, _)| *known != why);
        self.failure = Some((why, since));
        is_new
    }

    /// Forgets that the objects were listed, if they may be out of date; returns whether they may.
    pub(super) fn forget_if_failing(&mut self) -> bool {
        let is_failing = self.failure.is_some();
        self.is_listed &= !is_failing;
        is_failing
    }

    /// Records that the objects are watched; returns whether this is news.
    pub(super) fn record_watching(&mut self) -> bool {
        self.failure.take().is_some()
    }
}

/// The state of one namespace.
#[derive(Debug, Default)]
pub(super) struct NamespaceState {
    /// Whether all of its lists were complete once.
    pub(super) is_listed: bool,
    /// Why it cannot be read.
    pub(super) error: Option<String>,
    /// Whether it could not be read for longer than agents may stay.
    pub(super) is_expired: bool,
}

impl NamespaceState {
    /// Whether an answer of the API server is still to come.
    fn is_awaited(&self) -> bool {
        !self.is_listed && self.error.is_none()
    }

    /// Why its agents may be out of date.
    pub(super) fn why_unreadable(&self) -> Option<&str> {
        self.error.as_deref().or_else(|| self.is_awaited().then_some(NO_ANSWER))
    }
}

/// The state of all namespaces.
#[derive(Debug)]
pub(super) struct NamespaceStates(BTreeMap<NamespaceName, NamespaceState>);

impl NamespaceStates {
    /// Combines what the watches know. A failure that lasts for `max_staleness` expires its namespace.
    pub(super) fn new(watches: &HashMap<WatchScope, WatchState>, max_staleness: Option<Duration>) -> Self {
        let mut states: BTreeMap<NamespaceName, NamespaceState> = BTreeMap::new();
        for (scope, watch) in watches {
            let new = || NamespaceState { is_listed: true, ..NamespaceState::default() };
            let state = states.entry(scope.namespace.clone()).or_insert_with(new);
            state.is_listed &= watch.is_listed;
            let Some((why, since)) = &watch.failure else { continue };
            state.is_expired |= max_staleness.is_some_and(|max| since.elapsed() > max);
            // The same error at each look, whatever the order of the watches is.
            if state.error.as_ref().is_none_or(|known| why < known) {
                state.error = Some(why.clone());
            }
        }
        Self(states)
    }

    /// Whether each namespace was listed, or cannot be read.
    pub(super) fn is_settled(&self) -> bool {
        !self.0.is_empty() && !self.0.values().any(NamespaceState::is_awaited)
    }

    /// Why the source as a whole cannot be read: no namespace can.
    pub(super) fn error(&self) -> Option<String> {
        let is_current = |state: &NamespaceState| state.is_listed && state.error.is_none();
        let errors = || self.0.values().filter_map(|state| state.error.as_ref());
        if self.0.values().any(is_current) { None } else { errors().min().cloned() }
    }

    /// Whether every namespace was listed, apart from those that are expired.
    pub(super) fn are_listed(&self) -> bool {
        self.0.values().all(|state| state.is_listed || state.is_expired)
    }

    /// Whether the namespace, or the whole cluster, was listed.
    pub(super) fn is_listed(&self, namespace: &Arc<str>) -> bool {
        let state = self.0.get(&None).or_else(|| self.0.get(&Some(Arc::clone(namespace))));
        state.is_some_and(|state| state.is_listed)
    }

    /// Returns each namespace with its state.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&NamespaceName, &NamespaceState)> {
        self.0.iter()
    }
}
