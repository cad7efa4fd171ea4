//! Wires the sources of agents, the built-in registry, and the registries that are queried on demand.

use crate::{
    config::GatewayConfig,
    gateway::Route,
    net::{self, AddressPolicy},
    registry::{self, Catalogue, EmbeddedRegistry, OnDemandCatalogue, SourceConfig},
    telemetry::Metrics,
};
use std::sync::Arc;

/// The registries that are queried on demand, with the settings that they were built from.
#[derive(Clone)]
pub(super) struct OnDemandRegistries {
    pub(super) catalogue: Option<Arc<OnDemandCatalogue<Route>>>,
    pub(super) sources: Vec<SourceConfig>,
    pub(super) network: net::NetworkConfig,
    pub(super) max_bytes: u64,
}

pub(super) fn open_on_demand_registries(
    file: &GatewayConfig,
    policy: &Arc<AddressPolicy>,
    catalogue: &Arc<Catalogue<Route>>,
) -> Result<OnDemandRegistries, Vec<String>> {
    let lookups = registry::open_lookups(&file.agents.sources, &file.network, policy)?;
    let max_bytes = file.contract.schema_limits().per_source;
    let catalogue = lookups
        .map(|(registries, ttl)| Arc::new(OnDemandCatalogue::new(Arc::clone(catalogue), registries, ttl, max_bytes)));
    Ok(OnDemandRegistries { catalogue, sources: file.agents.sources.clone(), network: file.network.clone(), max_bytes })
}

/// Opens the sources of agents; `registry` is the built-in registry, if there is one.
pub(super) fn open_sources(
    file: &GatewayConfig,
    policy: &Arc<AddressPolicy>,
    metrics: &Metrics,
    registry: Option<&Arc<EmbeddedRegistry>>,
) -> Result<registry::OpenedSources, Vec<String>> {
    let registry = registry.map(|registry| Box::new(registry.feed()) as _);
    let (network, policy, metrics) = (&file.network, Arc::clone(policy), Some(metrics));
    let dependencies = registry::SourceDependencies { network, policy, registry, metrics };
    registry::OpenedSources::open(&agent_sources_config(file), dependencies)
}

/// Opens the built-in registry; with `check_only` validates its settings only.
pub(super) async fn open_registry(
    file: &GatewayConfig,
    policy: &Arc<AddressPolicy>,
    metrics: &Arc<Metrics>,
) -> Result<Option<Arc<EmbeddedRegistry>>, Vec<String>> {
    let Some(config) = &file.registry else { return Ok(None) };
    if file.agents.check_only && !file.agents.inspection.reads_registry {
        let problems = config.problems();
        return if problems.is_empty() { Ok(None) } else { Err(problems) };
    }
    let registry = EmbeddedRegistry::open(config, Arc::clone(policy)).await?;
    Ok(Some(Arc::new(registry.with_metrics(metrics))))
}

pub(super) fn agent_sources_config(file: &GatewayConfig) -> registry::AgentSourcesConfig {
    let agents = &file.agents;
    registry::AgentSourcesConfig {
        sources: agents.sources.clone(),
        poll_interval: agents.poll_interval,
        last_known_good: agents.last_known_good.as_ref().map(|folder| folder.to_path_buf()),
        cache: agents.cache,
        registry_required: file.registry.as_ref().is_none_or(|registry| registry.required),
        check_only: agents.check_only,
        polls_when_checking: agents.inspection.polls_sources,
    }
}
