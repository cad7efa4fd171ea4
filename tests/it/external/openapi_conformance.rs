//! The OpenAPI documents of the gateway and of its agents say what the gateway does: schemathesis sends what they describe
//! and what they forbid, and finds no difference. `tests/schemathesis/schemathesis.toml` has the exceptions with their
//! reasons.

use super::support::schemathesis::{check, invalidity, read_document};
use crate::support::{
    agent::{Agent, Step, http_response, json_response, write},
    gateway::{Gateway, GatewayBuilder, gateway},
};
use serde_json::{Value, json};
use std::time::Duration;

/// The agents behind the gateway. They listen as long as this exists.
struct Agents {
    echo: Agent,
    failing: Agent,
    broken: Agent,
    slow: Agent,
    streaming: Agent,
    translating: Agent,
}

impl Agents {
    async fn start() -> Self {
        let events = "data: {\"number\":1}\n\ndata: {\"number\":2}\n\n";
        let answer = json_response(&json!({"late": true}));
        Self {
            echo: Agent::echo().await,
            failing: Agent::with_steps(http_response("503 Service Unavailable", "application/json", "{}")).await,
            broken: Agent::with_steps(vec![Step::Close]).await,
            slow: Agent::with_steps([vec![Step::Sleep(Duration::from_millis(20))], answer].concat()).await,
            streaming: Agent::with_steps(vec![
                write(format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: {}\r\n\r\n",
                    events.len()
                )),
                write(events),
            ])
            .await,
            translating: Agent::with_steps(json_response(&json!({"translated_text": "嗨"}))).await,
        }
    }

    fn add_to(&self, mut build: GatewayBuilder) -> GatewayBuilder {
        let agents = [
            ("echo", &self.echo),
            ("failing", &self.failing),
            ("broken", &self.broken),
            ("slow", &self.slow),
            ("streaming", &self.streaming),
        ];
        for (id, agent) in agents {
            build = build.agent(id, agent);
        }
        let mut versioned = self.echo.document("versioned");
        versioned["version"] = json!("2.1.2");
        versioned["supportedVersions"] = json!({"2.1.2": self.echo.url(), "3.0.0": self.slow.url()});
        build.document(versioned).document(self.translator())
    }

    /// An agent with strict schemas of two operations, and an example.
    fn translator(&self) -> Value {
        let mut document = self.translating.document("translator");
        document["operations"] = json!([
            {
                "name": "translate",
                "inputs": {
                    "type": "object",
                    "properties": {
                        "text": {"type": "string", "minLength": 1, "maxLength": 100},
                        "to": {"type": "string", "enum": ["en", "zh"]},
                    },
                    "required": ["text", "to"],
                    "additionalProperties": false,
                },
                "outputs": {
                    "type": "object",
                    "properties": {"translated_text": {"type": "string"}},
                    "required": ["translated_text"],
                },
                "examples": [{"input": {"text": "hi", "to": "zh"}, "output": {"translated_text": "嗨"}}],
            },
            {
                "name": "detect",
                "inputs": {
                    "type": "object",
                    "properties": {"text": {"type": "string"}},
                    "required": ["text"],
                    "additionalProperties": false,
                },
            },
        ]);
        document
    }
}

/// A gateway with everything that callers see, and without the limits that a quick caller meets.
async fn start_gateway(agents: &Agents) -> Gateway {
    agents
        .add_to(gateway())
        .section("limits: {per_address: null, per_caller_search: null}\n")
        .section("tasks: {max_tasks_per_caller: 100000}\n")
        .section("registry:\n  sqlite_file: gatepost.db\n  publishers: [{callers: ['key:team-a'], agents: ['*']}]\n")
        .start()
        .await
}

/// The gateway's document, in which `/resolve` takes names under the gateway alone: random names would make the gateway
/// ask hosts beyond this machine.
async fn gateway_document(gate: &Gateway) -> Value {
    let mut document = read_document(gate, "/openapi.json").await;
    let name = &mut document["components"]["schemas"]["Name"]["properties"]["uri"];
    let own = ["echo", "versioned", "translator/translate"].map(|path| format!("agent://{}/{path}", gate.address()));
    *name = json!({"type": "string", "enum": own});
    document
}

#[tokio::test]
async fn r10_schemathesis_finds_no_difference_between_the_gateway_and_its_openapi_document() {
    let agents = Agents::start().await;
    let gate = start_gateway(&agents).await;
    let document = gateway_document(&gate).await;
    let findings = check(&gate, &document, &[]).await;
    assert!(findings.is_clean, "{}", findings.report);
    assert!(findings.requests > 3_000, "{}", findings.report);
    // The circuit breaker soon keeps calls from the broken agent.
    for agent in [&agents.echo, &agents.failing, &agents.broken, &agents.slow, &agents.streaming] {
        assert!(agent.call_count() > 2, "{}: {} calls", agent.url(), agent.call_count());
    }
}

#[tokio::test]
async fn r10_schemathesis_finds_no_difference_between_calls_and_an_agents_openapi_document() {
    let agents = Agents::start().await;
    let gate = start_gateway(&agents).await;
    for id in ["translator", "versioned", "streaming"] {
        let document = read_document(&gate, &format!("/agents/{id}/openapi.json")).await;
        let findings = check(&gate, &document, &[]).await;
        assert!(findings.is_clean && findings.requests > 50, "{id}: {}", findings.report);
    }
}

#[tokio::test]
async fn a_document_that_differs_from_the_gateway_is_found() {
    let agents = Agents::start().await;
    let gate = start_gateway(&agents).await;
    let document = gateway_document(&gate).await;
    let change = |pointer: &str, value: Value| {
        let mut document = document.clone();
        *document.pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer}")) = value;
        document
    };
    let operation = ["--include-operation-id", "getwellknownagents", "--phases", "coverage"];
    let path = "/paths/~1.well-known~1agents.json/get";
    let findings = check(&gate, &document, &operation).await;
    assert!(findings.is_clean, "{}", findings.report);
    for (pointer, value) in [
        (format!("{path}/parameters/1/schema/maximum"), json!(20_000)),
        (format!("{path}/responses/200/content"), json!({"text/plain": {}})),
        ("/components/schemas/Map/required".to_owned(), json!(["agents", "more"])),
    ] {
        let findings = check(&gate, &change(&pointer, value), &operation).await;
        assert!(!findings.is_clean, "{pointer}: {}", findings.report);
    }
}

#[tokio::test]
async fn the_openapi_documents_of_every_configuration_are_valid() {
    let agents = Agents::start().await;
    let all = "tasks: {callbacks: {secret: 'env:CALLBACK_SECRET'}, resume: null}\n";
    let pages = "cors: {allowed_origins: ['https://app.example.com'], pairing: {}}\n";
    let registry = "registry:\n  sqlite_file: gatepost.db\n  publishers: [{callers: ['key:team-a']}]\n";
    let get_off = "agents:\n  sources: [agents.json]\n  rules:\n    - {agents: ['*'], get: false}\n";
    let public = "directory: {public_agents: ['*']}\n";
    for sections in [
        vec![],
        vec!["tasks: {}\n"],
        vec![all, pages, registry],
        vec!["idempotency: {ttl: 0s}\n", get_off],
        vec![public, "tasks: {}\n", registry],
    ] {
        let mut build = agents.add_to(gateway()).env("CALLBACK_SECRET", "0123456789abcdef0123456789abcdef");
        for section in &sections {
            build = build.section(section);
        }
        let gate = build.start().await;
        for path in ["/openapi.json", "/agents/translator/openapi.json", "/agents/versioned/openapi.json"] {
            let document = read_document(&gate, path).await;
            assert_eq!(invalidity(&document).await, None, "{path} {sections:?}");
        }
    }
    let broken =
        json!({"openapi": "3.1.0", "info": {"title": "x", "version": "1"}, "paths": {"/a": {"get": {"responses": 7}}}});
    assert!(invalidity(&broken).await.is_some(), "the validator rejects an invalid document");
}
