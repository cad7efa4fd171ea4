//! Lazy lookup, for registries too large to copy: an agent that is not in the catalogue is looked up when it is called.
//! Concurrent calls share one lookup; results are cached, and agents found stay while their registry is down.

use super::{catalogue::Catalogue, compile_documents::CompiledDocument, feed::RawDocument};
use crate::{
    agent::AgentId,
    fault::{Fault, FaultCode},
};
use arc_swap::ArcSwapOption;
use moka::sync::Cache;
use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::{Mutex, Semaphore};

/// Maximum number of cached ids, found or not.
const MAX_CACHED_IDS: u64 = 100_000;
/// Maximum number of concurrent lookups over all ids.
const MAX_CONCURRENT_LOOKUPS: usize = 64;
/// Delay before the next lookup of an id after a failed lookup.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Maximum duration of a lookup where a result is cached, and where none is.
const CACHED_LOOKUP_TIMEOUT: Duration = Duration::from_millis(500);
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);

/// A registry that is asked for one agent at a time.
#[async_trait::async_trait]
pub trait AgentLookup: Send + Sync + 'static {
    /// Returns the document of the agent `id`; `None` where the registry does not have the agent.
    ///
    /// # Errors
    /// Why the registry could not be asked.
    async fn fetch_document(&self, id: &AgentId) -> Result<Option<RawDocument>, String>;
}

/// How long results are cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookupTtl {
    /// Of an agent that was found: afterwards the agent is looked up again.
    pub found: Duration,
    /// Of an id that no registry has.
    pub missing: Duration,
    /// Of an agent that was found, while its registry is down.
    pub stale: Duration,
}

/// Agents that are looked up when they are called.
pub struct LazyCatalogue<R> {
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

struct LookupResult<R> {
    document: Option<Arc<CompiledDocument<R>>>,
    /// When the registry last confirmed the agent.
    confirmed_at: Instant,
    expires_at: Instant,
    /// Number of the catalogue's compiler; with another one the route is compiled again.
    compiler_number: u64,
}

impl<R: Send + Sync + 'static> LazyCatalogue<R> {
    /// Creates a cache in front of `registries`, which are asked in order.
    pub fn new(catalogue: Arc<Catalogue<R>>, registries: Vec<Arc<dyn AgentLookup>>, memory: LookupTtl) -> Self {
        let known = Cache::builder().max_capacity(MAX_CACHED_IDS).time_to_idle(memory.stale.max(memory.found)).build();
        Self { catalogue, registries, ttl: memory, cache: known, permits: Semaphore::new(MAX_CONCURRENT_LOOKUPS) }
    }

    /// Returns the route to the agent, if it is cached.
    pub fn cached_route(&self, id: &str) -> Option<Arc<R>> {
        let learnt = self.cache.get(id)?.result.load_full()?;
        learnt.is_fresh(self.catalogue.compiler_number()).then(|| learnt.route())?
    }

    /// Returns the route to the agent, and looks the agent up where it is not cached; `None` where no registry has the
    /// agent or its document is rejected.
    ///
    /// # Errors
    /// `Overloaded` where a registry cannot be reached and nothing is cached.
    pub async fn look_up(&self, id: &AgentId) -> Result<Option<Arc<R>>, Fault> {
        let fresh = || LookupEntry { result: ArcSwapOption::empty(), lookup_lock: Mutex::default() };
        let entry = self.cache.get_with_by_ref(id, || Arc::new(fresh()));
        let known = |entry: &LookupEntry<R>| {
            entry.result.load_full().filter(|learnt| learnt.is_fresh(self.catalogue.compiler_number()))
        };
        if let Some(learnt) = known(&entry) {
            return Ok(learnt.route());
        }
        let _asking = entry.lookup_lock.lock().await;
        if let Some(learnt) = known(&entry) {
            return Ok(learnt.route());
        }
        let before = entry.result.load_full();
        let learnt = Arc::new(self.refresh(id, before.as_deref()).await?);
        entry.result.store(Some(Arc::clone(&learnt)));
        Ok(learnt.route())
    }

    async fn refresh(&self, id: &AgentId, before: Option<&LookupResult<R>>) -> Result<LookupResult<R>, Fault> {
        let compiler = self.catalogue.compiler_number();
        let before =
            before.filter(|before| before.document.is_some() && before.confirmed_at.elapsed() < self.ttl.stale);
        if let Some(before) =
            before.filter(|before| before.compiler_number != compiler && Instant::now() < before.expires_at)
        {
            return self.renew_result(before, before.expires_at).await.ok_or_else(registry_unavailable);
        }
        // An agent that is cached does not wait long for a registry that hangs.
        let patience = if before.is_some() { CACHED_LOOKUP_TIMEOUT } else { LOOKUP_TIMEOUT };
        let asked = tokio::time::timeout(patience, self.query_registries(id, before.is_some())).await;
        let why = match asked.unwrap_or_else(|_| Err(format!("no response within {patience:?}"))) {
            Ok(held) => return Ok(self.new_result(held, compiler)),
            Err(why) => why,
        };
        tracing::warn!(agent = %id, error = %why, kept = before.is_some(), "registry lookup of an agent failed");
        let kept = match before {
            Some(before) => self.renew_result(before, Instant::now() + RETRY_DELAY).await,
            None => None,
        };
        kept.ok_or_else(|| registry_unavailable().with_detail(why))
    }

    /// Asks the registries in order. A registry that cannot be reached may have the id, so that those after it are not
    /// asked then. A document that cannot be used never replaces a cached agent (`known`).
    async fn query_registries(&self, id: &AgentId, known: bool) -> Result<Option<Arc<CompiledDocument<R>>>, String> {
        let _place = self.permits.acquire().await;
        for registry in &self.registries {
            let Some(document) = registry.fetch_document(id).await? else { continue };
            let held = self.compile_document(id, document).await;
            let usable = held.as_ref().is_some_and(|held| held.route.is_ok());
            if !usable && known {
                return Err("the document is invalid".to_owned());
            }
            return Ok(held);
        }
        Ok(None)
    }

    /// Returns the cached result, with its route compiled by the compiler in force.
    async fn renew_result(&self, before: &LookupResult<R>, until: Instant) -> Option<LookupResult<R>> {
        let (compiler, held) = (self.catalogue.compiler_number(), before.document.clone()?);
        let held = match before.compiler_number == compiler {
            true => held,
            false => {
                let catalogue = Arc::clone(&self.catalogue);
                tokio::task::spawn_blocking(move || catalogue.recompile_document(&held)).await.ok()??
            }
        };
        Some(LookupResult {
            document: Some(held),
            confirmed_at: before.confirmed_at,
            expires_at: until,
            compiler_number: compiler,
        })
    }

    /// Compiles a document on a blocking thread, because compiling may take long.
    async fn compile_document(&self, id: &AgentId, document: RawDocument) -> Option<Arc<CompiledDocument<R>>> {
        let catalogue = Arc::clone(&self.catalogue);
        let held = tokio::task::spawn_blocking(move || catalogue.compile_document(document)).await.ok()?;
        if let Err(reasons) = &held.route {
            tracing::warn!(agent = %id, ?reasons, "agent document rejected");
        }
        let own = held.agent.as_ref().is_some_and(|agent| agent.id == *id);
        if !own {
            tracing::warn!(agent = %id, "agent document rejected: the registry answered with another agent's document");
        }
        own.then_some(held)
    }

    fn new_result(&self, held: Option<Arc<CompiledDocument<R>>>, compiler: u64) -> LookupResult<R> {
        let at = Instant::now();
        let span = if held.is_some() { self.ttl.found } else { self.ttl.missing };
        LookupResult { document: held, confirmed_at: at, expires_at: at + span, compiler_number: compiler }
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

    fn route(&self) -> Option<Arc<R>> {
        self.document.as_ref()?.route.as_ref().ok().cloned()
    }
}

impl<R> fmt::Debug for LazyCatalogue<R> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Lazy").field("memory", &self.ttl).finish_non_exhaustive()
    }
}
