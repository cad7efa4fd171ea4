//! Assembly: builds a gateway from a configuration and reconfigures it. Collects the problems of all sections.

use super::{
    audit_wiring::open_audit_log,
    caller_headers_wiring,
    config_checks::{check_agent_settings, check_sections, compile_api_hosts},
    directory_wiring::{SearchIndexer, build_delegation, build_directory, create_search_indexer},
    mqtt_bridge_wiring::build_bridge_offers,
    problem_paths::{collect_problems, prefix_problems},
    registry_wiring::{
        OnDemandRegistries, agent_sources_config, open_on_demand_registries, open_registry, open_sources,
    },
    resolver_wiring,
    route_wiring::{RouteDependencies, build_routes, open_openapi_documents},
    rule_locator::RuleLocator,
    shared_state_wiring::open_shared_state,
    tasks_wiring::{self, TaskTelemetry, TasksAndIdempotency},
};
use crate::{
    agent::AuthenticationMethod,
    audit::AuditLog,
    auth::{
        ApiKeysConfig, AuthServices, Authorizer, BrowserPairingAccess, BrowserPairings, RevocationList, ShadowAccess,
    },
    config::{GatewayConfig, LoadedConfig},
    contract::CheckScheduler,
    directory::AgentDirectory,
    doctor::{self, FindingCode},
    explain::RecentDecisions,
    gateway::{
        CallerTokenSigner, ConfigSnapshot, CorsPolicy, DelegationPolicy, Gateway, MqttBridge, OpenApiSources, Route,
        ShadowRules,
    },
    limit::{CallLimiter, ShadowLimits},
    net::{AddressPolicy, FetchClient},
    registry::{Catalogue, EmbeddedRegistry, OnDemandCatalogue, PublishConfig, SourceManager},
    resolver::UriResolver,
    store::SharedState,
    telemetry::{AccessLog, Metrics, redact},
    trace::Tracer,
    transport::UpstreamClient,
};
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use std::{path::Path, sync::Arc, time::Duration};

/// How long startup waits for the search index.
const INDEX_STARTUP_WAIT: Duration = Duration::from_secs(2);

/// An assembled gateway that does not listen yet, with the state needed to reconfigure it.
pub struct GatewayAssembly {
    /// The gateway, without its listeners.
    pub gateway: Arc<Gateway>,
    /// The addresses that the gateway may connect to.
    pub policy: Arc<ArcSwap<AddressPolicy>>,
    /// The MQTT bridge.
    pub bridge: MqttBridge,
    /// The state that gateways share, if it is configured.
    pub(super) shared_state: Option<Arc<SharedState>>,
    source_manager: Mutex<Option<SourceManager>>,
    search_indexer: Mutex<Arc<SearchIndexer>>,
    on_demand_registries: Mutex<OnDemandRegistries>,
}

impl GatewayAssembly {
    /// Builds every part of the gateway; requires a tokio runtime.
    ///
    /// # Errors
    /// Every problem, each formatted as `path: message`.
    pub async fn build(file: &GatewayConfig) -> Result<Self, Vec<String>> {
        let metrics = Metrics::new().map_err(|why| vec![format!("the metrics cannot be created ({why})")])?;
        let mut problems = check_sections(file);
        metrics.configure(&file.metrics);
        set_issuer_labels(file, &metrics);
        let log = AccessLog::new(&file.access_log, Arc::clone(&metrics)).map_err(|why| vec![why]);
        let log = collect_problems(log, "access_log", &mut problems);
        let audit_log = collect_problems(open_audit_log(file, &metrics), "", &mut problems);
        let shared_state = collect_problems(open_shared_state(file, &metrics).await, "state", &mut problems).flatten();
        let limits = match &shared_state {
            Some(state) => CallLimiter::with_shared_state(&file.limits, Arc::clone(&metrics), state),
            None => CallLimiter::new(&file.limits, Arc::clone(&metrics)),
        };
        let limits = collect_problems(limits, "limits", &mut problems);
        let policy = Arc::new(file.network.policy());
        let transport = UpstreamClient::new(Arc::clone(&policy));
        transport.set_metrics(&metrics);
        let resolver = collect_problems(resolver_wiring::build_resolver(file, &policy, None), "", &mut problems);
        transport.set_local_runtimes(file.local_runtimes.clone());
        let pairings = Arc::new(BrowserPairings::new(shared_state.as_ref()));
        let revocations = RevocationList::start(shared_state.as_ref(), &metrics).await;
        let issued = IssuedCredentials { pairings: &pairings, revocations: &revocations };
        let auth = collect_problems(build_auth(file, &policy, issued, &metrics, None), "", &mut problems);
        problems.extend(check_agent_settings(file, &transport));
        let openapi = collect_problems(open_openapi_documents(file, &policy, None).await, "", &mut problems);
        let tracer = collect_problems(build_tracer(file, &metrics, None), "", &mut problems);
        let shadow = collect_problems(build_shadow_rules(file, &metrics, None), "", &mut problems);
        let parts = (log, audit_log, limits, auth, resolver, openapi, tracer, shadow);
        let (
            (
                Some(log),
                Some(audit_log),
                Some(limits),
                Some(auth),
                Some(resolver),
                Some(openapi),
                Some(tracer),
                Some(shadow),
            ),
            true,
        ) = (parts, problems.is_empty())
        else {
            // The sources are opened below; a missing file or folder is reported here, with the other problems.
            problems.extend(prefix_problems("agents", agent_sources_config(file).problems()));
            return Err(problems);
        };
        transport.set_resolver(Arc::clone(&resolver));
        let registry =
            open_registry(file, &policy, &metrics).await.map_err(|problems| prefix_problems("registry", problems))?;
        let sources = open_sources(file, &policy, &metrics, registry.as_ref())
            .map_err(|problems| prefix_problems("agents", problems))?;
        let limits = Arc::new(limits);
        let dependencies = RouteDependencies {
            auth: &auth,
            limits: &limits,
            transport: &transport,
            metrics: &metrics,
            openapi: &openapi,
        };
        let routes = build_routes(file, dependencies);
        let catalogue: Arc<Catalogue<Route>> = Arc::new(Catalogue::new(Arc::new(routes), Arc::clone(&metrics)));
        let search_indexer = create_search_indexer(file, &catalogue)?;
        if let Some(registry) = &registry {
            registry.set_ownership(Arc::clone(&catalogue) as _);
        }
        let directory = build_directory(file, &search_indexer, registry, &resolver, Some(&auth))
            .map_err(|problems| prefix_problems("directory", problems))?;
        let telemetry = TaskTelemetry { metrics: &metrics, tracer: &tracer };
        let stores = tasks_wiring::open(file, &policy, telemetry, shared_state.as_ref()).await?;
        let delegation = build_delegation(file, &directory)?;
        let caller_tokens = caller_headers_wiring::build_token_signer(file, &directory)?;
        let on_demand = open_on_demand_registries(file, &policy, &catalogue)
            .map_err(|problems| prefix_problems("agents", problems))?;
        let source_manager = SourceManager::start(&catalogue, sources).await;
        // Calls do not need the search index, so startup waits only briefly.
        search_indexer.index_progress().wait_until_indexed(INDEX_STARTUP_WAIT).await;
        metrics.register_tiers(file.limits.tiers.keys().map(String::as_str));
        let on_demand_catalogue = on_demand.catalogue.clone();
        let parts = SnapshotParts {
            auth,
            directory,
            delegation,
            caller_tokens,
            on_demand: on_demand_catalogue,
            stores,
            openapi,
            tracer,
            shadow,
        };
        let config = ArcSwap::from_pointee(build_config_snapshot(file, parts));
        let access_log = Arc::new(log);
        set_checkpoint_key(audit_log.as_deref(), &config.load());
        let gateway = Gateway {
            config,
            catalogue,
            limits,
            transport,
            metrics,
            access_log,
            audit_log,
            check_scheduler: CheckScheduler::default(),
            browser_pairings: pairings,
            revocations,
            recent_decisions: RecentDecisions::default(),
            drain_end: std::sync::OnceLock::new(),
        };
        gateway.recent_decisions.set_max(file.explain.recent_decisions);
        let (gateway, policy) = (Arc::new(gateway), Arc::new(ArcSwap::new(policy)));
        let bridge = MqttBridge::new(&gateway, build_bridge_offers(file)?);
        Ok(Self {
            gateway,
            policy,
            bridge,
            shared_state,
            source_manager: Mutex::new(Some(source_manager)),
            search_indexer: Mutex::new(search_indexer),
            on_demand_registries: Mutex::new(on_demand),
        })
    }

    /// Applies a changed configuration without closing a connection. Settings that take effect at the next start, such
    /// as the listeners, keep their values.
    ///
    /// # Errors
    /// Every problem; in that case nothing has changed.
    pub async fn reconfigure(&self, loaded: &LoadedConfig) -> Result<(), Vec<String>> {
        let file = &loaded.config;
        let gateway = &self.gateway;
        let policy = Arc::new(file.network.policy());
        let mut problems = check_sections(file);
        problems.extend(prefix_problems("limits", file.limits.problems()));
        problems.extend(prefix_problems("registry", file.registry.iter().flat_map(PublishConfig::problems).collect()));
        let registry = gateway.config.load().directory.registry.clone();
        let sources =
            collect_problems(open_sources(file, &policy, &gateway.metrics, registry.as_ref()), "agents", &mut problems);
        problems.extend(check_agent_settings(file, &gateway.transport));
        let previous = gateway.config.load_full();
        let openapi = open_openapi_documents(file, &policy, Some(&previous.openapi)).await;
        let openapi = collect_problems(openapi, "", &mut problems);
        let issued = IssuedCredentials { pairings: &gateway.browser_pairings, revocations: &gateway.revocations };
        let auth = build_auth(file, &policy, issued, &gateway.metrics, Some(&previous.auth));
        let auth = collect_problems(auth, "", &mut problems);
        let resolver = collect_problems(
            resolver_wiring::build_resolver(file, &policy, gateway.transport.resolver()),
            "",
            &mut problems,
        );
        let search = resolver.as_ref().and_then(|resolver| {
            collect_problems(self.rebuild_directory(file, &registry, resolver, auth.as_deref()), "", &mut problems)
        });
        let on_demand = collect_problems(self.rebuild_on_demand_registries(file, &policy), "agents", &mut problems);
        let offers = collect_problems(build_bridge_offers(file), "", &mut problems);
        let tracer = build_tracer(file, &gateway.metrics, previous.tracer.as_deref());
        let tracer = collect_problems(tracer, "", &mut problems);
        let shadow = build_shadow_rules(file, &gateway.metrics, previous.shadow.as_ref());
        let shadow = collect_problems(shadow, "", &mut problems);
        let parts = (auth, sources, search, on_demand, resolver, offers, openapi, tracer, shadow);
        let (
            (
                Some(auth),
                Some(sources),
                Some((indexer, directory)),
                Some(on_demand),
                Some(resolver),
                Some(offers),
                Some(openapi),
                Some(tracer),
                Some(shadow),
            ),
            true,
        ) = (parts, problems.is_empty())
        else {
            return Err(problems);
        };
        let delegation = build_delegation(file, &directory)?;
        let caller_tokens = caller_headers_wiring::build_token_signer(file, &directory)?;
        // First, because it loads a secret and can fail; the sections that follow were validated above.
        let telemetry = TaskTelemetry { metrics: &gateway.metrics, tracer: &tracer };
        let stores = tasks_wiring::reconfigure(file, &previous, &policy, telemetry)?;
        gateway.limits.reconfigure(&file.limits).map_err(|problems| prefix_problems("limits", problems))?;
        if let (Some(registry), Some(config)) = (&registry, &file.registry) {
            registry
                .reconfigure(config, Arc::clone(&policy))
                .map_err(|problems| prefix_problems("registry", problems))?;
        }
        // The rest cannot fail, so that no configuration is applied in part.
        *self.search_indexer.lock() = indexer;
        *self.on_demand_registries.lock() = on_demand.clone();
        policy.set_own_listeners(self.policy.load().own_listeners());
        gateway.transport.set_address_policy(Arc::clone(&policy));
        gateway.transport.set_resolver(resolver);
        gateway.transport.set_local_runtimes(file.local_runtimes.clone());
        self.policy.store(policy);
        gateway.metrics.configure(&file.metrics);
        gateway.recent_decisions.set_max(file.explain.recent_decisions);
        set_issuer_labels(file, &gateway.metrics);
        gateway.metrics.register_tiers(file.limits.tiers.keys().map(String::as_str));
        let dependencies = RouteDependencies {
            auth: &auth,
            limits: &gateway.limits,
            transport: &gateway.transport,
            metrics: &gateway.metrics,
            openapi: &openapi,
        };
        let routes = build_routes(file, dependencies);
        let on_demand = on_demand.catalogue;
        let parts =
            SnapshotParts { auth, directory, delegation, caller_tokens, on_demand, stores, openapi, tracer, shadow };
        let snapshot = build_config_snapshot(file, parts);
        set_checkpoint_key(gateway.audit_log.as_deref(), &snapshot);
        // Beside the snapshot, so that a call is explained with the rules under which it began.
        gateway.recent_decisions.set_rules(Arc::new(RuleLocator::new(loaded)));
        gateway.config.store(Arc::new(snapshot));
        let catalogue = Arc::clone(&gateway.catalogue);
        let recompilation = tokio::task::spawn_blocking(move || catalogue.recompile(Arc::new(routes))).await;
        if let Err(why) = recompilation {
            tracing::error!("agents could not be recompiled after the reload: {why}");
        }
        let source_manager = SourceManager::start(&gateway.catalogue, sources).await;
        *self.source_manager.lock() = Some(source_manager);
        self.bridge.set_bridges(offers);
        Ok(())
    }

    /// Stores the last known good agents of every source that changed.
    pub(super) async fn store_last_known_good(&self) {
        // Taken out, because a lock is not held while waiting; only a reload uses it, and none runs during a shutdown.
        let Some(source_manager) = self.source_manager.lock().take() else { return };
        source_manager.flush().await;
        *self.source_manager.lock() = Some(source_manager);
    }

    /// Stops polling the sources, whose files now belong to another process. The agents stay.
    pub(super) fn stop_sources(&self) {
        drop(self.source_manager.lock().take());
    }

    /// Returns the directory of a changed configuration with its search indexer, which is kept if its settings are
    /// equal.
    fn rebuild_directory(
        &self,
        file: &GatewayConfig,
        registry: &Option<Arc<EmbeddedRegistry>>,
        resolver: &Arc<UriResolver>,
        auth: Option<&Authorizer>,
    ) -> Result<(Arc<SearchIndexer>, Arc<AgentDirectory>), Vec<String>> {
        let previous = Arc::clone(&self.search_indexer.lock());
        let indexer = if previous.has_config(&file.directory.search) {
            previous
        } else {
            create_search_indexer(file, &self.gateway.catalogue)?
        };
        let directory = build_directory(file, &indexer, registry.clone(), resolver, auth)
            .map_err(|problems| prefix_problems("directory", problems))?;
        Ok((indexer, directory))
    }

    /// Returns the on-demand registries of a changed configuration. Keeps the current registries with their caches if
    /// the settings are equal.
    fn rebuild_on_demand_registries(
        &self,
        file: &GatewayConfig,
        policy: &Arc<AddressPolicy>,
    ) -> Result<OnDemandRegistries, Vec<String>> {
        let current = self.on_demand_registries.lock().clone();
        let has_same_limit = current.max_bytes == file.contract.schema_limits().per_source;
        if current.sources == file.agents.sources && current.network == file.network && has_same_limit {
            return Ok(current);
        }
        open_on_demand_registries(file, policy, &self.gateway.catalogue)
    }

    /// Returns the agents that no caller can call, because no method of `auth` accepts the credential that their documents
    /// require: one note for each method.
    fn unusable_agents(&self) -> Vec<OperatorNote> {
        let accepted = self.gateway.config.load().auth.accepted_credentials();
        let snapshot = self.gateway.catalogue.load();
        let is_accepted = |method| accepted.iter().any(|credential| credential.method == method);
        let methods = AuthenticationMethod::ALL.into_iter().filter(|method| *method != AuthenticationMethod::Anonymous);
        let notes = methods.filter(|method| !is_accepted(*method)).filter_map(|method| {
            let of_method = snapshot.iter().filter(|(_, route)| route.agent().authentication.method == method);
            let mut ids: Vec<&str> = of_method.map(|(id, _)| id.as_str()).collect();
            ids.sort_unstable();
            let (first, count) = (ids.first()?, ids.len());
            let others = if count > 1 { format!(" and {} more", count - 1) } else { String::new() };
            let text = format!(
                "no caller can call {first}{others}, whose documents require {}, which no method of auth accepts (configure \
                 the method, or set authentication: any in a rule)",
                method.phrase()
            );
            Some(OperatorNote { code: Some(FindingCode::AgentNotCallable), text })
        });
        notes.collect()
    }

    /// Returns the notes for operators: documents that are not served, and sources that cannot be read.
    pub(super) fn notes(&self) -> Vec<OperatorNote> {
        let snapshot = self.gateway.catalogue.snapshot();
        let rejected = snapshot.rejected.iter().map(|document| OperatorNote {
            code: Some(doctor::code_of_rejection(document)),
            text: format!("not served: {document}"),
        });
        // The operator wrote the files; other sources list what the gateway does not call beside agents.
        let of_files = snapshot.unsupported.iter().filter(|document| Path::new(&*document.part).exists());
        let unsupported = of_files.map(|document| OperatorNote {
            code: Some(FindingCode::DocumentUnsupported),
            text: format!("not served: {document}"),
        });
        let unreadable = snapshot.unreadable_parts.iter().map(|(part, why)| OperatorNote {
            code: Some(FindingCode::FileUnreadable),
            text: format!("not read: {}: {why}", redact(part)),
        });
        let sources = self.gateway.catalogue.source_health();
        let of_sources = sources.iter().filter_map(|source| {
            Some(OperatorNote { code: None, text: format!("{}: {}", source.name, source.warning()?) })
        });
        rejected.chain(unsupported).chain(unreadable).chain(of_sources).chain(self.unusable_agents()).collect()
    }
}

/// What operators should know about agents and sources.
pub(super) struct OperatorNote {
    /// The code of the finding, if it is one of a document.
    pub(super) code: Option<FindingCode>,
    pub(super) text: String,
}

/// The parts of a config snapshot that are built from several sections or can fail.
struct SnapshotParts {
    auth: Arc<Authorizer>,
    directory: Arc<AgentDirectory>,
    delegation: Option<Arc<DelegationPolicy>>,
    caller_tokens: Option<Arc<CallerTokenSigner>>,
    on_demand: Option<Arc<OnDemandCatalogue<Route>>>,
    stores: TasksAndIdempotency,
    openapi: OpenApiSources,
    tracer: Option<Arc<Tracer>>,
    shadow: Option<ShadowRules>,
}

fn build_config_snapshot(file: &GatewayConfig, parts: SnapshotParts) -> ConfigSnapshot {
    ConfigSnapshot {
        auth: parts.auth,
        on_demand_registries: parts.on_demand,
        directory: parts.directory,
        tasks: parts.stores.tasks,
        idempotency: parts.stores.idempotency,
        delegation: parts.delegation,
        caller_tokens: parts.caller_tokens,
        contract: file.contract.clone(),
        error_format: file.errors.format,
        api_key_header: file.auth.api_keys.as_ref().and_then(ApiKeysConfig::header_name),
        // `check_sections` has reported the problems of the section.
        cors: file.cors.as_ref().and_then(|cors| CorsPolicy::build(cors).ok()),
        max_streamed_body_size: file.agents.max_streamed_body_size,
        websockets: file.websocket.clone(),
        sse_keep_alive_interval: file.agents.sse_keep_alive_interval.get(),
        shadow: parts.shadow,
        openapi: parts.openapi,
        // `check_agent_settings` has reported the problems of the rules.
        api_hosts: compile_api_hosts(file).unwrap_or_default(),
        tracer: parts.tracer,
    }
}

/// Sets the key that signs the checkpoints of the audit log: that of the directory.
fn set_checkpoint_key(log: Option<&AuditLog>, snapshot: &ConfigSnapshot) {
    if let Some(log) = log {
        log.set_signing_key(snapshot.directory.signing_key.clone());
    }
}

/// Returns the rules in shadow mode, whose limits are those of the previous configuration if both have the same.
fn build_shadow_rules(
    file: &GatewayConfig,
    metrics: &Arc<Metrics>,
    previous: Option<&ShadowRules>,
) -> Result<Option<ShadowRules>, Vec<String>> {
    let access = ShadowAccess::build(&file.access)?;
    let previous = previous.and_then(|previous| previous.limits.as_ref());
    let limits = ShadowLimits::build(&file.limits, previous, metrics);
    let limits = limits.map_err(|why| vec![format!("limits.shadow: {why}")])?;
    Ok((access.is_some() || limits.is_some()).then_some(ShadowRules { access, limits }))
}

/// Sets the labels of the issuers whose keys are fetched.
fn set_issuer_labels(file: &GatewayConfig, metrics: &Metrics) {
    let issuers = file.auth.bearer.iter().flat_map(|bearer| &bearer.issuers);
    metrics.keys().set_issuers(issuers.map(|issuer| issuer.metric_label().into()));
}

/// Returns the tracer of a configuration, whose exporter is that of the previous one if both export alike.
fn build_tracer(
    file: &GatewayConfig,
    metrics: &Arc<Metrics>,
    previous: Option<&Tracer>,
) -> Result<Option<Arc<Tracer>>, Vec<String>> {
    let Some(config) = &file.tracing else { return Ok(None) };
    let tracer = Tracer::build(config, &file.network, metrics, previous);
    // `check_sections` has reported what the values themselves say.
    let tracer = tracer.map_err(|problems| if config.problems().is_empty() { problems } else { Vec::new() });
    tracer.map(|tracer| Some(Arc::new(tracer))).map_err(|problems| prefix_problems("tracing", problems))
}

/// The state of credentials that outlives every configuration.
#[derive(Clone, Copy)]
struct IssuedCredentials<'a> {
    pairings: &'a Arc<BrowserPairings>,
    revocations: &'a Arc<RevocationList>,
}

fn build_auth(
    file: &GatewayConfig,
    policy: &Arc<AddressPolicy>,
    issued: IssuedCredentials<'_>,
    metrics: &Arc<Metrics>,
    previous: Option<&Authorizer>,
) -> Result<Arc<Authorizer>, Vec<String>> {
    let client = FetchClient::build(&file.network, Arc::clone(policy))
        .map_err(|problems| prefix_problems("network", problems))?;
    let cors = file.cors.as_ref().filter(|cors| cors.pairing.is_some());
    let browser_pairing = cors.map(|cors| BrowserPairingAccess::new(issued.pairings, &cors.allowed_origins));
    let (metrics, logged_callers) = (Arc::clone(metrics), file.access_log.callers);
    let revocations = Arc::clone(issued.revocations);
    let told_claims = caller_headers_wiring::told_claims(file);
    let services = AuthServices { client, metrics, browser_pairing, revocations, logged_callers, told_claims };
    Authorizer::build(&file.auth, &file.access, &services, previous).map(Arc::new)
}
