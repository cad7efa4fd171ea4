//! Callers, groups and tiers that the configuration names and that do not exist: API keys that nobody has, issuers and
//! methods that `auth` lacks; and lines of key files that are no keys.

use super::{
    access_rules::{NamingRule, RuleKind},
    examined_config::{ExaminedConfig, shown_path},
    finding::{Finding, Place, SubjectKind},
    finding_codes::FindingCode,
};
use crate::{
    agent::{AuthenticationMethod, BROWSER_ID_PREFIX},
    auth::{self, ApiKeyState, StoredApiKey},
    config::GatewayConfig,
    values::{Glob, encode_hex, sha256},
};
use std::collections::{HashMap, HashSet};
use time::OffsetDateTime;

/// Maximum number of lines of a key file that are reported.
const MAX_KEY_LINES: usize = 20;

/// Returns the findings about callers. Reads the files of API keys.
pub(super) fn caller_findings(examined: ExaminedConfig<'_>) -> Vec<Finding> {
    let config = examined.config();
    let mut findings = Vec::new();
    let keys = StoredKeys::read(examined, &mut findings);
    findings.extend(certificate_tiers(examined));
    findings.extend(unknown_bridge_keys(examined, &keys));
    let auth = &config.auth;
    let has_pairing = config.cors.as_ref().is_some_and(|cors| cors.pairing.is_some());
    if auth.api_keys.is_none() && auth.bearer.is_none() && auth.mtls.is_none() && !has_pairing {
        // One finding says so for all of them.
        return findings;
    }
    let groups = keys.is_complete.then(|| known_groups(config, &keys)).flatten();
    let rules = NamingRule::all(config);
    for rule in rules.iter().filter(|rule| rule.kind != RuleKind::Agents) {
        for (index, caller) in rule.callers.iter().enumerate() {
            let problem = method_problem(config, caller);
            let impossible = problem.map(|problem| (FindingCode::CallerImpossible, problem));
            if let Some((code, problem)) = impossible.or_else(|| keys.problem_of(caller)) {
                let path = format!("{}.callers[{index}]", rule.path);
                findings.push(examined.finding(code, SubjectKind::Setting, &path, &problem));
            }
        }
        let unknown = |name: &str| groups.as_ref().is_some_and(|groups| !groups.contains(name));
        for group in rule.exact_names("groups").into_iter().filter(|group| unknown(group.name)) {
            let problem = format!("no API key and no certificate has the group {}", group.name);
            findings.push(examined.finding(FindingCode::UnknownGroup, SubjectKind::Setting, &group.path, &problem));
        }
    }
    findings
}

/// The API keys of the configuration.
#[derive(Default)]
struct StoredKeys {
    /// Whether every file could be read. One that cannot is a problem of the configuration.
    is_complete: bool,
    /// Each caller, without `key:`, and whether one of its keys is valid.
    callers: HashMap<String, bool>,
    /// Each valid key by its prefix, with its hash.
    valid: HashMap<String, String>,
    groups: HashSet<String>,
}

impl StoredKeys {
    fn read(examined: ExaminedConfig<'_>, findings: &mut Vec<Finding>) -> Self {
        let mut keys = Self { is_complete: true, ..Self::default() };
        let Some(section) = &examined.config().auth.api_keys else { return keys };
        for (at, key) in section.keys.iter().enumerate() {
            let path = format!("auth.api_keys.keys[{at}].tier");
            findings.extend(keys.add(examined, key, path.clone(), || examined.place(&path)));
        }
        for file in &section.files {
            let Ok(listing) = auth::list_api_keys(file) else {
                keys.is_complete = false;
                continue;
            };
            let name = shown_path(file);
            let place = |line: usize| Place { file: name.clone(), line: Some(line as u64), path: String::new() };
            let mut of_file = Vec::new();
            for (key, line) in listing.keys.iter().zip(&listing.key_lines) {
                of_file.extend(keys.add(examined, key, name.clone(), || place(*line)));
            }
            findings.extend(of_file.into_iter().take(MAX_KEY_LINES));
            for invalid in auth::invalid_key_lines(file).unwrap_or_default().into_iter().take(MAX_KEY_LINES) {
                let problem = match invalid.reason.strip_prefix("is ") {
                    Some(reason) => format!("the line is {reason}"),
                    None => format!("the line is not a key: {}", invalid.reason),
                };
                let place = place(invalid.line);
                findings.push(Finding::new(FindingCode::KeyLineInvalid, SubjectKind::Setting, &*name, &problem, place));
            }
        }
        keys
    }

    /// Adds a key, and returns a finding about its tier.
    fn add(
        &mut self,
        examined: ExaminedConfig<'_>,
        key: &StoredApiKey,
        name: String,
        place: impl Fn() -> Place,
    ) -> Option<Finding> {
        let is_valid = ApiKeyState::of(key, OffsetDateTime::now_utc()) == ApiKeyState::Valid;
        *self.callers.entry(key.caller.clone()).or_default() |= is_valid;
        if is_valid {
            self.valid.insert(key.prefix.clone(), key.hash.clone());
        }
        self.groups.extend(key.groups.iter().cloned());
        let problem = tier_problem(examined.config(), key.tier.as_deref().filter(|_| is_valid)?)?;
        let problem = format!("the key of key:{} has {problem}", key.caller);
        Some(Finding::new(FindingCode::UnknownTier, SubjectKind::Setting, name, &problem, place()))
    }

    /// Returns what is wrong with an API key's caller that a rule names exactly.
    fn problem_of(&self, caller: &Glob) -> Option<(FindingCode, String)> {
        let name = caller.as_str().strip_prefix("key:").filter(|_| caller.is_exact() && self.is_complete)?;
        match self.callers.get(name) {
            Some(true) => None,
            Some(false) => {
                let problem = format!("every key of the caller key:{name} has expired or is disabled");
                Some((FindingCode::CallerWithoutKey, problem))
            }
            None => Some((FindingCode::UnknownCaller, format!("no API key has the caller key:{name}"))),
        }
    }

    /// Returns whether a key is valid. With a pepper, its prefix alone is compared.
    fn has(&self, key: &str, has_pepper: bool) -> bool {
        let prefix = key.strip_prefix("gp_").and_then(|rest| rest.split('_').next());
        let hash = prefix.and_then(|prefix| self.valid.get(prefix));
        hash.is_some_and(|hash| has_pepper || hash.eq_ignore_ascii_case(&encode_hex(&sha256(key.as_bytes()))))
    }
}

/// Returns the problem of a tier, if limits have tiers and not this one.
fn tier_problem(config: &GatewayConfig, tier: &str) -> Option<String> {
    let tiers = &config.limits.tiers;
    let names: Vec<&str> = tiers.keys().map(String::as_str).collect();
    (!tiers.is_empty() && !tiers.contains_key(tier))
        .then(|| format!("the tier {tier}, which limits.tiers does not have (it has {})", names.join(", ")))
}

fn certificate_tiers(examined: ExaminedConfig<'_>) -> Vec<Finding> {
    let config = examined.config();
    let callers = config.auth.mtls.iter().flat_map(|mtls| &mtls.callers);
    let finding = |(name, caller): (&String, &auth::CertificateCallerConfig)| {
        let problem = format!("cert:{name} has {}", tier_problem(config, caller.tier.as_deref()?)?);
        Some(examined.finding(FindingCode::UnknownTier, SubjectKind::Setting, "auth.mtls.callers", &problem))
    };
    callers.filter_map(finding).collect()
}

/// Returns all groups that callers can have; `None` where issuers of tokens decide about them.
fn known_groups(config: &GatewayConfig, keys: &StoredKeys) -> Option<HashSet<String>> {
    let of_certificates = config.auth.mtls.iter().flat_map(|mtls| mtls.callers.values());
    let of_certificates = of_certificates.flat_map(|caller| caller.groups.iter().cloned());
    config.auth.bearer.is_none().then(|| keys.groups.iter().cloned().chain(of_certificates).collect())
}

/// Returns what is wrong with a caller whose method, or issuer, `auth` does not have.
fn method_problem(config: &GatewayConfig, caller: &Glob) -> Option<String> {
    let (auth, text) = (&config.auth, caller.as_str());
    let missing = |section: &str| Some(format!("no caller can be {text}, because {section} is not configured"));
    let name_of = |method: AuthenticationMethod| text.strip_prefix(method.caller_id_prefix());
    if name_of(AuthenticationMethod::ApiKey).is_some() && auth.api_keys.is_none() {
        return missing("auth.api_keys");
    }
    if name_of(AuthenticationMethod::Mtls).is_some() && auth.mtls.is_none() {
        return missing("auth.mtls");
    }
    if text.starts_with(BROWSER_ID_PREFIX) && config.cors.as_ref().is_none_or(|cors| cors.pairing.is_none()) {
        return missing("cors.pairing");
    }
    let name = name_of(AuthenticationMethod::Bearer)?;
    match &auth.bearer {
        None => missing("auth.bearer"),
        Some(bearer) => label_problem(bearer, name).map(|why| format!("no caller can be {text}, because {why}")),
    }
}

/// Returns why no token yields the caller `name`. Every source of tokens must have a label: otherwise a name may contain
/// what looks like one.
fn label_problem(bearer: &auth::BearerConfig, name: &str) -> Option<String> {
    let mut labels: Vec<&str> = Vec::new();
    for issuer in &bearer.issuers {
        labels.push(issuer.label.as_deref()?);
    }
    if let Some(endpoint) = &bearer.introspection {
        let is_listed = || bearer.issuers.iter().any(|issuer| Some(&issuer.issuer) == endpoint.issuer.as_ref());
        match &endpoint.label {
            Some(label) => labels.push(label),
            None if is_listed() => {}
            None => return None,
        }
    }
    let known = labels.join(", ");
    match name.split_once('/') {
        Some((label, _)) if label.contains('*') || labels.contains(&label) => None,
        Some((label, _)) => Some(format!("no issuer has the label {label} (labels: {known})")),
        None if name.contains('*') => None,
        None => Some(format!("every issuer has a label, which the id begins with (labels: {known})")),
    }
}

/// Returns the bridges whose API key is none of the gateway. A key that cannot be loaded is a problem of the
/// configuration.
fn unknown_bridge_keys(examined: ExaminedConfig<'_>, keys: &StoredKeys) -> Vec<Finding> {
    let config = examined.config();
    let has_pepper = config.auth.api_keys.as_ref().is_some_and(|section| section.pepper.is_some());
    let mut findings = Vec::new();
    for (at, bridge) in config.mqtt_bridge.iter().enumerate().filter(|_| keys.is_complete) {
        let Ok(key) = bridge.api_key.load() else { continue };
        if !keys.has(key.expose(), has_pepper) {
            let path = format!("mqtt_bridge[{at}].api_key");
            let problem = "the key is not a valid API key of this gateway, so that the bridge may call no agent";
            findings.push(examined.finding(FindingCode::BridgeKeyUnknown, SubjectKind::Setting, &path, problem));
        }
    }
    findings
}
