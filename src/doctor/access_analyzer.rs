//! Who may call what: callers that grants name and that cannot exist, agents that no source has, audiences that are not
//! the gateway's.

use super::{
    examined_config::ExaminedConfig,
    finding::{Finding, SubjectKind},
    finding_codes::FindingCode,
};
use crate::{
    auth::{self, ANONYMOUS, GrantConfig, IssuerConfig},
    net::Url,
    registry::SourceConfig,
    values::Glob,
};
use std::collections::HashSet;

/// Returns the findings about grants and issuers that need no other machine. `agents` are the ids of all agents, where
/// all of them are known.
pub(super) fn access_findings(examined: ExaminedConfig<'_>, agents: Option<&HashSet<String>>) -> Vec<Finding> {
    let mut findings: Vec<Finding> = missing_access(examined).into_iter().collect();
    findings.extend(unknown_callers(examined));
    findings.extend(agents.into_iter().flat_map(|agents| unknown_agents(examined, agents)));
    findings.extend(suspicious_audiences(examined));
    findings
}

fn missing_access(examined: ExaminedConfig<'_>) -> Option<Finding> {
    let config = examined.config();
    if config.access.grants.is_empty() {
        let problem = "there is no grant, so that no caller can call any agent";
        return Some(examined.finding(FindingCode::NoGrants, SubjectKind::Setting, "access.grants", problem));
    }
    let auth = &config.auth;
    let has_method = auth.api_keys.is_some() || auth.bearer.is_some() || auth.mtls.is_some();
    let has_pairing = config.cors.as_ref().is_some_and(|cors| cors.pairing.is_some());
    let needs_credential = |grant: &GrantConfig| {
        !grant.groups.is_empty() || grant.callers.iter().any(|caller| caller.as_str() != ANONYMOUS)
    };
    let at = config.access.grants.iter().position(needs_credential).filter(|_| !has_method && !has_pairing)?;
    let problem = "the grant is for callers with a credential, and the section auth accepts none";
    let path = format!("access.grants[{at}]");
    Some(examined.finding(FindingCode::NoAuthentication, SubjectKind::Setting, &path, problem))
}

/// Returns the API keys' callers that grants name exactly and that have no key.
fn unknown_callers(examined: ExaminedConfig<'_>) -> Vec<Finding> {
    let config = examined.config();
    let Some(keys) = &config.auth.api_keys else { return Vec::new() };
    let mut callers: HashSet<String> = keys.keys.iter().map(|key| key.caller.clone()).collect();
    for file in &keys.files {
        // A file that cannot be read is a problem of the configuration.
        let Ok(listing) = auth::list_api_keys(file) else { return Vec::new() };
        callers.extend(listing.keys.into_iter().map(|key| key.caller));
    }
    let grants = config.access.grants.iter().enumerate();
    let named = grants.flat_map(|(at, grant)| {
        grant
            .callers
            .iter()
            .enumerate()
            .map(move |(index, caller)| (format!("access.grants[{at}].callers[{index}]"), caller))
    });
    let is_unknown = |caller: &Glob| {
        caller.is_exact() && caller.as_str().strip_prefix("key:").is_some_and(|name| !callers.contains(name))
    };
    let unknown = named.filter(|(_, caller)| is_unknown(caller));
    let finding = |(path, caller): (String, &Glob)| {
        let problem = format!("no API key has the caller {}", caller.as_str());
        examined.finding(FindingCode::UnknownCaller, SubjectKind::Setting, &path, &problem)
    };
    unknown.map(finding).collect()
}

/// Returns the agents that grants and rules name exactly and that no source has. With a source that is not read as a
/// whole, every id may exist.
fn unknown_agents(examined: ExaminedConfig<'_>, agents: &HashSet<String>) -> Vec<Finding> {
    let config = examined.config();
    let is_on_demand = |source: &SourceConfig| matches!(source, SourceConfig::Remote(remote) if remote.on_demand);
    if config.registry.is_some() || config.agents.sources.iter().any(is_on_demand) {
        return Vec::new();
    }
    let grants = config.access.grants.iter().enumerate();
    let grants = grants.map(|(at, grant)| (format!("access.grants[{at}].agents"), &grant.agents));
    let rules = config.agents.rules.iter().enumerate();
    let rules = rules.map(|(at, rule)| (format!("agents.rules[{at}].agents"), &rule.agents));
    let named = grants
        .chain(rules)
        .flat_map(|(path, ids)| ids.iter().enumerate().map(move |(index, id)| (format!("{path}[{index}]"), id)));
    let unknown = named.filter(|(_, id)| id.is_exact() && !agents.contains(id.as_str()));
    let finding = |(path, id): (String, &Glob)| {
        let problem = format!("no source has an agent with the id {}", id.as_str());
        examined.finding(FindingCode::UnknownGrantedAgent, SubjectKind::Setting, &path, &problem)
    };
    unknown.map(finding).collect()
}

/// Returns the issuers none of whose audiences can be this gateway: each is the issuer itself, or the URL of another
/// server than `directory.external_url`. Audiences that are names can be anything.
fn suspicious_audiences(examined: ExaminedConfig<'_>) -> Vec<Finding> {
    let config = examined.config();
    let own = config.directory.external_url.as_deref().and_then(|url| Url::parse(url).ok());
    let issuers = config.auth.bearer.iter().flat_map(|bearer| bearer.issuers.iter().enumerate());
    let finding = |(at, issuer): (usize, &IssuerConfig)| {
        let reasons: Option<Vec<String>> =
            issuer.audience.iter().map(|audience| audience_problem(audience, issuer, own.as_ref())).collect();
        let problem = reasons?.into_iter().next()?;
        let path = format!("auth.bearer.issuers[{at}].audience");
        let finding = examined.finding(FindingCode::AudienceSuspicious, SubjectKind::Issuer, &path, &problem);
        Some(finding.with_related(examined.exact_place("directory.external_url")))
    };
    issuers.filter_map(finding).collect()
}

fn audience_problem(audience: &str, issuer: &IssuerConfig, own: Option<&Url>) -> Option<String> {
    if audience.trim_end_matches('/') == issuer.issuer.trim_end_matches('/') {
        return Some(format!("the audience {audience} is the issuer itself, for which no token to a gateway is"));
    }
    let url = Url::parse(audience).ok().filter(|url| matches!(url.scheme(), "http" | "https"))?;
    let own = own.filter(|own| own.origin() != url.origin())?;
    Some(format!("the audience {audience} is another server than directory.external_url, {own}"))
}
