//! The gateway's state for the admin pages.

use crate::{
    admin::{AdminState, AgentRow, GatewayHealth, RejectedDocument, SourceRow, select_page},
    fault::Fault,
    gateway::{Gateway, Route},
};
use parking_lot::Mutex;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

/// Implements [`AdminState`] for a running gateway.
pub(super) struct GatewayAdminState {
    gateway: Arc<Gateway>,
    draining: AtomicBool,
    config_problems: Mutex<Option<String>>,
}

impl GatewayAdminState {
    pub(super) fn new(gateway: &Arc<Gateway>) -> Self {
        Self { gateway: Arc::clone(gateway), draining: AtomicBool::new(false), config_problems: Mutex::default() }
    }

    pub(super) fn set_draining(&self) {
        self.draining.store(true, Relaxed);
        self.gateway.catalogue.report_draining();
    }

    pub(super) fn clear_config_problems(&self) {
        *self.config_problems.lock() = None;
    }

    pub(super) fn set_config_problems(&self, problems: String) {
        *self.config_problems.lock() = Some(problems);
    }
}

impl AdminState for GatewayAdminState {
    fn health(&self) -> GatewayHealth {
        let catalogue = &self.gateway.catalogue;
        let awaited = if catalogue.is_ready() { Vec::new() } else { catalogue.awaited_sources() };
        let snapshot = catalogue.snapshot();
        GatewayHealth {
            draining: self.draining.load(Relaxed),
            agents: Some(snapshot.len()),
            awaited_sources: awaited.iter().map(ToString::to_string).collect(),
            rejected_documents: snapshot.rejected.len(),
            config_error: self.config_problems.lock().clone(),
            problems: snapshot.unreadable_parts.iter().map(|(part, why)| format!("{part}: {why}")).collect(),
        }
    }

    fn list_agents(&self, after: Option<&str>, limit: usize) -> Vec<AgentRow> {
        let snapshot = self.gateway.catalogue.snapshot();
        let routes = select_page(snapshot.iter(), after, limit);
        let row = |route: &Route| {
            let endpoints = route.endpoints().map(|(endpoint, breaker_state)| (endpoint, breaker_state.as_str()));
            AgentRow::new(route.agent(), route.in_flight()).with_endpoints(endpoints)
        };
        routes.into_iter().map(|route| row(route)).collect()
    }

    fn list_rejected_documents(&self, limit: usize) -> Vec<RejectedDocument> {
        let snapshot = self.gateway.catalogue.snapshot();
        let documents = snapshot.rejected.iter().take(limit).map(|document| RejectedDocument {
            source: document.part.to_string(),
            index: document.index,
            id: document.id.clone(),
            reasons: document.reasons.clone(),
        });
        documents.collect()
    }

    fn list_sources(&self) -> Vec<SourceRow> {
        self.gateway.catalogue.source_health().iter().map(SourceRow::new).collect()
    }

    fn confirm_agent_loss(&self, name: &str) -> Option<bool> {
        self.gateway.catalogue.confirm_withheld_update(name)
    }

    fn refresh_source(&self, name: &str) -> bool {
        self.gateway.catalogue.refresh_source(name)
    }

    fn register_runtime(&self, name: &str, registration: &[u8]) -> Result<(Duration, bool), Fault> {
        self.gateway.transport.register_local_runtime(name, registration).map(|lease| (lease.ttl, lease.is_new))
    }

    fn remove_registration(&self, name: &str) -> bool {
        self.gateway.transport.deregister_local_runtime(name)
    }

    fn create_pairing_code(&self) -> Option<(String, Duration)> {
        self.gateway.create_pairing_code()
    }
}
