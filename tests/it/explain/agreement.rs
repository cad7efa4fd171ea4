//! Dry runs of random calls agree with the calls, in random configurations.

use super::Call;
use crate::support::{
    agent::{Agent, Step},
    closed_port::ClosedPort,
    eventually,
    gateway::{Gateway, gateway, send, translator_document},
};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Configurations, and calls in each: 500 pairs.
const CONFIGURATIONS: u64 = 25;
const CALLS: usize = 20;

/// The codes and statuses that the calls must have produced in all.
const OUTCOMES: &[(u16, &str)] = &[
    (200, "admitted"),
    (400, "InvalidInput"),
    (401, "Unauthorized"),
    (403, "PermissionDenied"),
    (404, "CapabilityNotFound"),
    (404, "NotFound"),
    (405, "MethodNotAllowed"),
    (406, "NotAcceptable"),
    (413, "PayloadTooLarge"),
    (415, "UnsupportedMediaType"),
    (429, "RateLimited"),
    (431, "InvalidInput"),
    (503, "AgentUnavailable"),
    (503, "Overloaded"),
];

/// A generator of pseudo-random numbers (splitmix64), so that a failure can be repeated.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ (bits >> 31)
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.next().is_multiple_of(count)
    }

    fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[usize::try_from(self.next() % items.len() as u64).unwrap()]
    }

    /// One of the texts, or none.
    fn maybe(&mut self, texts: &[&str]) -> String {
        if self.one_in(2) { (*self.pick(texts)).to_owned() } else { String::new() }
    }
}

/// The agents of all configurations.
struct Agents {
    echo: Agent,
    busy: Agent,
    gone: ClosedPort,
}

impl Agents {
    fn documents(&self) -> Vec<Value> {
        let open = |id: &str| {
            let mut document = self.echo.document(id);
            document["authentication"] = json!({"type": "none"});
            document
        };
        let mut inactive = self.echo.document("inactive");
        inactive["status"] = json!("inactive");
        let mut versioned = self.echo.document("versioned");
        versioned["version"] = json!("1.0.0");
        versioned["versions"] = json!([{"version": "1.0.0"}]);
        let mut gone = self.echo.document("gone");
        gone["endpoint"] = json!(format!("http://{}/invoke", self.gone.address));
        let plain = self.echo.document("plain");
        vec![
            plain,
            open("open"),
            inactive,
            versioned,
            gone,
            self.busy.document("busy"),
            translator_document(&self.echo),
        ]
    }
}

async fn start_gateway(random: &mut Random, agents: &Agents) -> Gateway {
    let mut limits =
        "limits:\n  max_share: 1\n  concurrency: {max_queued: 0, adaptive: false, queue_timeout: 100ms}\n".to_owned();
    limits.push_str(&random.maybe(&["  per_caller: 8/h\n", "  per_caller: 40/h\n"]));
    limits.push_str(&random.maybe(&["  per_caller_agent: 3/h\n", "  per_caller_agent: 30/h\n"]));
    limits.push_str(&random.maybe(&["  per_agent: 4/h\n", "  per_agent: 40/h\n"]));
    if random.one_in(6) {
        limits.push_str("  per_address: 15/h\n");
    }
    limits.push_str(&random.maybe(&["  quota: {per_day: 5}\n", "  quota: {per_day: 50, per_month: 6}\n"]));
    limits.push_str("  tiers:\n    gold: {per_caller: 2/h}\n");
    let mut access = "access:\n".to_owned();
    access.push_str(&random.maybe(&["  on_denied: forbidden\n"]));
    access.push_str("  grants:\n    - {callers: ['key:team-a', 'key:gold', 'key:half'], agents: ['*']}\n    - {callers: [anonymous], agents: [open]}\n");
    access.push_str(&random.maybe(&["  denials:\n    - {callers: ['key:half'], agents: ['plain', 'agent-*']}\n"]));
    let mut sources = "agents:\n  sources: [agents.json]\n  defaults:\n    circuit_breaker: {consecutive_failures: 1, open_duration: 1h}\n  rules:\n    - {agents: [busy], max_concurrency: 1}\n".to_owned();
    sources
        .push_str(&random.maybe(&["    - {agents: [plain], get: false}\n", "    - {agents: ['*'], query: refuse}\n"]));
    let mut contract = "contract:\n  max_body_size: 1KiB\n  batch: {max_items: 2}\n".to_owned();
    contract.push_str(&random.maybe(&["  input: report\n", "  max_depth: 8\n"]));
    let mut builder = gateway();
    for document in agents.documents() {
        builder = builder.document(document);
    }
    builder = builder
        .access(&access)
        .caller("gold", &["--tier", "gold"])
        .caller("half", &[])
        .caller("none", &[])
        .section(&limits)
        .section(&sources)
        .section(&contract)
        .section("connections:\n  max_header_size: 4KiB\n");
    if random.one_in(2) {
        builder = builder.section("cors:\n  allowed_origins: ['https://app.example']\n");
    }
    builder.start().await
}

fn random_call(random: &mut Random) -> Call {
    let agents = [
        "plain",
        "plain",
        "open",
        "inactive",
        "versioned",
        "gone",
        "busy",
        "missing",
        "agent-12345",
        "agent-12345",
        "agent-12345",
    ];
    let (agent, suffix) = (*random.pick(&agents), if random.one_in(12) { "@1.0.0" } else { "" });
    let mut path = format!("/agents/{agent}{suffix}/invoke");
    if random.one_in(6) {
        path.push_str("?page=2&text=a");
    }
    if random.one_in(25) {
        path = "/nothing/here".to_owned();
    }
    let translation = r#"{"text": "hi", "source_language": "en", "target_language": "zh"}"#;
    let bodies = [
        translation,
        translation,
        translation,
        "{}",
        "[{},{}]",
        "[{},{},{}]",
        "{",
        "",
        "7",
        "[[[[[[[[[[1]]]]]]]]]]",
        r#"{"text": 7, "operation": "translateText"}"#,
        r#"{"operation": "sing"}"#,
    ];
    // A body that is too large reaches the contract of an agent with a schema only.
    let body = if random.one_in(if agent == "agent-12345" { 5 } else { 20 }) {
        json!({"text": "x".repeat(2_000)}).to_string()
    } else {
        (*random.pick(&bodies)).to_owned()
    };
    let caller =
        *random.pick(&[Some("team-a"), Some("team-a"), Some("team-a"), Some("gold"), Some("half"), Some("none"), None]);
    let method = *random.pick(&["POST", "POST", "POST", "POST", "POST", "POST", "GET", "DELETE"]);
    let mut call = Call { method, path, headers: Vec::new(), body, caller };
    if method != "POST" {
        call.body.clear();
    }
    let headers = [
        ("x-operation", "translateText"),
        ("x-operation", "sing"),
        ("x-agent-version", "1.0.0"),
        ("x-agent-version", "9.0.0"),
        ("accept", "image/png"),
        ("accept", "application/json"),
        ("content-type", "text/plain"),
        ("content-type", "application/json"),
        ("x-request-timeout", "soon"),
        ("x-request-timeout", "5"),
        ("x-session-id", "a b"),
        ("origin", "https://app.example"),
        ("origin", "https://other.example"),
        ("sec-fetch-site", "cross-site"),
    ];
    for (name, value) in headers {
        if random.one_in(18) && call.headers.iter().all(|(other, _)| *other != name) {
            call = call.header(name, value);
        }
    }
    if random.one_in(30) {
        call = call.header("x-long", &"x".repeat(5_000));
    }
    if call.caller.is_none() && random.one_in(3) {
        call = call.header("x-api-key", "gp_abcdefghijkl_abcdefghijklmnopqrstuvwxyzabcdef");
    }
    call
}

/// Calls the agents so that the circuit breaker of `gone` opens and the only slot of `busy` is taken.
async fn prepare(gate: &Gateway, agents: &Agents) -> tokio::task::JoinHandle<()> {
    send(gate.post("/agents/gone/invoke").body("{}")).await.expect_fault(503, "AgentUnavailable");
    let (before, held) = (agents.busy.call_count(), gate.post("/agents/busy/invoke").body("{}"));
    let held = tokio::spawn(async move { drop(held.send().await) });
    eventually("the agent is busy", async || agents.busy.call_count() > before).await;
    held
}

#[tokio::test]
async fn dry_runs_of_500_random_calls_agree_with_the_calls() {
    let agents =
        Agents { echo: Agent::echo().await, busy: Agent::with_steps(vec![Step::Hang]).await, gone: ClosedPort::new() };
    let mut outcomes = BTreeSet::new();
    let mut pairs = 0;
    for seed in 0..CONFIGURATIONS {
        let mut random = Random(seed);
        let gate = start_gateway(&mut random, &agents).await;
        let held = prepare(&gate, &agents).await;
        for _ in 0..CALLS {
            let call = random_call(&mut random);
            let calls_before = agents.echo.call_count();
            let explanation = call.explain(&gate).await;
            assert_eq!(agents.echo.call_count(), calls_before, "a dry run reached the agent");
            let response = call.make(&gate).await;
            let real_code = match response.status {
                200 => "admitted".to_owned(),
                _ => response.json()["error"]["code"].as_str().unwrap().to_owned(),
            };
            let explained = match explanation["verdict"].as_str().unwrap() {
                "admitted" => (200, "admitted".to_owned()),
                _ => (explanation["status"].as_u64().unwrap(), explanation["code"].as_str().unwrap().to_owned()),
            };
            let real = (u64::from(response.status), real_code);
            assert_eq!(
                explained,
                real,
                "seed {seed}: {call:?}\n{explanation:#}\n{}\n{}",
                response.text(),
                gate.read_file("gatepost.yaml")
            );
            if explanation["verdict"] == "refused" {
                // The sentence is the same, too: one check decided both times.
                assert_eq!(explanation["message"], response.json()["error"]["message"], "seed {seed}: {call:?}");
            }
            outcomes.insert(real);
            pairs += 1;
        }
        held.abort();
    }
    assert_eq!(pairs, 500);
    for (status, code) in OUTCOMES {
        assert!(
            outcomes.contains(&(u64::from(*status), (*code).to_owned())),
            "no call ended with {status} {code}: {outcomes:?}"
        );
    }
}
