//! Lazy lookup: agents are looked up once, cached, and kept while their registry is down.

use super::*;
use crate::{agent::AgentId, fault::Code};
use std::collections::HashMap;

/// A registry that the test controls.
#[derive(Default)]
struct Book {
    pages: Mutex<HashMap<String, String>>,
    down: Mutex<bool>,
    asked: AtomicUsize,
}

#[async_trait::async_trait]
impl Lookup for Book {
    async fn look(&self, id: &AgentId) -> Result<Option<Document>, String> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(10)).await;
        if *self.down.lock().unwrap() {
            return Err("down".to_owned());
        }
        let page = self.pages.lock().unwrap().get(id.as_str()).cloned();
        Ok(page.map(|page| Document { digest: read::sha256(page.as_bytes()), body: Body::Text(page.into()) }))
    }
}

impl Book {
    fn write(&self, id: &str, page: &Value) {
        self.pages.lock().unwrap().insert(id.to_owned(), page.to_string());
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

fn lazy(desk: &Desk, memory: Memory) -> (Arc<Book>, Arc<Lazy<Route>>) {
    let book = Arc::new(Book::default());
    let lazy = Lazy::new(Arc::clone(&desk.catalogue), vec![Arc::clone(&book) as _], memory);
    (book, Arc::new(lazy))
}

fn long() -> Memory {
    let hour = Duration::from_secs(3_600);
    Memory { found: hour, missing: hour, stale: hour }
}

fn id(text: &str) -> AgentId {
    text.parse().unwrap()
}

#[tokio::test]
async fn concurrent_misses_share_one_lookup() {
    let (book, lazy) = lazy(&Desk::new(), long());
    book.write("a", &agent("a"));
    let callers: Vec<_> = (0..50)
        .map(|_| {
            let lazy = Arc::clone(&lazy);
            tokio::spawn(async move { lazy.find(&id("a")).await.unwrap().unwrap().agent.id.to_string() })
        })
        .collect();
    for caller in callers {
        assert_eq!(caller.await.unwrap(), "a");
    }
    assert_eq!(book.asked(), 1);
    assert!(lazy.known("a").is_some());
}

#[tokio::test]
async fn unknown_ids_are_cached_too() {
    let (book, lazy) = lazy(&Desk::new(), long());
    for _ in 0..10 {
        assert!(lazy.find(&id("nobody")).await.unwrap().is_none());
    }
    assert_eq!(book.asked(), 1);
    let short = Memory { missing: Duration::ZERO, ..long() };
    let (book, lazy) = self::lazy(&Desk::new(), short);
    assert!(lazy.find(&id("late")).await.unwrap().is_none());
    book.write("late", &agent("late"));
    assert!(lazy.find(&id("late")).await.unwrap().is_some(), "a new agent is found once the negative entry expires");
}

#[tokio::test]
async fn agents_found_before_stay_while_the_registry_is_down() {
    let memory = Memory { found: Duration::ZERO, ..long() };
    let desk = Desk::new();
    let (book, lazy) = lazy(&desk, memory);
    book.write("a", &agent("a"));
    assert!(lazy.find(&id("a")).await.unwrap().is_some());
    *book.down.lock().unwrap() = true;
    assert!(lazy.find(&id("a")).await.unwrap().is_some(), "an agent found before stays");
    let fault = lazy.find(&id("b")).await.unwrap_err();
    assert_eq!(fault.code(), Code::Overloaded);
    assert!(fault.retry_after_secs().is_some());
}

#[tokio::test]
async fn rejected_documents_and_documents_of_other_agents_are_not_found() {
    let (book, lazy) = lazy(&Desk::new(), long());
    book.write("a", &agent("b"));
    book.write("c", &json!({"id": "c"}));
    book.write("d", &json!(["not", "a", "document"]));
    book.write("e", &json!({"id": "e", "name": "panics", "endpoint": "https://e.example/"}));
    for name in ["a", "c", "d", "e"] {
        assert!(lazy.find(&id(name)).await.unwrap().is_none(), "{name}");
    }
}

#[tokio::test]
async fn a_new_compiler_recompiles_cached_routes_while_the_registry_is_down() {
    let desk = Desk::new();
    let (book, lazy) = lazy(&desk, long());
    book.write("a", &agent("a"));
    assert_eq!(lazy.find(&id("a")).await.unwrap().unwrap().by, 0);
    *book.down.lock().unwrap() = true;
    desk.catalogue.recompile(Arc::new(Counting { number: 7, ..Counting::default() }));
    assert!(lazy.known("a").is_none());
    assert_eq!(lazy.find(&id("a")).await.unwrap().unwrap().by, 7);
}

#[tokio::test]
async fn a_later_registry_is_not_asked_while_an_earlier_one_is_down() {
    let desk = Desk::new();
    let (first, second) = (Arc::new(Book::default()), Arc::new(Book::default()));
    second.write("a", &agent("a"));
    let books = vec![Arc::clone(&first) as Arc<dyn Lookup>, Arc::clone(&second) as _];
    let lazy = Lazy::new(Arc::clone(&desk.catalogue), books, long());
    *first.down.lock().unwrap() = true;
    assert_eq!(lazy.find(&id("a")).await.unwrap_err().code(), Code::Overloaded);
    assert_eq!(second.asked(), 0);
    *first.down.lock().unwrap() = false;
    assert!(lazy.find(&id("a")).await.unwrap().is_some(), "the first registry does not have it");
}

#[tokio::test]
async fn an_invalid_document_never_replaces_a_cached_agent() {
    let desk = Desk::new();
    let (book, lazy) = lazy(&desk, Memory { found: Duration::ZERO, ..long() });
    book.write("a", &agent("a"));
    assert!(lazy.find(&id("a")).await.unwrap().is_some());
    for broken in [json!({"id": "a"}), json!("half"), agent("b")] {
        book.write("a", &broken);
        assert!(lazy.find(&id("a")).await.unwrap().is_some(), "{broken}");
    }
    book.pages.lock().unwrap().remove("a");
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    assert!(lazy.find(&id("a")).await.unwrap().is_none(), "a 404 removes the agent");
}
