//! Agents, tags and capabilities that the configuration names and that do not exist, and settings that apply to no agent.

use super::{
    access_rules::NamingRule,
    examined_config::ExaminedConfig,
    finding::{Finding, SubjectKind},
    finding_codes::FindingCode,
};
use crate::{
    agent::Agent,
    auth::{ANONYMOUS, GrantConfig},
    gateway::Gateway,
    registry::SourceConfig,
    transport::{CredentialDestinations, TransportConfig},
    values::Glob,
};
use std::{collections::HashSet, sync::Arc};

/// Maximum number of names and lines in the finding about names that were not compared.
const MAX_NAMES: usize = 10;

/// The agents that the gateway has read.
#[derive(Debug)]
pub(super) struct KnownAgents {
    agents: Vec<Arc<Agent>>,
    /// The ids of documents that are refused.
    refused: HashSet<String>,
    /// Why there may be further agents; `None` where every source was read as a whole.
    gap: Option<String>,
}

impl KnownAgents {
    /// Returns the agents of `gateway`. `is_complete` says whether it was built from the whole configuration.
    pub(super) fn of_gateway(examined: ExaminedConfig<'_>, gateway: &Gateway, is_complete: bool) -> Self {
        let snapshot = gateway.catalogue.snapshot();
        let not_served = snapshot.rejected.iter().chain(&snapshot.unsupported);
        let refused = not_served.filter_map(|document| document.id.clone()).collect();
        let agents = snapshot.iter().map(|(_, route)| Arc::clone(route.agent())).collect();
        let unreadable = || snapshot.unreadable_parts.first().map(|(part, _)| format!("{part} cannot be read"));
        let incomplete = (!is_complete).then(|| "the configuration has errors".to_owned());
        let gap = incomplete.or_else(|| unread_source(examined, gateway)).or_else(unreadable);
        Self { agents, refused, gap }
    }

    fn has_id(&self, id: &str) -> bool {
        self.refused.contains(id) || self.agents.iter().any(|agent| agent.id.as_str() == id)
    }

    fn has_word(&self, member: &str, word: &str) -> bool {
        self.agents.iter().any(|agent| {
            let words = if member == "tags" { &agent.tags } else { &agent.capabilities };
            words.iter().any(|own| &**own == word)
        })
    }

    /// Returns the agents that a grant names.
    fn named_by<'a>(&'a self, grant: &'a GrantConfig) -> impl Iterator<Item = &'a Arc<Agent>> {
        let matches = |patterns: &[Glob], name: &str| patterns.iter().any(|pattern| pattern.matches(name));
        self.agents.iter().filter(move |agent| {
            matches(&grant.agents, agent.id.as_str())
                || agent.tags.iter().any(|tag| matches(&grant.tags, tag))
                || agent.capabilities.iter().any(|capability| matches(&grant.capabilities, capability))
        })
    }
}

/// Returns the source whose agents are not all known.
fn unread_source(examined: ExaminedConfig<'_>, gateway: &Gateway) -> Option<String> {
    let config = examined.config();
    let health = gateway.catalogue.source_health();
    for source in &config.agents.sources {
        let SourceConfig::Remote(remote) = source else { continue };
        let name = remote.effective_name();
        if remote.on_demand {
            return Some(format!("the source {name} is queried on demand"));
        }
        let own = health.iter().find(|source| *source.name == *name);
        if own.is_none_or(|source| !source.is_read || source.from_disk || source.error.is_some()) {
            return Some(format!("the source {name} was not read"));
        }
    }
    let has_unread_registry = config.registry.is_some() && !config.agents.inspection.reads_registry;
    has_unread_registry.then(|| "the built-in registry was not read".to_owned())
}

/// Returns the findings about names of agents, and about settings that apply to none; one finding for all of them where
/// there may be agents that were not read.
pub(super) fn agent_name_findings(examined: ExaminedConfig<'_>, known: &KnownAgents) -> Vec<Finding> {
    let mut doubtful = unknown_names(examined, known);
    doubtful.extend(unused_credentials(examined, known));
    let mut findings = match &known.gap {
        Some(gap) => not_checked(examined, &doubtful, gap).into_iter().collect(),
        None => doubtful,
    };
    findings.extend(refused_anonymous(examined, known));
    findings
}

/// Returns the ids, tags and capabilities that rules name exactly and that no known agent has.
fn unknown_names(examined: ExaminedConfig<'_>, known: &KnownAgents) -> Vec<Finding> {
    let mut findings = Vec::new();
    for rule in NamingRule::all(examined.config()) {
        for id in rule.exact_names("agents").into_iter().filter(|id| !known.has_id(id.name)) {
            let problem = format!("no source has an agent with the id {}", id.name);
            findings.push(examined.finding(FindingCode::UnknownGrantedAgent, SubjectKind::Setting, &id.path, &problem));
        }
        // A document that is refused may have the word, and is a finding itself.
        for (member, noun) in [("tags", "tag"), ("capabilities", "capability")] {
            let names = rule.exact_names(member).into_iter().filter(|_| known.refused.is_empty());
            for word in names.filter(|word| !known.has_word(member, word.name)) {
                let problem = format!("no agent has the {noun} {}", word.name);
                findings.push(examined.finding(FindingCode::UnknownTag, SubjectKind::Setting, &word.path, &problem));
            }
        }
    }
    findings
}

/// Returns one finding that stands for those that may be wrong, because not all agents are known.
fn not_checked(examined: ExaminedConfig<'_>, findings: &[Finding], gap: &str) -> Option<Finding> {
    let first = findings.first()?;
    let doubts: Vec<&str> = findings.iter().take(MAX_NAMES).map(|finding| finding.problem.as_str()).collect();
    let more = findings.len().saturating_sub(MAX_NAMES);
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    let problem = format!("not all agents are known, because {gap}; as far as they are, {}{more}", doubts.join(", "));
    let code = FindingCode::AgentNamesNotChecked;
    let finding = examined.finding(code, SubjectKind::Setting, &first.name, &problem);
    let others = findings.iter().skip(1).take(MAX_NAMES).map(|finding| finding.place.clone());
    Some(finding.with_related(others))
}

/// Returns the grants to callers without a credential all of whose agents require one.
fn refused_anonymous(examined: ExaminedConfig<'_>, known: &KnownAgents) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (at, grant) in examined.config().access.grants.iter().enumerate() {
        let anonymous = grant.callers.iter().position(|caller| caller.as_str() == ANONYMOUS);
        let Some(index) = anonymous else { continue };
        let has_only_known = grant.agents.iter().all(|id| id.is_exact() && known.has_id(id.as_str()))
            && grant.tags.is_empty()
            && grant.capabilities.is_empty();
        let is_known = known.gap.is_none() || has_only_known;
        let mut named = known.named_by(grant).peekable();
        if is_known && named.peek().is_some() && named.all(|agent| !agent.authentication.accepts_anonymous()) {
            let path = format!("access.grants[{at}].callers[{index}]");
            let problem = "callers without a credential may call none of the agents, because each requires one";
            findings.push(examined.finding(FindingCode::AnonymousRefused, SubjectKind::Setting, &path, problem));
        }
    }
    findings
}

/// Returns the credentials that are sent to no known agent, because no endpoint is among their destinations.
fn unused_credentials(examined: ExaminedConfig<'_>, known: &KnownAgents) -> Vec<Finding> {
    let config = &examined.config().agents;
    if !known.refused.is_empty() {
        return Vec::new();
    }
    let every_agent: Vec<&Agent> = known.agents.iter().map(|agent| &**agent).collect();
    let mut findings = unused_in(examined, "agents.defaults", &config.defaults, &every_agent);
    for (at, rule) in config.rules.iter().enumerate() {
        let is_named = |agent: &&Agent| rule.agents.iter().any(|ids| ids.matches(agent.id.as_str()));
        let named: Vec<&Agent> = every_agent.iter().copied().filter(is_named).collect();
        findings.extend(unused_in(examined, &format!("agents.rules[{at}].settings"), &rule.settings, &named));
    }
    findings
}

fn unused_in(
    examined: ExaminedConfig<'_>,
    section: &str,
    settings: &TransportConfig,
    agents: &[&Agent],
) -> Vec<Finding> {
    let has_further_endpoints =
        examined.config().agents.rules.iter().any(|rule| rule.settings.additional_endpoints.is_some());
    if agents.is_empty() || has_further_endpoints {
        return Vec::new();
    }
    let credential = settings.credential.iter().map(|credential| ("credential", &credential.destinations));
    let certificate = settings.tls.certificate.iter().map(|_| ("tls", &settings.tls.destinations));
    let login = settings.mqtt.username.iter().map(|_| ("mqtt", &settings.mqtt.destinations));
    let is_unused = |destinations: &CredentialDestinations| !agents.iter().any(|agent| destinations.contains(agent));
    let unused = credential.chain(certificate).chain(login).filter(|(_, destinations)| is_unused(destinations));
    let finding = |(name, _)| {
        let path = format!("{section}.{name}.destinations");
        let problem = "the destinations match the endpoint of no agent, so that no agent receives the credential";
        examined.finding(FindingCode::CredentialUnused, SubjectKind::Setting, &path, problem)
    };
    unused.map(finding).collect()
}
