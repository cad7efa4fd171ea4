//! The two authenticators of bearer tokens, which share the cache of verified tokens.

use super::{
    introspection_authenticator::IntrospectionAuthenticator, jwt_authenticator::JwtAuthenticator,
    token_introspector::TokenIntrospector, verified_token::VerifiedTokenCache,
};
use crate::auth::{
    authenticator::Authenticator,
    build_context::{BuildContext, BuildResult},
    config,
};
use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

/// Builds the authenticators of the section `bearer`. JWTs are judged first: a JWT is never introspected.
pub(in crate::auth) fn build_authenticators(context: &BuildContext<'_>) -> BuildResult {
    let Some(config) = &context.config.bearer else { return Ok(Vec::new()) };
    let mut problems = config_problems(config);
    let cache =
        VerifiedTokenCache::new(config.max_cached_tokens, config.token_cache_ttl, &context.services.revocations);
    let jwts = JwtAuthenticator::build(config, cache.clone(), context);
    let jwts = jwts.map_err(|reasons| problems.extend(reasons.into_iter().map(|why| format!("bearer.{why}"))));
    let introspector =
        config.introspection.as_ref().map(|settings| TokenIntrospector::build(settings, context)).transpose();
    let introspector = introspector.map_err(|reasons| {
        problems.extend(reasons.into_iter().map(|why| format!("bearer.introspection.{why}")));
    });
    let (Ok(jwts), Ok(introspector), true) = (jwts, introspector, problems.is_empty()) else {
        return Err(problems);
    };
    let mut authenticators: Vec<Box<dyn Authenticator>> = vec![Box::new(jwts)];
    if let Some(introspector) = introspector {
        authenticators.push(Box::new(IntrospectionAuthenticator::new(introspector, cache)));
    }
    Ok(authenticators)
}

/// Returns the problems of the section; issuers and introspection report their own.
fn config_problems(config: &config::BearerConfig) -> Vec<String> {
    let mut problems = Vec::new();
    if config.issuers.is_empty() && config.introspection.is_none() {
        problems.push("bearer: accepts no token (write issuers or introspection)".to_owned());
    }
    if !(1..=10_000_000).contains(&config.max_cached_tokens) {
        problems.push("bearer.max_cached_tokens: is out of bounds (1 to 10000000)".to_owned());
    }
    if !(Duration::from_secs(1)..=Duration::from_secs(3_600)).contains(&config.token_cache_ttl.get()) {
        problems.push("bearer.token_cache_ttl: is out of bounds (1s to 1h)".to_owned());
    }
    if !has_distinct_labels(config) {
        problems.push("bearer: several sources of tokens need distinct labels, because two sources may use one name for different callers (write label for each)".to_owned());
    }
    let names: HashSet<_> = config.issuers.iter().map(|issuer| &issuer.issuer).collect();
    if names.len() < config.issuers.len() {
        problems.push("bearer.issuers: an issuer is listed twice (remove one)".to_owned());
    }
    problems
}

/// Returns whether callers of different token sources have different ids. An introspection endpoint of a listed issuer
/// is the same source as the issuer, with the same callers.
fn has_distinct_labels(config: &config::BearerConfig) -> bool {
    let mut sources: HashMap<Option<&str>, Option<&str>> = HashMap::new();
    let issuers = config.issuers.iter().map(|issuer| (Some(issuer.issuer.as_str()), issuer.label.as_deref()));
    let introspection =
        config.introspection.iter().map(|endpoint| (endpoint.issuer.as_deref(), endpoint.label.as_deref()));
    let is_consistent =
        issuers.chain(introspection).all(|(issuer, label)| *sources.entry(issuer).or_insert(label) == label);
    let labels: HashSet<_> = sources.values().collect();
    is_consistent && labels.len() == sources.len() && (sources.len() < 2 || !labels.contains(&None))
}
