//! The ways in which a call reaches the gateway. Each passes the same admission: what one of them refuses, all refuse.

use crate::support::{
    agent::Agent,
    eventually,
    gateway::{Gateway, gateway, send},
    gateway_response::GatewayResponse,
    websocket::{AgentRecord, Socket, connect, echo_agent, receive_json, send_text, websocket_document},
};
use rustix::process::Signal;
use serde_json::{Value, json};
use uuid::Uuid;

/// The agent over HTTP, and the agent over WebSocket.
const AGENTS: [&str; 2] = ["http", "socket"];

const SECTIONS: &str = "tasks:\n  sqlite_file: tasks.db\nlimits:\n  per_caller: 1000/h\n";

/// A gateway with both agents, and two WebSockets that were opened while everything was allowed.
struct FrontEnds {
    gate: Gateway,
    agent: Agent,
    record: AgentRecord,
    /// Each message is a call to the agent over HTTP.
    calls: Socket,
    /// Messages are relayed to the agent over WebSocket.
    relay: Socket,
    _peer: crate::support::servers::RawAgent,
}

/// The code of the error in a response body; of a batch, in its first item.
fn error_code(body: &Value) -> String {
    let body = body.get(0).unwrap_or(body);
    body["error"]["code"].as_str().unwrap_or("no error").to_owned()
}

fn with_schema(mut document: Value) -> Value {
    let inputs = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    document["operations"] = json!([{"name": "count", "inputs": inputs}]);
    document
}

impl FrontEnds {
    async fn start() -> Self {
        let agent = Agent::echo().await;
        let (peer, record) = echo_agent().await;
        let documents = [agent.document(AGENTS[0]), websocket_document(&peer, AGENTS[1])].map(with_schema);
        let builder = documents.into_iter().fold(gateway(), |builder, document| builder.document(document));
        let gate = builder.section(SECTIONS).start().await;
        let calls = connect(&gate, "/agents/http/invoke").await;
        let relay = connect(&gate, "/agents/socket/invoke").await;
        Self { gate, agent, record, calls, relay, _peer: peer }
    }

    /// Replaces a text in a file, and waits until a call over HTTP gets this code.
    async fn change(&self, file: &str, from: &str, to: &str, code: &str) {
        let text = self.gate.read_file(file);
        assert!(text.contains(from), "{file} has no {from}: {text}");
        self.gate.write_file(file, &text.replace(from, to));
        self.gate.send_signal(Signal::HUP);
        eventually(&format!("a call gets {code}"), async || error_code(&self.post(&json!({"n": 1})).await) == code)
            .await;
    }

    fn request(&self, method: &str, path: &str) -> reqwest::RequestBuilder {
        self.gate.request(method, path).header("x-api-key", self.gate.key("team-a"))
    }

    async fn post(&self, input: &Value) -> Value {
        send(self.request("POST", "/agents/http/invoke").json(input)).await.json()
    }

    async fn handshake(&self, path: &str) -> GatewayResponse {
        let upgrade = [
            ("connection", "upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "AAAAAAAAAAAAAAAAAAAAAA=="),
        ];
        let request = self.request("GET", path);
        send(upgrade.into_iter().fold(request, |request, (name, value)| request.header(name, value))).await
    }

    /// Sends this input by every front end, and returns the code of each error.
    async fn codes(&mut self, input: &Value) -> Vec<(&'static str, String)> {
        let call = |path: &str| self.request("POST", path);
        let query = input["n"].as_i64().map_or("n=x".to_owned(), |n| format!("n={n}"));
        let key = Uuid::new_v4().to_string();
        let steps = json!({"steps": [{"agent": "http"}], "input": input});
        let mut codes = Vec::new();
        for (name, request) in [
            ("a request", call("/agents/http/invoke").json(input)),
            ("a query", self.request("GET", &format!("/agents/http/invoke?{query}"))),
            ("a batch", call("/agents/http/invoke").json(&json!([input]))),
            ("a task", call("/agents/http/invoke").header("prefer", "respond-async").json(input)),
            ("a call with a key", call("/agents/http/invoke").header("idempotency-key", key).json(input)),
            ("a pipeline step", call("/pipelines/invoke").json(&steps)),
        ] {
            codes.push((name, error_code(&send(request).await.json())));
        }
        for (name, socket) in [("a message", &mut self.calls), ("a relayed message", &mut self.relay)] {
            send_text(socket, input.to_string()).await;
            codes.push((name, error_code(&receive_json(socket).await)));
        }
        codes
    }

    /// Requires that every front end refuses this input with `code`, and that no agent sees it.
    async fn assert_all_refuse(mut self, input: &Value, code: &str) {
        let (calls, messages) = (self.agent.call_count(), self.record.messages().len());
        for (name, found) in self.codes(input).await {
            assert_eq!(found, code, "{name}");
        }
        assert_eq!((self.agent.call_count(), self.record.messages().len()), (calls, messages), "an agent was called");
    }
}

#[tokio::test]
async fn every_front_end_passes_what_is_valid() {
    let mut front_ends = FrontEnds::start().await;
    for (name, code) in front_ends.codes(&json!({"n": 1})).await {
        assert_eq!(code, "no error", "{name}");
    }
    eventually("the task calls the agent", async || front_ends.agent.call_count() == 7).await;
    assert_eq!(front_ends.record.messages().len(), 1);
}

#[tokio::test]
async fn r32_every_front_end_refuses_an_input_that_violates_the_schema() {
    FrontEnds::start().await.assert_all_refuse(&json!({"n": "x"}), "InvalidInput").await;
}

#[tokio::test]
async fn r2_every_front_end_refuses_a_revoked_key() {
    let front_ends = FrontEnds::start().await;
    front_ends.gate.write_file("keys.jsonl", "");
    let revoked = async || error_code(&front_ends.post(&json!({"n": 1})).await) == "Unauthorized";
    eventually("the key is revoked", revoked).await;
    for agent in AGENTS {
        front_ends.handshake(&format!("/agents/{agent}/invoke")).await.expect_fault(401, "Unauthorized");
    }
    front_ends.assert_all_refuse(&json!({"n": 1}), "Unauthorized").await;
}

#[tokio::test]
async fn r3_every_front_end_refuses_a_caller_without_a_grant() {
    let front_ends = FrontEnds::start().await;
    front_ends.change("gatepost.yaml", "agents: ['*']", "agents: ['other']", "NotFound").await;
    for agent in AGENTS {
        front_ends.handshake(&format!("/agents/{agent}/invoke")).await.expect_fault(404, "NotFound");
    }
    front_ends.assert_all_refuse(&json!({"n": 1}), "NotFound").await;
}

#[tokio::test]
async fn r15_every_front_end_refuses_calls_to_an_inactive_agent() {
    let front_ends = FrontEnds::start().await;
    front_ends
        .change("agents.json", "\"operations\"", "\"status\": \"inactive\", \"operations\"", "AgentUnavailable")
        .await;
    for agent in AGENTS {
        front_ends.handshake(&format!("/agents/{agent}/invoke")).await.expect_fault(503, "AgentUnavailable");
    }
    front_ends.assert_all_refuse(&json!({"n": 1}), "AgentUnavailable").await;
}

#[tokio::test]
async fn r5_every_front_end_refuses_a_caller_that_used_up_its_rate() {
    let front_ends = FrontEnds::start().await;
    front_ends.change("gatepost.yaml", "per_caller: 1000/h", "per_caller: 1/h", "RateLimited").await;
    for agent in AGENTS {
        front_ends.handshake(&format!("/agents/{agent}/invoke")).await.expect_fault(429, "RateLimited");
    }
    front_ends.assert_all_refuse(&json!({"n": 1}), "RateLimited").await;
}

#[tokio::test]
async fn r30_every_front_end_refuses_an_operation_that_the_agent_does_not_have() {
    let front_ends = FrontEnds::start().await;
    let call = |path: &str| front_ends.request("POST", path).json(&json!({"n": 1}));
    let named = send(call("/agents/http/invoke/nothing")).await;
    named.expect_fault(404, "CapabilityNotFound");
    send(front_ends.request("GET", "/agents/http/invoke/nothing?n=1")).await.expect_fault(404, "CapabilityNotFound");
    let step = json!({"steps": [{"agent": "http", "operation": "nothing"}], "input": {"n": 1}});
    send(front_ends.request("POST", "/pipelines/invoke").json(&step)).await.expect_fault(404, "CapabilityNotFound");
    for agent in AGENTS {
        let path = format!("/agents/{agent}/invoke/nothing");
        front_ends.handshake(&path).await.expect_fault(404, "CapabilityNotFound");
    }
}
