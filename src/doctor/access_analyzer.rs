//! Who may call what: callers that grants name and that cannot exist, agents that no source has, audiences that are not
//! the gateway's; and listeners of which one takes the other's address.

use super::{
    examined_config::ExaminedConfig,
    finding::{Finding, Place, SubjectKind},
    finding_codes::FindingCode,
};
use crate::{
    auth::{self, ANONYMOUS, ApiKeyState, GrantConfig, IssuerConfig},
    net::Url,
    registry::SourceConfig,
    values::Glob,
};
use std::{collections::HashSet, net::SocketAddr};
use time::OffsetDateTime;

/// Maximum number of lines of a key file that are reported.
const MAX_KEY_LINES: usize = 20;

/// Returns the findings about grants and issuers that need no other machine. `agents` are the ids of all agents, where
/// all of them are known.
pub(super) fn access_findings(examined: ExaminedConfig<'_>, agents: Option<&HashSet<String>>) -> Vec<Finding> {
    let mut findings: Vec<Finding> = missing_access(examined).into_iter().collect();
    findings.extend(shared_addresses(examined));
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

/// Returns the API keys' callers that grants name exactly and that have no valid key, and the lines of key files that are
/// no keys.
fn unknown_callers(examined: ExaminedConfig<'_>) -> Vec<Finding> {
    let config = examined.config();
    let Some(section) = &config.auth.api_keys else { return Vec::new() };
    let mut keys = section.keys.clone();
    let mut findings = Vec::new();
    for file in &section.files {
        // A file that cannot be read is a problem of the configuration.
        let Ok(listing) = auth::list_api_keys(file) else { return Vec::new() };
        keys.extend(listing.keys);
        findings.extend(listing.invalid_lines.into_iter().take(MAX_KEY_LINES).map(|line| {
            let name = file.display().to_string();
            let place = Place { file: name.clone(), line: Some(line as u64), path: String::new() };
            Finding::new(FindingCode::KeyLineInvalid, SubjectKind::Setting, name, "the line is not a key", place)
        }));
    }
    let now = OffsetDateTime::now_utc();
    let problem_of = |name: &str| {
        let mut of_caller = keys.iter().filter(|key| key.caller == name).peekable();
        if of_caller.peek().is_none() {
            return Some((FindingCode::UnknownCaller, format!("no API key has the caller key:{name}")));
        }
        let is_valid = of_caller.any(|key| ApiKeyState::of(key, now) == ApiKeyState::Valid);
        let problem = || format!("every key of the caller key:{name} has expired or is disabled");
        (!is_valid).then(|| (FindingCode::CallerWithoutKey, problem()))
    };
    for (at, grant) in config.access.grants.iter().enumerate() {
        for (index, caller) in grant.callers.iter().enumerate().filter(|(_, caller)| caller.is_exact()) {
            let problem = caller.as_str().strip_prefix("key:").and_then(problem_of);
            let path = format!("access.grants[{at}].callers[{index}]");
            findings
                .extend(problem.map(|(code, problem)| examined.finding(code, SubjectKind::Setting, &path, &problem)));
        }
    }
    findings
}

/// Returns the listeners at the address of another one. The second of them could not be opened.
fn shared_addresses(examined: ExaminedConfig<'_>) -> Vec<Finding> {
    let config = examined.config();
    let listeners = config.listeners.iter().enumerate();
    let listeners = listeners.map(|(at, listener)| (format!("listeners[{at}].address"), listener.address));
    let admin = [("admin.address".to_owned(), config.admin.address)];
    let health = config.health.iter().map(|health| ("health.address".to_owned(), health.address));
    let mut findings = Vec::new();
    let mut seen: Vec<(String, SocketAddr)> = Vec::new();
    for (path, address) in listeners.chain(admin).chain(health) {
        let overlaps = |other: &SocketAddr| {
            other.port() == address.port()
                && (other.ip() == address.ip() || other.ip().is_unspecified() || address.ip().is_unspecified())
        };
        if let Some((other, _)) = seen.iter().find(|(_, other)| address.port() != 0 && overlaps(other)) {
            let problem = format!("{address} is the address of {other}, too");
            let finding = examined.finding(FindingCode::AddressTwice, SubjectKind::Listener, &path, &problem);
            findings.push(finding.with_related(examined.exact_place(other)));
        }
        seen.push((path, address));
    }
    findings
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
