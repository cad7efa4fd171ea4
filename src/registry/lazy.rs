//! Lazy lookup, for registries too large to copy: an agent that is not in the catalogue is looked up when it is called.
//! Concurrent calls share one lookup; results are cached, and agents found stay while their registry is down.

use super::{catalogue::Catalogue, feed::Document, settle::Held};
use crate::{
    agent::AgentId,
    fault::{Code, Fault},
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
const MOST: u64 = 100_000;
/// Maximum number of concurrent lookups over all ids.
const AT_ONCE: usize = 64;
/// Delay before the next lookup of an id after a failed lookup.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// Maximum duration of a lookup where a result is cached, and where none is.
const WITH_MEMORY: Duration = Duration::from_millis(500);
const WITHOUT: Duration = Duration::from_secs(10);

/// A registry that is asked for one agent at a time.
#[async_trait::async_trait]
pub trait Lookup: Send + Sync + 'static {
    /// Returns the document of the agent `id`; `None` where the registry does not have the agent.
    ///
    /// # Errors
    /// Why the registry could not be asked.
    async fn look(&self, id: &AgentId) -> Result<Option<Document>, String>;
}

/// How long results are cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Of an agent that was found: afterwards the agent is looked up again.
    pub found: Duration,
    /// Of an id that no registry has.
    pub missing: Duration,
    /// Of an agent that was found, while its registry is down.
    pub stale: Duration,
}

/// Agents that are looked up when they are called.
pub struct Lazy<R> {
    catalogue: Arc<Catalogue<R>>,
    registries: Vec<Arc<dyn Lookup>>,
    memory: Memory,
    known: Cache<AgentId, Arc<Entry<R>>>,
    places: Semaphore,
}

struct Entry<R> {
    learnt: ArcSwapOption<Learnt<R>>,
    /// Held during a lookup: concurrent calls wait for its result.
    asking: Mutex<()>,
}

struct Learnt<R> {
    held: Option<Arc<Held<R>>>,
    /// When the registry last confirmed the agent.
    at: Instant,
    until: Instant,
    /// Number of the catalogue's compiler; with another one the route is compiled again.
    compiler: u64,
}

impl<R: Send + Sync + 'static> Lazy<R> {
    /// Creates a cache in front of `registries`, which are asked in order.
    pub fn new(catalogue: Arc<Catalogue<R>>, registries: Vec<Arc<dyn Lookup>>, memory: Memory) -> Self {
        let known = Cache::builder().max_capacity(MOST).time_to_idle(memory.stale.max(memory.found)).build();
        Self { catalogue, registries, memory, known, places: Semaphore::new(AT_ONCE) }
    }

    /// Returns the route to the agent, if it is cached.
    pub fn known(&self, id: &str) -> Option<Arc<R>> {
        let learnt = self.known.get(id)?.learnt.load_full()?;
        learnt.is_fresh(self.catalogue.compiler()).then(|| learnt.route())?
    }

    /// Returns the route to the agent, and looks the agent up where it is not cached; `None` where no registry has the
    /// agent or its document is rejected.
    ///
    /// # Errors
    /// `Overloaded` where a registry cannot be reached and nothing is cached.
    pub async fn find(&self, id: &AgentId) -> Result<Option<Arc<R>>, Fault> {
        let fresh = || Entry { learnt: ArcSwapOption::empty(), asking: Mutex::default() };
        let entry = self.known.get_with_by_ref(id, || Arc::new(fresh()));
        let known =
            |entry: &Entry<R>| entry.learnt.load_full().filter(|learnt| learnt.is_fresh(self.catalogue.compiler()));
        if let Some(learnt) = known(&entry) {
            return Ok(learnt.route());
        }
        let _asking = entry.asking.lock().await;
        if let Some(learnt) = known(&entry) {
            return Ok(learnt.route());
        }
        let before = entry.learnt.load_full();
        let learnt = Arc::new(self.ask(id, before.as_deref()).await?);
        entry.learnt.store(Some(Arc::clone(&learnt)));
        Ok(learnt.route())
    }

    async fn ask(&self, id: &AgentId, before: Option<&Learnt<R>>) -> Result<Learnt<R>, Fault> {
        let compiler = self.catalogue.compiler();
        let before = before.filter(|before| before.held.is_some() && before.at.elapsed() < self.memory.stale);
        if let Some(before) = before.filter(|before| before.compiler != compiler && Instant::now() < before.until) {
            return self.again(before, before.until).await.ok_or_else(gone);
        }
        // An agent that is cached does not wait long for a registry that hangs.
        let patience = if before.is_some() { WITH_MEMORY } else { WITHOUT };
        let asked = tokio::time::timeout(patience, self.look(id, before.is_some())).await;
        let why = match asked.unwrap_or_else(|_| Err(format!("no response within {patience:?}"))) {
            Ok(held) => return Ok(self.learn(held, compiler)),
            Err(why) => why,
        };
        tracing::warn!(agent = %id, error = %why, kept = before.is_some(), "registry lookup of an agent failed");
        let kept = match before {
            Some(before) => self.again(before, Instant::now() + AFTER_FAILURE).await,
            None => None,
        };
        kept.ok_or_else(|| gone().detail(why))
    }

    /// Asks the registries in order. A registry that cannot be reached may have the id, so that those after it are not
    /// asked then. A document that cannot be used never replaces a cached agent (`known`).
    async fn look(&self, id: &AgentId, known: bool) -> Result<Option<Arc<Held<R>>>, String> {
        let _place = self.places.acquire().await;
        for registry in &self.registries {
            let Some(document) = registry.look(id).await? else { continue };
            let held = self.judge(id, document).await;
            let usable = held.as_ref().is_some_and(|held| held.route.is_ok());
            if !usable && known {
                return Err("the document is invalid".to_owned());
            }
            return Ok(held);
        }
        Ok(None)
    }

    /// Returns the cached result, with its route compiled by the compiler in force.
    async fn again(&self, before: &Learnt<R>, until: Instant) -> Option<Learnt<R>> {
        let (compiler, held) = (self.catalogue.compiler(), before.held.clone()?);
        let held = match before.compiler == compiler {
            true => held,
            false => {
                let catalogue = Arc::clone(&self.catalogue);
                tokio::task::spawn_blocking(move || catalogue.again(&held)).await.ok()??
            }
        };
        Some(Learnt { held: Some(held), at: before.at, until, compiler })
    }

    /// Compiles a document on a blocking thread, because compiling may take long.
    async fn judge(&self, id: &AgentId, document: Document) -> Option<Arc<Held<R>>> {
        let catalogue = Arc::clone(&self.catalogue);
        let held = tokio::task::spawn_blocking(move || catalogue.judge(document)).await.ok()?;
        if let Err(reasons) = &held.route {
            tracing::warn!(agent = %id, ?reasons, "agent document rejected");
        }
        let own = held.agent.as_ref().is_some_and(|agent| agent.id == *id);
        if !own {
            tracing::warn!(agent = %id, "agent document rejected: the registry answered with another agent's document");
        }
        own.then_some(held)
    }

    fn learn(&self, held: Option<Arc<Held<R>>>, compiler: u64) -> Learnt<R> {
        let at = Instant::now();
        let span = if held.is_some() { self.memory.found } else { self.memory.missing };
        Learnt { held, at, until: at + span, compiler }
    }
}

fn gone() -> Fault {
    Fault::new(Code::Overloaded, "The registry that may have this agent cannot be reached").retry_after(AFTER_FAILURE)
}

impl<R> Learnt<R> {
    fn is_fresh(&self, compiler: u64) -> bool {
        self.compiler == compiler && Instant::now() < self.until
    }

    fn route(&self) -> Option<Arc<R>> {
        self.held.as_ref()?.route.as_ref().ok().cloned()
    }
}

impl<R> fmt::Debug for Lazy<R> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Lazy").field("memory", &self.memory).finish_non_exhaustive()
    }
}
