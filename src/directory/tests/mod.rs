//! Directory requests at their routed paths, by a caller that sees some agents and not others.

mod agent_descriptors;
mod caller_pages;
mod cards;
mod configuration;
mod documents;
mod external;
mod framework_requests;
mod hidden_addresses;
mod hidden_agents;
mod listing;
mod openapi;
mod openapi_security;
mod publish_requests;
mod resolving_intents;
mod searching;
mod shared_representations;

use super::*;
use crate::{
    agent::{Agent, AuthenticationMethod},
    auth::{AcceptedCredential, Caller, GrantSet},
    fault::Violation,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde_json::json;

pub(super) const BASE: &str = "https://gw.example";

/// Agents visible to one caller: all except the hidden ones.
struct VisibleAgents {
    agents: Vec<Arc<Agent>>,
    hidden: Vec<&'static str>,
}

impl AgentVisibility for VisibleAgents {
    fn visible_agent(&self, id: &str) -> Option<Arc<Agent>> {
        let agent = self.agents.iter().find(|agent| agent.id.as_str() == id)?;
        self.is_visible(agent).then(|| Arc::clone(agent))
    }

    fn is_visible(&self, agent: &Agent) -> bool {
        !self.hidden.contains(&agent.id.as_str())
    }
}

/// A directory with agents.
struct TestDirectory {
    directory: AgentDirectory,
    visibility: VisibleAgents,
}

fn agent(document: &Value) -> Arc<Agent> {
    Arc::new(Agent::from_document(document, [7; 32]).unwrap_or_else(|why| panic!("{why:?}")))
}

fn test_directory(documents: &[Value]) -> TestDirectory {
    let agents: Vec<Arc<Agent>> = documents.iter().map(agent).collect();
    let index = search::SearchIndex::new(&search::SearchConfig::default()).unwrap();
    index.update(agents.clone());
    let credentials = AcceptedCredentials(vec![
        AcceptedCredential { method: AuthenticationMethod::ApiKey, header: Some(HeaderName::from_static("x-api-key")) },
        AcceptedCredential { method: AuthenticationMethod::Bearer, header: Some(http::header::AUTHORIZATION) },
    ]);
    let directory = AgentDirectory {
        index_progress: None,
        index: Arc::new(index),
        masks: VisibilityMaskCache::default(),
        last_modified: LastModifiedTable::default(),
        representations: RepresentationCache::default(),
        registry: None,
        signing_key: None,
        credentials,
        conventions: CallConventions::default(),
        metadata_schema: None,
        resolver: None,
        config: DirectoryConfig::default(),
    };
    TestDirectory { directory, visibility: VisibleAgents { agents, hidden: Vec::new() } }
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
            {"name": "detect", "description": "Detects the language of a text.", "inputs": {"type": "object"}},
        ],
        "status": "active",
    })
}

fn minimal_agent(id: &str) -> Value {
    json!({"id": id, "name": format!("Agent {id}"), "endpoint": format!("https://{id}.inside.example/run")})
}

/// One request, at a routed path.
struct TestRequest<'a> {
    method: Method,
    target: &'a str,
    headers: Vec<(&'static str, &'a str)>,
    base_url: &'a str,
    body: String,
    authentication: AuthenticationMethod,
    grants: GrantSet,
}

fn get(target: &str) -> TestRequest<'_> {
    TestRequest {
        method: Method::GET,
        target,
        headers: Vec::new(),
        base_url: BASE,
        body: String::new(),
        authentication: AuthenticationMethod::ApiKey,
        grants: GrantSet::default(),
    }
}

fn send<'a>(method: Method, target: &'a str, body: &Value) -> TestRequest<'a> {
    TestRequest { method, body: body.to_string(), ..get(target) }
}

impl<'a> TestRequest<'a> {
    fn header(mut self, name: &'static str, value: &'a str) -> Self {
        self.headers.push((name, value));
        self
    }
}

impl TestDirectory {
    async fn respond(&self, request: TestRequest<'_>) -> Result<DirectoryResponse> {
        let mut router = matchit::Router::new();
        for (path, request) in DIRECTORY_PATHS.iter().chain(CALLER_PAGE_PATHS) {
            router.insert(*path, *request).unwrap();
        }
        let (path, query) = match request.target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (request.target, None),
        };
        let matched = router.at(path).unwrap_or_else(|_| panic!("{path} is not routed"));
        let mut headers = HeaderMap::new();
        for (name, value) in &request.headers {
            headers.append(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
        }
        let caller = Caller {
            id: "key:team-a".into(),
            owner_key: "key:team-a".into(),
            method: request.authentication,
            groups: Arc::new([]),
            scopes: Arc::new([]),
            claims: crate::auth::CallerClaims::default(),
            tier: None,
            grants: request.grants,
        };
        let call = DirectoryCall {
            request: *matched.value,
            id: matched.params.get("id").or_else(|| matched.params.get("file")).unwrap_or_default(),
            method: &request.method,
            query,
            headers: &headers,
            body: request.body.into(),
            caller: &caller,
            visibility: &self.visibility,
            base_url: request.base_url,
            audit: ChangeRecord::default(),
        };
        self.directory.respond(call).await
    }

    async fn expect_response(&self, request: TestRequest<'_>) -> DirectoryResponse {
        let target = request.target.to_owned();
        self.respond(request).await.unwrap_or_else(|fault| panic!("{target}: {fault} {:?}", fault.violations()))
    }

    /// Returns the JSON at `target`.
    async fn get_json(&self, target: &str) -> Value {
        self.expect_response(get(target)).await.json()
    }

    async fn expect_fault(&self, request: TestRequest<'_>) -> Fault {
        let target = request.target.to_owned();
        match self.respond(request).await {
            Err(fault) => fault,
            Ok(response) => panic!("{target} responded with {}", response.status),
        }
    }
}

impl DirectoryResponse {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

fn ids(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|entry| entry["id"].as_str().unwrap()).collect()
}

fn pointers(fault: &Fault) -> Vec<&str> {
    fault.violations().iter().map(|Violation { pointer, .. }| pointer.as_str()).collect()
}

/// Every path, with an id for `{id}`.
fn every_target(id: &str) -> Vec<(String, DirectoryRequest)> {
    DIRECTORY_PATHS.iter().map(|(path, directory_request)| (path.replace("{id}", id), *directory_request)).collect()
}

#[tokio::test]
async fn r149_every_read_request_has_validators_and_a_conditional_request_gets_no_body() {
    let mut fixture = test_directory(&[translator(), minimal_agent("b")]);
    fixture.directory.metadata_schema = Some(Arc::new(json!({"type": "object"})));
    for (target, directory_request) in every_target("translator") {
        if matches!(
            directory_request,
            DirectoryRequest::History
                | DirectoryRequest::FrameworkListRedirect
                | DirectoryRequest::FrameworkAgentRedirect
        ) || !directory_request.allowed_methods().contains(&Method::GET)
        {
            continue;
        }
        let first = fixture.expect_response(get(&target)).await;
        assert_eq!(first.status, 200, "{target}");
        let tag = first.header("etag").to_owned();
        assert!(tag.starts_with('"') && tag.len() > 10, "{target}: {tag}");
        let date = first.header("last-modified").to_owned();
        assert!(crate::values::parse_http_date(&date).is_some(), "{target}: {date}");
        let dated = fixture.expect_response(get(&target).header("if-modified-since", &date)).await;
        assert_eq!((dated.status.as_u16(), dated.header("last-modified")), (304, &*date), "{target}");
        assert_eq!(first.header("cache-control"), "private, max-age=10", "{target}");
        assert!(
            first.header("vary").contains("Authorization") && first.header("vary").contains("x-api-key"),
            "{target}"
        );
        assert!(first.header("content-type").contains("json"), "{target}");
        let second = fixture.expect_response(get(&target).header("if-none-match", &tag)).await;
        assert_eq!((second.status.as_u16(), second.body.len()), (304, 0), "{target}");
        assert_eq!(second.header("etag"), tag, "{target}");
        let head = fixture.expect_response(TestRequest { method: Method::HEAD, ..get(&target) }).await;
        assert_eq!((head.header("etag"), &head.body), (tag.as_str(), &first.body), "{target}");
    }
}

#[tokio::test]
async fn r147_no_request_is_answered_in_a_format_that_accept_excludes() {
    let fixture = test_directory(&[translator()]);
    for (target, directory_request) in every_target("translator") {
        if matches!(
            directory_request,
            DirectoryRequest::FrameworkListRedirect
                | DirectoryRequest::FrameworkAgentRedirect
                | DirectoryRequest::MetadataSchema
        ) {
            continue;
        }
        let method = directory_request.allowed_methods()[0].clone();
        for excluded in ["text/html", "application/xml;q=1, text/*", "*/*;q=0", "application/json;q=0"] {
            let request = TestRequest { method: method.clone(), body: "{}".to_owned(), ..get(&target) };
            let fault = fixture.expect_fault(request.header("accept", excluded)).await;
            assert_eq!(fault.code(), FaultCode::NotAcceptable, "{target} {excluded}");
        }
    }
}

#[tokio::test]
async fn r3_an_invisible_agent_gets_the_same_response_as_an_unknown_one() {
    let mut fixture = test_directory(&[translator(), minimal_agent("b")]);
    fixture.visibility.hidden = vec!["translator"];
    for (hidden, directory_request) in every_target("translator") {
        if !hidden.contains("translator") || directory_request == DirectoryRequest::FrameworkAgentRedirect {
            continue;
        }
        let unknown = hidden.replace("translator", "unknown");
        let (one, other) = (fixture.expect_fault(get(&hidden)).await, fixture.expect_fault(get(&unknown)).await);
        assert_eq!((one.code(), one.message()), (FaultCode::NotFound, other.message()), "{hidden}");
    }
    for target in ["/agents", "/.well-known/agents.json", "/.well-known/agentframework/v1/agents", "/v1/card"] {
        let response = fixture.expect_response(get(target)).await;
        assert!(!response.text().to_ascii_lowercase().contains("translat"), "{target}: {}", response.text());
    }
}

#[tokio::test]
async fn no_document_reveals_an_agents_address() {
    let with_card = json!({
        "id": "card", "name": "C", "endpoint": "http://10.0.0.7:8000/a2a",
        "agent_card": {"name": "C", "url": "http://10.0.0.7:8000/a2a", "version": "1", "skills": [], "homepage": "http://10.0.0.7/"},
    });
    let socket = json!({"id": "socket", "name": "S", "endpoint": "agent+unix:///run/private/s.sock", "note": "see /run/private/s.sock"});
    let fixture = test_directory(&[translator(), with_card, socket]);
    for id in ["translator", "card", "socket"] {
        for (target, directory_request) in every_target(id) {
            if !directory_request.allowed_methods().contains(&Method::GET)
                || matches!(directory_request, DirectoryRequest::History | DirectoryRequest::MetadataSchema)
            {
                continue;
            }
            let response = fixture.expect_response(get(&target)).await;
            for internal in ["10.0.0.7", "8000", "/run/private", "internal"] {
                assert!(!response.text().contains(internal), "{target} contains {internal}: {}", response.text());
            }
        }
    }
}

#[tokio::test]
async fn a_method_that_is_not_allowed_is_refused_with_the_allowed_ones() {
    let fixture = test_directory(&[translator()]);
    for (target, directory_request) in every_target("translator") {
        let other = [Method::DELETE, Method::OPTIONS]
            .into_iter()
            .find(|method| !directory_request.allowed_methods().contains(method));
        let fault = fixture.expect_fault(TestRequest { method: other.unwrap(), ..get(&target) }).await;
        assert_eq!(fault.code(), FaultCode::MethodNotAllowed, "{target}");
        assert!(fault.headers().eq([("Allow", &*directory_request.allow_header())]), "{target}");
    }
}
