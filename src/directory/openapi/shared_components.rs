//! Components that all OpenAPI documents of the gateway share: failures and security schemes.

use super::super::accepted_credentials::AcceptedCredentials;
use crate::agent::AuthenticationMethod;
use crate::fault::FaultCode;
use serde_json::{Map, Value, json};

/// Builds the schemas of both formats of a failure (R36, R90), with the names of all codes.
pub(super) fn failure_schemas() -> Map<String, Value> {
    let codes: Vec<&str> = FaultCode::ALL.iter().map(|code| code.row().name).collect();
    let details = json!({
        "type": "array",
        "description": "What is wrong with the request, by location.",
        "items": {
            "type": "object",
            "required": ["pointer", "message"],
            "properties": {
                "pointer": {"type": "string", "description": "JSON Pointer into the body; empty for the whole body."},
                "message": {"type": "string"},
            },
        },
    });
    let code = json!({"type": "string", "enum": codes});
    let retry = json!({"type": "integer", "minimum": 1, "description": "Seconds to wait before a retry."});
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
        },
    });
    Map::from_iter([("Error".to_owned(), error), ("Problem".to_owned(), problem)])
}

/// Builds one response for each status of the table of codes, for `components/responses`.
pub(super) fn failure_responses() -> Map<String, Value> {
    let mut statuses: Vec<(u16, Vec<&str>)> = Vec::new();
    for row in FaultCode::ALL.iter().map(|code| code.row()) {
        match statuses.iter_mut().find(|(status, _)| *status == row.status) {
            Some((_, codes)) => codes.push(row.name),
            None => statuses.push((row.status, vec![row.name])),
        }
    }
    let content = json!({
        "application/json": {"schema": {"$ref": "#/components/schemas/Error"}},
        "application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}},
    });
    let response = |codes: &[&str]| json!({"description": format!("{}.", codes.join(" or ")), "content": content});
    statuses.iter().map(|(status, codes)| (format!("E{status}"), response(codes))).collect()
}

/// Adds references to the failures with these statuses to `responses`.
pub(super) fn with_failures(mut responses: Map<String, Value>, statuses: &[u16]) -> Value {
    for status in statuses {
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
