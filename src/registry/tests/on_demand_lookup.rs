//! On-demand lookup: agents are looked up once, cached, and kept while their registry is down.

use super::*;
use crate::{
    agent::{AgentId, AgentSource},
    fault::FaultCode,
    values::sha256,
};
use std::collections::HashMap;

const MAX_BYTES: u64 = 1 << 30;

/// A registry that the test controls.
#[derive(Default)]
struct FakeLookup {
    documents: Mutex<HashMap<String, String>>,
    down: Mutex<bool>,
    lookups: AtomicUsize,
}

#[async_trait::async_trait]
impl AgentLookup for FakeLookup {
    fn source(&self) -> Arc<AgentSource> {
        Arc::default()
    }

    async fn fetch_document(&self, id: &AgentId) -> Result<Option<RawDocument>, String> {
        self.lookups.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(10)).await;
        if *self.down.lock() {
            return Err("down".to_owned());
        }
        let document = self.documents.lock().get(id.as_str()).cloned();
        Ok(document.map(|document| RawDocument::new(sha256(document.as_bytes()), DocumentBody::Text(document.into()))))
    }
}

impl FakeLookup {
    fn put_document(&self, id: &str, document: &Value) {
        self.documents.lock().insert(id.to_owned(), document.to_string());
    }

    fn lookups(&self) -> usize {
        self.lookups.load(Ordering::SeqCst)
    }
}

fn on_demand(fixture: &TestCatalogue, ttl: LookupTtl) -> (Arc<FakeLookup>, Arc<OnDemandCatalogue<TestRoute>>) {
    let lookup = Arc::new(FakeLookup::default());
    let on_demand =
        OnDemandCatalogue::new(Arc::clone(&fixture.catalogue), vec![Arc::clone(&lookup) as _], ttl, MAX_BYTES);
    (lookup, Arc::new(on_demand))
}

fn hour_ttl() -> LookupTtl {
    let hour = Duration::from_secs(3_600);
    LookupTtl { positive: hour, negative: hour, stale: hour }
}

fn id(text: &str) -> AgentId {
    text.parse().unwrap()
}

#[tokio::test]
async fn concurrent_misses_share_one_lookup() {
    let (lookup, on_demand) = on_demand(&TestCatalogue::new(), hour_ttl());
    lookup.put_document("a", &agent("a"));
    let callers: Vec<_> = (0..50)
        .map(|_| {
            let on_demand = Arc::clone(&on_demand);
            tokio::spawn(async move { on_demand.look_up(&id("a")).await.unwrap().unwrap().agent.id.to_string() })
        })
        .collect();
    for caller in callers {
        assert_eq!(caller.await.unwrap(), "a");
    }
    assert_eq!(lookup.lookups(), 1);
    assert!(on_demand.cached_route("a").is_some());
}

#[tokio::test]
async fn unknown_ids_are_cached_too() {
    let (lookup, on_demand) = on_demand(&TestCatalogue::new(), hour_ttl());
    for _ in 0..10 {
        assert!(on_demand.look_up(&id("unknown")).await.unwrap().is_none());
    }
    assert_eq!(lookup.lookups(), 1);
    let short = LookupTtl { negative: Duration::ZERO, ..hour_ttl() };
    let (lookup, on_demand) = self::on_demand(&TestCatalogue::new(), short);
    assert!(on_demand.look_up(&id("late")).await.unwrap().is_none());
    lookup.put_document("late", &agent("late"));
    assert!(
        on_demand.look_up(&id("late")).await.unwrap().is_some(),
        "a new agent is found once the negative entry expires"
    );
}

#[tokio::test]
async fn agents_found_before_stay_while_the_registry_is_down() {
    let ttl = LookupTtl { positive: Duration::ZERO, ..hour_ttl() };
    let fixture = TestCatalogue::new();
    let (lookup, on_demand) = on_demand(&fixture, ttl);
    lookup.put_document("a", &agent("a"));
    assert!(on_demand.look_up(&id("a")).await.unwrap().is_some());
    *lookup.down.lock() = true;
    assert!(on_demand.look_up(&id("a")).await.unwrap().is_some(), "an agent found before stays");
    let fault = on_demand.look_up(&id("b")).await.unwrap_err();
    assert_eq!(fault.code(), FaultCode::Overloaded);
    assert!(fault.retry_after_secs().is_some());
}

#[tokio::test]
async fn rejected_documents_and_documents_of_other_agents_are_not_found() {
    let (lookup, on_demand) = on_demand(&TestCatalogue::new(), hour_ttl());
    lookup.put_document("a", &agent("b"));
    lookup.put_document("c", &json!({"id": "c"}));
    lookup.put_document("d", &json!(["not", "a", "document"]));
    lookup.put_document("e", &json!({"id": "e", "name": "panics", "endpoint": "https://e.example/"}));
    for name in ["a", "c", "d", "e"] {
        assert!(on_demand.look_up(&id(name)).await.unwrap().is_none(), "{name}");
    }
}

#[tokio::test]
async fn a_new_compiler_recompiles_cached_routes_while_the_registry_is_down() {
    let fixture = TestCatalogue::new();
    let (lookup, on_demand) = on_demand(&fixture, hour_ttl());
    lookup.put_document("a", &agent("a"));
    assert_eq!(on_demand.look_up(&id("a")).await.unwrap().unwrap().compiler_number, 0);
    *lookup.down.lock() = true;
    fixture.catalogue.recompile(Arc::new(CountingCompiler { number: 7, ..CountingCompiler::default() }));
    assert!(on_demand.cached_route("a").is_none());
    assert_eq!(on_demand.look_up(&id("a")).await.unwrap().unwrap().compiler_number, 7);
}

#[tokio::test]
async fn a_later_registry_is_not_asked_while_an_earlier_one_is_down() {
    let fixture = TestCatalogue::new();
    let (first, second) = (Arc::new(FakeLookup::default()), Arc::new(FakeLookup::default()));
    second.put_document("a", &agent("a"));
    let lookups = vec![Arc::clone(&first) as Arc<dyn AgentLookup>, Arc::clone(&second) as _];
    let on_demand = OnDemandCatalogue::new(Arc::clone(&fixture.catalogue), lookups, hour_ttl(), MAX_BYTES);
    *first.down.lock() = true;
    assert_eq!(on_demand.look_up(&id("a")).await.unwrap_err().code(), FaultCode::Overloaded);
    assert_eq!(second.lookups(), 0);
    *first.down.lock() = false;
    assert!(on_demand.look_up(&id("a")).await.unwrap().is_some(), "the first registry does not have it");
}

#[tokio::test(start_paused = true)]
async fn an_invalid_document_never_replaces_a_cached_agent() {
    let fixture = TestCatalogue::new();
    let (lookup, on_demand) = on_demand(&fixture, LookupTtl { positive: Duration::ZERO, ..hour_ttl() });
    lookup.put_document("a", &agent("a"));
    assert!(on_demand.look_up(&id("a")).await.unwrap().is_some());
    // The registry is asked again a second after a document that is not valid.
    let retry_delay = Duration::from_secs(1);
    for broken in [json!({"id": "a"}), json!("half"), agent("b")] {
        lookup.put_document("a", &broken);
        let lookups = lookup.lookups();
        for _ in 0..2 {
            assert!(on_demand.look_up(&id("a")).await.unwrap().is_some(), "{broken}");
        }
        assert_eq!(lookup.lookups(), lookups + 1, "{broken}");
        tokio::time::advance(retry_delay).await;
    }
    lookup.documents.lock().remove("a");
    assert!(on_demand.look_up(&id("a")).await.unwrap().is_none(), "a 404 removes the agent");
}

#[tokio::test]
async fn r127_the_documents_of_an_on_demand_registry_share_a_budget() {
    let fixture = TestCatalogue::new();
    let lookup = Arc::new(FakeLookup::default());
    // The text of one document is 1 MiB, and about 6 MiB of memory.
    let registries = vec![Arc::clone(&lookup) as _];
    let on_demand = OnDemandCatalogue::new(Arc::clone(&fixture.catalogue), registries, hour_ttl(), 100 << 20);
    let ids: Vec<AgentId> = (0..40).map(|number| id(&format!("large{number}"))).collect();
    for id in &ids {
        let mut document = agent(id.as_str());
        document["description"] = json!("x".repeat(1 << 20));
        lookup.put_document(id.as_str(), &document);
        assert!(on_demand.look_up(id).await.unwrap().is_some());
    }
    // The cache drops documents in the background of its own calls, every 300 ms.
    let mut cached = usize::MAX;
    for _ in 0..50 {
        cached = ids.iter().filter(|id| on_demand.cached_route(id.as_str()).is_some()).count();
        if cached <= 16 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!((1..=16).contains(&cached), "{cached}");
    // A document that was dropped is looked up again.
    for id in &ids {
        assert!(on_demand.look_up(id).await.unwrap().is_some());
    }
}
