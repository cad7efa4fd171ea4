//! Assembly: builds a gateway from a configuration and reconfigures it. Collects the problems of all sections.

use super::{
    config_checks::{check_agent_settings, check_sections, prefix_problems},
    directory_wiring::{SearchIndexer, build_delegation, build_directory},
    mqtt_bridge_wiring::build_bridge_offers,
    resolver_wiring,
    tasks_wiring::{self, TasksAndIdempotency},
};
use crate::{
    auth::{AuthServices, Authorizer, BrowserPairings},
    config::GatewayConfig,
    directory::AgentDirectory,
    gateway::{
        AgentRouteCompiler, ConfigSnapshot, CorsPolicy, DelegationPolicy, Gateway, MqttBridge, Route, RouteRule,
    },
    limit::CallLimiter,
    net::{self, AddressPolicy, FetchClient},
    registry::{self, Catalogue, EmbeddedRegistry, LazyCatalogue, PublishConfig, SourceConfig, SourceManager},
    resolver::UriResolver,
    telemetry::{AccessLog, Metrics},
    transport::UpstreamClient,
};
use arc_swap::ArcSwap;
use http::HeaderName;
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// How long startup waits for the search index.
const INDEX_STARTUP_WAIT: Duration = Duration::from_secs(2);

/// An assembled gateway that does not listen yet, with the state needed to reconfigure it.
pub struct GatewayAssembly {
    /// The gateway.
    pub gateway: Arc<Gateway>,
    /// The addresses that the gateway may connect to.
    pub policy: Arc<ArcSwap<AddressPolicy>>,
    /// The MQTT bridge.
    pub bridge: MqttBridge,
    watch: Mutex<Option<SourceManager>>,
    search_indexer: Mutex<Arc<SearchIndexer>>,
    lazy_registries: Mutex<LazyRegistries>,
}

/// The lazily queried registries, with the configuration they were built from.
type LazyRegistries = (Option<Arc<LazyCatalogue<Route>>>, Vec<SourceConfig>, net::NetworkConfig);

impl GatewayAssembly {
    /// Builds all parts; requires a tokio runtime.
    ///
    /// # Errors
    /// Every problem, each formatted as `path: message`.
    pub async fn build(file: &GatewayConfig) -> Result<Self, Vec<String>> {
        let metrics = Metrics::new().map_err(|why| vec![format!("the metrics cannot be created ({why})")])?;
        let mut problems = check_sections(file);
        metrics.configure(&file.metrics);
        let log = AccessLog::new(file.access_log.output.clone(), Arc::clone(&metrics)).map_err(|why| vec![why]);
        let log = collect_problems(log, "access_log", &mut problems);
        let limits = collect_problems(CallLimiter::new(&file.limits, Arc::clone(&metrics)), "limits", &mut problems);
        let policy = Arc::new(file.network.policy());
        let transport = UpstreamClient::new(Arc::clone(&policy));
        let named = collect_problems(resolver_wiring::build_resolver(file, &policy, None), "", &mut problems);
        transport.set_local_runtimes(file.local_runtimes.clone());
        let paired = Arc::new(BrowserPairings::default());
        let auth = collect_problems(build_auth(file, (&policy, &paired), &metrics, None), "", &mut problems);
        problems.extend(check_agent_settings(file, &transport));
        let made = (log, limits, auth, named);
        let ((Some(log), Some(limits), Some(auth), Some(named)), true) = (made, problems.is_empty()) else {
            // Also reports a missing folder of agents together with the other problems.
            problems.extend(prefix_problems("agents", feed_config(file).problems()));
            return Err(problems);
        };
        transport.set_resolver(Arc::clone(&named));
        let registry = open_registry(file, &policy).await.map_err(|whys| prefix_problems("registry", whys))?;
        let opened = open_sources(file, &policy, registry.as_ref()).map_err(|whys| prefix_problems("agents", whys))?;
        let limits = Arc::new(limits);
        let routes = build_routes(file, &auth, (&limits, &transport, &metrics));
        let catalogue: Arc<Catalogue<Route>> = Arc::new(Catalogue::new(Arc::new(routes), Arc::clone(&metrics)));
        let found = found(file, &catalogue)?;
        if let Some(registry) = &registry {
            let served = Arc::clone(&catalogue);
            registry.set_reserved_ids(Arc::new(move |id| served.load().get(id.as_str()).is_some()));
        }
        let directory =
            build_directory(file, &found, registry, &named).map_err(|whys| prefix_problems("directory", whys))?;
        let later = tasks_wiring::open(file, &policy, &metrics).await?;
        let delegation = build_delegation(file, &directory)?;
        let lazy = lazy(file, &policy, &catalogue).map_err(|whys| prefix_problems("agents", whys))?;
        let watch = SourceManager::start(&catalogue, opened).await;
        // Calls do not need the search index, so startup waits only briefly.
        found.index_progress().wait_until_indexed(INDEX_STARTUP_WAIT).await;
        metrics.register_tiers(file.limits.tiers.keys().map(String::as_str));
        let world =
            ArcSwap::from_pointee(build_config_snapshot(file, (auth, (directory, delegation), lazy.clone()), later));
        let gateway =
            Gateway { config: world, catalogue, limits, transport, metrics, access_log: Arc::new(log), paired };
        let (gateway, policy) = (Arc::new(gateway), Arc::new(ArcSwap::new(policy)));
        let lazy = Mutex::new((lazy, file.agents.sources.clone(), file.network.clone()));
        let bridge = MqttBridge::new(&gateway, build_bridge_offers(file)?);
        Ok(Self {
            gateway,
            policy,
            bridge,
            watch: Mutex::new(Some(watch)),
            search_indexer: Mutex::new(found),
            lazy_registries: lazy,
        })
    }

    /// Applies a changed configuration without closing a connection. Listeners, the admin address and the access log's
    /// target keep their startup values.
    ///
    /// # Errors
    /// Every problem; in that case nothing has changed.
    pub async fn reconfigure(&self, file: &GatewayConfig) -> Result<(), Vec<String>> {
        let gateway = &self.gateway;
        let policy = Arc::new(file.network.policy());
        let mut problems = check_sections(file);
        problems.extend(prefix_problems("limits", file.limits.problems()));
        problems.extend(prefix_problems("registry", file.registry.iter().flat_map(PublishConfig::problems).collect()));
        let kept = gateway.config.load().directory.registry.clone();
        let opened = collect_problems(open_sources(file, &policy, kept.as_ref()), "agents", &mut problems);
        problems.extend(check_agent_settings(file, &gateway.transport));
        let before = gateway.config.load_full();
        let auth = build_auth(file, (&policy, &gateway.paired), &gateway.metrics, Some(&before.auth));
        let auth = collect_problems(auth, "", &mut problems);
        let named = collect_problems(
            resolver_wiring::build_resolver(file, &policy, gateway.transport.resolver()),
            "",
            &mut problems,
        );
        let found = named
            .as_ref()
            .and_then(|named| collect_problems(self.rebuild_directory(file, &kept, named), "", &mut problems));
        let asked = collect_problems(self.rebuild_lazy_registries(file, &policy), "agents", &mut problems);
        let offered = collect_problems(build_bridge_offers(file), "", &mut problems);
        let made = (auth, opened, found, asked, (named, offered));
        let ((Some(auth), Some(opened), Some((found, directory)), Some(asked), (Some(named), Some(offered))), true) =
            (made, problems.is_empty())
        else {
            return Err(problems);
        };
        let delegation = build_delegation(file, &directory)?;
        // First, because it loads a secret and can fail; the sections below were validated above.
        let later = tasks_wiring::reconfigure(file, &before, (&policy, &gateway.metrics))?;
        gateway.limits.reconfigure(&file.limits).map_err(|whys| prefix_problems("limits", whys))?;
        if let (Some(registry), Some(config)) = (&kept, &file.registry) {
            registry.reconfigure(config, Arc::clone(&policy)).map_err(|whys| prefix_problems("registry", whys))?;
        }
        // Nothing below can fail, so the previous configuration may be dropped.
        *self.search_indexer.lock().unwrap_or_else(PoisonError::into_inner) = found;
        *self.lazy_registries.lock().unwrap_or_else(PoisonError::into_inner) = asked.clone();
        policy.set_own_listeners(self.policy.load().own_listeners());
        gateway.transport.set_address_policy(Arc::clone(&policy));
        gateway.transport.set_resolver(named);
        gateway.transport.set_local_runtimes(file.local_runtimes.clone());
        self.policy.store(policy);
        gateway.metrics.configure(&file.metrics);
        gateway.metrics.register_tiers(file.limits.tiers.keys().map(String::as_str));
        let routes = build_routes(file, &auth, (&gateway.limits, &gateway.transport, &gateway.metrics));
        gateway.config.store(Arc::new(build_config_snapshot(file, (auth, (directory, delegation), asked.0), later)));
        let catalogue = Arc::clone(&gateway.catalogue);
        let recompiled = tokio::task::spawn_blocking(move || catalogue.recompile(Arc::new(routes))).await;
        if let Err(why) = recompiled {
            tracing::error!("agents could not be recompiled after the reload: {why}");
        }
        let watch = SourceManager::start(&gateway.catalogue, opened).await;
        *self.watch.lock().unwrap_or_else(PoisonError::into_inner) = Some(watch);
        self.bridge.set_offers(offered);
        Ok(())
    }

    /// Returns the directory of a changed configuration, and the search index, which is kept if its settings are equal.
    fn rebuild_directory(
        &self,
        file: &GatewayConfig,
        registry: &Option<Arc<EmbeddedRegistry>>,
        named: &Arc<UriResolver>,
    ) -> Result<(Arc<SearchIndexer>, Arc<AgentDirectory>), Vec<String>> {
        let before = Arc::clone(&self.search_indexer.lock().unwrap_or_else(PoisonError::into_inner));
        let found =
            if before.has_config(&file.directory.search) { before } else { found(file, &self.gateway.catalogue)? };
        let directory = build_directory(file, &found, registry.clone(), named)
            .map_err(|whys| prefix_problems("directory", whys))?;
        Ok((found, directory))
    }

    /// Returns the lazily queried registries of a changed configuration. Keeps the current ones, with their caches, if
    /// their settings are equal.
    fn rebuild_lazy_registries(
        &self,
        file: &GatewayConfig,
        policy: &Arc<AddressPolicy>,
    ) -> Result<LazyRegistries, Vec<String>> {
        let before = self.lazy_registries.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if before.1 == file.agents.sources && before.2 == file.network {
            return Ok(before);
        }
        let made = lazy(file, policy, &self.gateway.catalogue)?;
        Ok((made, file.agents.sources.clone(), file.network.clone()))
    }

    /// Returns the warnings for operators: documents that are not served and sources that cannot be read, with reasons.
    pub fn warnings(&self) -> Vec<String> {
        let snapshot = self.gateway.catalogue.snapshot();
        let refused = snapshot.rejected.iter().map(|refusal| format!("not served: {refusal}"));
        let troubles = snapshot.unreadable_parts.iter().map(|(part, why)| format!("not read: {part}: {why}"));
        let sources = self.gateway.catalogue.source_health();
        let warnings = sources.iter().filter_map(|source| Some(format!("{}: {}", source.name, source.warning()?)));
        refused.chain(troubles).chain(warnings).collect()
    }
}

fn found(file: &GatewayConfig, catalogue: &Arc<Catalogue<Route>>) -> Result<Arc<SearchIndexer>, Vec<String>> {
    SearchIndexer::new(&file.directory.search, catalogue)
        .map(Arc::new)
        .map_err(|whys| prefix_problems("directory.search", whys))
}

fn lazy(
    file: &GatewayConfig,
    policy: &Arc<AddressPolicy>,
    catalogue: &Arc<Catalogue<Route>>,
) -> Result<Option<Arc<LazyCatalogue<Route>>>, Vec<String>> {
    let asked = registry::open_lookups(&file.agents.sources, &file.network, policy)?;
    Ok(asked.map(|(registries, memory)| Arc::new(LazyCatalogue::new(Arc::clone(catalogue), registries, memory))))
}

type DirectoryAndDelegation = (Arc<AgentDirectory>, Option<Arc<DelegationPolicy>>);
type SnapshotParts = (Arc<Authorizer>, DirectoryAndDelegation, Option<Arc<LazyCatalogue<Route>>>);

fn build_config_snapshot(
    file: &GatewayConfig,
    (auth, (directory, delegation), lazy): SnapshotParts,
    (tasks, once): TasksAndIdempotency,
) -> ConfigSnapshot {
    let key_header = file.auth.api_keys.as_ref().and_then(|keys| keys.header.parse::<HeaderName>().ok());
    ConfigSnapshot {
        auth,
        on_demand_registries: lazy,
        directory,
        tasks,
        idempotency: once,
        delegation,
        contract: file.contract.clone(),
        error_format: file.errors.format,
        api_key_header: key_header,
        // An invalid section was reported before: `check_sections` validates it first.
        cors: file.cors.as_ref().and_then(|cors| CorsPolicy::build(cors).ok()),
        max_streamed_body_size: file.agents.max_streamed_body_size,
        websockets: file.websocket.clone(),
        sse_keep_alive_interval: file.agents.sse_keep_alive_interval.get(),
    }
}

fn build_auth(
    file: &GatewayConfig,
    (policy, paired): (&Arc<AddressPolicy>, &Arc<BrowserPairings>),
    metrics: &Arc<Metrics>,
    before: Option<&Authorizer>,
) -> Result<Arc<Authorizer>, Vec<String>> {
    let client =
        FetchClient::build(&file.network, Arc::clone(policy)).map_err(|whys| prefix_problems("network", whys))?;
    let services = AuthServices { client, metrics: Arc::clone(metrics) };
    let auth = Authorizer::build(&file.auth, &file.access, &services, before)?;
    Ok(Arc::new(match file.cors.as_ref().filter(|cors| cors.pairing.is_some()) {
        Some(cors) => auth.with_browser_pairing(Arc::clone(paired), cors.allowed_origins.clone()),
        None => auth,
    }))
}

type SharedServices<'a> = (&'a Arc<CallLimiter>, &'a UpstreamClient, &'a Arc<Metrics>);

fn build_routes(
    file: &GatewayConfig,
    auth: &Arc<Authorizer>,
    (limits, transport, metrics): SharedServices<'_>,
) -> AgentRouteCompiler {
    let rules = file.agents.rules.iter().map(|rule| RouteRule {
        agents: rule.agents.clone(),
        settings: rule.settings.clone(),
        rate_limit: rule.rate_limit,
        max_concurrency: rule.max_concurrency,
        adaptive_concurrency: rule.adaptive_concurrency,
        runs_as_task: rule.slow,
    });
    AgentRouteCompiler {
        contract: file.contract.clone(),
        defaults: file.agents.defaults.clone(),
        rules: rules.collect(),
        auth: Arc::clone(auth),
        limits: Arc::clone(limits),
        transport: transport.clone(),
        metrics: Arc::clone(metrics),
    }
}

/// Opens the sources of agents; `registry` is the built-in registry, if there is one.
fn open_sources(
    file: &GatewayConfig,
    policy: &Arc<AddressPolicy>,
    registry: Option<&Arc<EmbeddedRegistry>>,
) -> Result<registry::OpenedSources, Vec<String>> {
    let registry = registry.map(|registry| Box::new(registry.feed()) as _);
    let means = registry::SourceDependencies { network: &file.network, policy: Arc::clone(policy), registry };
    registry::OpenedSources::open(&feed_config(file), means)
}

/// Opens the built-in registry; a rehearsal only validates its settings.
async fn open_registry(
    file: &GatewayConfig,
    policy: &Arc<AddressPolicy>,
) -> Result<Option<Arc<EmbeddedRegistry>>, Vec<String>> {
    let Some(config) = &file.registry else { return Ok(None) };
    if file.agents.rehearsal {
        let problems = config.problems();
        return if problems.is_empty() { Ok(None) } else { Err(problems) };
    }
    EmbeddedRegistry::open(config, Arc::clone(policy)).await.map(|registry| Some(Arc::new(registry)))
}

fn feed_config(file: &GatewayConfig) -> registry::AgentSourcesConfig {
    let agents = &file.agents;
    registry::AgentSourcesConfig {
        from: agents.sources.clone(),
        poll: agents.poll_interval,
        last_known_good: agents.last_known_good.as_ref().map(|folder| folder.to_path_buf()),
        cache: agents.cache,
        check_only: agents.rehearsal,
    }
}

fn collect_problems<T>(made: Result<T, Vec<String>>, section: &str, problems: &mut Vec<String>) -> Option<T> {
    made.map_err(|whys| problems.extend(prefix_problems(section, whys))).ok()
}
