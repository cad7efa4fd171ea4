//! Checks of a configuration that need no running gateway.

use super::{caller_headers_wiring, problem_paths::prefix_problems, shared_state_wiring, tasks_wiring};
use crate::{
    auth::certificate_pattern_problem,
    config::GatewayConfig,
    contract::ContractRule,
    gateway::{A2aConfig, ApiHostRule, ApiHosts, CorsPolicy, ErrorDetails, OpenAiConfig, api_config_problems},
    net::Url,
    registry::EndpointRules,
    trace::TracingConfig,
    transport::{EndpointConfig, LocalRuntimeConfig, UpstreamClient},
    values::Glob,
};

/// Returns the problems that the modules find in their own sections. Opens no file and no connection.
pub(super) fn check_sections(file: &GatewayConfig) -> Vec<String> {
    let mut problems = prefix_problems("connections", file.connections.problems());
    if file.agents.sources.is_empty() && file.registry.is_none() {
        let hint = "name a file, a folder or a registry, or add the section registry";
        problems.push(format!("agents.sources: is empty ({hint})"));
    }
    problems.extend(prefix_problems("agents", EndpointRules::problems(&file.agents.sources, file.registry.as_ref())));
    for (at, listener) in file.listeners.iter().enumerate() {
        problems.extend(prefix_problems(&format!("listeners[{at}]"), listener.problems()));
    }
    problems.extend(prefix_problems("admin.access", check_operators(file)));
    problems.extend(prefix_problems("contract", file.contract.problems()));
    problems.extend(prefix_problems("tracing", file.tracing.iter().flat_map(TracingConfig::problems).collect()));
    problems.extend(prefix_problems("explain", file.explain.problems()));
    problems.extend(prefix_problems("websocket", file.websocket.problems()));
    problems.extend(prefix_problems(
        "cors",
        file.cors.as_ref().and_then(|cors| CorsPolicy::build(cors).err()).unwrap_or_default(),
    ));
    problems.extend(prefix_problems(
        "local_runtimes",
        file.local_runtimes.as_ref().map(LocalRuntimeConfig::problems).unwrap_or_default(),
    ));
    problems.extend(shared_state_wiring::check_shared_state(file));
    problems.extend(tasks_wiring::check_tasks_and_idempotency(file));
    problems.extend(check_token_tiers(file));
    problems.extend(check_certificate_patterns(file));
    problems
}

/// Returns the problems of the operators' access: those of its values, and credentials that no caller can have.
fn check_operators(file: &GatewayConfig) -> Vec<String> {
    let Some(access) = &file.admin.access else { return Vec::new() };
    let mut problems = access.problems();
    if file.auth.api_keys.is_none() && file.auth.bearer.is_none() {
        problems.push("roles: no operator could log in (configure auth.api_keys or auth.bearer)".to_owned());
    }
    let issuers = || file.auth.bearer.iter().flat_map(|bearer| &bearer.issuers);
    if let Some(login) = &access.login
        && !issuers().any(|issuer| issuer.issuer == login.issuer)
        && file.auth.bearer.as_ref().is_none_or(|bearer| bearer.introspection.is_none())
    {
        problems.push(
            "login.issuer: auth.bearer accepts no token of this issuer (list it in auth.bearer.issuers)".to_owned(),
        );
    }
    // `check` and `doctor` start no admin listener, and remove only secrets that were loaded from what they print.
    let client_secret = access.login.as_ref().and_then(|login| login.client_secret.as_ref());
    if let Some(why) = client_secret.and_then(|secret| secret.load().err()) {
        problems.push(format!("login.client_secret: {why}"));
    }
    problems
}

/// Returns the patterns of publishers and of delegation for certificates that do not name the kind of the certificate's
/// name; `auth` checks those of its own section and of grants.
fn check_certificate_patterns(file: &GatewayConfig) -> Vec<String> {
    let publishers = file.registry.iter().flat_map(|registry| registry.publishers.iter().enumerate());
    let publishers =
        publishers.map(|(at, publisher)| (format!("registry.publishers[{at}].callers"), &publisher.callers));
    let delegation = file.delegation.iter().flat_map(|delegation| {
        let actors = delegation.actors.iter();
        let actors = actors.map(|(agent, callers)| (format!("delegation.actors.{}", agent.escape_default()), callers));
        let issuers = delegation.trusted_issuers.iter().enumerate();
        let issuers =
            issuers.map(|(at, issuer)| (format!("delegation.trusted_issuers[{at}].callers"), &issuer.callers));
        actors.chain(issuers).chain([("delegation.required_for".to_owned(), &delegation.required_for)])
    });
    let problems_of = |(path, callers): (String, &Vec<Glob>)| -> Vec<String> {
        let problems = callers.iter().filter_map(certificate_pattern_problem);
        problems.map(|why| format!("{path}: {why}")).collect()
    };
    publishers.chain(delegation).flat_map(problems_of).collect()
}

/// Returns the token sources whose tiers no limit names. Their callers would have the general limits, which may be higher
/// than those of the tier that the token states.
fn check_token_tiers(file: &GatewayConfig) -> Vec<String> {
    let Some(bearer) = &file.auth.bearer else { return Vec::new() };
    let issuers = bearer
        .issuers
        .iter()
        .enumerate()
        .map(|(at, issuer)| (format!("auth.bearer.issuers[{at}]"), issuer.label.as_deref(), &issuer.claims));
    let introspection = bearer
        .introspection
        .iter()
        .map(|endpoint| ("auth.bearer.introspection".to_owned(), endpoint.label.as_deref(), &endpoint.claims));
    let has_limits = |label: &str| {
        let tier_of_source = |tier: &String| tier.strip_prefix(label).is_some_and(|rest| rest.starts_with('/'));
        file.limits.tiers.is_empty() || file.limits.tiers.keys().any(tier_of_source)
    };
    let unlimited = issuers.chain(introspection).filter_map(|(path, label, claims)| {
        let label = label.filter(|label| claims.tier.is_some() && claims.allowed_tiers.is_empty() && !has_limits(label))?;
        Some(format!(
            "{path}.claims.tier: limits.tiers names no tier of this source (write its tiers there as {label}/TIER, or list them in claims.allowed_tiers)"
        ))
    });
    unlimited.collect()
}

/// Returns the hosts at which agents' own APIs are.
///
/// # Errors
/// Every host that is unusable.
pub(super) fn compile_api_hosts(file: &GatewayConfig) -> Result<ApiHosts, Vec<String>> {
    let rules = file.agents.rules.iter();
    let external_url = file.directory.external_url.as_deref().and_then(|url| Url::parse(url).ok());
    let rules = rules.map(|rule| ApiHostRule { agents: &rule.agents, api: rule.api.as_ref() });
    ApiHosts::compile(rules, external_url.as_ref().and_then(Url::host_str))
}

/// Checks the secrets and files that the agents' settings refer to.
pub(super) fn check_agent_settings(file: &GatewayConfig, transport: &UpstreamClient) -> Vec<String> {
    let of_defaults = transport.config_problems(&file.agents.defaults);
    let mut problems = prefix_problems("agents.defaults", of_defaults.clone());
    if file.agents.defaults.additional_endpoints.is_some() {
        problems
            .push("agents.defaults.additional_endpoints: is not allowed in the defaults (set it in a rule)".to_owned());
    }
    for (at, rule) in file.agents.rules.iter().enumerate() {
        let settings = rule.settings.with_fallback(&file.agents.defaults);
        // What a rule has from the defaults is reported there.
        let mut own = transport.config_problems(&settings);
        own.retain(|problem| !of_defaults.contains(problem));
        problems.extend(prefix_problems(&format!("agents.rules[{at}].settings"), own));
        let details = rule.error_details.as_ref().and_then(ErrorDetails::problem);
        problems.extend(details.map(|why| format!("agents.rules[{at}].error_details.{why}")));
        let openai = rule.openai.as_ref().and_then(OpenAiConfig::problem);
        problems.extend(openai.map(|why| format!("agents.rules[{at}].openai.{why}")));
        let a2a = rule.a2a.as_ref().and_then(A2aConfig::problem);
        problems.extend(a2a.map(|why| format!("agents.rules[{at}].a2a.{why}")));
        let contract = rule.contract.as_ref().map(ContractRule::problems).unwrap_or_default();
        problems.extend(prefix_problems(&format!("agents.rules[{at}].contract"), contract));
        let endpoint = rule.endpoint.as_ref().map(EndpointConfig::problems).unwrap_or_default();
        problems.extend(prefix_problems(&format!("agents.rules[{at}].endpoint"), endpoint));
        let api = rule.api.as_ref().map(api_config_problems).unwrap_or_default();
        problems.extend(prefix_problems(&format!("agents.rules[{at}].api"), api));
    }
    problems.extend(compile_api_hosts(file).err().unwrap_or_default());
    problems.extend(file.agents.a2a.problem().map(|why| format!("agents.a2a.{why}")));
    problems.extend(caller_headers_wiring::check_caller_headers(file));
    problems
}
