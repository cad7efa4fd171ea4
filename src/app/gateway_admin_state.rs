//! The gateway's state for the admin pages.

use super::{document_search::DocumentSearch, rule_locator::RuleLocator};
use crate::{
    admin::{AdminState, AgentRow, GatewayHealth, RejectedDocument, RuntimeRegistration, SourceRow, select_page},
    audit::AuditLog,
    auth::{Caller, NewPairingCode, PresentedCredentials, RevocationList, TokenRevocationRequest},
    config::{GatewayConfig, LoadedConfig},
    console::{ConfigInForce, ConsoleSource},
    explain::{Decision, DecisionView, RuleSearch},
    fault::{Fault, FaultCode},
    gateway::{ExplainRequest, Gateway, Route, explain_call},
    http_server::request_validation::HeadLimits,
    telemetry::{redact, redact_agent_text},
    transport::LeaseGrant,
};
use arc_swap::ArcSwap;
use bytes::Bytes;
use futures_util::{FutureExt as _, future::BoxFuture};
use http::{HeaderMap, HeaderName};
use parking_lot::Mutex;
use serde_json::Value;
use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, SystemTime},
};
use tokio::{sync::Semaphore, time::timeout};

/// How many calls are explained at once.
const MAX_EXPLANATIONS: usize = 4;

/// How long an explanation may take: verifying a credential may ask its issuer.
const EXPLANATION_TIMEOUT: Duration = Duration::from_secs(30);

/// Implements [`AdminState`] for a running gateway.
pub(super) struct GatewayAdminState {
    gateway: Arc<Gateway>,
    draining: AtomicBool,
    config_problems: Mutex<Option<String>>,
    config: ArcSwap<ConfigInForce>,
    head_limits: HeadLimits,
    explanations: Arc<Semaphore>,
}

impl GatewayAdminState {
    pub(super) fn new(gateway: &Arc<Gateway>, loaded: &LoadedConfig) -> Self {
        let limits = loaded.config.connection_limits();
        gateway.recent_decisions.set_rules(Arc::new(RuleLocator::new(loaded)));
        Self {
            gateway: Arc::clone(gateway),
            draining: AtomicBool::new(false),
            config_problems: Mutex::default(),
            config: ArcSwap::from_pointee(config_in_force(loaded, &loaded.config)),
            head_limits: HeadLimits { max_bytes: limits.max_header_size.get(), max_fields: limits.max_headers },
            explanations: Arc::new(Semaphore::new(MAX_EXPLANATIONS)),
        }
    }

    /// Sets the configuration in force. `startup` is that of the start.
    pub(super) fn set_config(&self, loaded: &LoadedConfig, startup: &GatewayConfig) {
        self.config.store(Arc::new(config_in_force(loaded, startup)));
    }

    fn document_search(&self) -> DocumentSearch {
        DocumentSearch::new(Arc::clone(&self.gateway), self.config.load_full())
    }

    pub(super) fn set_draining(&self) {
        self.draining.store(true, Relaxed);
        self.gateway.catalogue.report_draining();
    }

    /// Returns decisions as operators read them: redacted, each with the line of its rule.
    fn decisions_to_json(&self, decisions: Vec<Decision>) -> Vec<Value> {
        let documents = self.document_search();
        let Some(rules_in_force) = self.gateway.recent_decisions.rules_in_force() else { return Vec::new() };
        let to_json = |mut decision: Decision| {
            // As the access log has it.
            decision.target.iter_mut().for_each(|target| target.path = redact(&target.path).into());
            let caller = decision.caller.as_deref().map(|caller| self.gateway.access_log.logged_caller(caller));
            decision.to_json(&DecisionView {
                caller: caller.as_deref(),
                rules_in_force: &rules_in_force,
                documents: &documents,
                redact: redact_agent_text,
            })
        };
        decisions.into_iter().map(to_json).collect()
    }

    pub(super) fn clear_config_problems(&self) {
        *self.config_problems.lock() = None;
    }

    pub(super) fn set_config_problems(&self, problems: String) {
        *self.config_problems.lock() = Some(problems);
    }
}

#[cold]
fn not_configured() -> Fault {
    Fault::from(FaultCode::Internal).with_detail("no configuration is in force")
}

fn config_in_force(loaded: &LoadedConfig, startup: &GatewayConfig) -> ConfigInForce {
    ConfigInForce {
        config: loaded.config.clone(),
        locations: loaded.setting_locations(),
        file_name: loaded.file_name().to_owned(),
        file_digest: loaded.file_digest.clone(),
        loaded_at: SystemTime::now(),
        waiting_for_restart: loaded.config.changed_startup_sections(startup),
    }
}

impl ConsoleSource for GatewayAdminState {
    fn config_in_force(&self) -> Arc<ConfigInForce> {
        self.config.load_full()
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
            problems: snapshot.unreadable_parts.iter().map(|(part, why)| format!("{}: {why}", redact(part))).collect(),
            outages: self.gateway.metrics.outages(),
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
            source: redact(&document.part).into_owned(),
            index: document.index,
            id: document.id.as_deref().map(|id| redact_agent_text(id).into_owned()),
            reasons: document.reasons.iter().map(|reason| redact_agent_text(reason).into_owned()).collect(),
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

    fn register_runtime(&self, name: &str, registration: &[u8]) -> Result<RuntimeRegistration, Fault> {
        let lease = self.gateway.transport.register_local_runtime(name, registration)?;
        let LeaseGrant { ttl, is_new, has_new_address } = lease;
        Ok(RuntimeRegistration { ttl, is_new, has_new_address })
    }

    fn remove_registration(&self, name: &str) -> bool {
        self.gateway.transport.deregister_local_runtime(name)
    }

    fn explain(&self, body: Bytes) -> BoxFuture<'static, Result<Value, Fault>> {
        let (gateway, head_limits) = (Arc::clone(&self.gateway), self.head_limits);
        let (documents, permit) = (self.document_search(), Arc::clone(&self.explanations).try_acquire_owned());
        let rules = self.gateway.recent_decisions.rules_in_force();
        async move {
            let _permit = permit.map_err(|_| {
                let message = format!("{MAX_EXPLANATIONS} explanations are in progress");
                Fault::new(FaultCode::Overloaded, message).with_retry_after(Duration::from_secs(1))
            })?;
            let request = ExplainRequest::parse(&body)?;
            let explanation = timeout(EXPLANATION_TIMEOUT, explain_call(&gateway, request, head_limits)).await;
            let timed_out = |_| Fault::new(FaultCode::Timeout, "The explanation took too long");
            let explanation = explanation.map_err(timed_out)??;
            let rules = rules.ok_or_else(not_configured)?;
            // The lines of documents are in files.
            let to_json = move || explanation.to_json(&RuleSearch { rules: &*rules, documents: &documents });
            tokio::task::spawn_blocking(to_json).await.map_err(|why| Fault::from(FaultCode::Internal).with_detail(why))
        }
        .boxed()
    }

    fn find_decisions(&self, request_id: &str) -> Vec<Value> {
        self.decisions_to_json(self.gateway.recent_decisions.find(request_id))
    }

    fn find_decisions_of_agent(&self, agent: &str) -> Vec<Value> {
        self.decisions_to_json(self.gateway.recent_decisions.find_of_agent(agent))
    }

    fn audit_log(&self) -> Option<Arc<AuditLog>> {
        self.gateway.audit_log.clone()
    }

    fn revocations(&self) -> Option<Arc<RevocationList>> {
        Some(Arc::clone(&self.gateway.revocations))
    }

    fn require_possible_revocation(&self, request: &TokenRevocationRequest) -> Result<(), String> {
        self.config.load().config.accepted_tokens().require_possible(request)
    }

    fn authenticate(&self, headers: HeaderMap, address: IpAddr) -> BoxFuture<'static, Result<Arc<Caller>, Fault>> {
        let config = self.gateway.config.load_full();
        async move {
            let presented = PresentedCredentials {
                headers: &headers,
                client_certificate: None,
                client_address: address,
                assumed_key: None,
            };
            config.auth.authenticate(&presented).await
        }
        .boxed()
    }

    fn credential_headers(&self) -> Vec<HeaderName> {
        self.gateway.config.load().auth.credential_headers().to_vec()
    }

    fn api_key_header(&self) -> Option<HeaderName> {
        self.gateway.config.load().api_key_header.clone()
    }

    fn create_pairing_code(&self) -> BoxFuture<'static, Result<NewPairingCode, Fault>> {
        let gateway = Arc::clone(&self.gateway);
        async move { gateway.create_pairing_code().await }.boxed()
    }
}
