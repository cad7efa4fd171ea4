//! Overload: an agent with twice its capacity in calls, and a gateway that runs out of CPU. Admitted calls stay fast;
//! refused calls get an immediate error that names the limiting side.

use crate::support::{
    agent::{Agent, Step, json_response},
    eventually,
    gateway::{Gateway, gatepost_command, gateway, send},
    gateway_response::{GatewayResponse, read_response},
};
use serde_json::json;
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use tokio::{io::AsyncWriteExt, net::TcpStream};

/// An agent that works on `capacity` calls at once, each for `work`, and queues the others.
async fn agent_with_capacity(capacity: usize, work: Duration) -> Agent {
    let slots = Mutex::new(vec![Instant::now(); capacity]);
    Agent::scripted(move |_| {
        let mut slots = slots.lock().unwrap();
        let (now, slot) = (Instant::now(), slots.iter_mut().min().unwrap());
        *slot = now.max(*slot) + work;
        [vec![Step::Sleep(*slot - now)], json_response(&json!({}))].concat()
    })
    .await
}

/// Sends `rate` calls a second at fixed times, as an open loop. Returns each answer with its duration, in order.
async fn offer_load(gate: &Gateway, rate: f64, duration: Duration) -> Vec<(GatewayResponse, Duration)> {
    let started = tokio::time::Instant::now();
    let calls = (0..(rate * duration.as_secs_f64()) as u32).map(|index| async move {
        let due = started + Duration::from_secs_f64(f64::from(index) / rate);
        tokio::time::sleep_until(due).await;
        (gate.invoke("worker", &json!({})).await, due.elapsed())
    });
    futures_util::future::join_all(calls).await
}

fn percentile(mut durations: Vec<Duration>, share: f64) -> Duration {
    durations.sort_unstable();
    durations[((durations.len() - 1) as f64 * share) as usize]
}

#[tokio::test]
async fn r35_an_agent_offered_twice_its_capacity_keeps_its_throughput_and_latency() {
    // The work is long compared with the delays of a busy machine, which the gateway cannot tell from a slow agent, and
    // the calls are few enough for a small share of a processor.
    let (capacity, work) = (16, Duration::from_millis(240));
    let rate = capacity as f64 / work.as_secs_f64();
    let agent = agent_with_capacity(capacity, work).await;
    // Only the agent is overloaded. A gateway that runs out of CPU has a test of its own.
    // The fixed limit bounds the calls that the agent queues until a limit is learnt.
    let limits = "limits:\n  max_share: 1\n  max_scheduling_delay: null\n  concurrency: {max_per_agent: 64}\n";
    let gate = gateway().agent("worker", &agent).section(limits).start().await;
    for (answer, _) in offer_load(&gate, rate * 0.7, Duration::from_secs(2)).await {
        answer.expect_ok();
    }
    let (warm_up, duration) = (Duration::from_secs(8), Duration::from_secs(4));
    let all = offer_load(&gate, rate * 2.0, warm_up + duration).await;
    let measured = all.into_iter().skip((rate * 2.0 * warm_up.as_secs_f64()) as usize);
    let (served, refused): (Vec<_>, Vec<_>) = measured.partition(|(answer, _)| answer.status == 200);
    let share = served.len() as f64 / (rate * duration.as_secs_f64());
    assert!(share >= 0.9, "{share} of the capacity of the agent");
    for (answer, _) in &refused {
        let error = answer.expect_fault(503, "Overloaded");
        assert_eq!(error["overloaded"], "agent");
        assert_eq!(answer.header("retry-after"), Some("1"));
        assert_eq!(answer.header("ratelimit"), None, "the limit is not the caller's");
    }
    let measured = percentile(served.into_iter().map(|(_, duration)| duration).collect(), 0.99);
    assert!(measured < 8 * work, "{measured:?}");
    let refusal_time = percentile(refused.into_iter().map(|(_, duration)| duration).collect(), 0.5);
    assert!(refusal_time < 2 * work, "{refusal_time:?}");
    let learnt_limit =
        gate.metric("gatepost_adaptive_concurrency_limit{agent=\"worker\"}").await.expect("no limit was learnt");
    let capacity = capacity as f64;
    assert!((capacity / 2.0..=capacity * 3.0).contains(&learnt_limit), "{learnt_limit}");
    let log = gate.access_log(1_000).await;
    let refused_entry = log.iter().rfind(|line| line["status"] == 503).unwrap();
    assert!(refused_entry["detail"].as_str().unwrap().contains("adaptive concurrency limit"), "{refused_entry}");
}

#[tokio::test]
async fn an_agent_with_mixed_latency_is_not_limited() {
    let kinds = AtomicUsize::new(0);
    let agent = Agent::scripted(move |_| {
        let slow = kinds.fetch_add(1, Relaxed).is_multiple_of(4);
        [vec![Step::Sleep(Duration::from_millis(if slow { 2_000 } else { 10 }))], json_response(&json!({}))].concat()
    })
    .await;
    let gate = gateway()
        .agent("worker", &agent)
        .section("limits:\n  max_share: 1\n  concurrency: {max_per_agent: 100}\n")
        .start()
        .await;
    for (answer, _) in offer_load(&gate, 100.0, Duration::from_secs(8)).await {
        answer.expect_ok();
    }
}

/// Makes calls one after the other on one connection until `stop` is set. Returns how many succeeded and were refused.
async fn call_until_stopped(gate: Arc<Gateway>, name: &'static str, stop: Arc<AtomicBool>) -> (usize, usize) {
    let mut stream = TcpStream::connect(gate.address()).await.unwrap();
    let key = gate.key(name);
    let call = format!(
        "POST /agents/echo/invoke HTTP/1.1\r\nHost: a\r\nX-API-Key: {key}\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{{}}"
    );
    let (mut served, mut refused) = (0, 0);
    while !stop.load(Relaxed) {
        stream.write_all(call.as_bytes()).await.unwrap();
        let answer = read_response(&mut stream).await.unwrap();
        if answer.status == 200 {
            served += 1;
            continue;
        }
        let error = answer.expect_fault(503, "Overloaded");
        assert_eq!((&error["overloaded"], answer.header("retry-after")), (&json!("gateway"), Some("1")));
        refused += 1;
    }
    (served, refused)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_without_spare_cpu_refuses_the_lowest_tier_first() {
    let echo = Agent::echo().await;
    let limits = "limits:\n  per_address: null\n  max_scheduling_delay: 2ms\n  concurrency: {adaptive: false}\n  tiers:\n    gold: {priority: 9}\n    tin: {priority: 0}\n";
    let gate = gateway()
        .agent("echo", &echo)
        .caller("gold", &["--tier", "gold"])
        .caller("tin", &["--tier", "tin"])
        .section(limits)
        .start()
        .await;
    let (gate, stop) = (Arc::new(gate), Arc::new(AtomicBool::new(false)));
    let calls = |name| {
        let (gate, stop) = (Arc::clone(&gate), Arc::clone(&stop));
        (0..100)
            .map(move |_| tokio::spawn(call_until_stopped(Arc::clone(&gate), name, Arc::clone(&stop))))
            .collect::<Vec<_>>()
    };
    let (gold, tin) = (calls("gold"), calls("tin"));
    let mut shed = (0.0, 0.0);
    eventually("calls of the lowest tier are refused", async || {
        let shed_count = async |priority| {
            gate.metric(&format!("gatepost_load_shed_requests_total{{priority=\"{priority}\"}}")).await
        };
        shed = (shed_count(0).await.unwrap_or_default(), shed_count(9).await.unwrap_or_default());
        shed.0 >= 500.0
    })
    .await;
    assert_eq!(gate.admin_page("/healthz").await.status, 200);
    stop.store(true, Relaxed);
    let sum = async |tasks: Vec<tokio::task::JoinHandle<(usize, usize)>>| {
        let (mut served, mut refused) = (0, 0);
        for task in tasks {
            let (more_served, more_refused) = task.await.unwrap();
            (served, refused) = (served + more_served, refused + more_refused);
        }
        (served, refused)
    };
    let (gold, tin) = (sum(gold).await, sum(tin).await);
    assert!(gold.1 * 5 <= tin.1, "refused: {} of gold, {} of tin", gold.1, tin.1);
    assert!(gold.0 > 0);
    // The load ends.
    let call = || gate.request("POST", "/agents/echo/invoke").header("x-api-key", gate.key("tin")).json(&json!({}));
    eventually("calls of the lowest tier are served again", async || send(call()).await.status == 200).await;
}

#[test]
fn invalid_overload_limits_are_refused_with_the_configuration_key() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("agents.json"), "[]").unwrap();
    let config = "listeners:\n  - address: 127.0.0.1:0\nagents:\n  sources: [agents.json]\n";
    for (limits, problem) in [
        ("max_scheduling_delay: 1ms", "limits.max_scheduling_delay: is out of bounds (2ms to 10s"),
        ("max_scheduling_delay: 11s", "limits.max_scheduling_delay: is out of bounds (2ms to 10s"),
        ("concurrency: {min_concurrency: 0}", "limits.concurrency.min_concurrency"),
        ("concurrency: {min_concurrency: 1001}", "limits.concurrency.min_concurrency"),
        ("concurrency: {adaptive: 3}", "limits.concurrency.adaptive"),
        ("tiers: {gold: {priority: 10}}", "limits.tiers.gold.priority"),
    ] {
        let file = folder.path().join("gatepost.yaml");
        std::fs::write(&file, format!("{config}limits:\n  {limits}\n")).unwrap();
        let output = gatepost_command().args(["check", "-c"]).arg(&file).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains(problem) && text.contains("line 6"), "{limits}: {text}");
    }
}
