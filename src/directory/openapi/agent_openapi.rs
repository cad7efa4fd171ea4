//! OpenAPI document of one agent: how callers invoke its operations through the gateway, with the schemas that the
//! gateway enforces.

use super::{
    super::{
        AcceptedCredentials, CallConventions, EndpointExposure, address_redaction::AddressRedactor,
        agent_document::RedactedDocument, call_conventions::SESSION_LIFECYCLE, json_object_builder::JsonObjectBuilder,
    },
    schema_relocation, shared_components,
};
use crate::{
    agent::{Agent, AgentStatus, AuthenticationMethod, Operation, media_types},
    fault::Result,
};
use serde_json::{Map, Value, json};
use std::sync::Arc;

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
    ///
    /// # Errors
    /// `Internal` if the shared components are not JSON; they are.
    pub(super) fn build(&self) -> Result<Value> {
        let methods = self.credentials.accepted_methods(Some(self.agent));
        let scopes = &self.agent.authentication.scopes;
        let (schemes, security) = shared_components::security_components(self.credentials, &methods, scopes);
        let (mut components, mut document) = (shared_components::shared_components()?, JsonObjectBuilder::default());
        if let Some(schemas) = components.get_mut("schemas").and_then(Value::as_object_mut) {
            schemas.extend(self.schemas());
        }
        let paths = self.paths();
        shared_components::remove_unreferenced(&mut components, &paths);
        document.set("openapi", "3.1.0".into());
        document.set("info", self.info());
        document.set("servers", json!([{"url": self.base_url}]));
        document.set("paths", paths.into());
        if !methods.is_empty() {
            components.insert("securitySchemes".to_owned(), schemes);
            let is_open = self.agent.authentication.method == AuthenticationMethod::Anonymous
                && self.conventions.allows_anonymous_calls;
            document.set("security", if is_open { shared_components::with_anonymous(&security) } else { security });
        }
        document.set("components", components.into());
        Ok(document.into_value())
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
        let mut schemas = Map::new();
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
            let methods = self.invoke_methods(&format!("_{}", operation.name), &[(index, operation)]);
            paths.insert(format!("{invoke_path}/{}", operation.name), methods);
        }
        let all: Vec<(usize, &Operation)> = self.agent.operations.iter().enumerate().collect();
        paths.insert(invoke_path, self.invoke_methods("", &all));
        paths
    }

    /// Describes the methods that call one of these operations.
    fn invoke_methods(&self, id_suffix: &str, operations: &[(usize, &Operation)]) -> Value {
        let mut post = self.invoke_operation(&format!("invoke{id_suffix}"), operations, true);
        post.set("requestBody", json!({"required": true, "content": self.input_content(operations)}));
        let mut methods = JsonObjectBuilder::default();
        methods.set("post", post.into_value());
        if self.conventions.allows_get(self.agent) {
            methods.set("get", self.invoke_operation(&format!("getinvoke{id_suffix}"), operations, false).into_value());
        }
        methods.into_value()
    }

    /// Describes a call of one of these operations, without its body.
    fn invoke_operation(&self, id: &str, operations: &[(usize, &Operation)], has_body: bool) -> JsonObjectBuilder {
        let description = match operations {
            [(_, only)] if !only.description.is_empty() => &only.description,
            _ => &self.agent.description,
        };
        let mut fields = JsonObjectBuilder::default();
        fields.set("operationId", id.into());
        fields.set("description", self.redactor.redact_text(description).into());
        let mut parameters = vec![
            header_parameter(
                "X-Session-ID",
                SESSION_LIFECYCLE,
                &json!({"type": "string", "pattern": "^[!-~]{1,256}$"}),
            ),
            header_parameter("X-Task-ID", &self.conventions.task_lifecycle(), &json!({"type": "string"})),
        ];
        if let [_, _, ..] = operations {
            let names: Vec<&str> = operations.iter().map(|(_, operation)| &*operation.name).collect();
            let description = "The operation to invoke; the member `operation` of the body may name it instead.";
            parameters.push(header_parameter("X-Operation", description, &json!({"type": "string", "enum": names})));
        }
        parameters.extend(shared_components::call_parameters(self.conventions));
        if !has_body {
            parameters.push(query_parameter(operations));
        }
        fields.set("parameters", parameters.into());
        fields.set(
            "responses",
            shared_components::call_responses(self.conventions, &self.output_content(operations, has_body), has_body),
        );
        if matches!(self.agent.status, AgentStatus::Deprecated(_)) {
            fields.set("deprecated", true.into());
        }
        fields
    }

    /// Returns the media types of an input that calls accept (R70): those that operations without a schema declare, and
    /// JSON, to which the schema applies, unless every operation declares other ones.
    fn input_content(&self, operations: &[(usize, &Operation)]) -> Value {
        let schema = any_schema(operations, "Input", |operation| &operation.inputs);
        let mut body = JsonObjectBuilder::default();
        let is_any = schema == json!({});
        body.set("schema", if is_any { schema } else { with_alternative(schema, self.batch_schema(&json!({}))) });
        let examples = self.examples(operations);
        if !examples.is_empty() {
            body.set("examples", examples.into());
        }
        let unchecked = operations.iter().filter(|(_, operation)| operation.inputs.is_none());
        let declared = unchecked.flat_map(|(_, operation)| media_types(&operation.formats.inputs));
        let mut content: Map<String, Value> = declared.map(|media| (media.to_owned(), json!({}))).collect();
        let accepts_json = |(_, operation): &(usize, &Operation)| {
            let required = operation.required_inputs();
            required.is_empty() || required.iter().any(|format| matches!(&**format, "json" | "application/json"))
        };
        if operations.iter().any(accepts_json) {
            content.insert("application/json".to_owned(), body.into_value());
        }
        content.into()
    }

    /// Returns the media types of a response: JSON, to which the schema applies, the formats that one of the operations
    /// declares (R70), and event streams.
    fn output_content(&self, operations: &[(usize, &Operation)], has_body: bool) -> Value {
        let declared = operations.iter().flat_map(|(_, operation)| media_types(&operation.formats.outputs));
        let mut content: Map<String, Value> = declared.map(|media| (media.to_owned(), json!({}))).collect();
        content.insert("text/event-stream".to_owned(), json!({}));
        let schema = any_schema(operations, "Output", |operation| &operation.outputs);
        if schema == json!({}) {
            // An agent that declares no output answers in any format.
            content.insert("*/*".to_owned(), json!({}));
            content.insert("application/json".to_owned(), json!({"schema": schema}));
        } else {
            // The results of a batch are outputs and error objects.
            let result = with_alternative(schema.clone(), json!({"$ref": "#/components/schemas/Error"}));
            let schema = if has_body { with_alternative(schema, self.batch_schema(&result)) } else { schema };
            content.insert("application/json".to_owned(), json!({"schema": schema}));
        }
        content.into()
    }

    /// Returns the schema of a batch (R44). Its items are checked one by one: an invalid one has an error as its result.
    fn batch_schema(&self, item: &Value) -> Value {
        json!({
            "type": "array",
            "maxItems": self.conventions.max_batch_items,
            "description": "A batch: inputs of several calls, or their results in the same order.",
            "items": item,
        })
    }

    fn examples(&self, operations: &[(usize, &Operation)]) -> Map<String, Value> {
        let lists = operations
            .iter()
            .filter_map(|(index, _)| self.document.operation_member(*index)?.get("examples")?.as_array());
        let inputs = lists.flatten().take(10).filter_map(|example| example.get("input"));
        (1..).zip(inputs).map(|(number, input)| (format!("example{number}"), json!({"value": input}))).collect()
    }
}

/// Describes the input of a call with `GET`: each of its members is a parameter.
fn query_parameter(operations: &[(usize, &Operation)]) -> Value {
    let (schema, is_required) = match operations {
        [(_, only)] if only.inputs.is_some() => {
            let required = only.inputs.as_ref().and_then(|schema| schema.get("required")?.as_array());
            let schema = any_schema(operations, "Input", |operation| &operation.inputs);
            (schema, required.is_some_and(|names| !names.is_empty()))
        }
        _ => (json!({"type": "object"}), false),
    };
    json!({
        "name": "input",
        "in": "query",
        "style": "form",
        "explode": true,
        "required": is_required,
        "description": "The members of the input, each a parameter; the schema types them.",
        "schema": schema,
    })
}

fn header_parameter(name: &str, description: &str, schema: &Value) -> Value {
    json!({"name": name, "in": "header", "description": description, "schema": schema})
}

/// Returns the name of a schema in `components/schemas`.
pub(in super::super) fn schema_name(operation: &Operation, suffix: &str) -> String {
    if operation.name.is_empty() { suffix.to_owned() } else { format!("{}.{suffix}", operation.name) }
}

/// Returns a schema that accepts the values of `schema`, and of `alternative`.
fn with_alternative(mut schema: Value, alternative: Value) -> Value {
    match schema.get_mut("anyOf").and_then(Value::as_array_mut) {
        Some(alternatives) => {
            alternatives.push(alternative);
            schema
        }
        None => json!({"anyOf": [schema, alternative]}),
    }
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
