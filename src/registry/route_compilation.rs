//! Compiles documents into routes, on all cores. A document with an unchanged digest is reused and not compiled again.
//! A document that is invalid, or whose compilation panics, affects only itself.

use super::{
    document_parser,
    endpoint_rules::{EndpointTrust, OnDemandServers},
    feed::{DocumentBody, RawDocument},
};
use crate::{
    agent::{Agent, AgentId, AgentSource, EndpointOrigin, ServerAddress},
    contract::{DocumentBudget, DocumentChecks, SchemaBudget, SchemaCharge, SchemaLimits},
    values::{json::truncate, lower_thread_priority, run_at_low_priority, sha256},
};
use foldhash::fast::RandomState;
use parking_lot::Mutex;
use serde_json::Value;
use std::{
    collections::{HashMap, HashSet},
    hash::{Hash, Hasher},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, LazyLock,
        atomic::{AtomicUsize, Ordering},
    },
};

/// The cores of the machine. The system call reads several files.
static CORES: LazyLock<usize> = LazyLock::new(|| std::thread::available_parallelism().map_or(1, usize::from));

/// Compiles an agent into its route, the form that a call needs.
pub trait CompileRoute: Send + Sync {
    /// What a lookup returns.
    type Route: Send + Sync + 'static;

    /// Compiles the route of `agent`, and charges its schemas to `budget`. Called from several threads; may take long.
    ///
    /// # Errors
    /// Every reason why the agent cannot be routed to.
    fn compile(&self, agent: Arc<Agent>, budget: &DocumentBudget<'_>) -> Result<Self::Route, Vec<String>>;

    /// Returns why an agent whose protocol the gateway does not speak cannot be called here; `None` where it can.
    fn unsupported_reason(&self, _agent: &Agent) -> Option<String> {
        None
    }

    /// Returns how much memory the schemas of agents may take.
    fn schema_limits(&self) -> SchemaLimits {
        SchemaLimits::UNLIMITED
    }

    /// Returns which findings about documents matter, for documents that are published.
    fn document_checks(&self) -> DocumentChecks {
        DocumentChecks::default()
    }

    /// Returns what operators should know about the agent's document.
    fn document_warnings<'r>(&self, _route: &'r Self::Route) -> &'r [String] {
        &[]
    }

    /// Returns whether keywords of the agent's schemas are not in force.
    fn is_partly_checked(&self, _route: &Self::Route) -> bool {
        false
    }

    /// Returns the servers besides the agent's own at which the operator's settings let it be called.
    fn additional_servers(&self, _route: &Self::Route) -> Vec<EndpointOrigin> {
        Vec::new()
    }

    /// Returns the servers that the operator's configuration names apart from documents.
    fn operator_servers(&self) -> Vec<EndpointOrigin> {
        Vec::new()
    }

    /// Returns the servers of sources that are queried on demand.
    fn on_demand_servers(&self) -> OnDemandServers {
        OnDemandServers::default()
    }

    /// Returns whether the operator named the endpoint of the agent.
    fn endpoint_trust(&self, route: &Self::Route) -> EndpointTrust;
}

/// What a document is known by: the same text from another source is another document, because its writer may do less.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DocumentIdentity {
    pub(super) digest: [u8; 32],
    pub(super) source: Arc<AgentSource>,
    /// The addresses of the agent's server that the feed reported with the document.
    pub(super) addresses: Arc<[ServerAddress]>,
    /// What the feed reported about the conversion of the document.
    pub(super) notes: Arc<[String]>,
}

impl Hash for DocumentIdentity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.digest.hash(state);
    }
}

/// A document with its identity.
pub(super) struct SourcedDocument {
    pub(super) identity: DocumentIdentity,
    body: DocumentBody,
}

impl SourcedDocument {
    pub(super) fn new(document: RawDocument, source: Arc<AgentSource>) -> Self {
        let RawDocument { digest, body, addresses, notes, publisher: _ } = document;
        Self { identity: DocumentIdentity { digest, source, addresses, notes }, body }
    }
}

/// What an agent claims by its endpoint.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServerClaim {
    /// A digest of the server.
    pub(super) server: u128,
    pub(super) trust: EndpointTrust,
}

impl ServerClaim {
    /// Returns the digest of the server behind an origin.
    pub(super) fn server_digest(origin: &EndpointOrigin) -> u128 {
        u128::from_le_bytes(sha256(origin.server().as_bytes()).first_chunk().copied().unwrap_or_default())
    }
}

/// The budgets of a source: its own, and one for each publisher.
pub(super) struct SourceBudgets {
    limits: SchemaLimits,
    source: SchemaBudget,
    publishers: Mutex<HashMap<Arc<str>, Arc<SchemaBudget>, RandomState>>,
}

impl SourceBudgets {
    pub(super) fn new(limits: SchemaLimits) -> Self {
        Self { limits, source: SchemaBudget::of_source(limits), publishers: Mutex::default() }
    }

    /// Charges the schemas of a document that stays.
    pub(super) fn record<R>(&self, document: &CompiledDocument<R>) {
        let publisher = document.identity.source.publisher().map(|publisher| self.of_publisher(publisher));
        for charge in &document.charges {
            self.source.record(*charge);
            publisher.iter().for_each(|budget| budget.record(*charge));
        }
    }

    /// Returns the budget of a publisher, with what its documents are charged.
    pub(super) fn of_publisher(&self, publisher: &Arc<str>) -> Arc<SchemaBudget> {
        let mut publishers = self.publishers.lock();
        let budget = publishers.entry(Arc::clone(publisher));
        Arc::clone(budget.or_insert_with(|| Arc::new(SchemaBudget::of_publisher(self.limits))))
    }
}

/// A document to compile, and the budgets of its source.
pub(super) struct PendingDocument {
    pub(super) document: SourcedDocument,
    pub(super) budgets: Arc<SourceBudgets>,
}

/// The compiler in force.
pub(super) type SharedCompiler<R> = Arc<dyn CompileRoute<Route = R>>;

/// Interned schemas: most agents of a kind declare equal schemas, and schemas dominate the memory of an agent.
#[derive(Default)]
pub(super) struct SchemaInterner(Mutex<HashSet<Arc<Value>, RandomState>>);

impl SchemaInterner {
    fn intern(&self, schema: &mut Option<Arc<Value>>) {
        let Some(schema) = schema else { return };
        let mut schemas = self.0.lock();
        match schemas.get(schema) {
            Some(shared) => *schema = Arc::clone(shared),
            None => {
                schemas.insert(Arc::clone(schema));
            }
        }
    }

    /// Drops the schemas that no agent uses.
    pub(super) fn remove_unused(&self) {
        self.0.lock().retain(|schema| Arc::strong_count(schema) > 1);
    }
}

/// Number of documents that a thread takes at a time.
const BATCH_SIZE: usize = 64;
/// Maximum number of reasons stored for one document.
const MAX_REASONS: usize = 20;
/// Maximum length of one reason in characters.
const MAX_REASON_LENGTH: usize = 500;

/// Result of compiling one document.
pub(super) struct CompiledDocument<R> {
    pub(super) identity: DocumentIdentity,
    /// The agent, where the document is valid.
    pub(super) agent: Option<Arc<Agent>>,
    /// The `id` member of a document that is not a valid agent.
    pub(super) id: Option<Box<str>>,
    pub(super) route: Result<Arc<R>, Vec<String>>,
    /// Whether there is no route because the gateway does not call what the document describes, which is no mistake.
    pub(super) is_unsupported: bool,
    /// The server that the agent is at, where it can be called.
    pub(super) claim: Option<ServerClaim>,
    /// Digests of the servers besides it that the operator's settings name for the agent.
    pub(super) additional_servers: Box<[u128]>,
    /// What operators should know about the document.
    pub(super) warnings: Box<[String]>,
    /// Whether keywords of the schemas are not in force.
    pub(super) is_partly_checked: bool,
    /// What the schemas were charged.
    pub(super) charges: Box<[SchemaCharge]>,
    /// Whether the route could not be compiled because the source or the publisher has too many other documents.
    exceeded_budget: bool,
}

impl<R> CompiledDocument<R> {
    /// Returns the agent's id, where the agent can be called.
    pub(super) fn callable_id(&self) -> Option<&AgentId> {
        self.route.as_ref().ok()?;
        self.agent.as_ref().map(|agent| &agent.id)
    }
}

impl<R: Send + Sync + 'static> CompiledDocument<R> {
    fn compile(pending: PendingDocument, compiler: &SharedCompiler<R>, schemas: &SchemaInterner) -> Self {
        let PendingDocument { document, budgets } = pending;
        let identity = document.identity;
        if let DocumentBody::Unsupported(why) = document.body {
            return Self { is_unsupported: true, ..Self::rejected(identity, None, vec![why]) };
        }
        let value = match document_parser::parse_value(document.body) {
            Ok(value) => value,
            Err(why) => return Self::rejected(identity, None, vec![why]),
        };
        match Agent::from_document(&value, identity.digest) {
            Ok(agent) => {
                let agent = agent.with_source(Arc::clone(&identity.source));
                let agent = agent.with_addresses(Arc::clone(&identity.addresses));
                let mut agent = agent.with_conversion_notes(Arc::clone(&identity.notes));
                for operation in &mut agent.operations {
                    schemas.intern(&mut operation.inputs);
                    schemas.intern(&mut operation.outputs);
                }
                Self::from_agent(Arc::new(agent), compiler, &budgets)
            }
            Err(reasons) => {
                let id = value.get("id").and_then(|id| id.as_str()).map(|id| truncate(id, 128).into());
                Self::rejected(identity, id, reasons)
            }
        }
    }

    fn rejected(identity: DocumentIdentity, id: Option<Box<str>>, reasons: Vec<String>) -> Self {
        let route = Err(truncate_reasons(reasons));
        Self {
            identity,
            agent: None,
            id,
            route,
            is_unsupported: false,
            claim: None,
            additional_servers: Box::default(),
            warnings: Box::default(),
            is_partly_checked: false,
            charges: Box::default(),
            exceeded_budget: false,
        }
    }

    fn from_agent(agent: Arc<Agent>, compiler: &SharedCompiler<R>, budgets: &SourceBudgets) -> Self {
        let publisher_budget = agent.source.publisher().map(|publisher| budgets.of_publisher(publisher));
        let owners: Vec<&SchemaBudget> = publisher_budget.as_deref().into_iter().chain([&budgets.source]).collect();
        let budget = DocumentBudget::new(budgets.limits, &owners);
        let unsupported = compiler.unsupported_reason(&agent);
        let is_unsupported = unsupported.is_some();
        let compile = || match unsupported {
            Some(why) => Err(vec![why]),
            None => compiler.compile(Arc::clone(&agent), &budget),
        };
        let route = catch_unwind(AssertUnwindSafe(compile))
            .unwrap_or_else(|_| Err(vec![internal_error()]))
            .map(Arc::new)
            .map_err(truncate_reasons);
        let exceeded_budget = budget.exceeded_owner();
        let charges = if route.is_ok() { budget.into_charges() } else { Box::default() };
        let identity = DocumentIdentity {
            digest: agent.digest,
            source: Arc::clone(&agent.source),
            addresses: Arc::clone(&agent.addresses),
            notes: Arc::clone(&agent.conversion_notes),
        };
        let claim = route.as_ref().ok().map(|route| ServerClaim {
            server: ServerClaim::server_digest(&EndpointOrigin::from(&agent.endpoint)),
            trust: compiler.endpoint_trust(route),
        });
        let additional = route.as_ref().map(|route| compiler.additional_servers(route)).unwrap_or_default();
        let additional_servers = additional.iter().map(ServerClaim::server_digest).collect();
        let warnings = route.as_ref().map(|route| compiler.document_warnings(route).into()).unwrap_or_default();
        let is_partly_checked = route.as_ref().is_ok_and(|route| compiler.is_partly_checked(route));
        Self {
            identity,
            agent: Some(agent),
            id: None,
            route,
            is_unsupported,
            claim,
            additional_servers,
            warnings,
            is_partly_checked,
            charges,
            exceeded_budget,
        }
    }

    /// Compiles the agent again with another compiler.
    pub(super) fn recompile(&self, compiler: &SharedCompiler<R>, budgets: &SourceBudgets) -> Option<Self> {
        let agent = self.agent.clone()?;
        Some(Self::from_agent(agent, compiler, budgets))
    }

    /// Returns whether compiling the document again can only have the same result.
    pub(super) fn is_reusable(&self) -> bool {
        !self.exceeded_budget
    }
}

/// Truncates the reasons: they quote the document, which must not decide how much of a log they fill.
fn truncate_reasons(reasons: Vec<String>) -> Vec<String> {
    reasons.iter().take(MAX_REASONS).map(|reason| truncate(reason, MAX_REASON_LENGTH)).collect()
}

fn internal_error() -> String {
    "internal error: compiling the document panicked (a defect of the gateway)".to_owned()
}

/// Compiled documents by identity.
pub(super) type CompiledByIdentity<R> = HashMap<DocumentIdentity, Arc<CompiledDocument<R>>, RandomState>;

/// Parses and compiles the documents that `reusable` does not contain; the result has the order of `documents`.
pub(super) fn compile_documents<R: Send + Sync + 'static>(
    documents: Vec<PendingDocument>,
    reusable: &CompiledByIdentity<R>,
    compiler: &SharedCompiler<R>,
    schemas: &SchemaInterner,
) -> Vec<Arc<CompiledDocument<R>>> {
    // First, so that documents in force are not refused in favour of new ones.
    for pending in &documents {
        if let Some(compiled) = reusable.get(&pending.document.identity) {
            pending.budgets.record(compiled);
        }
    }
    let compile_or_reuse = |pending: PendingDocument| match reusable.get(&pending.document.identity) {
        Some(compiled) => Arc::clone(compiled),
        None => {
            let identity = pending.document.identity.clone();
            let compiled = catch_unwind(AssertUnwindSafe(|| CompiledDocument::compile(pending, compiler, schemas)));
            Arc::new(compiled.unwrap_or_else(|_| CompiledDocument::rejected(identity, None, vec![internal_error()])))
        }
    };
    parallel_map(documents, compile_or_reuse)
}

/// Applies `each` to all items on all cores, on threads of a low priority, and keeps their order.
pub(super) fn parallel_map<T: Send, U: Send>(items: Vec<T>, each: impl Fn(T) -> U + Sync) -> Vec<U> {
    if items.is_empty() {
        return Vec::new();
    }
    let cores = (items.len() / BATCH_SIZE + 1).min(*CORES);
    if cores < 2 {
        return run_at_low_priority(|| items.into_iter().map(&each).collect());
    }
    let mut items = items.into_iter();
    let batches: Vec<Mutex<Vec<T>>> = std::iter::from_fn(|| {
        Some(items.by_ref().take(BATCH_SIZE).collect::<Vec<_>>()).filter(|batch| !batch.is_empty())
    })
    .map(Mutex::new)
    .collect();
    let next = AtomicUsize::new(0);
    let process_batches = || {
        let mut done = Vec::new();
        while let Some((at, batch)) = take_batch(&batches, &next) {
            done.push((at, batch.into_iter().map(&each).collect::<Vec<U>>()));
        }
        done
    };
    let mut done: Vec<(usize, Vec<U>)> = std::thread::scope(|scope| {
        let process_at_low_priority = || {
            lower_thread_priority();
            process_batches()
        };
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(process_at_low_priority)).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).flatten().collect()
    });
    done.sort_unstable_by_key(|(at, _)| *at);
    done.into_iter().flat_map(|(_, batch)| batch).collect()
}

fn take_batch<T>(batches: &[Mutex<Vec<T>>], next: &AtomicUsize) -> Option<(usize, Vec<T>)> {
    let at = next.fetch_add(1, Ordering::Relaxed);
    let mut batch = batches.get(at)?.lock();
    Some((at, std::mem::take(&mut *batch)))
}
