//! OpenAPI document of one agent: how callers invoke its operations through the gateway, with the schemas that the
//! gateway enforces.

use super::{
    super::{Ask, Directory, address::Veil, caching::Page, document::Doc, fields::Fields, media},
    FORMS, parts, root,
};
use crate::{
    agent::{Agent, Operation, Status},
    fault::Result,
};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Statuses with which a call may fail.
const FAILURES: &[u16] = &[400, 401, 403, 404, 406, 413, 415, 429, 502, 503, 504];

impl Directory {
    /// `/agents/{id}/openapi.json`.
    pub(in super::super) fn agent_api(&self, call: &Ask<'_>) -> Result<Page> {
        let media = media::choose(call.headers, FORMS)?;
        let agent = self.seen(call)?;
        let redactor = Veil::over(&agent, call.base, self.config.advertised_endpoints);
        let api = Api { agent: &agent, doc: Doc::of(&agent, &redactor), redactor };
        let kinds = self.credentials.counting(Some(&agent));
        let (schemes, security) = parts::security(&self.credentials, &kinds, &agent.authentication.scopes);
        let (mut components, mut document) = (Fields::default(), Fields::default());
        components.set("schemas", api.schemas().into());
        components.set("responses", parts::failures().into());
        document.set("openapi", "3.1.0".into());
        document.set("info", api.info());
        document.set("servers", json!([{"url": call.base}]));
        document.set("paths", api.paths().into());
        if !kinds.is_empty() {
            components.set("securitySchemes", schemes);
            document.set("security", security);
        }
        document.set("components", components.done());
        Page::json(media, &document.done())
    }
}

/// Builder of an agent's document.
struct Api<'a> {
    agent: &'a Agent,
    doc: Doc,
    redactor: Veil<'a>,
}

impl Api<'_> {
    fn info(&self) -> Value {
        json!({
            "title": self.redactor.text(&self.agent.name),
            // OpenAPI requires a version; "0.0.0" stands for an unknown one.
            "version": self.agent.version.as_deref().unwrap_or("0.0.0"),
            "description": self.redactor.text(&self.agent.description),
        })
    }

    fn schemas(&self) -> Map<String, Value> {
        let mut schemas = parts::failure_schemas();
        for operation in &self.agent.operations {
            for (side, schema) in [("Input", &operation.inputs), ("Output", &operation.outputs)] {
                let Some(schema) = schema else { continue };
                let name = schema_name(operation, side);
                let mut schema = Value::clone(schema);
                self.redactor.value(&mut schema);
                let place = format!("#/components/schemas/{name}");
                let identity = format!("urn:agent:{}:{name}", self.agent.id);
                schemas.insert(name, root::moved(schema, &place, &identity));
            }
        }
        schemas
    }

    fn paths(&self) -> Map<String, Value> {
        let whole = format!("/agents/{}/invoke", self.agent.id);
        let mut paths = Map::new();
        for (at, operation) in self.agent.operations.iter().enumerate().filter(|(_, one)| !one.name.is_empty()) {
            let call = self.call(&format!("invoke_{}", operation.name), &[(at, operation)]);
            paths.insert(format!("{whole}/{}", operation.name), json!({"post": call}));
        }
        let all: Vec<(usize, &Operation)> = self.agent.operations.iter().enumerate().collect();
        paths.insert(whole, json!({"post": self.call("invoke", &all)}));
        paths
    }

    /// Describes a call of one of these operations.
    fn call(&self, id: &str, operations: &[(usize, &Operation)]) -> Value {
        let description = match operations {
            [(_, only)] if !only.description.is_empty() => &only.description,
            _ => &self.agent.description,
        };
        let mut body = Map::from_iter([("schema".to_owned(), one_of(operations, "Input", |one| &one.inputs))]);
        let examples = self.examples(operations);
        if !examples.is_empty() {
            body.insert("examples".to_owned(), examples.into());
        }
        let output = one_of(operations, "Output", |one| &one.outputs);
        let good = json!({"description": "The agent's response.", "content": {"application/json": {"schema": output}}});
        let mut call = Fields::default();
        call.set("operationId", id.into());
        call.set("description", self.redactor.text(description).into());
        if let [_, _, ..] = operations {
            let names: Vec<&str> = operations.iter().map(|(_, operation)| &*operation.name).collect();
            call.set(
                "parameters",
                json!([{
                    "name": "X-Operation",
                    "in": "header",
                    "description": "The operation to invoke; the member `operation` of the body may name it instead.",
                    "schema": {"type": "string", "enum": names},
                }]),
            );
        }
        call.set("requestBody", json!({"required": true, "content": {"application/json": body}}));
        call.set("responses", parts::with_failures(Map::from_iter([("200".to_owned(), good)]), FAILURES));
        if matches!(self.agent.status, Status::Deprecated(_)) {
            call.set("deprecated", true.into());
        }
        call.done()
    }

    fn examples(&self, operations: &[(usize, &Operation)]) -> Map<String, Value> {
        let listed = operations.iter().filter_map(|(at, _)| self.doc.operation(*at)?.get("examples")?.as_array());
        let inputs = listed.flatten().take(10).filter_map(|example| example.get("input"));
        (1..).zip(inputs).map(|(number, input)| (format!("example{number}"), json!({"value": input}))).collect()
    }
}

/// Returns the name of a schema in `components/schemas`.
pub(in super::super) fn schema_name(operation: &Operation, side: &str) -> String {
    match operation.name.is_empty() {
        true => side.to_owned(),
        false => format!("{}.{side}", operation.name),
    }
}

/// Returns a schema that any of the operations accepts; the empty schema if one of them declares none.
fn one_of(operations: &[(usize, &Operation)], side: &str, of: fn(&Operation) -> &Option<Arc<Value>>) -> Value {
    let place = |one: &Operation| json!({"$ref": format!("#/components/schemas/{}", schema_name(one, side))});
    match operations {
        [(_, only)] => of(only).as_ref().map_or(json!({}), |_| place(only)),
        several if several.iter().any(|(_, one)| of(one).is_none()) => json!({}),
        several => json!({"anyOf": several.iter().map(|(_, one)| place(one)).collect::<Vec<_>>()}),
    }
}
