//! How much, end to end: rates of addresses, callers and agents, quotas over a restart, calls at once, batches.

use crate::support::{
    agent::{Agent, Do, json_answer},
    eventually,
    gateway::{Gate, gateway, send},
    reply::Answer,
};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tokio::{io::AsyncWriteExt, net::TcpStream};

async fn by(gate: &Gate, caller: &str, id: &str) -> Answer {
    let call = gate.request("POST", &format!("/agents/{id}/invoke")).header("x-api-key", gate.key(caller));
    send(call.json(&json!({}))).await
}

/// A 429 that says when to come back, and what holds.
#[track_caller]
fn is_limited(answer: &Answer, limit: &str) {
    answer.is_fault(429, "RateLimited");
    let wait: u64 = answer.header("retry-after").unwrap().parse().unwrap();
    assert!(wait >= 1);
    assert!(answer.header("ratelimit").unwrap().starts_with(&format!("\"{limit}\";r=0;t=")), "{:?}", answer.headers);
    assert!(answer.header("ratelimit-policy").unwrap().starts_with(&format!("\"{limit}\";q=")), "{:?}", answer.headers);
}

#[tokio::test]
async fn r5_an_address_is_limited_before_any_credential_is_looked_at() {
    let echo = Agent::echo().await;
    let gate = gateway().agent("echo", &echo).section("limits:\n  per_address: 4/h\n").start().await;
    for id in ["echo", "nothing"] {
        send(gate.request("POST", &format!("/agents/{id}/invoke"))).await.is_fault(401, "Unauthorized");
    }
    by(&gate, "team-a", "echo").await.is_ok();
    by(&gate, "team-a", "echo").await.is_ok();
    for id in ["echo", "nothing"] {
        is_limited(&by(&gate, "team-a", id).await, "address");
        is_limited(&send(gate.request("POST", &format!("/agents/{id}/invoke"))).await, "address");
    }
    assert_eq!(echo.calls(), 2);
}

#[tokio::test]
async fn r5_a_caller_has_its_own_rate_over_all_agents() {
    let echo = Agent::echo().await;
    let gate = gateway()
        .agent("one", &echo)
        .agent("two", &echo)
        .caller("team-b", &[])
        .section("limits:\n  per_caller: 3/h\n")
        .start()
        .await;
    for (id, left) in [("one", "r=2"), ("two", "r=1"), ("one", "r=0")] {
        let answer = by(&gate, "team-a", id).await;
        answer.is_ok();
        assert!(answer.header("ratelimit").unwrap().contains(left), "{:?}", answer.headers);
        assert!(answer.header("ratelimit-policy").unwrap().contains("q=3"), "{:?}", answer.headers);
    }
    is_limited(&by(&gate, "team-a", "one").await, "caller");
    is_limited(&by(&gate, "team-a", "two").await, "caller");
    by(&gate, "team-b", "one").await.is_ok();
    assert_eq!(echo.calls(), 4);
}

#[tokio::test]
async fn r5_what_is_refused_costs_nothing_and_what_is_not_seen_has_no_limit() {
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
        let answer = by(&gate, "team-a", "hidden").await;
        answer.is_fault(404, "NotFound");
        assert_eq!(answer.header("ratelimit"), None);
    }
    for (id, status) in
        [("one", 200), ("one", 200), ("one", 429), ("one", 429), ("two", 200), ("two", 200), ("two", 429)]
    {
        assert_eq!(by(&gate, "team-a", id).await.status, status, "{id}");
    }
    assert_eq!(echo.calls(), 4);
}

#[tokio::test]
async fn r5_the_strictest_of_configuration_and_document_holds_for_all_callers_together() {
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
        .section("agents:\n  from: [agents.json]\n  rules: [{agents: ['rul*'], rate: 1/h}]\n")
        .start()
        .await;
    for (id, most) in [("configured", 3), ("own", 2), ("members", 1), ("loose", 3), ("ruled", 1)] {
        for at in 0..most {
            by(&gate, ["team-a", "team-b"][at % 2], id).await.is_ok();
        }
        is_limited(&by(&gate, "team-a", id).await, "agent");
        is_limited(&by(&gate, "team-b", id).await, "agent");
    }
    assert_eq!(echo.calls(), 10);
}

#[tokio::test]
async fn r5_a_tier_has_its_own_bounds_and_an_unknown_one_the_usual() {
    let echo = Agent::echo().await;
    let gate = gateway()
        .agent("echo", &echo)
        .caller("gold", &["--tier", "gold"])
        .caller("tin", &["--tier", "tin"])
        .section("limits:\n  per_caller: 2/h\n  tiers:\n    gold: {per_caller: 4/h, quota: {per_day: 3}}\n")
        .start()
        .await;
    for (caller, most, limit) in [("team-a", 2, "caller"), ("tin", 2, "caller"), ("gold", 3, "day")] {
        for _ in 0..most {
            by(&gate, caller, "echo").await.is_ok();
        }
        is_limited(&by(&gate, caller, "echo").await, limit);
    }
}

#[tokio::test]
async fn r5_quotas_outlive_the_process() {
    let echo = Agent::echo().await;
    let gate = gateway()
        .agent("echo", &echo)
        .section("limits:\n  quota: {per_day: 3, per_month: 100}\n  state: quotas.json\n")
        .start()
        .await;
    for _ in 0..2 {
        by(&gate, "team-a", "echo").await.is_ok();
    }
    gate.signal(Signal::TERM);
    let keys = gate.keys.clone();
    let (folder, mut child) = gate.into_folder();
    let again = tokio::task::spawn_blocking(move || {
        assert!(child.wait().unwrap().success());
        let kept = std::fs::read_to_string(folder.path().join("quotas.json")).expect("kept beside the configuration");
        assert!(kept.contains("key:team-a"), "{kept}");
        Gate::spawn(folder, keys, &[], &[])
    });
    let gate = again.await.unwrap();
    by(&gate, "team-a", "echo").await.is_ok();
    let answer = by(&gate, "team-a", "echo").await;
    is_limited(&answer, "day");
    assert!(answer.header("retry-after").unwrap().parse::<u64>().unwrap() <= 86_400);
    assert_eq!(echo.calls(), 3);
}

/// A call of which only the request is sent.
async fn begun(gate: &Gate, id: &str) -> TcpStream {
    let mut stream = TcpStream::connect(gate.address()).await.unwrap();
    let key = gate.key("team-a");
    let call = format!(
        "POST /agents/{id}/invoke HTTP/1.1\r\nHost: a\r\nX-API-Key: {key}\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{{}}"
    );
    stream.write_all(call.as_bytes()).await.unwrap();
    stream
}

#[tokio::test]
async fn r35_an_agent_that_is_full_has_a_short_queue_and_then_503() {
    let agent = Agent::doing(vec![Do::Hang]).await;
    let gate = gateway()
        .agent("slow", &agent)
        .agent("other", &agent)
        .section("limits:\n  concurrency: {per_agent: 1, queue: 1, queue_wait: 300ms}\n")
        .start()
        .await;
    let first = begun(&gate, "slow").await;
    eventually("the first call is with the agent", async || agent.calls() == 1).await;
    let asked = Instant::now();
    let (one, two) = tokio::join!(by(&gate, "team-a", "slow"), by(&gate, "team-a", "slow"));
    for answer in [&one, &two] {
        answer.is_fault(503, "Overloaded");
        assert!(answer.header("retry-after").is_some());
    }
    assert!(asked.elapsed() >= Duration::from_millis(300), "one of them waited");
    assert_eq!(agent.calls(), 1);
    // The other agent is not full.
    let _other = begun(&gate, "other").await;
    eventually("the other agent is called", async || agent.calls() == 2).await;
    // A caller that leaves gives its place back.
    first.set_zero_linger().unwrap();
    drop(first);
    let mut next = Vec::new();
    let retried = async || {
        next.push(begun(&gate, "slow").await);
        agent.calls() > 2
    };
    eventually("the place is free again", retried).await;
}

#[tokio::test]
async fn r44_r5_every_item_of_a_batch_counts_as_a_call() {
    let agent = Agent::scripted(|got| json_answer(&json!({"n": got.json()["n"]}))).await;
    let mut document = agent.document("items");
    document["inputs"] = json!({"type": "object", "required": ["n"]});
    let gate = gateway()
        .document(document)
        .section("limits:\n  per_caller: 4/h\ncontract:\n  batch: {concurrency: 1}\n")
        .start()
        .await;
    let batch: Vec<Value> = (0..6).map(|n| json!({ "n": n })).collect();
    let answer = gate.invoke("items", &Value::Array(batch)).await.is_ok();
    for at in 0..6 {
        match at < 4 {
            true => assert_eq!(answer[at]["n"], at),
            false => assert_eq!(answer[at]["error"]["code"], "RateLimited", "{answer}"),
        }
    }
    assert_eq!(agent.calls(), 4);
    is_limited(&gate.invoke("items", &json!({"n": 1})).await, "caller");
}

#[tokio::test]
async fn r44_a_batch_is_never_more_calls_at_once_than_its_agent_may_have() {
    let agent =
        Agent::scripted(|_| [vec![Do::Wait(Duration::from_millis(50))], json_answer(&json!({}))].concat()).await;
    let mut document = agent.document("one");
    document["inputs"] = json!({"type": "object"});
    let gate = gateway()
        .document(document)
        .section("limits:\n  concurrency: {per_agent: 1}\ncontract:\n  batch: {concurrency: 4}\n")
        .start()
        .await;
    let begun = Instant::now();
    let answer = gate.invoke("one", &Value::Array(vec![json!({}); 5])).await.is_ok();
    assert_eq!(answer, json!([{}, {}, {}, {}, {}]));
    assert!(begun.elapsed() >= Duration::from_millis(250), "the items ran beside each other");
}

#[tokio::test]
async fn r5_limits_can_be_changed_while_it_runs_without_handing_a_bucket_out_twice() {
    let echo = Agent::echo().await;
    let gate = gateway().agent("echo", &echo).section("limits:\n  per_caller: 2/h\n").start().await;
    by(&gate, "team-a", "echo").await.is_ok();
    let config = gate.read("gatepost.yaml");
    gate.write("gatepost.yaml", &config.replace("limits:\n", "errors: {format: error}\nlimits:\n"));
    eventually("the change is in force", async || gate.stderr().matches("is in force").count() == 1).await;
    by(&gate, "team-a", "echo").await.is_ok();
    is_limited(&by(&gate, "team-a", "echo").await, "caller");
    gate.write("gatepost.yaml", &config.replace("2/h", "5/h"));
    eventually("the new rate is in force", async || by(&gate, "team-a", "echo").await.status == 200).await;
}
