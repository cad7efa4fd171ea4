//! Components that all OpenAPI documents of the gateway share: parameters, failures and security schemes. The parameters
//! and schemas of constant text are in `schemas.json`.

use super::super::{CallConventions, accepted_credentials::AcceptedCredentials};
use crate::agent::AuthenticationMethod;
use crate::fault::{Fault, FaultCode, Result};
use serde_json::{Map, Value, json};
use std::collections::HashSet;

const SHARED_COMPONENTS: &str = include_str!("schemas.json");
const REFERENCE_PREFIX: &str = "#/components/";

/// A parameter of an operation.
pub(super) enum Parameter {
    /// One in `schemas.json`, by its key.
    Shared(&'static str),
    /// A whole number in the query.
    Number { name: &'static str, description: &'static str, min: usize, max: usize },
}

impl Parameter {
    /// A number from 1.
    pub(super) const fn number(name: &'static str, description: &'static str, max: usize) -> Self {
        Self::Number { name, description, min: 1, max }
    }

    pub(super) fn to_json(&self) -> Value {
        match self {
            Self::Shared(name) => parameter_reference(name),
            Self::Number { name, description, min, max } => json!({
                "name": name,
                "in": "query",
                "description": description,
                "allowEmptyValue": true,
                "schema": {"type": "integer", "minimum": min, "maximum": max},
            }),
        }
    }
}

/// References a parameter of `schemas.json`.
pub(super) fn parameter_reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/parameters/{name}")})
}

/// References the parameters of calls that are on: those of tasks, of callbacks and of idempotency keys.
pub(super) fn call_parameters(conventions: &CallConventions) -> Vec<Value> {
    let tasks = conventions.tasks.as_ref();
    let parameters = [
        ("Prefer", tasks.is_some()),
        ("Idempotency-Key", has_idempotency(conventions)),
        ("X-Callback-Url", tasks.is_some_and(|tasks| tasks.has_callbacks)),
        ("callbackUrl", tasks.is_some_and(|tasks| tasks.has_callbacks)),
    ];
    parameters.into_iter().filter(|(_, is_on)| *is_on).map(|(name, _)| parameter_reference(name)).collect()
}

/// Returns whether idempotency keys are on.
pub(super) fn has_idempotency(conventions: &CallConventions) -> bool {
    !conventions.idempotency_ttl.is_zero()
}

/// Builds the responses of a call, whose success has this content: any status of a success may be the agent's own.
pub(super) fn call_responses(conventions: &CallConventions, content: &Value, has_body: bool) -> Value {
    let success = json!({"description": "The agent's response.", "headers": header_references(&["X-Request-ID"]), "content": content});
    let mut responses = Map::from_iter([("200".to_owned(), success)]);
    let other = json!({"description": "The agent's response, with the agent's own status.", "headers": header_references(&["X-Request-ID"])});
    responses.insert("2XX".to_owned(), other);
    if conventions.tasks.is_some() {
        responses.insert(
            "202".to_owned(),
            json!({
                "description": "A task.",
                "headers": header_references(&["X-Request-ID", "Location", "Retry-After"]),
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Task"}}},
            }),
        );
    }
    let mut failures = vec![401, 402, 403, 404, 405, 406, 409, 413, 415, 422, 429, 500, 502, 503, 504];
    failures.push(if has_body { 408 } else { 414 });
    with_failures(responses, &failures)
}

/// Parses the components of constant text.
///
/// # Errors
/// `Internal` if they are not JSON; they are.
pub(super) fn shared_components() -> Result<Map<String, Value>> {
    let mut shared: Map<String, Value> = serde_json::from_str(SHARED_COMPONENTS)
        .map_err(|why| Fault::new(FaultCode::Internal, "The response could not be serialized").with_detail(why))?;
    if let Some(schemas) = shared.get_mut("schemas").and_then(Value::as_object_mut) {
        schemas.extend(failure_schemas());
    }
    shared.insert("responses".to_owned(), failure_responses().into());
    Ok(shared)
}

/// Removes the parameters and schemas that nothing references, such as those of features that are off.
pub(super) fn remove_unreferenced(components: &mut Map<String, Value>, paths: &Map<String, Value>) {
    let mut found = HashSet::new();
    let mut pending = Vec::new();
    paths.values().for_each(|path| collect_references(path, &mut pending));
    for section in ["responses", "headers"] {
        components.get(section).into_iter().for_each(|section| collect_references(section, &mut pending));
    }
    while let Some((section, name)) = pending.pop() {
        if !found.insert((section.clone(), name.clone())) {
            continue;
        }
        if let Some(component) = components.get(&section).and_then(|section| section.get(&name)) {
            collect_references(component, &mut pending);
        }
    }
    for section in ["parameters", "schemas"] {
        if let Some(components) = components.get_mut(section).and_then(Value::as_object_mut) {
            components.retain(|name, _| found.contains(&(section.to_owned(), name.clone())));
        }
    }
}

/// Appends the section and the name of each component that `value` references.
fn collect_references(value: &Value, to: &mut Vec<(String, String)>) {
    match value {
        Value::Object(members) => {
            let reference = members.get("$ref").and_then(Value::as_str);
            let path = reference.and_then(|text| text.strip_prefix(REFERENCE_PREFIX)).unwrap_or_default();
            // What follows the name is a path within the component.
            let mut segments = path.split('/');
            if let (Some(section), Some(name)) = (segments.next(), segments.next()) {
                to.push((section.to_owned(), name.to_owned()));
            }
            members.values().for_each(|member| collect_references(member, to));
        }
        Value::Array(items) => items.iter().for_each(|item| collect_references(item, to)),
        _ => {}
    }
}

/// Builds the schemas of both formats of a failure (R36, R90), with the names of all codes.
fn failure_schemas() -> Map<String, Value> {
    let codes: Vec<&str> = FaultCode::ALL.iter().map(|code| code.row().name).collect();
    let details = json!({
        "type": "array",
        "description": "What is wrong with the request, by location.",
        "items": {
            "type": "object",
            "required": ["pointer", "message"],
            "properties": {
                "pointer": {"type": "string", "description": "JSON Pointer into the body; empty for the whole body."},
                "keyword": {"type": "string", "description": "The keyword of the schema that does not hold."},
                "message": {"type": "string"},
            },
        },
    });
    let code = json!({"type": "string", "enum": codes});
    let retry = json!({"type": "integer", "minimum": 1, "description": "Seconds to wait before a retry."});
    let overloaded = json!({
        "type": "string",
        "enum": ["agent", "gateway"],
        "description": "With Overloaded, what is at its limit.",
    });
    let agent_error = json!({"description": "The body of the agent's error, if the operator passes it on."});
    let step = json!({
        "type": "object",
        "description": "The step of a pipeline that failed.",
        "required": ["index", "agent", "steps_run"],
        "properties": {
            "index": {"type": "integer", "minimum": 0, "description": "Index of the step, from 0."},
            "agent": {"type": "string"},
            "steps_run": {"type": "integer", "minimum": 0, "description": "Number of steps that ran before it."},
        },
    });
    let error = json!({
        "type": "object",
        "required": ["error"],
        "properties": {"error": {
            "type": "object",
            "required": ["code", "message"],
            "properties": {
                "code": code,
                "message": {"type": "string"},
                "request_id": {"type": "string"},
                "details": details,
                "retry_after": retry,
                "step": step,
                "overloaded": overloaded,
                "agent_error": agent_error,
            },
        }},
    });
    let problem = json!({
        "type": "object",
        "required": ["type", "title", "status", "code"],
        "properties": {
            "type": {"type": "string"},
            "title": {"type": "string"},
            "status": {"type": "integer"},
            "detail": {"type": "string"},
            "instance": {"type": "string"},
            "code": code,
            "request_id": {"type": "string"},
            "details": details,
            "retry_after": retry,
            "step": step,
            "overloaded": overloaded,
            "agent_error": agent_error,
        },
    });
    Map::from_iter([("Error".to_owned(), error), ("Problem".to_owned(), problem)])
}

/// Builds one response for each status of the table of codes, for `components/responses`.
fn failure_responses() -> Map<String, Value> {
    let mut statuses: Vec<(u16, Vec<&str>)> = Vec::new();
    for row in FaultCode::ALL.iter().map(|code| code.row()) {
        for own in std::iter::once(&row.status).chain(row.other_statuses) {
            match statuses.iter_mut().find(|(status, _)| status == own) {
                Some((_, codes)) => codes.push(row.name),
                None => statuses.push((*own, vec![row.name])),
            }
        }
    }
    let content = json!({
        "application/json": {"schema": {"$ref": "#/components/schemas/Error"}},
        "application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}},
    });
    let response = |status: u16, codes: &[&str]| {
        let headers: &[&str] = match status {
            401 => &["X-Request-ID", "WWW-Authenticate"],
            405 => &["X-Request-ID", "Allow"],
            429 | 503 => &["X-Request-ID", "Retry-After"],
            _ => &["X-Request-ID"],
        };
        json!({
            "description": format!("{}.", codes.join(" or ")),
            "headers": header_references(headers),
            "content": content,
        })
    };
    statuses.iter().map(|(status, codes)| (format!("E{status}"), response(*status, codes))).collect()
}

/// References headers of responses.
pub(super) fn header_references(names: &[&str]) -> Value {
    let reference = |name: &&str| ((*name).to_owned(), json!({"$ref": format!("#/components/headers/{name}")}));
    names.iter().map(reference).collect::<Map<_, _>>().into()
}

/// Adds references to the failures with these statuses to `responses`, and to those of a malformed request.
pub(super) fn with_failures(mut responses: Map<String, Value>, statuses: &[u16]) -> Value {
    for status in statuses.iter().chain(&[400, 431]) {
        responses.insert(status.to_string(), json!({"$ref": format!("#/components/responses/E{status}")}));
    }
    Value::Object(responses)
}

/// Builds `components/securitySchemes` and `security` for these methods, of which one suffices.
pub(super) fn security_components(
    credentials: &AcceptedCredentials,
    methods: &[AuthenticationMethod],
    scopes: &[String],
) -> (Value, Value) {
    let schemes = methods.iter().map(|method| (method.document_type().to_owned(), credentials.openapi_scheme(*method)));
    let requirement = |method: &AuthenticationMethod| {
        Value::from(Map::from_iter([(method.document_type().to_owned(), scopes.into())]))
    };
    (schemes.collect::<Map<_, _>>().into(), methods.iter().map(requirement).collect())
}

/// Returns `security` with the requirement that a request without a credential meets.
pub(super) fn with_anonymous(security: &Value) -> Value {
    security.as_array().into_iter().flatten().cloned().chain([json!({})]).collect()
}
