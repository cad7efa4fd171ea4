//! Limits end to end: rates of addresses, callers and agents, quotas across a restart, concurrency, batches.

use crate::support::{
    agent::{Agent, Step, json_response},
    eventually,
    gateway::{Gateway, gateway, send},
    gateway_response::GatewayResponse,
};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tokio::{io::AsyncWriteExt, net::TcpStream};

async fn invoke_as(gate: &Gateway, caller: &str, id: &str) -> GatewayResponse {
    let call = gate.request("POST", &format!("/agents/{id}/invoke")).header("x-api-key", gate.key(caller));
    send(call.json(&json!({}))).await
}

/// Asserts a 429 that names `limit` and the time to retry.
#[track_caller]
fn assert_limited(answer: &GatewayResponse, limit: &str) {
    answer.expect_fault(429, "RateLimited");
    let wait: u64 = answer.header("retry-after").unwrap().parse().unwrap();
    assert!(wait >= 1);
    assert!(answer.header("ratelimit").unwrap().starts_with(&format!("\"{limit}\";r=0;t=")), "{:?}", answer.headers);
    assert!(answer.header("ratelimit-policy").unwrap().starts_with(&format!("\"{limit}\";q=")), "{:?}", answer.headers);
}

#[tokio::test]
async fn r5_the_address_limit_applies_before_authentication() {
    let echo = Agent::echo().await;
    let gate = gateway().agent("echo", &echo).section("limits:\n  per_address: 4/h\n").start().await;
    for id in ["echo", "nothing"] {
        send(gate.request("POST", &format!("/agents/{id}/invoke"))).await.expect_fault(401, "Unauthorized");
    }
    invoke_as(&gate, "team-a", "echo").await.expect_ok();
    invoke_as(&gate, "team-a", "echo").await.expect_ok();
    for id in ["echo", "nothing"] {
        assert_limited(&invoke_as(&gate, "team-a", id).await, "address");
        assert_limited(&send(gate.request("POST", &format!("/agents/{id}/invoke"))).await, "address");
    }
    assert_eq!(echo.call_count(), 2);
}

#[tokio::test]
async fn r5_each_caller_has_one_rate_for_all_agents() {
    let echo = Agent::echo().await;
    let gate = gateway()
        .agent("one", &echo)
        .agent("two", &echo)
        .caller("team-b", &[])
        .section("limits:\n  per_caller: 3/h\n")
        .start()
        .await;
    for (id, remaining) in [("one", "r=2"), ("two", "r=1"), ("one", "r=0")] {
        let answer = invoke_as(&gate, "team-a", id).await;
        answer.expect_ok();
        assert!(answer.header("ratelimit").unwrap().contains(remaining), "{:?}", answer.headers);
        assert!(answer.header("ratelimit-policy").unwrap().contains("q=3"), "{:?}", answer.headers);
    }
    assert_limited(&invoke_as(&gate, "team-a", "one").await, "caller");
    assert_limited(&invoke_as(&gate, "team-a", "two").await, "caller");
    invoke_as(&gate, "team-b", "one").await.expect_ok();
    assert_eq!(echo.call_count(), 4);
}

#[tokio::test]
async fn r5_refused_calls_use_no_tokens_and_invisible_agents_have_no_limit() {
    let echo = Agent::echo().await;
    let gate = gateway()
        .agent("one", &echo)
        .agent("two", &echo)
        .agent("hidden", &echo)
        .access("access:\n  grants:\n    - {callers: ['*'], agents: [one, two]}\n")
        .section("limits:\n  per_caller: 4/h\n  per_caller_agent: 2/h\n")
        .start()
        .await;
    for _ in 0..5 {
        let answer = invoke_as(&gate, "team-a", "hidden").await;
        answer.expect_fault(404, "NotFound");
        assert_eq!(answer.header("ratelimit"), None);
    }
    for (id, status) in
        [("one", 200), ("one", 200), ("one", 429), ("one", 429), ("two", 200), ("two", 200), ("two", 429)]
    {
        assert_eq!(invoke_as(&gate, "team-a", id).await.status, status, "{id}");
    }
    assert_eq!(echo.call_count(), 4);
}

#[tokio::test]
async fn r5_the_strictest_limit_of_configuration_and_document_applies_to_all_callers_together() {
    let echo = Agent::echo().await;
    let document = |id: &str, rates: Value| {
        let mut document = echo.document(id);
        document["rate_limits"] = rates;
        document
    };
    let gate = gateway()
        .agent("configured", &echo)
        .document(document("own", json!("2/h")))
        .document(document("members", json!({"max_calls_per_hour": 1})))
        .document(document("loose", json!(["100/h", "50/h"])))
        .agent("ruled", &echo)
        .caller("team-b", &[])
        .section("limits:\n  per_agent: 3/h\n")
        .section("agents:\n  sources: [agents.json]\n  rules: [{agents: ['rul*'], rate_limit: 1/h}]\n")
        .start()
        .await;
    for (id, max) in [("configured", 3), ("own", 2), ("members", 1), ("loose", 3), ("ruled", 1)] {
        for at in 0..max {
            invoke_as(&gate, ["team-a", "team-b"][at % 2], id).await.expect_ok();
        }
        assert_limited(&invoke_as(&gate, "team-a", id).await, "agent");
        assert_limited(&invoke_as(&gate, "team-b", id).await, "agent");
    }
    assert_eq!(echo.call_count(), 10);
}

#[tokio::test]
async fn r5_a_tier_has_its_own_limits_and_an_unknown_tier_has_the_default_limits() {
    let echo = Agent::echo().await;
    let gate = gateway()
        .agent("echo", &echo)
        .caller("gold", &["--tier", "gold"])
        .caller("tin", &["--tier", "tin"])
        .section("limits:\n  per_caller: 2/h\n  tiers:\n    gold: {per_caller: 4/h, quota: {per_day: 3}}\n")
        .start()
        .await;
    for (caller, max, limit) in [("team-a", 2, "caller"), ("tin", 2, "caller"), ("gold", 3, "day")] {
        for _ in 0..max {
            invoke_as(&gate, caller, "echo").await.expect_ok();
        }
        assert_limited(&invoke_as(&gate, caller, "echo").await, limit);
    }
}

#[tokio::test]
async fn r5_quotas_survive_a_restart() {
    let echo = Agent::echo().await;
    let gate = gateway()
        .agent("echo", &echo)
        .section("limits:\n  quota: {per_day: 3, per_month: 100}\n  quota_state_file: quotas.json\n")
        .start()
        .await;
    for _ in 0..2 {
        invoke_as(&gate, "team-a", "echo").await.expect_ok();
    }
    gate.send_signal(Signal::TERM);
    let keys = gate.keys.clone();
    let (folder, mut child) = gate.into_folder_and_child();
    let restart = tokio::task::spawn_blocking(move || {
        assert!(child.wait().unwrap().success());
        let state = std::fs::read_to_string(folder.path().join("quotas.json"))
            .expect("the quota state is beside the configuration");
        assert!(state.contains("key:team-a"), "{state}");
        Gateway::spawn(folder, keys, &[], &[])
    });
    let gate = restart.await.unwrap();
    invoke_as(&gate, "team-a", "echo").await.expect_ok();
    let answer = invoke_as(&gate, "team-a", "echo").await;
    assert_limited(&answer, "day");
    assert!(answer.header("retry-after").unwrap().parse::<u64>().unwrap() <= 86_400);
    assert_eq!(echo.call_count(), 3);
}

#[tokio::test]
async fn r5_quotas_survive_a_kill_within_a_second_or_two() {
    let echo = Agent::echo().await;
    let gate = gateway()
        .agent("echo", &echo)
        .section("limits:\n  quota: {per_day: 4, per_month: 100}\n  quota_state_file: quotas.json\n")
        .start()
        .await;
    let state_file = gate.folder().join("quotas.json");
    for count in 1..=3 {
        invoke_as(&gate, "team-a", "echo").await.expect_ok();
        let began = Instant::now();
        let row = format!(",{count}]");
        eventually("the count is written", async || {
            std::fs::read_to_string(&state_file)
                .is_ok_and(|text| text.lines().any(|line| line.contains("key:team-a") && line.contains(&row)))
        })
        .await;
        // One interval of the maintenance, and what a loaded machine adds.
        assert!(began.elapsed() < Duration::from_secs(3), "count {count} was written after {:?}", began.elapsed());
    }
    gate.send_signal(Signal::KILL);
    let keys = gate.keys.clone();
    let (folder, mut child) = gate.into_folder_and_child();
    let restart = tokio::task::spawn_blocking(move || {
        assert!(!child.wait().unwrap().success());
        Gateway::spawn(folder, keys, &[], &[])
    });
    let gate = restart.await.unwrap();
    invoke_as(&gate, "team-a", "echo").await.expect_ok();
    assert_limited(&invoke_as(&gate, "team-a", "echo").await, "day");
}

/// Sends a call without reading its response.
async fn start_call(gate: &Gateway, id: &str) -> TcpStream {
    let mut stream = TcpStream::connect(gate.address()).await.unwrap();
    let key = gate.key("team-a");
    let call = format!(
        "POST /agents/{id}/invoke HTTP/1.1\r\nHost: a\r\nX-API-Key: {key}\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{{}}"
    );
    stream.write_all(call.as_bytes()).await.unwrap();
    stream
}

#[tokio::test]
async fn r35_an_agent_at_its_limit_has_a_short_wait_queue_and_then_503() {
    let agent = Agent::with_steps(vec![Step::Hang]).await;
    let gate = gateway()
        .agent("slow", &agent)
        .agent("other", &agent)
        .section("limits:\n  concurrency: {max_per_agent: 1, max_queued: 1, queue_timeout: 300ms}\n")
        .start()
        .await;
    let first = start_call(&gate, "slow").await;
    eventually("the agent receives the first call", async || agent.call_count() == 1).await;
    let started = Instant::now();
    let (one, two) = tokio::join!(invoke_as(&gate, "team-a", "slow"), invoke_as(&gate, "team-a", "slow"));
    for answer in [&one, &two] {
        answer.expect_fault(503, "Overloaded");
        assert!(answer.header("retry-after").is_some());
    }
    assert!(started.elapsed() >= Duration::from_millis(300), "one of them waited");
    assert_eq!(agent.call_count(), 1);
    // The other agent has a free permit.
    let _other = start_call(&gate, "other").await;
    eventually("the other agent receives its call", async || agent.call_count() == 2).await;
    // A caller that disconnects releases its permit.
    first.set_zero_linger().unwrap();
    drop(first);
    let mut streams = Vec::new();
    let retry = async || {
        streams.push(start_call(&gate, "slow").await);
        agent.call_count() > 2
    };
    eventually("the permit is free again", retry).await;
}

#[tokio::test]
async fn r44_r5_every_item_of_a_batch_counts_as_a_call() {
    let agent = Agent::scripted(|got| json_response(&json!({"n": got.json()["n"]}))).await;
    let mut document = agent.document("items");
    document["inputs"] = json!({"type": "object", "required": ["n"]});
    let gate = gateway()
        .document(document)
        .section("limits:\n  per_caller: 4/h\ncontract:\n  batch: {max_concurrency: 1}\n")
        .start()
        .await;
    let batch: Vec<Value> = (0..6).map(|n| json!({ "n": n })).collect();
    let answer = gate.invoke("items", &Value::Array(batch)).await.expect_ok();
    for index in 0..6 {
        if index < 4 {
            assert_eq!(answer[index]["n"], index)
        } else {
            assert_eq!(answer[index]["error"]["code"], "RateLimited", "{answer}")
        }
    }
    assert_eq!(agent.call_count(), 4);
    assert_limited(&gate.invoke("items", &json!({"n": 1})).await, "caller");
}

#[tokio::test]
async fn r44_a_batch_stays_within_the_concurrency_limit_of_its_agent() {
    let agent =
        Agent::scripted(|_| [vec![Step::Sleep(Duration::from_millis(50))], json_response(&json!({}))].concat()).await;
    let mut document = agent.document("one");
    document["inputs"] = json!({"type": "object"});
    let gate = gateway()
        .document(document)
        .section("limits:\n  concurrency: {max_per_agent: 1}\ncontract:\n  batch: {max_concurrency: 4}\n")
        .start()
        .await;
    let started = Instant::now();
    let answer = gate.invoke("one", &Value::Array(vec![json!({}); 5])).await.expect_ok();
    assert_eq!(answer, json!([{}, {}, {}, {}, {}]));
    assert!(started.elapsed() >= Duration::from_millis(250), "the items ran concurrently");
}

#[tokio::test]
async fn r5_a_reload_changes_limits_without_refilling_buckets() {
    let echo = Agent::echo().await;
    let gate = gateway().agent("echo", &echo).section("limits:\n  per_caller: 2/h\n").start().await;
    invoke_as(&gate, "team-a", "echo").await.expect_ok();
    let config = gate.read_file("gatepost.yaml");
    gate.write_file("gatepost.yaml", &config.replace("limits:\n", "errors: {format: error}\nlimits:\n"));
    eventually("the configuration is reloaded", async || gate.stderr().matches("configuration reloaded").count() == 1)
        .await;
    invoke_as(&gate, "team-a", "echo").await.expect_ok();
    assert_limited(&invoke_as(&gate, "team-a", "echo").await, "caller");
    gate.write_file("gatepost.yaml", &config.replace("2/h", "5/h"));
    eventually("the new rate is in force", async || invoke_as(&gate, "team-a", "echo").await.status == 200).await;
}
