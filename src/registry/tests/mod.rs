//! Tests of the registry: healthy sources, and every kind of failure.

mod catalogue;
mod conditional_get;
mod file_feed;
mod last_known_good;
mod malformed_documents;
mod on_demand_lookup;
mod precedence_and_loss_guard;
mod remote_feeds;
mod scale;
mod scripted_server;

use super::*;
use crate::{
    agent::{Agent, AgentEndpoint, EndpointOrigin},
    contract::DocumentBudget,
    telemetry::Metrics,
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

/// A route that records its compiler, and a compiler that counts.
#[derive(Debug)]
struct TestRoute {
    agent: Arc<Agent>,
    compiler_number: usize,
}

#[derive(Default)]
struct CountingCompiler {
    number: usize,
    compiled: AtomicUsize,
    refused_id: Mutex<Option<String>>,
    trusts_no_endpoint: AtomicBool,
    /// The agent of this id also has this server.
    additional_server: Mutex<Option<(&'static str, AgentEndpoint)>>,
}

impl CountingCompiler {
    fn count(&self) -> usize {
        self.compiled.load(Ordering::SeqCst)
    }
}

impl CompileRoute for CountingCompiler {
    type Route = TestRoute;

    fn compile(&self, agent: Arc<Agent>, _: &DocumentBudget<'_>) -> Result<TestRoute, Vec<String>> {
        self.compiled.fetch_add(1, Ordering::SeqCst);
        assert!(agent.name != "panics", "a compiler that panics");
        if self.refused_id.lock().as_deref() == Some(agent.id.as_str()) {
            Err(vec!["no credential".to_owned()])
        } else {
            Ok(TestRoute { agent, compiler_number: self.number })
        }
    }

    fn unsupported_reason(&self, agent: &Agent) -> Option<String> {
        agent.protocol.filter(|_| self.number == 0).map(|_| "protocol: is mcp, and no rule lets it pass".to_owned())
    }

    fn additional_servers(&self, route: &TestRoute) -> Vec<EndpointOrigin> {
        let additional = self.additional_server.lock();
        let of_agent = additional.iter().filter(|(id, _)| route.agent.id.as_str() == *id);
        of_agent.map(|(_, endpoint)| EndpointOrigin::from(endpoint)).collect()
    }

    fn endpoint_trust(&self, _: &TestRoute) -> EndpointTrust {
        if self.trusts_no_endpoint.load(Ordering::SeqCst) { EndpointTrust::Unlisted } else { EndpointTrust::Listed }
    }
}

struct TestCatalogue {
    compiler: Arc<CountingCompiler>,
    catalogue: Arc<Catalogue<TestRoute>>,
    generation: Generation,
}

/// A source without a loss guard.
fn test_spec(name: &str) -> SourceSpec {
    SourceSpec {
        name: name.into(),
        kind: "test",
        location: name.into(),
        loss_guard: None,
        max_staleness: None,
        max_agents: usize::MAX,
        is_required: true,
        refresh: Arc::default(),
    }
}

fn source_poll(source: usize, parts: Vec<FeedPart>) -> SourcePoll {
    SourcePoll { source, result: PollResult { parts, ..PollResult::default() }, stored_at: None }
}

impl TestCatalogue {
    fn new() -> Self {
        let compiler = Arc::new(CountingCompiler::default());
        let catalogue = Arc::new(Catalogue::new(Arc::clone(&compiler) as _, Metrics::new().unwrap()));
        let (generation, _) =
            catalogue.begin_generation(vec![test_spec("files")], Vec::new(), vec![source_poll(0, Vec::new())]);
        Self { compiler, catalogue, generation }
    }

    fn ids(&self) -> Vec<String> {
        let mut ids: Vec<_> = self.catalogue.load().iter().map(|(id, _)| id.to_string()).collect();
        ids.sort();
        ids
    }

    /// Ingests `bytes` as the content of a file called `name`.
    fn put(&self, name: &str, bytes: impl Into<Vec<u8>>) -> Result<(), String> {
        let documents = document_parser::parse_documents(Path::new(name), bytes.into().into());
        let (update, result) = match documents {
            Ok(documents) => (PartUpdate::Replaced(documents), Ok(())),
            Err(why) => (PartUpdate::Unreadable(why.clone()), Err(why)),
        };
        self.update_part(name, update);
        result
    }

    fn update_part(&self, name: &str, update: PartUpdate) {
        self.catalogue.ingest(self.generation, vec![source_poll(0, vec![FeedPart { name: name.into(), update }])]);
    }

    fn rejections(&self) -> Vec<DocumentRejection> {
        self.catalogue.load().rejected.clone()
    }

    /// Waits until the catalogue has exactly these agents.
    async fn wait_for_agents(&self, ids: &[&str]) {
        let deadline = Instant::now() + Duration::from_secs(20);
        let mut tick = tokio::time::interval(Duration::from_millis(5));
        while self.ids() != ids {
            assert!(Instant::now() < deadline, "{:?} never became {ids:?}", self.ids());
            tick.tick().await;
        }
    }
}

fn agent(id: &str) -> Value {
    json!({"id": id, "name": id, "endpoint": format!("https://{id}.example/invoke")})
}

fn agents(ids: &[&str]) -> String {
    Value::from(ids.iter().map(|id| agent(id)).collect::<Vec<_>>()).to_string()
}
