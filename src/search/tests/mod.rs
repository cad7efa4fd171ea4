//! Search results, their order, and updates of the agents.

mod embedding_models;
mod filters;
mod hidden_agents;
mod index_updates;
mod ranking;
mod ranking_quality;
mod tokenizing;

use super::*;
use crate::values::sha256;
use serde_json::{Value, json};

/// Agents from AIDIP documents; each has the digest of its own document.
fn agents(documents: &[Value]) -> Vec<Arc<Agent>> {
    documents.iter().map(agent).collect()
}

fn agent(document: &Value) -> Arc<Agent> {
    agent_with_digest(document, sha256(document.to_string().as_bytes()))
}

fn agent_with_digest(document: &Value, digest: [u8; 32]) -> Arc<Agent> {
    Arc::new(Agent::from_document(document, digest).expect("a valid document"))
}

/// A document with the required members and `extra`.
fn document(id: &str, extra: Value) -> Value {
    let mut document = json!({"id": id, "name": id, "endpoint": "https://agent.example/invoke"});
    let fields = extra.as_object().expect("an object").clone();
    document.as_object_mut().expect("an object").extend(fields);
    document
}

fn index(ranking: Ranking, documents: &[Value]) -> SearchIndex {
    let model = if ranking == Ranking::Text { ModelSource::Off } else { ModelSource::Builtin };
    let index = SearchIndex::new(&SearchConfig { model, ranking }).expect("a valid configuration");
    index.update(agents(documents));
    index
}

/// Searches by callers without a cached mask.
trait SearchOnce {
    fn search(&self, query: &SearchQuery, is_visible: &dyn Fn(&Agent) -> bool) -> SearchResults;
}

impl SearchOnce for SearchIndex {
    fn search(&self, query: &SearchQuery, is_visible: &dyn Fn(&Agent) -> bool) -> SearchResults {
        self.view(None, is_visible).search(query)
    }
}

fn all(_: &Agent) -> bool {
    true
}

/// A query without filters.
fn text(text: &str) -> SearchQuery {
    SearchQuery { text: text.to_owned(), top: 100, ..SearchQuery::default() }
}

fn ids(results: &SearchResults) -> Vec<&str> {
    results.hits.iter().map(|hit| hit.agent.id.as_str()).collect()
}
