//! Lazy lookup: agents are looked up once, cached, and kept while their registry is down.

use super::*;
use crate::{agent::AgentId, fault::FaultCode};
use std::collections::HashMap;

/// A registry that the test controls.
#[derive(Default)]
struct FakeLookup {
    pages: Mutex<HashMap<String, String>>,
    down: Mutex<bool>,
    lookups: AtomicUsize,
}

#[async_trait::async_trait]
impl AgentLookup for FakeLookup {
    async fn fetch_document(&self, id: &AgentId) -> Result<Option<RawDocument>, String> {
        self.lookups.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(10)).await;
        if *self.down.lock().unwrap() {
            return Err("down".to_owned());
        }
        let page = self.pages.lock().unwrap().get(id.as_str()).cloned();
        Ok(page.map(|page| RawDocument {
            digest: document_parser::sha256(page.as_bytes()),
            body: DocumentBody::Text(page.into()),
        }))
    }
}

impl FakeLookup {
    fn put_document(&self, id: &str, page: &Value) {
        self.pages.lock().unwrap().insert(id.to_owned(), page.to_string());
    }

    fn lookups(&self) -> usize {
        self.lookups.load(Ordering::SeqCst)
    }
}

fn lazy(desk: &TestCatalogue, memory: LookupTtl) -> (Arc<FakeLookup>, Arc<LazyCatalogue<TestRoute>>) {
    let book = Arc::new(FakeLookup::default());
    let lazy = LazyCatalogue::new(Arc::clone(&desk.catalogue), vec![Arc::clone(&book) as _], memory);
    (book, Arc::new(lazy))
}

fn hour_ttl() -> LookupTtl {
    let hour = Duration::from_secs(3_600);
    LookupTtl { found: hour, missing: hour, stale: hour }
}

fn id(text: &str) -> AgentId {
    text.parse().unwrap()
}

#[tokio::test]
async fn concurrent_misses_share_one_lookup() {
    let (book, lazy) = lazy(&TestCatalogue::new(), hour_ttl());
    book.put_document("a", &agent("a"));
    let callers: Vec<_> = (0..50)
        .map(|_| {
            let lazy = Arc::clone(&lazy);
            tokio::spawn(async move { lazy.look_up(&id("a")).await.unwrap().unwrap().agent.id.to_string() })
        })
        .collect();
    for caller in callers {
        assert_eq!(caller.await.unwrap(), "a");
    }
    assert_eq!(book.lookups(), 1);
    assert!(lazy.cached_route("a").is_some());
}

#[tokio::test]
async fn unknown_ids_are_cached_too() {
    let (book, lazy) = lazy(&TestCatalogue::new(), hour_ttl());
    for _ in 0..10 {
        assert!(lazy.look_up(&id("nobody")).await.unwrap().is_none());
    }
    assert_eq!(book.lookups(), 1);
    let short = LookupTtl { missing: Duration::ZERO, ..hour_ttl() };
    let (book, lazy) = self::lazy(&TestCatalogue::new(), short);
    assert!(lazy.look_up(&id("late")).await.unwrap().is_none());
    book.put_document("late", &agent("late"));
    assert!(lazy.look_up(&id("late")).await.unwrap().is_some(), "a new agent is found once the negative entry expires");
}

#[tokio::test]
async fn agents_found_before_stay_while_the_registry_is_down() {
    let memory = LookupTtl { found: Duration::ZERO, ..hour_ttl() };
    let desk = TestCatalogue::new();
    let (book, lazy) = lazy(&desk, memory);
    book.put_document("a", &agent("a"));
    assert!(lazy.look_up(&id("a")).await.unwrap().is_some());
    *book.down.lock().unwrap() = true;
    assert!(lazy.look_up(&id("a")).await.unwrap().is_some(), "an agent found before stays");
    let fault = lazy.look_up(&id("b")).await.unwrap_err();
    assert_eq!(fault.code(), FaultCode::Overloaded);
    assert!(fault.retry_after_secs().is_some());
}

#[tokio::test]
async fn rejected_documents_and_documents_of_other_agents_are_not_found() {
    let (book, lazy) = lazy(&TestCatalogue::new(), hour_ttl());
    book.put_document("a", &agent("b"));
    book.put_document("c", &json!({"id": "c"}));
    book.put_document("d", &json!(["not", "a", "document"]));
    book.put_document("e", &json!({"id": "e", "name": "panics", "endpoint": "https://e.example/"}));
    for name in ["a", "c", "d", "e"] {
        assert!(lazy.look_up(&id(name)).await.unwrap().is_none(), "{name}");
    }
}

#[tokio::test]
async fn a_new_compiler_recompiles_cached_routes_while_the_registry_is_down() {
    let desk = TestCatalogue::new();
    let (book, lazy) = lazy(&desk, hour_ttl());
    book.put_document("a", &agent("a"));
    assert_eq!(lazy.look_up(&id("a")).await.unwrap().unwrap().by, 0);
    *book.down.lock().unwrap() = true;
    desk.catalogue.recompile(Arc::new(CountingCompiler { number: 7, ..CountingCompiler::default() }));
    assert!(lazy.cached_route("a").is_none());
    assert_eq!(lazy.look_up(&id("a")).await.unwrap().unwrap().by, 7);
}

#[tokio::test]
async fn a_later_registry_is_not_asked_while_an_earlier_one_is_down() {
    let desk = TestCatalogue::new();
    let (first, second) = (Arc::new(FakeLookup::default()), Arc::new(FakeLookup::default()));
    second.put_document("a", &agent("a"));
    let books = vec![Arc::clone(&first) as Arc<dyn AgentLookup>, Arc::clone(&second) as _];
    let lazy = LazyCatalogue::new(Arc::clone(&desk.catalogue), books, hour_ttl());
    *first.down.lock().unwrap() = true;
    assert_eq!(lazy.look_up(&id("a")).await.unwrap_err().code(), FaultCode::Overloaded);
    assert_eq!(second.lookups(), 0);
    *first.down.lock().unwrap() = false;
    assert!(lazy.look_up(&id("a")).await.unwrap().is_some(), "the first registry does not have it");
}

#[tokio::test]
async fn an_invalid_document_never_replaces_a_cached_agent() {
    let desk = TestCatalogue::new();
    let (book, lazy) = lazy(&desk, LookupTtl { found: Duration::ZERO, ..hour_ttl() });
    book.put_document("a", &agent("a"));
    assert!(lazy.look_up(&id("a")).await.unwrap().is_some());
    for broken in [json!({"id": "a"}), json!("half"), agent("b")] {
        book.put_document("a", &broken);
        assert!(lazy.look_up(&id("a")).await.unwrap().is_some(), "{broken}");
    }
    book.pages.lock().unwrap().remove("a");
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    assert!(lazy.look_up(&id("a")).await.unwrap().is_none(), "a 404 removes the agent");
}
