//! The gateway's state as the admin pages show it.

use crate::{
    admin::{AgentRow, FeedRow, Health, Refused, State, page},
    fault::Fault,
    gateway::{Gateway, Route},
};
use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

/// Implements the admin module's view of the gateway.
pub(super) struct Condition {
    gateway: Arc<Gateway>,
    draining: AtomicBool,
    refused: Mutex<Option<String>>,
}

impl Condition {
    pub(super) fn new(gateway: &Arc<Gateway>) -> Self {
        Self { gateway: Arc::clone(gateway), draining: AtomicBool::new(false), refused: Mutex::default() }
    }

    pub(super) fn drain(&self) {
        self.draining.store(true, Relaxed);
    }

    pub(super) fn configured(&self) {
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    pub(super) fn unconfigured(&self, why: String) {
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
    }
}

impl State for Condition {
    fn health(&self) -> Health {
        let snapshot = self.gateway.catalogue.snapshot();
        Health {
            draining: self.draining.load(Relaxed),
            agents: Some(snapshot.len()),
            refused: snapshot.refused.len(),
            config_refused: self.refused.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            troubles: snapshot.troubles.iter().map(|(part, why)| format!("{part}: {why}")).collect(),
        }
    }

    fn agents(&self, after: Option<&str>, most: usize) -> Vec<AgentRow> {
        let snapshot = self.gateway.catalogue.snapshot();
        let routes = page(snapshot.iter(), after, most);
        let row = |route: &Route| {
            let endpoints = route.endpoints().map(|(endpoint, standing)| (endpoint, standing.as_str()));
            AgentRow::new(route.agent(), route.in_flight()).at(endpoints)
        };
        routes.into_iter().map(|route| row(route)).collect()
    }

    fn refused(&self, most: usize) -> Vec<Refused> {
        let snapshot = self.gateway.catalogue.snapshot();
        let shown = snapshot.refused.iter().take(most).map(|refusal| Refused {
            source: refusal.source.to_string(),
            index: refusal.index,
            id: refusal.id.clone(),
            reasons: refusal.reasons.clone(),
        });
        shown.collect()
    }

    fn feeds(&self) -> Vec<FeedRow> {
        self.gateway.catalogue.sources().iter().map(FeedRow::new).collect()
    }

    fn confirm(&self, name: &str) -> Option<bool> {
        self.gateway.catalogue.confirm(name)
    }

    fn lease(&self, name: &str, wanted: &[u8]) -> Result<(Duration, bool), Fault> {
        self.gateway.transport.lease(name, wanted).map(|leased| (leased.holds, leased.new))
    }

    fn release(&self, name: &str) -> bool {
        self.gateway.transport.release(name)
    }

    fn pair(&self) -> Option<(String, Duration)> {
        self.gateway.offer_pairing()
    }
}
