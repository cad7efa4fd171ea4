//! Directory requests at their routed paths, by a caller that sees some agents and not others.

mod cards;
mod descriptors;
mod documents;
mod framework;
mod listing;
mod openapi;
mod publishing;
mod resolving;
mod searching;
mod settings;
mod validators;

use super::*;
use crate::{
    auth::{CallerKind, GrantSet},
    fault::Violation,
};
use http::{HeaderName, HeaderValue};
use serde_json::json;
use std::time::{Duration, UNIX_EPOCH};

pub(super) const BASE: &str = "https://gw.example";

/// Agents visible to one caller: all except the hidden ones.
struct Shelf {
    agents: Vec<Arc<Agent>>,
    hidden: Vec<&'static str>,
}

impl Sight for Shelf {
    fn find(&self, id: &str) -> Option<Arc<Agent>> {
        let found = self.agents.iter().find(|agent| agent.id.as_str() == id)?;
        self.sees(found).then(|| Arc::clone(found))
    }

    fn sees(&self, agent: &Agent) -> bool {
        !self.hidden.contains(&agent.id.as_str())
    }

    fn changed(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(1_700_000_000_500)
    }
}

/// A directory with agents.
struct Stand {
    directory: Directory,
    shelf: Shelf,
}

fn agent(document: &Value) -> Arc<Agent> {
    Arc::new(Agent::from_document(document, [7; 32]).unwrap_or_else(|why| panic!("{why:?}")))
}

fn stand(documents: &[Value]) -> Stand {
    let agents: Vec<Arc<Agent>> = documents.iter().map(agent).collect();
    let index = search::Index::new(&search::Config::default()).unwrap();
    index.update(agents.clone());
    let credentials =
        Credentials { api_key: Some(HeaderName::from_static("x-api-key")), bearer: true, certificate: false };
    let directory = Directory {
        indexed: None,
        index: Arc::new(index),
        registry: None,
        signer: None,
        credentials,
        metadata: None,
        names: None,
        config: Config::default(),
    };
    Stand { directory, shelf: Shelf { agents, hidden: Vec::new() } }
}

/// AIDIP's own example, with internal addresses.
fn translator() -> Value {
    json!({
        "id": "translator",
        "name": "Chinese-English Translator",
        "description": "Translates text. Runs at http://10.0.0.7:8000/admin for now.",
        "version": "1.2.0",
        "publisher": "ExampleAI Inc.",
        "capabilities": ["translation"],
        "tags": ["nlp", "chinese"],
        "endpoint": "http://10.0.0.7:8000/translate?key=internal",
        "supported_languages": ["en", "zh"],
        "authentication": {"type": "api_key", "instructions": "Ask at https://example.com/keys."},
        "documentation": "https://example.com/docs",
        "operations": [
            {
                "name": "translateText",
                "description": "Translates a text.",
                "inputs": {
                    "type": "object",
                    "properties": {"text": {"$ref": "#/$defs/text"}, "more": {"type": "array", "items": {"$ref": "#"}}},
                    "required": ["text"],
                    "$defs": {"text": {"type": "string"}},
                },
                "outputs": {"type": "object", "properties": {"translated_text": {"type": "string"}}},
                "examples": [{"input": {"text": "hi"}, "output": {"translated_text": "你好"}}],
            },
            {"name": "detect", "description": "Tells the language of a text.", "inputs": {"type": "object"}},
        ],
        "status": "active",
    })
}

fn plain(id: &str) -> Value {
    json!({"id": id, "name": format!("Agent {id}"), "endpoint": format!("https://{id}.inside.example/run")})
}

/// One request, at a routed path.
struct Request<'a> {
    method: Method,
    target: &'a str,
    fields: Vec<(&'static str, &'a str)>,
    body: String,
    kind: CallerKind,
}

fn get(target: &str) -> Request<'_> {
    Request { method: Method::GET, target, fields: Vec::new(), body: String::new(), kind: CallerKind::Key }
}

fn send<'a>(method: Method, target: &'a str, body: &Value) -> Request<'a> {
    Request { method, body: body.to_string(), ..get(target) }
}

impl<'a> Request<'a> {
    fn field(mut self, name: &'static str, value: &'a str) -> Self {
        self.fields.push((name, value));
        self
    }
}

impl Stand {
    async fn answer(&self, request: Request<'_>) -> Result<Answer> {
        let mut router = matchit::Router::new();
        for (path, request) in PATHS {
            router.insert(*path, *request).unwrap();
        }
        let (path, query) = match request.target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (request.target, None),
        };
        let found = router.at(path).unwrap_or_else(|_| panic!("{path} is not routed"));
        let mut headers = HeaderMap::new();
        for (name, value) in &request.fields {
            headers.append(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
        }
        let caller = Caller {
            id: "key:team-a".into(),
            kind: request.kind,
            groups: Arc::new([]),
            scopes: Arc::new([]),
            tier: None,
            grants: GrantSet::default(),
        };
        let call = Ask {
            face: *found.value,
            id: found.params.get("id").unwrap_or_default(),
            method: &request.method,
            query,
            headers: &headers,
            body: request.body.into(),
            caller: &caller,
            sight: &self.shelf,
            base: BASE,
        };
        self.directory.answer(call).await
    }

    async fn ok(&self, request: Request<'_>) -> Answer {
        let target = request.target.to_owned();
        self.answer(request).await.unwrap_or_else(|fault| panic!("{target}: {fault} {:?}", fault.broken()))
    }

    /// Returns the JSON at `target`.
    async fn read(&self, target: &str) -> Value {
        self.ok(get(target)).await.json()
    }

    async fn refused(&self, request: Request<'_>) -> Fault {
        let target = request.target.to_owned();
        match self.answer(request).await {
            Err(fault) => fault,
            Ok(answer) => panic!("{target} was answered with {}", answer.status),
        }
    }
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    fn field(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

fn ids(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap()).collect()
}

fn pointers(fault: &Fault) -> Vec<&str> {
    fault.broken().iter().map(|Violation { pointer, .. }| pointer.as_str()).collect()
}

/// Every path, with an id for `{id}`.
fn every_target(id: &str) -> Vec<(String, Face)> {
    PATHS.iter().map(|(path, directory_request)| (path.replace("{id}", id), *directory_request)).collect()
}

#[tokio::test]
async fn r149_every_read_request_has_validators_and_a_conditional_request_gets_no_body() {
    let mut stand = stand(&[translator(), plain("b")]);
    stand.directory.metadata = Some(Arc::new(json!({"type": "object"})));
    for (target, directory_request) in every_target("translator") {
        if matches!(directory_request, Face::History | Face::FrameworkMoved | Face::FrameworkAgentMoved)
            || !directory_request.methods().contains(&Method::GET)
        {
            continue;
        }
        let first = stand.ok(get(&target)).await;
        assert_eq!(first.status, 200, "{target}");
        let tag = first.field("etag").to_owned();
        assert!(tag.starts_with('"') && tag.len() > 10, "{target}: {tag}");
        assert_eq!(first.field("last-modified"), "Tue, 14 Nov 2023 22:13:20 GMT", "{target}");
        assert_eq!(first.field("cache-control"), "private, max-age=10", "{target}");
        assert!(first.field("vary").contains("Authorization") && first.field("vary").contains("x-api-key"), "{target}");
        assert!(first.field("content-type").contains("json"), "{target}");
        let second = stand.ok(get(&target).field("if-none-match", &tag)).await;
        assert_eq!((second.status.as_u16(), second.body.len()), (304, 0), "{target}");
        assert_eq!(second.field("etag"), tag, "{target}");
        let head = stand.ok(Request { method: Method::HEAD, ..get(&target) }).await;
        assert_eq!((head.field("etag"), &head.body), (tag.as_str(), &first.body), "{target}");
    }
}

#[tokio::test]
async fn r147_no_request_is_answered_in_a_format_that_accept_excludes() {
    let stand = stand(&[translator()]);
    for (target, directory_request) in every_target("translator") {
        if matches!(directory_request, Face::FrameworkMoved | Face::FrameworkAgentMoved | Face::Schema) {
            continue;
        }
        let method = directory_request.methods()[0].clone();
        for refused in ["text/html", "application/xml;q=1, text/*", "*/*;q=0", "application/json;q=0"] {
            let request = Request { method: method.clone(), body: "{}".to_owned(), ..get(&target) };
            let fault = stand.refused(request.field("accept", refused)).await;
            assert_eq!(fault.code(), Code::NotAcceptable, "{target} {refused}");
        }
    }
}

#[tokio::test]
async fn r3_an_invisible_agent_gets_the_same_response_as_an_unknown_one() {
    let mut stand = stand(&[translator(), plain("b")]);
    stand.shelf.hidden = vec!["translator"];
    for (hidden, directory_request) in every_target("translator") {
        if !hidden.contains("translator") || directory_request == Face::FrameworkAgentMoved {
            continue;
        }
        let unknown = hidden.replace("translator", "nobody");
        let (one, other) = (stand.refused(get(&hidden)).await, stand.refused(get(&unknown)).await);
        assert_eq!((one.code(), one.message()), (Code::NotFound, other.message()), "{hidden}");
    }
    for target in ["/agents", "/.well-known/agents.json", "/.well-known/agentframework/v1/agents", "/v1/card"] {
        let answer = stand.ok(get(target)).await;
        assert!(!answer.text().to_ascii_lowercase().contains("translat"), "{target}: {}", answer.text());
    }
}

#[tokio::test]
async fn no_document_reveals_an_agents_address() {
    let with_card = json!({
        "id": "card", "name": "C", "endpoint": "http://10.0.0.7:8000/a2a",
        "agent_card": {"name": "C", "url": "http://10.0.0.7:8000/a2a", "version": "1", "skills": [], "homepage": "http://10.0.0.7/"},
    });
    let socket = json!({"id": "socket", "name": "S", "endpoint": "agent+unix:///run/private/s.sock", "note": "see /run/private/s.sock"});
    let stand = stand(&[translator(), with_card, socket]);
    for id in ["translator", "card", "socket"] {
        for (target, directory_request) in every_target(id) {
            if !directory_request.methods().contains(&Method::GET)
                || matches!(directory_request, Face::History | Face::Schema)
            {
                continue;
            }
            let answer = stand.ok(get(&target)).await;
            for inside in ["10.0.0.7", "8000", "/run/private", "internal"] {
                assert!(!answer.text().contains(inside), "{target} says {inside}: {}", answer.text());
            }
        }
    }
}

#[tokio::test]
async fn a_method_that_is_not_allowed_is_refused_with_the_allowed_ones() {
    let stand = stand(&[translator()]);
    for (target, directory_request) in every_target("translator") {
        let other =
            [Method::DELETE, Method::OPTIONS].into_iter().find(|method| !directory_request.methods().contains(method));
        let fault = stand.refused(Request { method: other.unwrap(), ..get(&target) }).await;
        assert_eq!(fault.code(), Code::MethodNotAllowed, "{target}");
        assert_eq!(fault.headers(), [("Allow", directory_request.allow())], "{target}");
    }
}
