//! Wiring of `gatepost doctor`: builds the gateway as `check` does, lets it read its sources once, and examines it. Opens
//! no listener and writes nothing.

use super::{GatewayAssembly, configuration_check};
use crate::{
    auth::PresentedCredentials,
    config::{InspectionScope, LoadedConfig},
    doctor::{self, AgentSelection, DoctorReport, ExaminedConfig, Finding, FindingCode, StoreExamination},
    gateway::Gateway,
    values::Secret,
};
use http::{HeaderMap, HeaderValue, header};
use std::{
    net::{IpAddr, Ipv4Addr},
    path::Path,
    time::Duration,
};
use tokio::time::{Instant, timeout_at};

/// What an examination includes.
#[derive(Debug)]
pub struct DoctorOptions {
    /// Whether only files are examined, and no other machine.
    pub is_offline: bool,
    /// Which agents are examined, and how.
    pub selection: AgentSelection,
    /// How long the examination may take.
    pub timeout: Duration,
    /// A token of a caller, to be verified as in a call.
    pub token: Option<Secret>,
}

/// Implements `gatepost doctor`.
///
/// # Errors
/// The async runtime cannot start.
pub fn diagnose(config: &Path, options: &DoctorOptions) -> anyhow::Result<DoctorReport> {
    let runtime = super::build_runtime()?;
    let report = runtime.block_on(examine(config, options));
    // Does not wait for lookups that do not end.
    runtime.shutdown_background();
    Ok(report)
}

async fn examine(file: &Path, options: &DoctorOptions) -> DoctorReport {
    let deadline = Instant::now() + options.timeout;
    let mut loaded = match LoadedConfig::read(file) {
        Ok(loaded) => loaded,
        Err(problems) => return DoctorReport::new(doctor::unloaded_findings(&problems, file), 0),
    };
    let examined = ExaminedConfig { loaded: &loaded, file };
    let stores = if options.is_offline { StoreExamination::default() } else { doctor::examine_stores(examined).await };
    loaded.config.agents.inspection =
        InspectionScope { polls_sources: !options.is_offline, reads_registry: stores.is_registry_readable };
    let checked = timeout_at(deadline, configuration_check::check_configuration(&mut loaded)).await;
    let checked = checked.unwrap_or_default();
    let examined = ExaminedConfig { loaded: &loaded, file };
    let is_complete = checked.assembly.is_some();
    let assembly = match checked.assembly {
        Some(assembly) => Some(assembly),
        // Agents are examined although, for example, a secret of a caller's credential is missing.
        None => timeout_at(deadline, configuration_check::build_agents_only(&loaded)).await.ok().flatten(),
    };
    if let Some(assembly) = &assembly {
        deny_own_listeners(assembly, &loaded);
    }
    let gateway = assembly.as_ref().map(|assembly| &*assembly.gateway);
    let mut findings = doctor::setting_findings(examined, checked.problems);
    findings.extend(stores.findings);
    findings.extend(doctor::agent_document_findings(examined, gateway, is_complete));
    if !is_complete {
        // Without the section auth, no method of it accepts anything.
        findings.retain(|finding| finding.code != FindingCode::AgentNotCallable);
    }
    let (mut examined_agents, mut inactive_agents) = (0, 0);
    if !options.is_offline {
        let live = doctor::examine_services_and_agents(examined, gateway, &options.selection, deadline).await;
        // An agent that refuses to be called without the credential says more.
        let is_explained = |unused: &Finding| {
            let is_same = |other: &Finding| other.code == FindingCode::CredentialRefused && other.place == unused.place;
            unused.code == FindingCode::CredentialUnused && live.findings.iter().any(is_same)
        };
        findings.retain(|finding| !is_explained(finding));
        findings.extend(live.findings);
        (examined_agents, inactive_agents) = (live.examined_agents, live.inactive_agents);
    }
    if let (Some(gateway), Some(token)) = (gateway, &options.token) {
        let refused = timeout_at(deadline, refused_token(examined, gateway, token)).await;
        findings.extend(refused.ok().flatten());
    }
    let mut report = DoctorReport::new(findings, examined_agents);
    report.inactive_agents = inactive_agents;
    report
}

/// Denies the addresses of the gateway's own listeners to its probes, as a running gateway does.
fn deny_own_listeners(assembly: &GatewayAssembly, loaded: &LoadedConfig) {
    let config = &loaded.config;
    let listeners = config.listeners.iter().map(|listener| listener.address);
    let operators = [Some(config.admin.address), config.health.as_ref().map(|health| health.address)];
    // Port 0 stands for a port that is not known yet.
    let known = listeners.chain(operators.into_iter().flatten()).filter(|address| address.port() != 0);
    assembly.policy.load().set_own_listeners(known.collect());
}

/// Verifies a token as in a call, and returns why it is refused.
async fn refused_token(examined: ExaminedConfig<'_>, gateway: &Gateway, token: &Secret) -> Option<Finding> {
    let mut headers = HeaderMap::new();
    let mut value = HeaderValue::try_from(format!("Bearer {}", token.expose())).ok()?;
    value.set_sensitive(true);
    headers.insert(header::AUTHORIZATION, value);
    let client_address = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let presented =
        PresentedCredentials { headers: &headers, client_certificate: None, client_address, assumed_key: None };
    let auth = gateway.config.load().auth.clone();
    let fault = auth.authenticate(&presented).await.err()?;
    Some(doctor::refused_token_finding(examined, token, &fault))
}
