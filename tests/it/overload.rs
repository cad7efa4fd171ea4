//! More calls than can be answered: an agent that is asked for twice what it can do, a gateway that has no core to
//! spare. What is let through is answered in its time; the others are told so at once, and whose the limit is.

use crate::support::{
    agent::{Agent, Do, json_answer},
    eventually,
    gateway::{Gate, command, gateway, send},
    reply::{Answer, read_answer},
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

/// An agent that works on `hands` calls at once, each for `work`, and has the others wait.
async fn worker(hands: usize, work: Duration) -> Agent {
    let free = Mutex::new(vec![Instant::now(); hands]);
    Agent::scripted(move |_| {
        let mut free = free.lock().unwrap();
        let (now, hand) = (Instant::now(), free.iter_mut().min().unwrap());
        *hand = now.max(*hand) + work;
        [vec![Do::Wait(*hand - now)], json_answer(&json!({}))].concat()
    })
    .await
}

/// `rate` calls a second for a while, whatever becomes of them: each answer with the time it took, in their order.
async fn offered(gate: &Gate, rate: f64, lasts: Duration) -> Vec<(Answer, Duration)> {
    let begun = tokio::time::Instant::now();
    let calls = (0..(rate * lasts.as_secs_f64()) as u32).map(|at| async move {
        let due = begun + Duration::from_secs_f64(f64::from(at) / rate);
        tokio::time::sleep_until(due).await;
        (gate.invoke("worker", &json!({})).await, due.elapsed())
    });
    futures_util::future::join_all(calls).await
}

fn percentile(mut took: Vec<Duration>, share: f64) -> Duration {
    took.sort_unstable();
    took[((took.len() - 1) as f64 * share) as usize]
}

#[tokio::test]
async fn r35_an_agent_that_is_asked_for_twice_what_it_can_do_stays_as_fast_and_as_busy_as_it_was() {
    let (hands, work) = (8, Duration::from_millis(80));
    let capacity = hands as f64 / work.as_secs_f64();
    let agent = worker(hands, work).await;
    let gate = gateway().agent("worker", &agent).start().await;
    for (answer, _) in offered(&gate, capacity * 0.7, Duration::from_secs(2)).await {
        answer.is_ok();
    }
    let (settles, lasts) = (Duration::from_secs(7), Duration::from_secs(4));
    let all = offered(&gate, capacity * 2.0, settles + lasts).await;
    let late = all.into_iter().skip((capacity * 2.0 * settles.as_secs_f64()) as usize);
    let (good, refused): (Vec<_>, Vec<_>) = late.partition(|(answer, _)| answer.status == 200);
    let share = good.len() as f64 / (capacity * lasts.as_secs_f64());
    assert!(share >= 0.9, "{share} of what the agent can do");
    for (answer, _) in &refused {
        let error = answer.is_fault(503, "Overloaded");
        assert_eq!(error["overloaded"], "agent");
        assert_eq!(answer.header("retry-after"), Some("1"));
        assert_eq!(answer.header("ratelimit"), None, "it is not the caller's own limit");
    }
    let late = percentile(good.into_iter().map(|(_, took)| took).collect(), 0.99);
    assert!(late < 8 * work, "{late:?}");
    let quick = percentile(refused.into_iter().map(|(_, took)| took).collect(), 0.5);
    assert!(quick < 2 * work, "{quick:?}");
    let learnt =
        gate.metric("gatepost_adaptive_concurrency_limit{agent=\"worker\"}").await.expect("something was learnt");
    assert!((4.0..=24.0).contains(&learnt), "{learnt}");
    let log = gate.log(1_000).await;
    let told = log.iter().find(|line| line["status"] == 503).unwrap();
    assert!(told["detail"].as_str().unwrap().contains("adaptive concurrency limit"), "{told}");
}

#[tokio::test]
async fn an_agent_that_is_slow_by_nature_has_all_the_calls_that_it_wants() {
    let kinds = AtomicUsize::new(0);
    let agent = Agent::scripted(move |_| {
        let slow = kinds.fetch_add(1, Relaxed).is_multiple_of(4);
        [vec![Do::Wait(Duration::from_millis(if slow { 2_000 } else { 10 }))], json_answer(&json!({}))].concat()
    })
    .await;
    let gate = gateway().agent("worker", &agent).section("limits:\n  concurrency: {per_agent: 100}\n").start().await;
    for (answer, _) in offered(&gate, 100.0, Duration::from_secs(8)).await {
        answer.is_ok();
    }
}

/// Calls one after the other over one connection until it is told to stop; how many were answered and how many refused.
async fn caller(gate: Arc<Gate>, name: &'static str, stop: Arc<AtomicBool>) -> (usize, usize) {
    let mut stream = TcpStream::connect(gate.address()).await.unwrap();
    let key = gate.key(name);
    let call = format!(
        "POST /agents/echo/invoke HTTP/1.1\r\nHost: a\r\nX-API-Key: {key}\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{{}}"
    );
    let (mut good, mut refused) = (0, 0);
    while !stop.load(Relaxed) {
        stream.write_all(call.as_bytes()).await.unwrap();
        let answer = read_answer(&mut stream).await.unwrap();
        if answer.status == 200 {
            good += 1;
            continue;
        }
        let error = answer.is_fault(503, "Overloaded");
        assert_eq!((&error["overloaded"], answer.header("retry-after")), (&json!("gateway"), Some("1")));
        refused += 1;
    }
    (good, refused)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_without_a_core_to_spare_refuses_the_lowest_tier_first() {
    let echo = Agent::echo().await;
    let limits = "limits:\n  per_address: null\n  shed_above: 2ms\n  concurrency: {adaptive: false}\n  tiers:\n    gold: {priority: 9}\n    tin: {priority: 0}\n";
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
        (0..100).map(move |_| tokio::spawn(caller(Arc::clone(&gate), name, Arc::clone(&stop)))).collect::<Vec<_>>()
    };
    let (gold, tin) = (calls("gold"), calls("tin"));
    let mut shed = (0.0, 0.0);
    eventually("the lowest tier is refused", async || {
        let of = async |priority| {
            gate.metric(&format!("gatepost_load_shed_requests_total{{priority=\"{priority}\"}}")).await
        };
        shed = (of(0).await.unwrap_or_default(), of(9).await.unwrap_or_default());
        shed.0 >= 500.0
    })
    .await;
    assert_eq!(gate.admin("/healthz").await.status, 200);
    stop.store(true, Relaxed);
    let sum = async |tasks: Vec<tokio::task::JoinHandle<(usize, usize)>>| {
        let (mut good, mut refused) = (0, 0);
        for task in tasks {
            let (more, bad) = task.await.unwrap();
            (good, refused) = (good + more, refused + bad);
        }
        (good, refused)
    };
    let (gold, tin) = (sum(gold).await, sum(tin).await);
    assert!(gold.1 * 5 <= tin.1, "refused: {} of gold, {} of tin", gold.1, tin.1);
    assert!(gold.0 > 0);
    // It is over with the load.
    let call = || gate.request("POST", "/agents/echo/invoke").header("x-api-key", gate.key("tin")).json(&json!({}));
    eventually("the lowest tier is served again", async || send(call()).await.status == 200).await;
}

#[test]
fn bounds_of_overload_that_cannot_be_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("agents.json"), "[]").unwrap();
    let good = "listen:\n  - address: 127.0.0.1:0\nagents:\n  from: [agents.json]\n";
    for (limits, told) in [
        ("shed_above: 1ms", "limits.shed_above: is out of bounds (2ms to 10s"),
        ("shed_above: 11s", "limits.shed_above: is out of bounds (2ms to 10s"),
        ("concurrency: {least: 0}", "limits.concurrency.least"),
        ("concurrency: {least: 1001}", "limits.concurrency.least"),
        ("concurrency: {adaptive: 3}", "limits.concurrency.adaptive"),
        ("tiers: {gold: {priority: 10}}", "limits.tiers.gold.priority"),
    ] {
        let file = folder.path().join("gatepost.yaml");
        std::fs::write(&file, format!("{good}limits:\n  {limits}\n")).unwrap();
        let output = command().args(["check", "-c"]).arg(&file).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains(told) && text.contains("line 6"), "{limits}: {text}");
    }
}
