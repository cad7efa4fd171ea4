//! Compiles documents into routes, on all cores. A document whose digest is known is reused and not compiled again.
//! A document that is invalid, or whose compilation panics, affects only itself.

use super::{feed::Document, read};
use crate::{
    agent::{Agent, AgentId},
    unit::json::cut,
};
use foldhash::fast::RandomState;
use serde_json::Value;
use std::{
    collections::{HashMap, HashSet},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

/// Compiles an agent into its route, the form that a call needs.
pub trait Compile: Send + Sync {
    /// What a lookup returns.
    type Route: Send + Sync + 'static;

    /// Compiles the route of `agent`. Called from several threads; may take long.
    ///
    /// # Errors
    /// Every reason why the agent cannot be routed to.
    fn compile(&self, agent: Arc<Agent>) -> Result<Self::Route, Vec<String>>;
}

/// The compiler in force.
pub(super) type Compiler<R> = Arc<dyn Compile<Route = R>>;

/// Interned schemas: most agents of a kind declare equal schemas, and schemas dominate the memory of an agent.
#[derive(Default)]
pub(super) struct Schemas(Mutex<HashSet<Arc<Value>, RandomState>>);

impl Schemas {
    fn share(&self, schema: &mut Option<Arc<Value>>) {
        let Some(own) = schema else { return };
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match known.get(own) {
            Some(shared) => *own = Arc::clone(shared),
            None => {
                known.insert(Arc::clone(own));
            }
        }
    }

    /// Drops the schemas that no agent uses.
    pub(super) fn sweep(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|schema| Arc::strong_count(schema) > 1);
    }
}

/// Number of documents that a thread takes at a time.
const BATCH: usize = 64;
/// Maximum number of reasons stored for one document.
const REASONS: usize = 20;
/// Maximum length of one reason in characters.
const LONGEST_REASON: usize = 500;

/// Result of compiling one document.
pub(super) struct Held<R> {
    pub(super) digest: [u8; 32],
    /// The agent, where the document is valid.
    pub(super) agent: Option<Arc<Agent>>,
    /// The `id` member of a document that is not a valid agent.
    pub(super) id: Option<Box<str>>,
    pub(super) route: Result<Arc<R>, Vec<String>>,
}

impl<R> Held<R> {
    /// Returns the agent's id, where the agent can be called.
    pub(super) fn usable(&self) -> Option<&AgentId> {
        self.route.as_ref().ok()?;
        self.agent.as_ref().map(|agent| &agent.id)
    }
}

impl<R: Send + Sync + 'static> Held<R> {
    fn of(document: Document, compiler: &Compiler<R>, schemas: &Schemas) -> Self {
        let digest = document.digest;
        let refused = |id, reasons| Self { digest, agent: None, id, route: Err(bounded(reasons)) };
        let value = match read::value(document.body) {
            Ok(value) => value,
            Err(why) => return refused(None, vec![why]),
        };
        match Agent::from_document(&value, digest) {
            Ok(mut agent) => {
                for operation in &mut agent.operations {
                    schemas.share(&mut operation.inputs);
                    schemas.share(&mut operation.outputs);
                }
                Self::routed(Arc::new(agent), compiler)
            }
            Err(reasons) => {
                let id = value.get("id").and_then(|id| id.as_str()).map(|id| cut(id, 128).into());
                refused(id, reasons)
            }
        }
    }

    fn routed(agent: Arc<Agent>, compiler: &Compiler<R>) -> Self {
        let compile = || compiler.compile(Arc::clone(&agent));
        let route = catch_unwind(AssertUnwindSafe(compile))
            .unwrap_or_else(|_| Err(vec![defect()]))
            .map(Arc::new)
            .map_err(bounded);
        Self { digest: agent.digest, agent: Some(agent), id: None, route }
    }

    /// Compiles the agent again with another compiler.
    pub(super) fn again(&self, compiler: &Compiler<R>) -> Option<Self> {
        self.agent.clone().map(|agent| Self::routed(agent, compiler))
    }
}

/// Truncates the reasons: they quote the document, which must not decide how much of a log they fill.
fn bounded(reasons: Vec<String>) -> Vec<String> {
    let kept = reasons.iter().take(REASONS);
    kept.map(|reason| cut(reason, LONGEST_REASON)).collect()
}

fn defect() -> String {
    "internal error: compiling the document panicked (a defect of the gateway)".to_owned()
}

/// Compiled documents by digest.
pub(super) type Known<R> = HashMap<[u8; 32], Arc<Held<R>>, RandomState>;

/// Parses and compiles the documents that `known` does not contain; the result has the order of `documents`.
pub(super) fn settle<R: Send + Sync + 'static>(
    documents: Vec<Document>,
    known: &Known<R>,
    compiler: &Compiler<R>,
    schemas: &Schemas,
) -> Vec<Arc<Held<R>>> {
    let one = |document: Document| match known.get(&document.digest) {
        Some(held) => Arc::clone(held),
        None => {
            let digest = document.digest;
            let held = catch_unwind(AssertUnwindSafe(|| Held::of(document, compiler, schemas)));
            Arc::new(held.unwrap_or_else(|_| Held { digest, agent: None, id: None, route: Err(vec![defect()]) }))
        }
    };
    spread(documents, one)
}

/// Applies `each` to all items on all cores, and keeps their order. Few items stay on this thread.
pub(super) fn spread<T: Send, U: Send>(items: Vec<T>, each: impl Fn(T) -> U + Sync) -> Vec<U> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from).min(items.len() / BATCH + 1);
    if cores < 2 {
        return items.into_iter().map(each).collect();
    }
    let mut items = items.into_iter();
    let batches: Vec<Mutex<Vec<T>>> =
        std::iter::from_fn(|| Some(items.by_ref().take(BATCH).collect::<Vec<_>>()).filter(|batch| !batch.is_empty()))
            .map(Mutex::new)
            .collect();
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        while let Some((at, batch)) = take(&batches, &next) {
            done.push((at, batch.into_iter().map(&each).collect::<Vec<U>>()));
        }
        done
    };
    let mut done: Vec<(usize, Vec<U>)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (1..cores).map(|_| scope.spawn(work)).collect();
        let mut done = work();
        done.extend(threads.into_iter().filter_map(|thread| thread.join().ok()).flatten());
        done
    });
    done.sort_unstable_by_key(|(at, _)| *at);
    done.into_iter().flat_map(|(_, batch)| batch).collect()
}

fn take<T>(batches: &[Mutex<Vec<T>>], next: &AtomicUsize) -> Option<(usize, Vec<T>)> {
    let at = next.fetch_add(1, Ordering::Relaxed);
    let mut batch = batches.get(at)?.lock().unwrap_or_else(PoisonError::into_inner);
    Some((at, std::mem::take(&mut *batch)))
}
