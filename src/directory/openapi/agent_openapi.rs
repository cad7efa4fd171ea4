//! OpenAPI document of one agent: how callers invoke its operations through the gateway, with the schemas that the
//! gateway enforces.

use super::{
    super::{
        AcceptedCredentials, CallConventions, EndpointExposure, address_redaction::AddressRedactor,
        agent_document::RedactedDocument, call_conventions::SESSION_LIFECYCLE, json_object_builder::JsonObjectBuilder,
    },
    schema_relocation, shared_components,
};
use crate::agent::{Agent, AgentStatus, Operation, media_types};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Statuses with which a call may fail.
const FAILURE_STATUSES: &[u16] = &[400, 401, 403, 404, 406, 413, 415, 429, 502, 503, 504];

/// Builder of an agent's document.
pub(super) struct AgentOpenApi<'a> {
    agent: &'a Agent,
    base_url: &'a str,
    credentials: &'a AcceptedCredentials,
    conventions: &'a CallConventions,
    document: RedactedDocument,
    redactor: AddressRedactor<'a>,
}

impl<'a> AgentOpenApi<'a> {
    pub(super) fn new(
        agent: &'a Agent,
        base_url: &'a str,
        endpoints: EndpointExposure,
        credentials: &'a AcceptedCredentials,
        conventions: &'a CallConventions,
    ) -> Self {
        let redactor = AddressRedactor::new(agent, base_url, endpoints);
        let document = RedactedDocument::new(agent, &redactor);
        Self { agent, base_url, credentials, conventions, document, redactor }
    }

    /// Builds the document.
    pub(super) fn build(&self) -> Value {
        let methods = self.credentials.accepted_methods(Some(self.agent));
        let scopes = &self.agent.authentication.scopes;
        let (schemes, security) = shared_components::security_components(self.credentials, &methods, scopes);
        let (mut components, mut document) = (JsonObjectBuilder::default(), JsonObjectBuilder::default());
        components.set("schemas", self.schemas().into());
        components.set("responses", shared_components::failure_responses().into());
        document.set("openapi", "3.1.0".into());
        document.set("info", self.info());
        document.set("servers", json!([{"url": self.base_url}]));
        document.set("paths", self.paths().into());
        if !methods.is_empty() {
            components.set("securitySchemes", schemes);
            document.set("security", security);
        }
        document.set("components", components.into_value());
        document.into_value()
    }

    fn info(&self) -> Value {
        json!({
            "title": self.redactor.redact_text(&self.agent.name),
            // OpenAPI requires a version; "0.0.0" stands for an unknown one.
            "version": self.agent.version.as_deref().unwrap_or("0.0.0"),
            "description": self.redactor.redact_text(&self.agent.description),
        })
    }

    fn schemas(&self) -> Map<String, Value> {
        let mut schemas = shared_components::failure_schemas();
        for operation in &self.agent.operations {
            for (suffix, schema) in [("Input", &operation.inputs), ("Output", &operation.outputs)] {
                let Some(schema) = schema else { continue };
                let name = schema_name(operation, suffix);
                let mut schema = Value::clone(schema);
                self.redactor.redact_value(&mut schema);
                let location = format!("#/components/schemas/{name}");
                let identity = format!("urn:agent:{}:{name}", self.agent.id);
                schemas.insert(name, schema_relocation::relocate_schema(schema, &location, &identity));
            }
        }
        schemas
    }

    fn paths(&self) -> Map<String, Value> {
        let invoke_path = format!("/agents/{}/invoke", self.agent.id);
        let mut paths = Map::new();
        for (index, operation) in
            self.agent.operations.iter().enumerate().filter(|(_, operation)| !operation.name.is_empty())
        {
            let post = self.invoke_operation(&format!("invoke_{}", operation.name), &[(index, operation)]);
            paths.insert(format!("{invoke_path}/{}", operation.name), json!({"post": post}));
        }
        let all: Vec<(usize, &Operation)> = self.agent.operations.iter().enumerate().collect();
        paths.insert(invoke_path, json!({"post": self.invoke_operation("invoke", &all)}));
        paths
    }

    /// Describes a call of one of these operations.
    fn invoke_operation(&self, id: &str, operations: &[(usize, &Operation)]) -> Value {
        let description = match operations {
            [(_, only)] if !only.description.is_empty() => &only.description,
            _ => &self.agent.description,
        };
        let mut body =
            Map::from_iter([("schema".to_owned(), any_schema(operations, "Input", |operation| &operation.inputs))]);
        let examples = self.examples(operations);
        if !examples.is_empty() {
            body.insert("examples".to_owned(), examples.into());
        }
        let output = any_schema(operations, "Output", |operation| &operation.outputs);
        let success = json!({"description": "The agent's response.", "content": output_content(operations, output)});
        let mut fields = JsonObjectBuilder::default();
        fields.set("operationId", id.into());
        fields.set("description", self.redactor.redact_text(description).into());
        let mut parameters = vec![
            header_parameter("X-Session-ID", SESSION_LIFECYCLE, &json!({"type": "string"})),
            header_parameter("X-Task-ID", &self.conventions.task_lifecycle(), &json!({"type": "string"})),
        ];
        if let [_, _, ..] = operations {
            let names: Vec<&str> = operations.iter().map(|(_, operation)| &*operation.name).collect();
            let description = "The operation to invoke; the member `operation` of the body may name it instead.";
            parameters.push(header_parameter("X-Operation", description, &json!({"type": "string", "enum": names})));
        }
        fields.set("parameters", parameters.into());
        fields.set("requestBody", json!({"required": true, "content": {"application/json": body}}));
        fields.set(
            "responses",
            shared_components::with_failures(Map::from_iter([("200".to_owned(), success)]), FAILURE_STATUSES),
        );
        if matches!(self.agent.status, AgentStatus::Deprecated(_)) {
            fields.set("deprecated", true.into());
        }
        fields.into_value()
    }

    fn examples(&self, operations: &[(usize, &Operation)]) -> Map<String, Value> {
        let lists = operations
            .iter()
            .filter_map(|(index, _)| self.document.operation_member(*index)?.get("examples")?.as_array());
        let inputs = lists.flatten().take(10).filter_map(|example| example.get("input"));
        (1..).zip(inputs).map(|(number, input)| (format!("example{number}"), json!({"value": input}))).collect()
    }
}

/// Returns the media types of a response: JSON, to which the schema applies, and the formats that one of the operations
/// declares (R70).
fn output_content(operations: &[(usize, &Operation)], schema: Value) -> Value {
    let declared = operations.iter().flat_map(|(_, operation)| media_types(&operation.formats.outputs));
    let mut content: Map<String, Value> = declared.map(|media| (media.to_owned(), json!({}))).collect();
    content.insert("application/json".to_owned(), json!({"schema": schema}));
    content.into()
}

fn header_parameter(name: &str, description: &str, schema: &Value) -> Value {
    json!({"name": name, "in": "header", "description": description, "schema": schema})
}

/// Returns the name of a schema in `components/schemas`.
pub(in super::super) fn schema_name(operation: &Operation, suffix: &str) -> String {
    if operation.name.is_empty() { suffix.to_owned() } else { format!("{}.{suffix}", operation.name) }
}

/// Returns a schema that accepts the values of any of the operations; the empty schema if one of them declares none.
fn any_schema(
    operations: &[(usize, &Operation)],
    suffix: &str,
    schema_of: fn(&Operation) -> &Option<Arc<Value>>,
) -> Value {
    let reference =
        |operation: &Operation| json!({"$ref": format!("#/components/schemas/{}", schema_name(operation, suffix))});
    match operations {
        [(_, only)] => schema_of(only).as_ref().map_or(json!({}), |_| reference(only)),
        several if several.iter().any(|(_, operation)| schema_of(operation).is_none()) => json!({}),
        several => json!({"anyOf": several.iter().map(|(_, operation)| reference(operation)).collect::<Vec<_>>()}),
    }
}
