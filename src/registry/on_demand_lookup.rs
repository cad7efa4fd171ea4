//! On-demand lookup, for registries too large to copy: an agent that is not in the catalogue is looked up when it is
//! called. Concurrent calls share one lookup; results are cached, and agents found stay while their registry is down.

use super::{
    catalogue::Catalogue,
    endpoint_rules::{EndpointTrust, SERVER_OF_OTHER_OWNER},
    feed::RawDocument,
    route_compilation::{CompiledDocument, SourcedDocument},
};
use crate::{
    agent::{AgentId, AgentSource},
    contract::SchemaCharge,
    fault::{Fault, FaultCode},
};
use arc_swap::ArcSwapOption;
use moka::sync::Cache;
use std::{fmt, sync::Arc, time::Duration};
use tokio::{
    sync::{Mutex, Semaphore},
    time::Instant,
};

/// Maximum number of cached ids, found or not.
const MAX_CACHED_IDS: u64 = 100_000;
/// Estimated memory of a parsed document, as a multiple of its text.
const PARSED_DOCUMENT_FACTOR: u64 = 6;
/// Maximum number of concurrent lookups over all ids.
const MAX_CONCURRENT_LOOKUPS: usize = 64;
/// Delay before the next lookup of an id after a failed lookup.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Maximum duration of a lookup for an id with a cached result.
const CACHED_LOOKUP_TIMEOUT: Duration = Duration::from_millis(500);
/// Maximum duration of a lookup for an id without a cached result.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);

/// A registry that is queried for one agent at a time.
#[async_trait::async_trait]
pub trait AgentLookup: Send + Sync + 'static {
    /// Returns the document of the agent `id`; `None` where the registry does not have the agent.
    ///
    /// # Errors
    /// Why the registry could not be queried.
    async fn fetch_document(&self, id: &AgentId) -> Result<Option<RawDocument>, String>;

    /// Returns the source of the documents.
    fn source(&self) -> Arc<AgentSource>;
}

/// How long the results of lookups are cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookupTtl {
    /// TTL of an agent that was found; afterwards the agent is looked up again.
    pub positive: Duration,
    /// TTL of an id that no registry has.
    pub negative: Duration,
    /// TTL of an agent that was found, while its registry is down.
    pub stale: Duration,
}

/// Agents that are looked up when they are called.
pub struct OnDemandCatalogue<R> {
    catalogue: Arc<Catalogue<R>>,
    registries: Vec<Arc<dyn AgentLookup>>,
    ttl: LookupTtl,
    cache: Cache<AgentId, Arc<LookupEntry<R>>>,
    permits: Semaphore,
}

struct LookupEntry<R> {
    result: ArcSwapOption<LookupResult<R>>,
    /// Held during a lookup: concurrent calls wait for its result.
    lookup_lock: Mutex<()>,
}

impl<R> LookupEntry<R> {
    /// Returns the estimated memory in KiB.
    fn kibibytes(&self) -> u32 {
        let bytes = self.result.load().as_deref().map_or(0, LookupResult::estimated_bytes);
        u32::try_from(bytes >> 10).unwrap_or(u32::MAX)
    }
}

struct LookupResult<R> {
    document: Option<Arc<CompiledDocument<R>>>,
    /// Length of the document's text in bytes.
    text_length: usize,
    /// When the registry last confirmed the agent.
    confirmed_at: Instant,
    expires_at: Instant,
    /// Number of the catalogue's compiler; with another one the route is compiled again.
    compiler_number: u64,
}

/// A document that a registry has.
struct FoundDocument<R> {
    document: Arc<CompiledDocument<R>>,
    text_length: usize,
}

impl<R: Send + Sync + 'static> OnDemandCatalogue<R> {
    /// Creates a cache in front of `registries`, which are queried in order. The cached documents and their schemas take
    /// about `max_bytes` of memory at most; beyond it the cache drops those that were not called for the longest time.
    pub fn new(
        catalogue: Arc<Catalogue<R>>,
        registries: Vec<Arc<dyn AgentLookup>>,
        ttl: LookupTtl,
        max_bytes: u64,
    ) -> Self {
        // In KiB, because a weight has 32 bits. The least weight bounds the number of entries.
        let max_weight = (max_bytes >> 10).max(MAX_CACHED_IDS);
        let least_weight = u32::try_from(max_weight / MAX_CACHED_IDS).unwrap_or(u32::MAX);
        let weigher = move |_: &AgentId, entry: &Arc<LookupEntry<R>>| entry.kibibytes().max(least_weight);
        let builder = Cache::builder().max_capacity(max_weight).weigher(weigher);
        let cache = builder.time_to_idle(ttl.stale.max(ttl.positive)).build();
        Self { catalogue, registries, ttl, cache, permits: Semaphore::new(MAX_CONCURRENT_LOOKUPS) }
    }

    /// Returns the route to the agent, if it is cached.
    pub fn cached_route(&self, id: &str) -> Option<Arc<R>> {
        let result = self.cache.get(id)?.result.load_full()?;
        result.is_fresh(self.catalogue.compiler_number()).then(|| result.route())?
    }

    /// Returns the route to the agent, and looks the agent up where it is not cached; `None` where no registry has the
    /// agent or its document is rejected.
    ///
    /// # Errors
    /// `Overloaded` where a registry cannot be reached and nothing is cached.
    pub async fn look_up(&self, id: &AgentId) -> Result<Option<Arc<R>>, Fault> {
        let empty_entry = || LookupEntry { result: ArcSwapOption::empty(), lookup_lock: Mutex::default() };
        let entry = self.cache.get_with_by_ref(id, || Arc::new(empty_entry()));
        let fresh_result = |entry: &LookupEntry<R>| {
            entry.result.load_full().filter(|result| result.is_fresh(self.catalogue.compiler_number()))
        };
        if let Some(result) = fresh_result(&entry) {
            return Ok(result.route());
        }
        let _lookup_guard = entry.lookup_lock.lock().await;
        if let Some(result) = fresh_result(&entry) {
            return Ok(result.route());
        }
        let previous = entry.result.load_full();
        let result = Arc::new(self.refresh(id, previous.as_deref()).await?);
        entry.result.store(Some(Arc::clone(&result)));
        // The cache weighs an entry when it is inserted.
        self.cache.insert(id.clone(), Arc::clone(&entry));
        Ok(result.route())
    }

    async fn refresh(&self, id: &AgentId, previous: Option<&LookupResult<R>>) -> Result<LookupResult<R>, Fault> {
        let compiler = self.catalogue.compiler_number();
        let previous =
            previous.filter(|previous| previous.document.is_some() && previous.confirmed_at.elapsed() < self.ttl.stale);
        if let Some(previous) =
            previous.filter(|previous| previous.compiler_number != compiler && Instant::now() < previous.expires_at)
        {
            return self.renew_result(previous, previous.expires_at).await.ok_or_else(registry_unavailable);
        }
        // An agent that is cached does not wait long for a registry that hangs.
        let timeout = if previous.is_some() { CACHED_LOOKUP_TIMEOUT } else { LOOKUP_TIMEOUT };
        let response = tokio::time::timeout(timeout, self.query_registries(id, previous.is_some())).await;
        let why = match response.unwrap_or_else(|_| Err(format!("no response within {timeout:?}"))) {
            Ok(found) => return Ok(self.new_result(found, compiler)),
            Err(why) => why,
        };
        tracing::warn!(agent = %id, error = %why, cached = previous.is_some(), "registry lookup of an agent failed");
        let renewed = match previous {
            Some(previous) => self.renew_result(previous, Instant::now() + RETRY_DELAY).await,
            None => None,
        };
        renewed.ok_or_else(|| registry_unavailable().with_detail(why))
    }

    /// Queries the registries in order. A registry that cannot be reached may have the id: the registries after it are
    /// not queried then. A document that cannot be used never replaces a cached agent (`has_cached`).
    async fn query_registries(&self, id: &AgentId, has_cached: bool) -> Result<Option<FoundDocument<R>>, String> {
        let _permit = self.permits.acquire().await;
        for registry in &self.registries {
            let Some(document) = registry.fetch_document(id).await? else { continue };
            let text_length = document.body.text_length();
            let compiled = self.compile_document(id, SourcedDocument::new(document, registry.source())).await;
            let usable = compiled.as_ref().is_some_and(|compiled| compiled.route.is_ok());
            if !usable && has_cached {
                return Err("the document is invalid".to_owned());
            }
            return Ok(compiled.map(|document| FoundDocument { document, text_length }));
        }
        Ok(None)
    }

    /// Returns the cached result, with its route compiled by the compiler in force.
    async fn renew_result(&self, previous: &LookupResult<R>, expires_at: Instant) -> Option<LookupResult<R>> {
        let (compiler, document) = (self.catalogue.compiler_number(), previous.document.clone()?);
        let document = if previous.compiler_number == compiler {
            document
        } else {
            let catalogue = Arc::clone(&self.catalogue);
            tokio::task::spawn_blocking(move || catalogue.recompile_document(&document)).await.ok()??
        };
        Some(LookupResult {
            document: Some(document),
            text_length: previous.text_length,
            confirmed_at: previous.confirmed_at,
            expires_at,
            compiler_number: compiler,
        })
    }

    /// Compiles a document on a blocking thread, because compiling may take long.
    async fn compile_document(&self, id: &AgentId, document: SourcedDocument) -> Option<Arc<CompiledDocument<R>>> {
        let catalogue = Arc::clone(&self.catalogue);
        let compiled = tokio::task::spawn_blocking(move || catalogue.compile_document(document)).await.ok()?;
        if let Err(reasons) = &compiled.route {
            tracing::warn!(agent = %id, ?reasons, "agent document rejected");
        }
        let is_requested_agent = compiled.agent.as_ref().is_some_and(|agent| agent.id == *id);
        if !is_requested_agent {
            tracing::warn!(agent = %id, "agent document rejected: the registry answered with another agent's document");
        }
        let is_other_owners = compiled.claim.is_some_and(|claim| {
            // A remote source comes before publishers, as in the catalogue.
            let owner = self.catalogue.load().server_owner(claim.server).cloned();
            claim.trust == EndpointTrust::Unlisted && owner.is_some_and(|owner| owner.publisher().is_none())
        });
        if is_other_owners {
            tracing::warn!(agent = %id, "agent document rejected: {SERVER_OF_OTHER_OWNER}");
        }
        (is_requested_agent && !is_other_owners).then_some(compiled)
    }

    fn new_result(&self, found: Option<FoundDocument<R>>, compiler: u64) -> LookupResult<R> {
        let now = Instant::now();
        let ttl = if found.is_some() { self.ttl.positive } else { self.ttl.negative };
        let text_length = found.as_ref().map_or(0, |found| found.text_length);
        let document = found.map(|found| found.document);
        LookupResult { document, text_length, confirmed_at: now, expires_at: now + ttl, compiler_number: compiler }
    }
}

fn registry_unavailable() -> Fault {
    Fault::new(FaultCode::Overloaded, "The registry that may have this agent cannot be reached")
        .with_retry_after(RETRY_DELAY)
}

impl<R> LookupResult<R> {
    fn is_fresh(&self, compiler: u64) -> bool {
        self.compiler_number == compiler && Instant::now() < self.expires_at
    }

    fn estimated_bytes(&self) -> u64 {
        let charges = self.document.iter().flat_map(|document| &document.charges);
        charges.map(SchemaCharge::bytes).sum::<u64>() + self.text_length as u64 * PARSED_DOCUMENT_FACTOR
    }

    fn route(&self) -> Option<Arc<R>> {
        self.document.as_ref()?.route.as_ref().ok().cloned()
    }
}

impl<R> fmt::Debug for OnDemandCatalogue<R> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("OnDemandCatalogue").field("ttl", &self.ttl).finish_non_exhaustive()
    }
}
