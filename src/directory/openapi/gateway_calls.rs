//! OpenAPI operations of the gateway that are no directory requests: calls, pipelines, tasks and pairing. They are
//! described only where the configuration turns them on.

use super::{super::CallConventions, shared_components};
use http::Method;
use serde_json::{Map, Value, json};

/// Builder of the operations.
pub(super) struct GatewayCalls<'a> {
    pub(super) conventions: &'a CallConventions,
    /// The requirements of credentials, of which one suffices.
    pub(super) security: &'a Value,
}

impl GatewayCalls<'_> {
    /// Describes a call whose input is the body.
    pub(super) fn invoke_with_body(&self, number: usize) -> Value {
        let mut operation = self.invoke(&format!("invoke{}", alias(number)), true);
        operation.insert("requestBody".to_owned(), json!({"content": {"application/json": {"schema": {}}, "*/*": {}}}));
        operation.into()
    }

    /// Describes a call whose input is the query.
    pub(super) fn invoke_with_query(&self, number: usize) -> Value {
        let mut operation = self.invoke(&format!("getinvoke{}", alias(number)), false);
        if let Some(parameters) = operation.get_mut("parameters").and_then(Value::as_array_mut) {
            parameters.push(shared_components::parameter_reference("input"));
        }
        operation.into()
    }

    fn invoke(&self, id: &str, has_body: bool) -> Map<String, Value> {
        // An agent answers in any format.
        let content = json!({"application/json": {"schema": {}}, "text/event-stream": {}, "*/*": {}});
        self.operation(
            id,
            "Invokes an agent; /agents/{id}/openapi.json describes its operations.",
            shared_components::call_parameters(self.conventions),
            shared_components::call_responses(self.conventions, &content, has_body),
        )
    }

    /// Describes a pipeline.
    pub(super) fn pipeline(&self) -> Value {
        let idempotency = shared_components::has_idempotency(self.conventions);
        let key = idempotency.then(|| shared_components::parameter_reference("Idempotency-Key"));
        let success = json!({
            "description": "The response of the last step's agent.",
            "headers": shared_components::header_references(&["X-Request-ID"]),
            "content": {"application/json": {"schema": {}}, "*/*": {}},
        });
        let responses = shared_components::with_failures(
            Map::from_iter([("200".to_owned(), success)]),
            &[401, 402, 403, 404, 405, 406, 408, 409, 413, 415, 422, 429, 500, 502, 503, 504],
        );
        let summary = "Invokes several agents; the output of each is the input of the next.";
        let mut operation = self.operation("pipeline", summary, key.into_iter().collect(), responses);
        let content = json!({"application/json": {"schema": {"$ref": "#/components/schemas/Pipeline"}}});
        operation.insert("requestBody".to_owned(), json!({"required": true, "content": content}));
        operation.into()
    }

    /// Describes a method of a task, or of its events.
    pub(super) fn task(&self, path: &str, method: &Method) -> Value {
        let task_content = json!({"application/json": {"schema": {"$ref": "#/components/schemas/Task"}}});
        let can_resume = self.conventions.tasks.as_ref().is_some_and(|tasks| tasks.resume_window.is_some());
        let (id, summary, content) = match (path.ends_with("/events"), method.as_str()) {
            (true, _) if can_resume => (
                "taskEvents",
                "The events of a task or stream; Last-Event-ID selects those after an event.",
                Some(json!({"text/event-stream": {}})),
            ),
            (true, _) => (
                "taskEvents",
                "The events of a task; Last-Event-ID selects those after an event.",
                Some(json!({"text/event-stream": {}})),
            ),
            (_, "DELETE") => ("cancelTask", "Cancels a task; a task that has ended is unchanged.", Some(task_content)),
            (_, "HEAD") => ("headTask", "The state of a task.", None),
            _ => ("getTask", "The state of a task, and its result once it has ended.", Some(task_content)),
        };
        let id = format!("{id}{}", if path.starts_with("/agents") { "OfAgent" } else { "" });
        let headers = shared_components::header_references(&["X-Request-ID", "X-Task-ID", "Retry-After"]);
        let mut success = json!({"description": "The task.", "headers": headers});
        if let (Value::Object(members), Some(content)) = (&mut success, content) {
            members.insert("content".to_owned(), content);
        }
        let mut responses = Map::from_iter([("200".to_owned(), success)]);
        let mut failures = vec![401, 403, 404, 429, 500, 503];
        let mut parameters = Vec::new();
        if path.ends_with("/events") {
            parameters.push(shared_components::parameter_reference("Last-Event-ID"));
            responses.insert("204".to_owned(), json!({"description": "The caller has the last event already."}));
            failures.push(410);
        }
        self.operation(&id, summary, parameters, shared_components::with_failures(responses, &failures)).into()
    }

    /// Describes the exchange of a pairing code for an API key.
    pub(super) fn pairing(&self) -> Value {
        let content =
            |schema: &str| json!({"application/json": {"schema": {"$ref": format!("#/components/schemas/{schema}")}}});
        let success = json!({
            "description": "The key of the page.",
            "headers": shared_components::header_references(&["X-Request-ID"]),
            "content": content("PairingKey"),
        });
        json!({
            "operationId": "pair",
            "summary": "Exchanges an operator's pairing code for an API key of the web page.",
            "security": [],
            "parameters": [shared_components::parameter_reference("Origin")],
            "requestBody": {"required": true, "content": content("PairingCode")},
            "responses": shared_components::with_failures(
                Map::from_iter([("200".to_owned(), success)]),
                &[403, 408, 413, 429, 500, 503],
            ),
        })
    }

    /// Builds an operation, which callers without a credential use if some agents are open to them.
    fn operation(&self, id: &str, summary: &str, parameters: Vec<Value>, responses: Value) -> Map<String, Value> {
        let mut operation = Map::from_iter([
            ("operationId".to_owned(), json!(id)),
            ("summary".to_owned(), json!(summary)),
            ("parameters".to_owned(), parameters.into()),
            ("responses".to_owned(), responses),
        ]);
        if self.conventions.allows_anonymous_calls {
            operation.insert("security".to_owned(), shared_components::with_anonymous(self.security));
        }
        operation
    }
}

/// Returns the suffix of the ids of further paths for one operation.
fn alias(number: usize) -> String {
    if number > 1 { number.to_string() } else { String::new() }
}
