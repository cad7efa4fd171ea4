//! OpenAPI document of the gateway, built from the table of its paths: it describes exactly what is routed. The schemas
//! that it references are in `schemas.json`.

use super::{
    super::{Ask, CALLS, Directory, Face, PATHS, PIPELINES, TASKS, caching::Page, fields::Fields, media},
    FORMS, parts,
};
use crate::fault::{Code, Fault, Result};
use http::Method;
use serde_json::{Map, Value, json};
use std::collections::HashMap;

const SCHEMAS: &str = include_str!("schemas.json");

/// Description of one method of a request.
struct About {
    title: &'static str,
    /// Names of the schemas of the request body and the response body.
    takes: Option<&'static str>,
    gives: Option<&'static str>,
    good: u16,
    parameters: &'static [&'static str],
}

impl Directory {
    /// `/openapi.json`.
    pub(in super::super) fn house_api(&self, call: &Ask<'_>) -> Result<Page> {
        let media = media::choose(call.headers, FORMS)?;
        let mut shared: Map<String, Value> = serde_json::from_str(SCHEMAS)
            .map_err(|why| Fault::new(Code::Internal, "The response could not be serialized").detail(why))?;
        if let Some(schemas) = shared.get_mut("schemas").and_then(Value::as_object_mut) {
            schemas.extend(parts::failure_schemas());
        }
        shared.insert("responses".to_owned(), parts::failures().into());
        let kinds = self.credentials.counting(None);
        let mut document = Fields::default();
        document.set("openapi", "3.1.0".into());
        document.set(
            "info",
            json!({
                "title": self.config.name,
                "description": self.config.description,
                "version": env!("CARGO_PKG_VERSION"),
            }),
        );
        document.set("servers", json!([{"url": call.base}]));
        document.set("paths", paths().into());
        if !kinds.is_empty() {
            let (schemes, security) = parts::security(&self.credentials, &kinds, &[]);
            shared.insert("securitySchemes".to_owned(), schemes);
            // Discovery may be open to anonymous callers: a credential is optional.
            let some = security.as_array().into_iter().flatten().cloned();
            document.set("security", some.chain([json!({})]).collect());
        }
        document.set("components", shared.into());
        Page::json(media, &document.done())
    }
}

fn paths() -> Map<String, Value> {
    let mut paths = Map::new();
    let mut seen: HashMap<(Face, &Method), usize> = HashMap::new();
    for (path, request) in PATHS {
        let mut methods = parameters_of(path);
        for method in request.methods() {
            let alias = seen.entry((*request, method)).and_modify(|count| *count += 1).or_insert(1);
            methods.insert(method.as_str().to_ascii_lowercase(), operation(*request, method, *alias));
        }
        paths.insert((*path).to_owned(), methods.into());
    }
    for (number, path) in (1..).zip(CALLS) {
        let mut methods = parameters_of(path);
        methods.insert("post".to_owned(), call(number));
        paths.insert((*path).to_owned(), methods.into());
    }
    paths.insert(PIPELINES.to_owned(), json!({"post": pipeline()}));
    for (path, taken) in TASKS {
        let mut methods = parameters_of(path);
        for method in *taken {
            methods.insert(method.as_str().to_ascii_lowercase(), task(path, method));
        }
        paths.insert((*path).to_owned(), methods.into());
    }
    paths
}

/// References the parameters of a path.
fn parameters_of(path: &str) -> Map<String, Value> {
    let named = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let each = named.map(|name| json!({"$ref": format!("#/components/parameters/{name}")}));
    let list: Vec<Value> = each.collect();
    match list.is_empty() {
        true => Map::new(),
        false => Map::from_iter([("parameters".to_owned(), list.into())]),
    }
}

fn call(number: usize) -> Value {
    let any = json!({"application/json": {"schema": {}}});
    let good = json!({"description": "The agent's response.", "content": any});
    let of_task = json!({"application/json": {"schema": {"$ref": "#/components/schemas/Task"}}});
    let later = json!({"description": "A task; Location has its URL.", "content": of_task});
    json!({
        "operationId": format!("invoke{}", if number > 1 { number.to_string() } else { String::new() }),
        "summary": "Invokes an agent; /agents/{id}/openapi.json describes its operations.",
        "parameters": CALL.iter().map(|name| json!({"$ref": format!("#/components/parameters/{name}")})).collect::<Vec<_>>(),
        "requestBody": {"content": any},
        "responses": parts::with_failures(
            Map::from_iter([("200".to_owned(), good), ("202".to_owned(), later)]),
            &[400, 401, 403, 404, 406, 409, 413, 415, 422, 429, 500, 502, 503, 504],
        ),
    })
}

fn pipeline() -> Value {
    let takes = json!({"application/json": {"schema": {"$ref": "#/components/schemas/Pipeline"}}});
    let good = json!({
        "description": "The response of the last step's agent.",
        "content": {"application/json": {"schema": {}}},
    });
    json!({
        "operationId": "pipeline",
        "summary": "Invokes several agents; the output of each is the input of the next.",
        "requestBody": {"required": true, "content": takes},
        "responses": parts::with_failures(
            Map::from_iter([("200".to_owned(), good)]),
            &[400, 401, 403, 404, 405, 406, 409, 413, 415, 429, 500, 502, 503, 504],
        ),
    })
}

/// Describes a method of a task, or of its events.
fn task(path: &str, method: &Method) -> Value {
    let of_task = json!({"application/json": {"schema": {"$ref": "#/components/schemas/Task"}}});
    let (id, summary, content) = match (path.ends_with("/events"), method.as_str()) {
        (true, _) => (
            "taskEvents",
            "The events of a task or stream; Last-Event-ID selects those after an event.",
            json!({"text/event-stream": {}}),
        ),
        (_, "DELETE") => ("cancelTask", "Cancels a task; a task that has ended is unchanged.", of_task),
        (_, "HEAD") => ("headTask", "The state of a task.", json!({})),
        _ => ("getTask", "The state of a task, and its result once it has ended.", of_task),
    };
    let mut responses = Map::from_iter([("200".to_owned(), json!({"description": "The task.", "content": content}))]);
    let mut operation = Map::from_iter([("operationId".to_owned(), json!(id)), ("summary".to_owned(), json!(summary))]);
    let mut failures = vec![400, 401, 404, 429, 500, 503];
    if path.ends_with("/events") {
        let parameters = json!([{"$ref": "#/components/parameters/Last-Event-ID"}]);
        operation.insert("parameters".to_owned(), parameters);
        responses.insert("204".to_owned(), json!({"description": "The caller has the last event already."}));
        failures.push(410);
    }
    operation.insert("responses".to_owned(), parts::with_failures(responses, &failures));
    Value::Object(operation)
}

fn operation(request: Face, method: &Method, alias: usize) -> Value {
    let about = about(request, method);
    let schema = |name: &str| json!({"application/json": {"schema": {"$ref": format!("#/components/schemas/{name}")}}});
    let mut good = Fields::default();
    good.set("description", "Success.".into());
    good.maybe("content", about.gives.filter(|_| method != Method::HEAD).map(schema));
    let good = good.done();
    let mut failures = vec![400, 401, 403, 404, 406, 429, 500, 503];
    let mut responses = Map::from_iter([(about.good.to_string(), good.clone())]);
    match *method {
        Method::GET | Method::HEAD if about.good == 200 => {
            responses.insert("304".to_owned(), json!({"description": "Not modified."}));
        }
        Method::POST | Method::PUT | Method::PATCH => failures.extend([413, 415]),
        _ => {}
    }
    if matches!(request, Face::Agents | Face::Agent) && !matches!(*method, Method::GET | Method::HEAD) {
        failures.extend([405, 409, 412]);
        if matches!(*method, Method::POST | Method::PUT) {
            responses.insert("201".to_owned(), good);
        }
    }
    if request == Face::Name {
        failures.extend([502, 504]);
    }
    let mut id = format!("{}{}", method.as_str().to_ascii_lowercase(), operation_id(request));
    if alias > 1 {
        id.push_str(&alias.to_string());
    }
    let mut operation = Fields::default();
    operation.set("operationId", id.into());
    operation.set("summary", about.title.into());
    operation.set("responses", parts::with_failures(responses, &failures));
    let body = about.takes.map(|name| json!({"required": true, "content": schema(name)}));
    operation.maybe("requestBody", body);
    if !about.parameters.is_empty() {
        let each = about.parameters.iter().map(|name| json!({"$ref": format!("#/components/parameters/{name}")}));
        operation.set("parameters", each.collect());
    }
    operation.done()
}

/// Returns the request's part of an operationId. Clients generate code from these: they never change.
fn operation_id(request: Face) -> &'static str {
    match request {
        Face::Agents => "agents",
        Face::Search => "search",
        Face::Resolve => "resolve",
        Face::Name => "name",
        Face::Agent => "agent",
        Face::History => "history",
        Face::Descriptor => "descriptor",
        Face::Card => "card",
        Face::AgentApi => "agentapi",
        Face::Framework => "framework",
        Face::FrameworkAgent => "frameworkagent",
        Face::FrameworkMoved => "frameworkmoved",
        Face::FrameworkAgentMoved => "frameworkagentmoved",
        Face::Map => "map",
        Face::HouseDescriptor => "housedescriptor",
        Face::HouseCard => "housecard",
        Face::Keys => "keys",
        Face::HouseApi => "houseapi",
        Face::Schema => "schema",
    }
}

fn about(request: Face, method: &Method) -> About {
    let reads = |title, gives, parameters| About { title, takes: None, gives: Some(gives), good: 200, parameters };
    let takes =
        |title, takes, gives| About { title, takes: Some(takes), gives: Some(gives), good: 200, parameters: &[] };
    match (request, method.as_str()) {
        (Face::Agents, "POST") => {
            takes("Publishes an agent, or updates one of the caller's own.", "Document", "Document")
        }
        (Face::Agents, _) => reads("Lists agents.", "Summaries", LIST),
        (Face::Search, _) => takes("Searches for agents.", "Search", "Summaries"),
        (Face::Resolve, _) => takes("Finds agents that fit an intent and a policy.", "Intent", "Resolution"),
        (Face::Name, _) => takes("Resolves an agent:// name to an endpoint.", "Name", "Resolved"),
        (Face::Agent, "PUT") => takes("Publishes this agent, or replaces its document.", "Document", "Document"),
        (Face::Agent, "PATCH") => takes("Updates members of a document (RFC 7396).", "Patch", "Document"),
        (Face::Agent, "DELETE") => {
            About { title: "Removes a document.", takes: None, gives: None, good: 204, parameters: &[] }
        }
        (Face::Agent, _) => reads("The document of one agent.", "Document", &[]),
        (Face::History, _) => reads("The history of a document, for its publisher.", "History", &["top"]),
        (Face::Descriptor, _) => reads("The descriptor of one agent in JSON-LD.", "Any", &[]),
        (Face::HouseDescriptor, _) => reads("The descriptor of the gateway, or of its only agent.", "Any", &[]),
        (Face::Card, _) => reads("The A2A card of one agent.", "Any", CARD),
        (Face::HouseCard, _) => reads("The A2A card of the gateway, or of its only agent.", "Any", CARD),
        (Face::AgentApi, _) => reads("The OpenAPI document of one agent.", "Any", &[]),
        (Face::HouseApi, _) => reads("This document.", "Any", &[]),
        (Face::Framework, _) => reads("The list of agents for Agent Framework.", "FrameworkList", FRAMEWORK),
        (Face::FrameworkAgent, _) => {
            reads("The document of one agent for Agent Framework.", "FrameworkAgent", &["view", "include"])
        }
        (Face::FrameworkMoved | Face::FrameworkAgentMoved, _) => {
            About { title: "Redirects to the well-known path.", takes: None, gives: None, good: 308, parameters: &[] }
        }
        (Face::Map, _) => reads("The map from agents to their descriptors.", "Map", &["page", "per_page"]),
        (Face::Keys, _) => reads("The keys that sign cards, as a JWK Set.", "Any", &[]),
        (Face::Schema, _) => reads("The JSON Schema of agents' documents.", "Any", &[]),
    }
}

const LIST: &[&str] = &["capabilities", "tags", "supported_languages", "status", "q", "top", "page", "per_page"];
const FRAMEWORK: &[&str] = &["q", "tag", "view", "include", "page", "per_page"];
const CALL: &[&str] = &["Prefer", "Idempotency-Key", "X-Callback-Url"];
const CARD: &[&str] = &["version", "A2A-Version"];
