//! The lazy mode, for registries too large to copy: whoever is not in the catalogue is asked for, once for all who
//! wait, and remembered for a while, found or not. What was found stays while its registry is down.

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

/// Ids remembered, found or not.
const MOST: u64 = 100_000;
/// Lookups under way at once, over all ids.
const AT_ONCE: usize = 64;
/// How long a registry that failed is left alone about one id.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// How long is waited for the registries where something is remembered, and where nothing is.
const WITH_MEMORY: Duration = Duration::from_millis(500);
const WITHOUT: Duration = Duration::from_secs(10);

/// A registry that is asked for one agent at a time.
#[async_trait::async_trait]
pub trait Lookup: Send + Sync + 'static {
    /// The document of the agent called `id`; `None` where the registry says that there is none.
    ///
    /// # Errors
    /// Why it cannot be told.
    async fn look(&self, id: &AgentId) -> Result<Option<Document>, String>;
}

/// How long what was learnt counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// An agent that was found: then it is asked for again.
    pub found: Duration,
    /// An id that no registry has.
    pub missing: Duration,
    /// An agent that was found, while its registry is down.
    pub stale: Duration,
}

/// Agents that are looked up when they are first called.
pub struct Lazy<R> {
    catalogue: Arc<Catalogue<R>>,
    registries: Vec<Arc<dyn Lookup>>,
    memory: Memory,
    known: Cache<AgentId, Arc<Entry<R>>>,
    places: Semaphore,
}

struct Entry<R> {
    learnt: ArcSwapOption<Learnt<R>>,
    /// Held while the registries are asked: whoever comes meanwhile waits for the same answer.
    asking: Mutex<()>,
}

struct Learnt<R> {
    held: Option<Arc<Held<R>>>,
    /// When what is held was last confirmed.
    at: Instant,
    until: Instant,
    /// Of the catalogue; another one makes every route anew.
    compiler: u64,
}

impl<R: Send + Sync + 'static> Lazy<R> {
    /// Asks `registries`, the first before the others.
    pub fn new(catalogue: Arc<Catalogue<R>>, registries: Vec<Arc<dyn Lookup>>, memory: Memory) -> Self {
        let known = Cache::builder().max_capacity(MOST).time_to_idle(memory.stale.max(memory.found)).build();
        Self { catalogue, registries, memory, known, places: Semaphore::new(AT_ONCE) }
    }

    /// The route to the agent, as far as it is known now.
    pub fn known(&self, id: &str) -> Option<Arc<R>> {
        let learnt = self.known.get(id)?.learnt.load_full()?;
        learnt.is_fresh(self.catalogue.compiler()).then(|| learnt.route())?
    }

    /// The route to the agent, asked for where it is not known; `None` where no registry has it or its document is
    /// refused.
    ///
    /// # Errors
    /// `Overloaded` where a registry cannot be asked and nothing is remembered.
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
        // Who is known is not kept waiting for a registry that hangs.
        let patience = if before.is_some() { WITH_MEMORY } else { WITHOUT };
        let asked = tokio::time::timeout(patience, self.look(id, before.is_some())).await;
        let why = match asked.unwrap_or_else(|_| Err(format!("it does not answer within {patience:?}"))) {
            Ok(held) => return Ok(self.learn(held, compiler)),
            Err(why) => why,
        };
        tracing::warn!(agent = %id, %why, kept = before.is_some(), "a registry could not be asked for an agent");
        let kept = match before {
            Some(before) => self.again(before, Instant::now() + AFTER_FAILURE).await,
            None => None,
        };
        kept.ok_or_else(|| gone().detail(why))
    }

    /// Asks one registry after the other. One that cannot tell may have the id: those behind it are not asked then.
    /// What cannot be used never replaces what is `known`.
    async fn look(&self, id: &AgentId, known: bool) -> Result<Option<Arc<Held<R>>>, String> {
        let _place = self.places.acquire().await;
        for registry in &self.registries {
            let Some(document) = registry.look(id).await? else { continue };
            let held = self.judge(id, document).await;
            let usable = held.as_ref().is_some_and(|held| held.route.is_ok());
            if !usable && known {
                return Err("its document cannot be used".to_owned());
            }
            return Ok(held);
        }
        Ok(None)
    }

    /// What was learnt before, under the compiler in force.
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

    /// Judges a document away from the threads that serve calls: compiling may take its time.
    async fn judge(&self, id: &AgentId, document: Document) -> Option<Arc<Held<R>>> {
        let catalogue = Arc::clone(&self.catalogue);
        let held = tokio::task::spawn_blocking(move || catalogue.judge(document)).await.ok()?;
        if let Err(reasons) = &held.route {
            tracing::warn!(agent = %id, ?reasons, "an agent's document is refused");
        }
        let own = held.agent.as_ref().is_some_and(|agent| agent.id == *id);
        if !own {
            tracing::warn!(agent = %id, "a registry answered with the document of another agent, which is refused");
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
    Fault::new(Code::Overloaded, "the registry that may know the agent cannot be asked").retry_after(AFTER_FAILURE)
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
