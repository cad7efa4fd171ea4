//! Wiring of routes: the rules of a configuration and the OpenAPI documents that they name.

use crate::{
    auth::Authorizer,
    config::GatewayConfig,
    gateway::{AgentRouteCompiler, OpenApiSources, OpenApiSourcesBuilder, RouteRule},
    limit::CallLimiter,
    net::AddressPolicy,
    registry::EndpointRules,
    telemetry::Metrics,
    transport::UpstreamClient,
};
use std::sync::Arc;

/// Opens the OpenAPI documents that rules name.
pub(super) async fn open_openapi_documents(
    file: &GatewayConfig,
    policy: &Arc<AddressPolicy>,
    previous: Option<&OpenApiSources>,
) -> Result<OpenApiSources, Vec<String>> {
    let (contract, network, check_only) = (&file.contract, &file.network, file.agents.check_only);
    let builder = OpenApiSourcesBuilder { contract, network, policy, check_only };
    let rules = file.agents.rules.iter().map(|rule| (rule.api.as_ref(), rule.contract.as_ref()));
    builder.open(rules, previous).await
}

/// What routes are compiled with.
#[derive(Clone, Copy)]
pub(super) struct RouteDependencies<'a> {
    pub(super) auth: &'a Arc<Authorizer>,
    pub(super) limits: &'a Arc<CallLimiter>,
    pub(super) transport: &'a UpstreamClient,
    pub(super) metrics: &'a Arc<Metrics>,
    pub(super) openapi: &'a OpenApiSources,
}

/// Returns what compiles routes by the rules of a configuration.
pub(super) fn build_routes(file: &GatewayConfig, dependencies: RouteDependencies<'_>) -> AgentRouteCompiler {
    let RouteDependencies { auth, limits, transport, metrics, openapi } = dependencies;
    let rules = file.agents.rules.iter().enumerate().map(|(at, rule)| RouteRule {
        agents: rule.agents.clone(),
        settings: rule.settings.of_rule(at),
        rate_limit: rule.rate_limit,
        max_concurrency: rule.max_concurrency,
        shared_max_concurrency: rule.shared_max_concurrency,
        adaptive_concurrency: rule.adaptive_concurrency,
        runs_as_task: rule.always_async,
        authentication: rule.authentication,
        query: rule.query,
        error_details: rule.error_details.clone(),
        allows_get: rule.get,
        api: rule.api.clone().map(Arc::new),
        openapi: openapi.of_rule(at),
        openai: rule.openai.clone().map(Arc::new),
        a2a: rule.a2a.clone(),
        contract: rule.contract.clone(),
        endpoint: rule.endpoint.clone().map(Arc::new),
    });
    AgentRouteCompiler {
        contract: file.contract.clone(),
        defaults: file.agents.defaults.clone(),
        a2a: file.agents.a2a.clone(),
        rules: rules.collect(),
        auth: Arc::clone(auth),
        logs_error_bodies: file.errors.log_agent_bodies,
        limits: Arc::clone(limits),
        transport: transport.clone(),
        metrics: Arc::clone(metrics),
        named_endpoints: file.resolver.map.values().filter_map(|target| target.parse().ok()).collect(),
        endpoint_rules: EndpointRules::new(&file.agents.sources, file.registry.as_ref()),
    }
}
