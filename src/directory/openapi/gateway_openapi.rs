//! OpenAPI document of the gateway, built from the table of its paths: it describes exactly what is routed and on. The
//! schemas that it references are in `schemas.json`.

use super::{
    super::{
        AcceptedCredentials, CallConventions, DIRECTORY_PATHS, DirectoryConfig, DirectoryRequest, INVOKE_PATHS,
        MESSAGE_PATHS, PAIR_PATH, PIPELINE_PATH, TASK_PATHS, json_object_builder::JsonObjectBuilder,
    },
    gateway_calls::GatewayCalls,
    operation_info::{BodyInfo, OperationInfo, operation_id, operation_info},
    schema_relocation, shared_components,
};
use crate::fault::Result;
use http::Method;
use serde_json::{Map, Value, json};
use std::collections::HashMap;

/// Headers of a representation.
const VALIDATORS: &[&str] = &["X-Request-ID", "ETag", "Last-Modified", "Cache-Control", "Vary"];

/// Builder of the gateway's document.
pub(super) struct GatewayOpenApi<'a> {
    pub(super) base_url: &'a str,
    pub(super) credentials: &'a AcceptedCredentials,
    pub(super) conventions: &'a CallConventions,
    pub(super) config: &'a DirectoryConfig,
    /// JSON Schema of agents' documents; `None` if it is not published.
    pub(super) metadata_schema: Option<&'a Value>,
}

impl GatewayOpenApi<'_> {
    /// Builds the document.
    ///
    /// # Errors
    /// `Internal` if the shared components are not JSON; they are.
    pub(super) fn build(&self) -> Result<Value> {
        let mut components = shared_components::shared_components()?;
        if let Some(schemas) = components.get_mut("schemas").and_then(Value::as_object_mut) {
            let any_document = || json!({"$ref": "#/components/schemas/Document"});
            let metadata = self.metadata_schema.map_or_else(any_document, relocate_metadata_schema);
            schemas.insert("AgentMetadata".to_owned(), metadata);
        }
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
        let (schemes, security) = shared_components::security_components(self.credentials, &methods, &[]);
        let paths = self.paths(&security);
        if !methods.is_empty() {
            components.insert("securitySchemes".to_owned(), schemes);
            document.set("security", security);
        }
        shared_components::remove_unreferenced(&mut components, &paths);
        document.set("paths", paths.into());
        document.set("components", components.into());
        Ok(document.into_value())
    }

    fn paths(&self, security: &Value) -> Map<String, Value> {
        let mut paths = Map::new();
        let mut occurrences: HashMap<(DirectoryRequest, &Method), usize> = HashMap::new();
        for (path, request) in DIRECTORY_PATHS {
            let mut methods = path_parameters(path);
            for method in request.allowed_methods().iter().filter(|method| self.is_served(*request, method)) {
                let alias = occurrences.entry((*request, method)).and_modify(|count| *count += 1).or_insert(1);
                let operation = self.directory_operation(*request, method, *alias, security);
                methods.insert(method.as_str().to_ascii_lowercase(), operation);
            }
            if methods.keys().any(|name| name != "parameters") {
                paths.insert((*path).to_owned(), methods.into());
            }
        }
        let calls = GatewayCalls { conventions: self.conventions, security };
        for (number, path) in (1..).zip(INVOKE_PATHS.iter().chain(MESSAGE_PATHS)) {
            let mut methods = path_parameters(&path.replace("{id}", "{called_agent}"));
            methods.insert("post".to_owned(), calls.invoke_with_body(number));
            if INVOKE_PATHS.contains(path) && self.conventions.may_allow_get() {
                methods.insert("get".to_owned(), calls.invoke_with_query(number));
            }
            paths.insert((*path).to_owned(), methods.into());
        }
        paths.insert(PIPELINE_PATH.to_owned(), json!({"post": calls.pipeline()}));
        if self.conventions.has_pairing {
            paths.insert(PAIR_PATH.to_owned(), json!({"post": calls.pairing()}));
        }
        for (path, allowed) in TASK_PATHS.iter().filter(|_| self.conventions.tasks.is_some()) {
            let mut methods = path_parameters(path);
            for method in *allowed {
                methods.insert(method.as_str().to_ascii_lowercase(), calls.task(path, method));
            }
            paths.insert((*path).to_owned(), methods.into());
        }
        paths
    }

    /// Returns whether the gateway serves this method of the request under its configuration.
    fn is_served(&self, request: DirectoryRequest, method: &Method) -> bool {
        match request {
            DirectoryRequest::MetadataSchema => self.metadata_schema.is_some(),
            DirectoryRequest::History => self.conventions.has_registry,
            _ => !request.is_write(method) || self.conventions.has_registry,
        }
    }

    fn directory_operation(&self, request: DirectoryRequest, method: &Method, alias: usize, security: &Value) -> Value {
        let info = operation_info(request, method);
        let mut id = format!("{}{}", method.as_str().to_ascii_lowercase(), operation_id(request));
        if alias > 1 {
            id.push_str(&alias.to_string());
        }
        let mut operation = JsonObjectBuilder::default();
        operation.set("operationId", id.into());
        operation.set("summary", info.title.into());
        let body = info.request_body.map(|body| json!({"required": true, "content": body_content(&body)}));
        operation.set_optional("requestBody", body);
        if !info.parameters.is_empty() {
            operation.set("parameters", info.parameters.iter().map(|parameter| parameter.to_json()).collect());
        }
        // Every caller reads the keys that verify signatures; discovery may be open to callers without a credential.
        let is_open = !self.config.public_agents.is_empty() || self.conventions.allows_anonymous_calls;
        if request == DirectoryRequest::Jwks {
            operation.set("security", json!([]));
        } else if is_open && !request.is_write(method) && !request.may_fetch_remotely() {
            operation.set("security", shared_components::with_anonymous(security));
        }
        operation.set("responses", directory_responses(request, method, &info));
        operation.into_value()
    }
}

fn directory_responses(request: DirectoryRequest, method: &Method, info: &OperationInfo) -> Value {
    let is_read = matches!(*method, Method::GET | Method::HEAD);
    let is_list = matches!(
        request,
        DirectoryRequest::Agents | DirectoryRequest::FrameworkList | DirectoryRequest::WellKnownAgents
    );
    let headers: &[&str] = match info.success_status {
        308 => &["X-Request-ID", "Location"],
        _ if is_read && is_list => &["X-Request-ID", "ETag", "Last-Modified", "Cache-Control", "Vary", "Link"],
        _ if is_read => VALIDATORS,
        _ if request.is_write(method) && *method != Method::DELETE => &["X-Request-ID", "ETag"],
        _ => &["X-Request-ID"],
    };
    let mut success = JsonObjectBuilder::default();
    success.set("description", "Success.".into());
    success.set("headers", shared_components::header_references(headers));
    success
        .set_optional("content", info.response_body.filter(|_| method != Method::HEAD).map(|body| body_content(&body)));
    let mut responses = Map::from_iter([(info.success_status.to_string(), success.into_value())]);
    let mut failures = vec![401, 403, 404, 406, 429, 500, 503];
    if is_read {
        failures.push(414);
        if info.success_status == 200 {
            let headers = shared_components::header_references(VALIDATORS);
            responses.insert("304".to_owned(), json!({"description": "Not modified.", "headers": headers}));
        }
    } else if *method != Method::DELETE {
        failures.extend([408, 413, 415]);
    }
    if request.is_write(method) {
        failures.extend([405, 409, 412]);
        if matches!(*method, Method::POST | Method::PUT) {
            let headers = shared_components::header_references(&["X-Request-ID", "ETag", "Location"]);
            let content = info.response_body.map(|body| body_content(&body));
            let created = json!({"description": "The document is published.", "headers": headers, "content": content});
            responses.insert("201".to_owned(), created);
        }
    }
    if request == DirectoryRequest::ResolveName {
        failures.extend([502, 504]);
    }
    shared_components::with_failures(responses, &failures)
}

/// Returns the media types of a body, each with the schema.
fn body_content(body: &BodyInfo) -> Value {
    let media = json!({"schema": {"$ref": format!("#/components/schemas/{}", body.schema)}});
    body.media_types
        .iter()
        .copied()
        .flatten()
        .map(|name| ((*name).to_owned(), media.clone()))
        .collect::<Map<_, _>>()
        .into()
}

/// References the parameters of a path.
fn path_parameters(path: &str) -> Map<String, Value> {
    let names = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let references: Vec<Value> = names.map(shared_components::parameter_reference).collect();
    if references.is_empty() { Map::new() } else { Map::from_iter([("parameters".to_owned(), references.into())]) }
}

/// Relocates the schema of agents' documents into the components. `$schema` may stand only at the root of a resource.
fn relocate_metadata_schema(schema: &Value) -> Value {
    let mut schema = schema.clone();
    if let Value::Object(members) = &mut schema {
        members.remove("$schema");
    }
    schema_relocation::relocate_schema(
        schema,
        "#/components/schemas/AgentMetadata",
        "urn:gatepost:schema:agent-metadata",
    )
}
