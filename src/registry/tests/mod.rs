//! Tests of the registry: healthy sources, and every kind of failure.

mod broken;
mod catalogue;
mod feeds;
mod files;
mod keep;
mod lazy;
mod merge;
mod scale;
mod served;
mod web;

use super::*;
use crate::{agent::Agent, telemetry::Metrics};
use serde_json::{Value, json};
use std::{
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

/// A route that records which compiler made it, and a compiler that counts.
#[derive(Debug)]
struct Route {
    agent: Arc<Agent>,
    by: usize,
}

#[derive(Default)]
struct Counting {
    number: usize,
    compiled: AtomicUsize,
    refuse: Mutex<Option<String>>,
}

impl Counting {
    fn count(&self) -> usize {
        self.compiled.load(Ordering::SeqCst)
    }
}

impl Compile for Counting {
    type Route = Route;

    fn compile(&self, agent: Arc<Agent>) -> Result<Route, Vec<String>> {
        self.compiled.fetch_add(1, Ordering::SeqCst);
        assert!(agent.name != "panics", "a compiler that panics");
        match self.refuse.lock().unwrap().as_deref() == Some(agent.id.as_str()) {
            true => Err(vec!["no credential".to_owned()]),
            false => Ok(Route { agent, by: self.number }),
        }
    }
}

struct Desk {
    compiler: Arc<Counting>,
    catalogue: Arc<Catalogue<Route>>,
    era: Era,
}

/// A source without a loss guard.
fn origin(name: &str) -> Origin {
    Origin { name: name.into(), kind: "test", place: name.into(), hold: None, stale_after: None, most: usize::MAX }
}

fn look(source: usize, parts: Vec<Part>) -> Look {
    Look { source, change: Change { parts, ..Change::default() }, remembered: None }
}

impl Desk {
    fn new() -> Self {
        let compiler = Arc::new(Counting::default());
        let catalogue = Arc::new(Catalogue::new(Arc::clone(&compiler) as _, Metrics::new().unwrap()));
        let (era, _) = catalogue.begin(vec![origin("desk")], Vec::new(), vec![look(0, Vec::new())]);
        Self { compiler, catalogue, era }
    }

    fn ids(&self) -> Vec<String> {
        let mut ids: Vec<_> = self.catalogue.load().iter().map(|(id, _)| id.to_string()).collect();
        ids.sort();
        ids
    }

    /// Ingests `bytes` as the content of a file called `name`.
    fn put(&self, name: &str, bytes: impl Into<Vec<u8>>) -> Result<(), String> {
        let documents = read::documents(Path::new(name), bytes.into().into());
        let (news, told) = match documents {
            Ok(documents) => (News::Whole(documents), Ok(())),
            Err(why) => (News::Kept(why.clone()), Err(why)),
        };
        self.tell(name, news);
        told
    }

    fn tell(&self, name: &str, news: News) {
        self.catalogue.apply(self.era, vec![look(0, vec![Part { name: name.into(), news }])]);
    }

    fn refused(&self) -> Vec<Refusal> {
        self.catalogue.load().refused.clone()
    }

    /// Waits until the catalogue has exactly these agents.
    async fn until(&self, ids: &[&str]) {
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
