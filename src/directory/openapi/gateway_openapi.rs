//! OpenAPI document of the gateway, built from the table of its paths: it describes exactly what is routed. The schemas
//! that it references are in `schemas.json`.

use super::{
    super::{
        AcceptedCredentials, DIRECTORY_PATHS, DirectoryConfig, DirectoryRequest, INVOKE_PATHS, MESSAGE_PATHS,
        PIPELINE_PATH, TASK_PATHS, json_object_builder::JsonObjectBuilder,
    },
    operation_info::{operation_id, operation_info},
    shared_components,
};
use crate::fault::{Fault, FaultCode, Result};
use http::Method;
use serde_json::{Map, Value, json};
use std::collections::HashMap;

const SHARED_COMPONENTS: &str = include_str!("schemas.json");
/// Header parameters of calls that invoke agents.
const INVOKE_PARAMETERS: &[&str] = &["Prefer", "Idempotency-Key", "X-Callback-Url"];

/// Builder of the gateway's document.
pub(super) struct GatewayOpenApi<'a> {
    pub(super) base_url: &'a str,
    pub(super) credentials: &'a AcceptedCredentials,
    pub(super) config: &'a DirectoryConfig,
}

impl GatewayOpenApi<'_> {
    /// Builds the document.
    ///
    /// # Errors
    /// `Internal` if the shared components are not JSON; they are.
    pub(super) fn build(&self) -> Result<Value> {
        let mut shared: Map<String, Value> = serde_json::from_str(SHARED_COMPONENTS)
            .map_err(|why| Fault::new(FaultCode::Internal, "The response could not be serialized").with_detail(why))?;
        if let Some(schemas) = shared.get_mut("schemas").and_then(Value::as_object_mut) {
            schemas.extend(shared_components::failure_schemas());
        }
        shared.insert("responses".to_owned(), shared_components::failure_responses().into());
        let methods = self.credentials.accepted_methods(None);
        let mut document = JsonObjectBuilder::default();
        document.set("openapi", "3.1.0".into());
        document.set(
            "info",
            json!({
                "title": self.config.name,
                "description": self.config.description,
                "version": env!("CARGO_PKG_VERSION"),
            }),
        );
        document.set("servers", json!([{"url": self.base_url}]));
        document.set("paths", paths().into());
        if !methods.is_empty() {
            let (schemes, security) = shared_components::security_components(self.credentials, &methods, &[]);
            shared.insert("securitySchemes".to_owned(), schemes);
            // Discovery may be open to anonymous callers: a credential is optional.
            let requirements = security.as_array().into_iter().flatten().cloned();
            document.set("security", requirements.chain([json!({})]).collect());
        }
        document.set("components", shared.into());
        Ok(document.into_value())
    }
}

fn paths() -> Map<String, Value> {
    let mut paths = Map::new();
    let mut occurrences: HashMap<(DirectoryRequest, &Method), usize> = HashMap::new();
    for (path, request) in DIRECTORY_PATHS {
        let mut methods = path_parameters(path);
        for method in request.allowed_methods() {
            let alias = occurrences.entry((*request, method)).and_modify(|count| *count += 1).or_insert(1);
            methods.insert(method.as_str().to_ascii_lowercase(), directory_operation(*request, method, *alias));
        }
        paths.insert((*path).to_owned(), methods.into());
    }
    let message_paths = MESSAGE_PATHS.iter().map(|(path, streams)| (*path, *streams));
    let invoke_paths = INVOKE_PATHS.iter().map(|path| (*path, false)).chain(message_paths);
    for (number, (path, streams)) in (1..).zip(invoke_paths) {
        let mut methods = path_parameters(path);
        methods.insert("post".to_owned(), invoke_operation(number, streams));
        paths.insert((*path).to_owned(), methods.into());
    }
    paths.insert(PIPELINE_PATH.to_owned(), json!({"post": pipeline_operation()}));
    for (path, allowed) in TASK_PATHS {
        let mut methods = path_parameters(path);
        for method in *allowed {
            methods.insert(method.as_str().to_ascii_lowercase(), task_operation(path, method));
        }
        paths.insert((*path).to_owned(), methods.into());
    }
    paths
}

/// References the parameters of a path.
fn path_parameters(path: &str) -> Map<String, Value> {
    let names = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let references = parameter_references(names);
    if references.is_empty() { Map::new() } else { Map::from_iter([("parameters".to_owned(), references.into())]) }
}

fn parameter_references<'a>(names: impl Iterator<Item = &'a str>) -> Vec<Value> {
    names.map(|name| json!({"$ref": format!("#/components/parameters/{name}")})).collect()
}

fn invoke_operation(number: usize, streams: bool) -> Value {
    let any_json = json!({"application/json": {"schema": {}}});
    let answer =
        if streams { json!({"application/json": {"schema": {}}, "text/event-stream": {}}) } else { any_json.clone() };
    let success = json!({"description": "The agent's response.", "content": answer});
    let task_content = json!({"application/json": {"schema": {"$ref": "#/components/schemas/Task"}}});
    let accepted = json!({"description": "A task; Location has its URL.", "content": task_content});
    json!({
        "operationId": format!("invoke{}", if number > 1 { number.to_string() } else { String::new() }),
        "summary": "Invokes an agent; /agents/{id}/openapi.json describes its operations.",
        "parameters": parameter_references(INVOKE_PARAMETERS.iter().copied()),
        "requestBody": {"content": any_json},
        "responses": shared_components::with_failures(
            Map::from_iter([("200".to_owned(), success), ("202".to_owned(), accepted)]),
            &[400, 401, 403, 404, 406, 409, 413, 415, 422, 429, 500, 502, 503, 504],
        ),
    })
}

fn pipeline_operation() -> Value {
    let request_content = json!({"application/json": {"schema": {"$ref": "#/components/schemas/Pipeline"}}});
    let success = json!({
        "description": "The response of the last step's agent.",
        "content": {"application/json": {"schema": {}}},
    });
    json!({
        "operationId": "pipeline",
        "summary": "Invokes several agents; the output of each is the input of the next.",
        "requestBody": {"required": true, "content": request_content},
        "responses": shared_components::with_failures(
            Map::from_iter([("200".to_owned(), success)]),
            &[400, 401, 403, 404, 405, 406, 409, 413, 415, 429, 500, 502, 503, 504],
        ),
    })
}

/// Describes a method of a task, or of its events.
fn task_operation(path: &str, method: &Method) -> Value {
    let task_content = json!({"application/json": {"schema": {"$ref": "#/components/schemas/Task"}}});
    let is_of_agent = path.starts_with("/agents");
    let (id, summary, content) = match (path.ends_with("/events"), method.as_str()) {
        (true, _) => (
            "taskEvents",
            "The events of a task or stream; Last-Event-ID selects those after an event.",
            json!({"text/event-stream": {}}),
        ),
        (_, "DELETE") => ("cancelTask", "Cancels a task; a task that has ended is unchanged.", task_content),
        (_, "HEAD") => ("headTask", "The state of a task.", json!({})),
        _ => ("getTask", "The state of a task, and its result once it has ended.", task_content),
    };
    let id = format!("{id}{}", if is_of_agent { "OfAgent" } else { "" });
    let mut responses = Map::from_iter([("200".to_owned(), json!({"description": "The task.", "content": content}))]);
    let mut operation = Map::from_iter([("operationId".to_owned(), json!(id)), ("summary".to_owned(), json!(summary))]);
    let mut failures = vec![400, 401, 404, 429, 500, 503];
    if path.ends_with("/events") {
        let parameters = json!([{"$ref": "#/components/parameters/Last-Event-ID"}]);
        operation.insert("parameters".to_owned(), parameters);
        responses.insert("204".to_owned(), json!({"description": "The caller has the last event already."}));
        failures.push(410);
    }
    operation.insert("responses".to_owned(), shared_components::with_failures(responses, &failures));
    Value::Object(operation)
}

fn directory_operation(request: DirectoryRequest, method: &Method, alias: usize) -> Value {
    let info = operation_info(request, method);
    let schema = |name: &str| json!({"application/json": {"schema": {"$ref": format!("#/components/schemas/{name}")}}});
    let mut success = JsonObjectBuilder::default();
    success.set("description", "Success.".into());
    success.set_optional("content", info.response_schema.filter(|_| method != Method::HEAD).map(schema));
    let success = success.into_value();
    let mut failures = vec![400, 401, 403, 404, 406, 429, 500, 503];
    let mut responses = Map::from_iter([(info.success_status.to_string(), success.clone())]);
    match *method {
        Method::GET | Method::HEAD if info.success_status == 200 => {
            responses.insert("304".to_owned(), json!({"description": "Not modified."}));
        }
        Method::POST | Method::PUT | Method::PATCH => failures.extend([413, 415]),
        _ => {}
    }
    if matches!(request, DirectoryRequest::Agents | DirectoryRequest::Agent)
        && !matches!(*method, Method::GET | Method::HEAD)
    {
        failures.extend([405, 409, 412]);
        if matches!(*method, Method::POST | Method::PUT) {
            responses.insert("201".to_owned(), success);
        }
    }
    if request == DirectoryRequest::ResolveName {
        failures.extend([502, 504]);
    }
    let mut id = format!("{}{}", method.as_str().to_ascii_lowercase(), operation_id(request));
    if alias > 1 {
        id.push_str(&alias.to_string());
    }
    let mut operation = JsonObjectBuilder::default();
    operation.set("operationId", id.into());
    operation.set("summary", info.title.into());
    operation.set("responses", shared_components::with_failures(responses, &failures));
    let body = info.request_schema.map(|name| json!({"required": true, "content": schema(name)}));
    operation.set_optional("requestBody", body);
    if !info.parameters.is_empty() {
        operation.set("parameters", parameter_references(info.parameters.iter().copied()).into());
    }
    operation.into_value()
}
