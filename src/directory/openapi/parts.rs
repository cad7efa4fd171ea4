//! What every OpenAPI document of the gateway has in common: its failures and its credentials.

use super::super::credentials::{Credentials, Kind};
use crate::fault::Code;
use serde_json::{Map, Value, json};

/// The schemas of both forms of a failure (R36, R90), with the names of all codes.
pub(super) fn failure_schemas() -> Map<String, Value> {
    let codes: Vec<&str> = Code::ALL.iter().map(|code| code.row().name).collect();
    let details = json!({
        "type": "array",
        "description": "What was wrong with the request, and where.",
        "items": {
            "type": "object",
            "required": ["pointer", "message"],
            "properties": {
                "pointer": {"type": "string", "description": "A JSON Pointer into the body; empty for all of it."},
                "message": {"type": "string"},
            },
        },
    });
    let code = json!({"type": "string", "enum": codes});
    let retry = json!({"type": "integer", "minimum": 1, "description": "Seconds after which to try again."});
    let step = json!({
        "type": "object",
        "description": "The step of a pipeline at which it failed.",
        "required": ["index", "agent", "steps_run"],
        "properties": {
            "index": {"type": "integer", "minimum": 0, "description": "From 0."},
            "agent": {"type": "string"},
            "steps_run": {"type": "integer", "minimum": 0, "description": "How many steps before it have run."},
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

/// One response for each status with which a code may leave, under `components/responses`.
pub(super) fn failures() -> Map<String, Value> {
    let mut statuses: Vec<(u16, Vec<&str>)> = Vec::new();
    for row in Code::ALL.iter().map(|code| code.row()) {
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

/// `responses` with the failures that may come instead.
pub(super) fn with_failures(mut responses: Map<String, Value>, statuses: &[u16]) -> Value {
    for status in statuses {
        responses.insert(status.to_string(), json!({"$ref": format!("#/components/responses/E{status}")}));
    }
    Value::Object(responses)
}

/// `components/securitySchemes` and `security` for these kinds: any one of them is enough.
pub(super) fn security(credentials: &Credentials, kinds: &[Kind], scopes: &[String]) -> (Value, Value) {
    let schemes = kinds.iter().map(|kind| (kind.name().to_owned(), credentials.scheme(*kind)));
    let one = |kind: &Kind| Value::from(Map::from_iter([(kind.name().to_owned(), scopes.into())]));
    (schemes.collect::<Map<_, _>>().into(), kinds.iter().map(one).collect())
}
