//! What documents tell about more than one call: identifiers of sessions and tasks with their lifecycle (R73, R76), and
//! the security mechanisms of each transport binding (R99).

use super::{AcceptedCredentials, json_object_builder::JsonObjectBuilder};
use crate::{
    agent::{Agent, AuthenticationMethod},
    values::Glob,
};
use serde_json::{Value, json};
use std::time::Duration;

/// Settings of other modules on which callers rely.
#[derive(Clone, Debug, Default)]
pub struct CallConventions {
    /// Tasks; `None` if calls with a later result are off.
    pub tasks: Option<TaskConventions>,
    /// For how long an answer is kept for its idempotency key; zero if keys are off.
    pub idempotency_ttl: Duration,
    /// Agents that an MQTT bridge offers on a broker.
    pub bridged_agents: Vec<Glob>,
    /// Maximum number of inputs in one batch.
    pub max_batch_items: u16,
    /// Which agents can be called with `GET`, besides the agents that no rule names; a later rule takes precedence.
    pub get_rules: Vec<GetRule>,
    /// Whether callers publish agents in the gateway's own registry.
    pub has_registry: bool,
    /// Whether web pages exchange a pairing code for an API key.
    pub has_pairing: bool,
    /// Whether callers without a credential may call some agents.
    pub allows_anonymous_calls: bool,
}

/// Whether some agents can be called with `GET`.
#[derive(Clone, Debug)]
pub struct GetRule {
    /// The agents.
    pub agents: Vec<Glob>,
    /// Whether they can be called with `GET`.
    pub is_allowed: bool,
}

/// Settings of tasks on which callers rely.
#[derive(Clone, Debug)]
pub struct TaskConventions {
    /// For how long a task is kept after its end.
    pub result_ttl: Duration,
    /// How often callers poll.
    pub poll_interval: Duration,
    /// For how long a stream is kept for callers that resume it; `None` if streams cannot be resumed.
    pub resume_window: Option<Duration>,
    /// Whether callers are notified at a URL of theirs when a task ends.
    pub has_callbacks: bool,
}

/// The header field and the query parameter of sessions, with their lifecycle.
pub(super) const SESSION_LIFECYCLE: &str = "Chosen by the caller, or by the agent (Mcp-Session-Id). The gateway stores no session: \
    calls with one id go to one endpoint of the agent while that endpoint is usable. The id is valid for as long as the \
    agent keeps the session, and for its caller only.";

impl CallConventions {
    /// Returns whether the agent can be called with `GET`.
    pub(super) fn allows_get(&self, agent: &Agent) -> bool {
        let rules = self.get_rules.iter().rev();
        let mut matching = rules.filter(|rule| rule.agents.iter().any(|glob| glob.matches(agent.id.as_str())));
        matching.next().is_none_or(|rule| rule.is_allowed)
    }

    /// Returns whether some agent may be called with `GET`: no rule for all agents refuses it, or a later one allows it.
    pub(super) fn may_allow_get(&self) -> bool {
        let is_final = |rule: &&GetRule| rule.is_allowed || rule.agents.iter().any(|glob| glob.as_str() == "*");
        self.get_rules.iter().rev().find(is_final).is_none_or(|rule| rule.is_allowed)
    }

    /// Builds `stateManagement` of a descriptor: the practices that the agent declares, and the identifiers that the
    /// gateway understands.
    pub(super) fn state_management(&self, base: &str, declared: Option<&Value>) -> Value {
        let mut fields = JsonObjectBuilder::default();
        fields.set_optional("agent", declared.filter(|value| !value.is_null()).cloned());
        fields.set(
            "session",
            json!({
                "headers": ["X-Session-ID", "Mcp-Session-Id"],
                "query": "sessionId",
                "lifecycle": SESSION_LIFECYCLE,
            }),
        );
        fields.set("task", self.task_identifiers(base));
        if let Some(window) = self.tasks.as_ref().and_then(|tasks| tasks.resume_window) {
            fields.set(
                "stream",
                json!({
                    "header": "Last-Event-ID",
                    "location": format!("{base}/tasks/{{id}}/events"),
                    "retentionSeconds": window.as_secs_f64(),
                    "lifecycle": "A stream whose events have ids can be resumed until this time after its end, or after its caller left.",
                }),
            );
        }
        if !self.idempotency_ttl.is_zero() {
            fields.set(
                "idempotency",
                json!({
                    "header": "Idempotency-Key",
                    "retentionSeconds": self.idempotency_ttl.as_secs_f64(),
                    "lifecycle": "The first answer to a key is replayed to its caller until this time after it.",
                }),
            );
        }
        fields.into_value()
    }

    fn task_identifiers(&self, base: &str) -> Value {
        let mut fields = JsonObjectBuilder::default();
        fields.set("header", "X-Task-ID".into());
        fields.set("query", "taskId".into());
        fields.set("lifecycle", self.task_lifecycle().into());
        if let Some(tasks) = &self.tasks {
            fields.set("request", "Prefer: respond-async".into());
            fields.set("location", format!("{base}/tasks/{{taskId}}").into());
            fields.set("events", format!("{base}/tasks/{{taskId}}/events").into());
            fields.set("pollIntervalSeconds", tasks.poll_interval.as_secs_f64().into());
            fields.set("retentionSeconds", tasks.result_ttl.as_secs_f64().into());
        }
        fields.into_value()
    }

    /// Returns how long a task's id is valid.
    pub(super) fn task_lifecycle(&self) -> String {
        let own = "The id of a caller's own task passes to the agent, which decides how long it is valid.";
        let Some(tasks) = &self.tasks else { return own.to_owned() };
        format!(
            "{own} The id of a task of the gateway is in the response to a call with Prefer: respond-async; the task \
             belongs to its caller, can be read and canceled while it runs, and is kept for {} seconds after its end.",
            tasks.result_ttl.as_secs_f64()
        )
    }

    /// Builds `bindings` of a descriptor: each way to call the agent at the gateway, with its credentials.
    pub(super) fn bindings(&self, base: &str, agent: &Agent, credentials: &AcceptedCredentials) -> Value {
        let methods = credentials.accepted_methods(Some(agent));
        let endpoint = format!("{base}/agents/{}/invoke", agent.id);
        let websocket_endpoint = endpoint.replacen("http", "ws", 1);
        let scheme_of = |url: &str| url.split(':').next().unwrap_or_default().to_owned();
        let in_requests = || methods.iter().map(|method| request_security(*method, credentials));
        let in_subprotocols = methods.iter().filter_map(|method| subprotocol_security(*method));
        let mut bindings = vec![
            json!({
                "transport": scheme_of(&endpoint),
                "endpoint": endpoint,
                "security": in_requests().collect::<Vec<_>>(),
            }),
            json!({
                "transport": scheme_of(&websocket_endpoint),
                "endpoint": websocket_endpoint,
                "security": in_requests().chain(in_subprotocols).collect::<Vec<_>>(),
            }),
        ];
        if self.bridged_agents.iter().any(|glob| glob.matches(agent.id.as_str())) {
            bindings.push(json!({
                "transport": "mqtt",
                "topic": format!("/control/agents/{}/input", agent.id),
                "security": [{
                    "scheme": "Broker",
                    "description": "The login, TLS and access control of the operator's broker; the gateway calls with \
                        a key of its own, whose grants and limits apply to all tasks.",
                }],
            }));
        }
        bindings.into()
    }
}

/// Describes the credential of `method` in a request or its connection.
fn request_security(method: AuthenticationMethod, credentials: &AcceptedCredentials) -> Value {
    let mut security = credentials.openapi_scheme(method);
    match &mut security {
        Value::Object(members) => drop(members.insert("scheme".to_owned(), method.descriptor_scheme().into())),
        other => *other = json!({"scheme": method.descriptor_scheme()}),
    }
    security
}

/// Describes the credential of `method` in a subprotocol, for scripts in browsers (R98).
fn subprotocol_security(method: AuthenticationMethod) -> Option<Value> {
    let name = match method {
        AuthenticationMethod::ApiKey => "gatepost.key.{key}",
        AuthenticationMethod::Bearer => "gatepost.bearer.{token}",
        AuthenticationMethod::Mtls | AuthenticationMethod::Anonymous => return None,
    };
    Some(json!({
        "scheme": method.descriptor_scheme(),
        "in": "subprotocol",
        "name": name,
        "description": "Beside the subprotocol gatepost; pages of other origins need the operator's permission.",
    }))
}
