//! Assembly: builds a gateway from a configuration and reconfigures it. Collects the problems of all sections.

use super::{
    directory::{Found, delegation, directory},
    form::{form, settings, within},
    later::{self, Later},
    names,
    offers::offers,
};
use crate::{
    auth::{Auth, Paired, Services},
    config::File,
    directory::Directory,
    gateway::{Bridge, Cors, Delegation, Gateway, Route, RouteRule, Routes, World},
    limit::Limits,
    names::Resolver,
    net::{self, AddressPolicy, Client},
    registry::{self, Catalogue, Lazy, PublishConfig, Registry, Source, Watch},
    telemetry::{AccessLog, Metrics},
    transport::Transport,
};
use arc_swap::ArcSwap;
use http::HeaderName;
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// How long startup waits for the search index.
const INDEXING: Duration = Duration::from_secs(2);

/// An assembled gateway that does not listen yet, with the state needed to reconfigure it.
pub struct Parts {
    /// The gateway.
    pub gateway: Arc<Gateway>,
    /// The addresses that the gateway may connect to.
    pub policy: Arc<ArcSwap<AddressPolicy>>,
    /// The MQTT bridge.
    pub bridge: Bridge,
    watch: Mutex<Option<Watch>>,
    found: Mutex<Arc<Found>>,
    lazy: Mutex<Asked>,
}

/// The lazily queried registries, with the configuration they were built from.
type Asked = (Option<Arc<Lazy<Route>>>, Vec<Source>, net::Config);

impl Parts {
    /// Builds all parts; requires a tokio runtime.
    ///
    /// # Errors
    /// Every problem, each formatted as `path: message`.
    pub async fn new(file: &File) -> Result<Self, Vec<String>> {
        let metrics = Metrics::new().map_err(|why| vec![format!("the metrics cannot be created ({why})")])?;
        let mut problems = form(file);
        metrics.configure(&file.metrics);
        let log = AccessLog::new(file.access_log.to.clone(), Arc::clone(&metrics)).map_err(|why| vec![why]);
        let log = keep(log, "access_log", &mut problems);
        let limits = keep(Limits::new(&file.limits, Arc::clone(&metrics)), "limits", &mut problems);
        let policy = Arc::new(file.network.policy());
        let transport = Transport::new(Arc::clone(&policy));
        let named = keep(names::resolver(file, &policy, None), "", &mut problems);
        transport.set_local(file.local_runtimes.clone());
        let paired = Arc::new(Paired::default());
        let auth = keep(auth(file, (&policy, &paired), &metrics, None), "", &mut problems);
        problems.extend(settings(file, &transport));
        let made = (log, limits, auth, named);
        let ((Some(log), Some(limits), Some(auth), Some(named)), true) = (made, problems.is_empty()) else {
            // Also reports a missing folder of agents together with the other problems.
            problems.extend(within("agents", feed(file).problems()));
            return Err(problems);
        };
        transport.set_names(Arc::clone(&named));
        let registry = registry(file, &policy).await.map_err(|whys| within("registry", whys))?;
        let opened = sources(file, &policy, registry.as_ref()).map_err(|whys| within("agents", whys))?;
        let limits = Arc::new(limits);
        let routes = routes(file, &auth, (&limits, &transport, &metrics));
        let catalogue: Arc<Catalogue<Route>> = Arc::new(Catalogue::new(Arc::new(routes), Arc::clone(&metrics)));
        let found = found(file, &catalogue)?;
        if let Some(registry) = &registry {
            let served = Arc::clone(&catalogue);
            registry.reserve(Arc::new(move |id| served.load().get(id.as_str()).is_some()));
        }
        let directory = directory(file, &found, registry, &named).map_err(|whys| within("directory", whys))?;
        let later = later::open(file, &policy, &metrics).await?;
        let delegation = delegation(file, &directory)?;
        let lazy = lazy(file, &policy, &catalogue).map_err(|whys| within("agents", whys))?;
        let watch = Watch::start(&catalogue, opened).await;
        // Calls do not need the search index, so startup waits only briefly.
        found.indexed().catch_up(INDEXING).await;
        metrics.name_tiers(file.limits.tiers.keys().map(String::as_str));
        let world = ArcSwap::from_pointee(world(file, (auth, (directory, delegation), lazy.clone()), later));
        let gateway = Gateway { world, catalogue, limits, transport, metrics, log: Arc::new(log), paired };
        let (gateway, policy) = (Arc::new(gateway), Arc::new(ArcSwap::new(policy)));
        let lazy = Mutex::new((lazy, file.agents.sources.clone(), file.network.clone()));
        let bridge = Bridge::new(&gateway, offers(file)?);
        Ok(Self { gateway, policy, bridge, watch: Mutex::new(Some(watch)), found: Mutex::new(found), lazy })
    }

    /// Applies a changed configuration without closing a connection. Listeners, the admin address and the access log's
    /// target keep their startup values.
    ///
    /// # Errors
    /// Every problem; in that case nothing has changed.
    pub async fn reconfigure(&self, file: &File) -> Result<(), Vec<String>> {
        let gateway = &self.gateway;
        let policy = Arc::new(file.network.policy());
        let mut problems = form(file);
        problems.extend(within("limits", file.limits.problems()));
        problems.extend(within("registry", file.registry.iter().flat_map(PublishConfig::problems).collect()));
        let kept = gateway.world.load().directory.registry.clone();
        let opened = keep(sources(file, &policy, kept.as_ref()), "agents", &mut problems);
        problems.extend(settings(file, &gateway.transport));
        let before = gateway.world.load_full();
        let auth = auth(file, (&policy, &gateway.paired), &gateway.metrics, Some(&before.auth));
        let auth = keep(auth, "", &mut problems);
        let named = keep(names::resolver(file, &policy, gateway.transport.names()), "", &mut problems);
        let found = named.as_ref().and_then(|named| keep(self.found(file, &kept, named), "", &mut problems));
        let asked = keep(self.lazy(file, &policy), "agents", &mut problems);
        let offered = keep(offers(file), "", &mut problems);
        let made = (auth, opened, found, asked, (named, offered));
        let ((Some(auth), Some(opened), Some((found, directory)), Some(asked), (Some(named), Some(offered))), true) =
            (made, problems.is_empty())
        else {
            return Err(problems);
        };
        let delegation = delegation(file, &directory)?;
        // First, because it loads a secret and can fail; the sections below were validated above.
        let later = later::reconfigure(file, &before, (&policy, &gateway.metrics))?;
        gateway.limits.reconfigure(&file.limits).map_err(|whys| within("limits", whys))?;
        if let (Some(registry), Some(config)) = (&kept, &file.registry) {
            registry.reconfigure(config, Arc::clone(&policy)).map_err(|whys| within("registry", whys))?;
        }
        // Nothing below can fail, so the previous configuration may be dropped.
        *self.found.lock().unwrap_or_else(PoisonError::into_inner) = found;
        *self.lazy.lock().unwrap_or_else(PoisonError::into_inner) = asked.clone();
        policy.refuse_own(self.policy.load().own());
        gateway.transport.set_policy(Arc::clone(&policy));
        gateway.transport.set_names(named);
        gateway.transport.set_local(file.local_runtimes.clone());
        self.policy.store(policy);
        gateway.metrics.configure(&file.metrics);
        gateway.metrics.name_tiers(file.limits.tiers.keys().map(String::as_str));
        let routes = routes(file, &auth, (&gateway.limits, &gateway.transport, &gateway.metrics));
        gateway.world.store(Arc::new(world(file, (auth, (directory, delegation), asked.0), later)));
        let catalogue = Arc::clone(&gateway.catalogue);
        let recompiled = tokio::task::spawn_blocking(move || catalogue.recompile(Arc::new(routes))).await;
        if let Err(why) = recompiled {
            tracing::error!("agents could not be recompiled after the reload: {why}");
        }
        let watch = Watch::start(&gateway.catalogue, opened).await;
        *self.watch.lock().unwrap_or_else(PoisonError::into_inner) = Some(watch);
        self.bridge.offer(offered);
        Ok(())
    }

    /// Returns the directory of a changed configuration, and the search index, which is kept if its settings are equal.
    fn found(
        &self,
        file: &File,
        registry: &Option<Arc<Registry>>,
        named: &Arc<Resolver>,
    ) -> Result<(Arc<Found>, Arc<Directory>), Vec<String>> {
        let before = Arc::clone(&self.found.lock().unwrap_or_else(PoisonError::into_inner));
        let found = if before.is_as(&file.directory.search) { before } else { found(file, &self.gateway.catalogue)? };
        let directory = directory(file, &found, registry.clone(), named).map_err(|whys| within("directory", whys))?;
        Ok((found, directory))
    }

    /// Returns the lazily queried registries of a changed configuration. Keeps the current ones, with their caches, if
    /// their settings are equal.
    fn lazy(&self, file: &File, policy: &Arc<AddressPolicy>) -> Result<Asked, Vec<String>> {
        let before = self.lazy.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if before.1 == file.agents.sources && before.2 == file.network {
            return Ok(before);
        }
        let made = lazy(file, policy, &self.gateway.catalogue)?;
        Ok((made, file.agents.sources.clone(), file.network.clone()))
    }

    /// Returns the warnings for operators: documents that are not served and sources that cannot be read, with reasons.
    pub fn notes(&self) -> Vec<String> {
        let snapshot = self.gateway.catalogue.snapshot();
        let refused = snapshot.refused.iter().map(|refusal| format!("not served: {refusal}"));
        let troubles = snapshot.troubles.iter().map(|(part, why)| format!("not read: {part}: {why}"));
        let sources = self.gateway.catalogue.sources();
        let warnings = sources.iter().filter_map(|source| Some(format!("{}: {}", source.name, source.warning()?)));
        refused.chain(troubles).chain(warnings).collect()
    }
}

fn found(file: &File, catalogue: &Arc<Catalogue<Route>>) -> Result<Arc<Found>, Vec<String>> {
    Found::new(&file.directory.search, catalogue).map(Arc::new).map_err(|whys| within("directory.search", whys))
}

fn lazy(
    file: &File,
    policy: &Arc<AddressPolicy>,
    catalogue: &Arc<Catalogue<Route>>,
) -> Result<Option<Arc<Lazy<Route>>>, Vec<String>> {
    let asked = registry::lookups(&file.agents.sources, &file.network, policy)?;
    Ok(asked.map(|(registries, memory)| Arc::new(Lazy::new(Arc::clone(catalogue), registries, memory))))
}

type Told = (Arc<Directory>, Option<Arc<Delegation>>);
type Made = (Arc<Auth>, Told, Option<Arc<Lazy<Route>>>);

fn world(file: &File, (auth, (directory, delegation), lazy): Made, (tasks, once): Later) -> World {
    let key_header = file.auth.api_keys.as_ref().and_then(|keys| keys.header.parse::<HeaderName>().ok());
    World {
        auth,
        lazy,
        directory,
        tasks,
        once,
        delegation,
        contract: file.contract.clone(),
        format: file.errors.format,
        key_header,
        // An invalid section was reported before: `check_sections` validates it first.
        cors: file.cors.as_ref().and_then(|cors| Cors::build(cors).ok()),
        max_stream: file.agents.max_streamed_body_size,
        sockets: file.websocket.clone(),
        stream_keep_alive: file.agents.sse_keep_alive_interval.get(),
    }
}

fn auth(
    file: &File,
    (policy, paired): (&Arc<AddressPolicy>, &Arc<Paired>),
    metrics: &Arc<Metrics>,
    before: Option<&Auth>,
) -> Result<Arc<Auth>, Vec<String>> {
    let client = Client::build(&file.network, Arc::clone(policy)).map_err(|whys| within("network", whys))?;
    let services = Services { client, metrics: Arc::clone(metrics) };
    let auth = Auth::build(&file.auth, &file.access, &services, before)?;
    Ok(Arc::new(match file.cors.as_ref().filter(|cors| cors.pairing.is_some()) {
        Some(cors) => auth.with_pages(Arc::clone(paired), cors.origins.clone()),
        None => auth,
    }))
}

type Lasting<'a> = (&'a Arc<Limits>, &'a Transport, &'a Arc<Metrics>);

fn routes(file: &File, auth: &Arc<Auth>, (limits, transport, metrics): Lasting<'_>) -> Routes {
    let rules = file.agents.rules.iter().map(|rule| RouteRule {
        agents: rule.agents.clone(),
        settings: rule.settings.clone(),
        rate: rule.rate_limit,
        concurrency: rule.max_concurrency,
        adaptive: rule.adaptive_concurrency,
        slow: rule.slow,
    });
    Routes {
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
fn sources(
    file: &File,
    policy: &Arc<AddressPolicy>,
    registry: Option<&Arc<Registry>>,
) -> Result<registry::Sources, Vec<String>> {
    let registry = registry.map(|registry| Box::new(registry.feed()) as _);
    let means = registry::Means { network: &file.network, policy: Arc::clone(policy), registry };
    registry::Sources::open(&feed(file), means)
}

/// Opens the built-in registry; a rehearsal only validates its settings.
async fn registry(file: &File, policy: &Arc<AddressPolicy>) -> Result<Option<Arc<Registry>>, Vec<String>> {
    let Some(config) = &file.registry else { return Ok(None) };
    if file.agents.rehearsal {
        let problems = config.problems();
        return if problems.is_empty() { Ok(None) } else { Err(problems) };
    }
    Registry::open(config, Arc::clone(policy)).await.map(|registry| Some(Arc::new(registry)))
}

fn feed(file: &File) -> registry::Config {
    let agents = &file.agents;
    registry::Config {
        from: agents.sources.clone(),
        poll: agents.poll_interval,
        last_known_good: agents.last_known_good.as_ref().map(|folder| folder.to_path_buf()),
        cache: agents.cache,
        rehearsal: agents.rehearsal,
    }
}

fn keep<T>(made: Result<T, Vec<String>>, section: &str, problems: &mut Vec<String>) -> Option<T> {
    made.map_err(|whys| problems.extend(within(section, whys))).ok()
}
