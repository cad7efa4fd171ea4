//! The examination: runs every analyzer over one configuration.

use super::{
    access_analyzer::access_findings,
    agent_analyzer::{AgentContext, AgentSelection, agent_probes},
    agent_name_analyzer::{KnownAgents, agent_name_findings},
    certificate_analyzer::certificate_findings,
    config_warnings::{ConfigWarning, locate_config_warnings},
    document_analyzer::document_findings,
    document_places::DocumentPlaces,
    examined_config::ExaminedConfig,
    finding::{Finding, Place, SubjectKind},
    finding_codes::{FindingCode, Severity},
    probe_runner::run_probes,
    problem_codes::problem_findings,
    service_analyzer::{api_document_probes, service_probes},
    source_analyzer::source_findings,
};
use crate::{config::ConfigProblem, gateway::Gateway};
use tokio::time::Instant;

/// Returns the findings that need no other machine: about the settings and the files that they name. `problems` are those
/// with which the gateway does not start.
pub fn setting_findings(examined: ExaminedConfig<'_>, problems: Vec<String>) -> Vec<Finding> {
    let mut findings = problem_findings(examined, problems);
    for warning in locate_config_warnings(examined.loaded, examined.file) {
        let subject = match warning.code {
            FindingCode::CertificateExpired | FindingCode::CertificateNotYetValid => SubjectKind::Certificate,
            FindingCode::PlaintextListener => SubjectKind::Listener,
            _ => SubjectKind::Setting,
        };
        let problem = warning.problem;
        let file = examined.file.display().to_string();
        let name = if problem.path.is_empty() { file.clone() } else { problem.path.clone() };
        let place = Place { file, line: problem.line, path: problem.path };
        findings.push(Finding::new(warning.code, subject, name, &problem.message, place).with_fix_of_problem());
    }
    findings.extend(certificate_findings(examined));
    findings
}

/// Returns the findings about access and about the documents that the gateway has read. `is_complete` says whether the
/// gateway was built from the whole configuration.
pub fn agent_document_findings(
    examined: ExaminedConfig<'_>,
    gateway: Option<&Gateway>,
    is_complete: bool,
) -> Vec<Finding> {
    let mut findings = access_findings(examined);
    let Some(gateway) = gateway else { return findings };
    findings.extend(agent_name_findings(examined, &KnownAgents::of_gateway(examined, gateway, is_complete)));
    findings.extend(document_findings(gateway, &DocumentPlaces::list(examined)));
    findings
}

/// What `gatepost check` reports besides problems, dangerous settings and documents that are not served.
#[derive(Debug, Default)]
pub struct CheckFindings {
    /// About settings.
    pub warnings: Vec<ConfigWarning>,
    /// About agents' documents.
    pub notes: Vec<Finding>,
}

/// Returns the findings that need no other machine and that the rest of `check` does not report.
pub fn check_findings(examined: ExaminedConfig<'_>, gateway: &Gateway) -> CheckFindings {
    let is_document_refused = |code| {
        use FindingCode::{
            AgentNotCallable, DocumentRefused, EndpointInPlaintext, EndpointNotAllowed, FileUnreadable, IdTaken,
            SchemaUnusable, SignatureRefused,
        };
        matches!(
            code,
            AgentNotCallable
                | DocumentRefused
                | EndpointInPlaintext
                | EndpointNotAllowed
                | FileUnreadable
                | IdTaken
                | SchemaUnusable
                | SignatureRefused
        )
    };
    let is_left_out = |finding: &Finding| {
        finding.severity() == Severity::Info || is_about_later(finding) || is_document_refused(finding.code)
    };
    let mut findings = certificate_findings(examined);
    findings.extend(agent_document_findings(examined, Some(gateway), true));
    let (notes, warnings): (Vec<Finding>, Vec<Finding>) = findings
        .into_iter()
        .filter(|finding| !is_left_out(finding))
        .partition(|finding| finding.subject == SubjectKind::Agent);
    let to_warning = |finding: Finding| {
        let Finding { code, problem, fix, place, .. } = finding;
        let message = format!("{problem} ({fix})");
        // Findings about other files name them.
        let is_elsewhere = place.file != examined.file.display().to_string();
        if is_elsewhere {
            let problem = ConfigProblem { path: String::new(), line: None, message: format!("{place}: {message}") };
            return ConfigWarning { code, problem };
        }
        ConfigWarning { code, problem: ConfigProblem { path: place.path, line: place.line, message } }
    };
    CheckFindings { warnings: warnings.into_iter().map(to_warning).collect(), notes }
}

/// Returns whether keys, agents and grants may mend the finding that come later than the configuration is checked. A
/// denial with a wrong name leaves access open until then.
fn is_about_later(finding: &Finding) -> bool {
    use FindingCode::{
        BridgeKeyUnknown, CredentialUnused, NoGrants, UnknownCaller, UnknownGrantedAgent, UnknownGroup, UnknownTag,
    };
    let may_come = matches!(
        finding.code,
        BridgeKeyUnknown
            | CredentialUnused
            | NoGrants
            | UnknownCaller
            | UnknownGrantedAgent
            | UnknownGroup
            | UnknownTag
    );
    may_come && !finding.place.path.starts_with("access.denials[")
}

/// What the examination of services and agents found.
#[derive(Debug, Default)]
pub struct LiveExamination {
    /// What is wrong.
    pub findings: Vec<Finding>,
    /// The number of agents that were examined.
    pub examined_agents: usize,
    /// The number of agents that are inactive, and so were not examined.
    pub inactive_agents: usize,
}

/// Examines the services that the configuration names, and every selected agent, until `deadline`.
pub async fn examine_services_and_agents(
    examined: ExaminedConfig<'_>,
    gateway: Option<&Gateway>,
    selection: &AgentSelection,
    deadline: Instant,
) -> LiveExamination {
    let places = DocumentPlaces::list(examined);
    let context = AgentContext { examined, places: &places, selection };
    let mut probes = service_probes(examined);
    let mut findings = Vec::new();
    let (mut examined_agents, mut inactive_agents) = (0, 0);
    match gateway {
        Some(gateway) => {
            findings.extend(source_findings(gateway, &places));
            probes.extend(api_document_probes(examined, gateway));
            let of_agents = agent_probes(&context, gateway);
            (examined_agents, inactive_agents) = (of_agents.probes.len(), of_agents.inactive);
            findings.extend(of_agents.findings);
            probes.extend(of_agents.probes);
        }
        None => {
            let problem = FindingCode::AgentsNotExamined.row().meaning;
            findings.push(examined.finding(FindingCode::AgentsNotExamined, SubjectKind::Setting, "agents", problem));
        }
    }
    findings.extend(run_probes(probes, deadline).await);
    LiveExamination { findings, examined_agents, inactive_agents }
}
