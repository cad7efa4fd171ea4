//! Agents over MQTT (2389 Agent Protocol), called through the real binary and a real broker: what is published, whose
//! answer it is, and what becomes of calls when agent, broker or caller fail.

use crate::support::{
    PATIENCE,
    certs::Authority,
    eventually,
    gateway::{Build, Gate, gateway, send},
    mosquitto::Mosquitto,
    worker::{Say, Wire, Worker, response, wire},
};
use serde_json::{Value, json};
use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

/// An agent at the broker `at`, such as `mqtt://127.0.0.1:1883`.
fn document(at: &str, id: &str) -> Value {
    json!({"id": id, "name": id, "endpoint": format!("{at}/control/agents/{id}/input")})
}

/// Bounds for tests that wait for their end.
fn short(build: Build, more: &str) -> Build {
    build.section(&format!(
        "agents:\n  from: [agents.json]\n  defaults: {{timeouts: {{first_byte: 1500ms, connect: 1s}}{more}}}\n"
    ))
}

/// A gateway in front of the agent `a` at this broker.
async fn gate(broker: &Mosquitto) -> Gate {
    short(gateway(), "").document(document(&broker.url(), "a")).start().await
}

async fn invoke(gate: &Gate, input: Value) -> crate::support::reply::Answer {
    gate.invoke("a", &input).await
}

#[tokio::test]
async fn r105_r110_r111_a_call_is_a_task_of_its_own_and_its_answer_comes_back() {
    let broker = Mosquitto::start().await;
    let worker = Worker::echo(broker.port, "a").await;
    let gate = gate(&broker).await;
    for n in 0..3 {
        let answer = invoke(&gate, json!({"n": n, "instruction": "count"})).await;
        assert_eq!(answer.header("content-type"), Some("application/json"));
        assert_eq!(answer.is_ok(), json!({"echo": {"n": n, "instruction": "count"}}));
    }
    let got = worker.got();
    let unique = |name: &str| got.iter().map(|got| got.task[name].to_string()).collect::<HashSet<_>>().len();
    assert_eq!((got.len(), unique("task_id"), unique("conversation_id")), (3, 3, 3));
    for got in &got {
        let task = got.task.as_object().unwrap();
        let names: HashSet<&str> = task.keys().map(String::as_str).collect();
        assert_eq!(names, HashSet::from(["task_id", "conversation_id", "topic", "instruction", "input", "next"]));
        let id: uuid::Uuid = task["task_id"].as_str().unwrap().parse().unwrap();
        assert_eq!(id.get_version_num(), 4);
        assert_eq!((&task["topic"], &task["next"]), (&json!("/control/agents/a/input"), &Value::Null));
        assert_eq!(task["instruction"], "count");
        assert!(!got.retained && got.qos == rumqttc_v5::QoS::AtLeastOnce);
    }
}

#[tokio::test]
async fn answers_come_in_every_form_and_errors_without_their_words() {
    let broker = Mosquitto::start().await;
    let _worker = Worker::start(broker.port, "a", |task| {
        let input = &task["input"];
        let mut message = input["say"].clone();
        if input["mine"] == true {
            message["task_id"] = task["task_id"].clone();
        }
        let text = input["raw"].as_str().map_or_else(|| message.to_string(), str::to_owned);
        vec![Say::on(task, "a", text)]
    })
    .await;
    let gate = gate(&broker).await;
    for (say, expected) in [
        (json!({"response": "done"}), json!("done")),
        (json!({"response": "{\"a\": [1]}"}), json!({"a": [1]})),
        (json!({"response": {"a": 1}}), json!({"a": 1})),
        (json!({"plan": ["bare"]}), json!({"plan": ["bare"]})),
    ] {
        assert_eq!(invoke(&gate, json!({"say": say})).await.is_ok(), expected, "{say}");
    }
    assert_eq!(invoke(&gate, json!({"raw": "[1, 2]"})).await.is_ok(), json!([1, 2]));
    for (code, status, name) in [
        ("invalid_input", 400, "InvalidInput"),
        ("pipeline_depth_exceeded", 400, "InvalidInput"),
        ("llm_error", 502, "AgentError"),
        ("tool_execution_failed", 502, "AgentError"),
        ("internal_error", 502, "AgentError"),
        ("news", 502, "AgentError"),
    ] {
        let say = json!({"error": {"code": code, "message": "sk-secret at /srv/agent.py"}});
        let answer = invoke(&gate, json!({"say": say, "mine": true})).await;
        answer.is_fault(status, name);
        answer.hides(&["sk-secret", "agent.py"]);
    }
    for raw in ["", "no json", "{\"response\": ", "{} {}"] {
        invoke(&gate, json!({"raw": raw})).await.is_fault(502, "AgentError");
    }
}

#[tokio::test]
async fn what_is_not_this_calls_answer_never_becomes_it() {
    let broker = Mosquitto::start().await;
    let before = Arc::new(std::sync::Mutex::new(None));
    let worker = Worker::start(broker.port, "a", move |task| {
        let mut says = vec![
            Say::on(
                task,
                "a",
                json!({"response": "foreign", "task_id": "7f9619ff-8b86-4d01-b42d-00cf4fc964ff"}).to_string(),
            ),
            Say::on(task, "b", response(task, json!("another agent"))),
            Say::at("/conversations/not-asked-for/a", "1"),
        ];
        // The right one counts; what comes after it finds nobody, also in the next call.
        if let Some(late) = before.lock().unwrap().replace(task.clone()) {
            says.push(Say::on(&late, "a", response(&late, json!("late"))));
        }
        says.push(Say::on(task, "a", response(task, task["input"]["n"].clone())).after(50));
        says.push(Say::on(task, "a", response(task, json!("twice"))));
        says
    })
    .await;
    let gate = gate(&broker).await;
    for n in 0..4 {
        assert_eq!(invoke(&gate, json!({"n": n})).await.is_ok(), json!(n));
    }
    assert_eq!(worker.got().len(), 4);
}

#[tokio::test]
async fn r116_what_is_too_large_is_refused_before_and_after() {
    let broker = Mosquitto::start().await;
    let worker = Worker::start(broker.port, "a", |task| {
        let length = task["input"]["answer"].as_u64().unwrap_or_default() as usize;
        vec![Say::on(task, "a", response(task, json!("x".repeat(length))))]
    })
    .await;
    let gate = gate(&broker).await;
    let long = |length: usize| json!({"text": "x".repeat(length)});
    invoke(&gate, long(200 << 10)).await.is_ok();
    for length in [(256 << 10) - 20, 256 << 10, 1 << 20] {
        invoke(&gate, long(length)).await.is_fault(413, "PayloadTooLarge");
    }
    assert_eq!(worker.got().len(), 1);
    assert_eq!(invoke(&gate, json!({"answer": 250_000})).await.is_ok().as_str().unwrap().len(), 250_000);
    invoke(&gate, json!({"answer": 270_000})).await.is_fault(502, "AgentError");
    // One so long is kept back by the broker itself, as it was asked to.
    invoke(&gate, json!({"answer": 2_000_000})).await.is_fault(504, "Timeout");
    invoke(&gate, json!({})).await.is_ok();
}

#[tokio::test]
async fn an_agent_that_is_silent_or_not_there_is_told_apart() {
    let broker = Mosquitto::start().await;
    let gate = gate(&broker).await;
    invoke(&gate, json!({})).await.is_fault(503, "AgentUnavailable");
    let silent = Worker::start(broker.port, "a", |_| Vec::new()).await;
    let began = Instant::now();
    invoke(&gate, json!({})).await.is_fault(504, "Timeout");
    assert!((Duration::from_millis(1400)..PATIENCE).contains(&began.elapsed()));
    assert_eq!(silent.got().len(), 1, "a task is published once");
    let impatient = gate.post("/agents/a/invoke").header("x-request-timeout", "300ms").json(&json!({}));
    send(impatient).await.is_fault(504, "Timeout");
}

#[tokio::test]
async fn inputs_that_no_agent_of_this_protocol_takes_are_refused() {
    let broker = Mosquitto::start().await;
    let worker = Worker::echo(broker.port, "a").await;
    let gate = gate(&broker).await;
    for body in ["7", "null", "{", "{\"a\":1,\"a\":2}", "a=b", "\u{feff}{}"] {
        let call = gate.post("/agents/a/invoke").header("content-type", "application/json").body(body);
        send(call).await.is_fault(400, "InvalidInput");
    }
    assert!(worker.got().is_empty());
    let call = gate.post("/agents/a/invoke").header("content-type", "application/json").body("\"hello\"");
    assert_eq!(send(call).await.is_ok(), json!({"echo": "hello"}));
}

#[tokio::test]
async fn a_broker_that_is_away_is_told_at_once_and_found_when_it_is_back() {
    let mut broker = Mosquitto::configured("allow_anonymous true\n");
    let gate = gate(&broker).await;
    for _ in 0..3 {
        let began = Instant::now();
        let answer = invoke(&gate, json!({})).await;
        answer.is_fault(503, "AgentUnavailable");
        assert!(answer.header("retry-after").is_some());
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    }
    broker.again().await;
    let _worker = Worker::echo(broker.port, "a").await;
    eventually("it is found", async || invoke(&gate, json!({})).await.status == 200).await;
}

#[tokio::test]
async fn a_broker_that_is_restarted_ends_the_calls_it_had_and_takes_the_next() {
    let mut broker = Mosquitto::start().await;
    let gate = gate(&broker).await;
    let silent = Worker::start(broker.port, "a", |_| Vec::new()).await;
    let call = invoke(&gate, json!({"n": 1}));
    let restart = async {
        eventually("the task is there", async || silent.got().len() == 1).await;
        broker.again().await;
    };
    let (answer, ()) = tokio::join!(call, restart);
    answer.is_fault(502, "AgentError");
    let worker = Worker::echo(broker.port, "a").await;
    eventually("the next is answered", async || invoke(&gate, json!({"n": 2})).await.status == 200).await;
    let tasks: Vec<Value> = silent.got().iter().chain(&worker.got()).map(|got| got.task["task_id"].clone()).collect();
    let unique: HashSet<String> = tasks.iter().map(Value::to_string).collect();
    assert_eq!(unique.len(), tasks.len(), "nothing is published twice");
    assert!(worker.got().iter().all(|got| got.task["input"]["n"] == 2));
}

#[tokio::test]
async fn a_broker_that_says_nothing_or_never_acknowledges_costs_a_call_its_time_and_no_more() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = format!("mqtt://{}", listener.local_addr().unwrap());
    let broker = Mosquitto::start().await;
    let _workers = (Worker::echo(broker.port, "b").await, Worker::start(broker.port, "c", |_| Vec::new()).await);
    let swallowed = format!("mqtt://{}", wire(broker.port, Wire::Unacknowledged).await);
    let build = short(gateway(), "").document(document(&silent, "a"));
    let build = build.document(document(&swallowed, "b")).document(document(&swallowed, "c"));
    let gate = build.start().await;
    let began = Instant::now();
    assert!(matches!(invoke(&gate, json!({})).await.status, 503 | 504));
    assert!(began.elapsed() < PATIENCE);
    gate.invoke("b", &json!({})).await.is_ok();
    gate.invoke("c", &json!({})).await.is_fault(504, "Timeout");
}

#[tokio::test]
async fn r130_r131_the_password_comes_from_the_environment_and_a_wrong_one_stays_out_of_sight() {
    let broker = Mosquitto::guarded("gateway", "hunter2").await;
    for (password, right) in [("hunter2", true), ("hunter3", false)] {
        let login = ", mqtt: {username: 'env:BROKER_USER', password: 'env:BROKER_PASSWORD'}";
        let build = short(gateway(), login).document(document(&broker.url(), "a"));
        let gate = build.env("BROKER_USER", "gateway").env("BROKER_PASSWORD", password).start().await;
        let answer = invoke(&gate, json!({})).await;
        // Nobody listens there: who is let in hears of that.
        answer.is_fault(503, "AgentUnavailable");
        let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
        assert_eq!(message.contains("is not connected"), right, "{message}");
        assert!(!gate.stderr().contains("hunter") && !gate.read("access.log").contains("hunter"));
    }
}

#[tokio::test]
async fn r129_a_broker_over_tls_must_prove_its_name() {
    let authority = Authority::new("brokers");
    let broker = Mosquitto::secure(&authority.server(&["localhost"])).await;
    let build = gateway();
    std::fs::write(build.folder().join("ca.pem"), authority.pem()).unwrap();
    let at = |host: &str| format!("mqtts://{host}:{}", broker.port);
    let build = short(build, ", tls: {ca: ca.pem}").document(document(&at("localhost"), "right"));
    let gate = build.document(document(&at("127.0.0.1"), "wrong")).start().await;
    let told = |answer: crate::support::reply::Answer| {
        answer.is_fault(503, "AgentUnavailable");
        answer.json()["error"]["message"].as_str().unwrap().to_owned()
    };
    assert!(told(gate.invoke("right", &json!({})).await).contains("is not connected"));
    assert!(told(gate.invoke("wrong", &json!({})).await).contains("cannot be reached"));
}

#[tokio::test]
async fn r104_a_broker_of_the_older_version_serves_calls_too() {
    let broker = Mosquitto::start().await;
    let worker = Worker::echo(broker.port, "a").await;
    let older = format!("mqtt://{}", wire(broker.port, Wire::Older).await);
    let gate = short(gateway(), "").document(document(&older, "a")).start().await;
    for n in 0..3 {
        assert_eq!(invoke(&gate, json!({"n": n})).await.is_ok(), json!({"echo": {"n": n}}));
    }
    invoke(&gate, json!({"text": "x".repeat(200 << 10)})).await.is_ok();
    assert_eq!(worker.got().len(), 4);
}

#[tokio::test]
async fn an_agent_has_one_task_at_a_time_unless_its_record_says_more() {
    let broker = Mosquitto::start().await;
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let worker = {
        let (now, most) = (Arc::clone(&now), Arc::clone(&most));
        Worker::start(broker.port, "a", move |task| {
            most.fetch_max(now.fetch_add(1, SeqCst) + 1, SeqCst);
            let (now, answer) = (Arc::clone(&now), Say::on(task, "a", response(task, task["input"].clone())));
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(20)).await;
                now.fetch_sub(1, SeqCst);
            });
            vec![answer.after(40)]
        })
        .await
    };
    let mut more = document(&broker.url(), "a");
    more["max_concurrency"] = json!(4);
    for (document, at_once) in [(document(&broker.url(), "a"), 1), (more, 4)] {
        most.store(0, SeqCst);
        let waiting = "limits:\n  concurrency: {queue_wait: 20s}\n";
        let gate = short(gateway(), "").section(waiting).document(document).start().await;
        let calls = (0..12).map(|n| {
            let gate = &gate;
            async move { assert_eq!(invoke(gate, json!({"n": n})).await.is_ok(), json!({"n": n})) }
        });
        futures_util::future::join_all(calls).await;
        assert!((1..=at_once).contains(&most.load(SeqCst)), "{} at once", most.load(SeqCst));
    }
    assert_eq!(worker.got().len(), 24);
}

/// Progress of a task, as the reference agent tells it.
fn progress(task: &Value, event: &str) -> Say {
    let told = json!({
        "agent_id": "a", "task_id": task["task_id"], "conversation_id": task["conversation_id"], "event_type": event,
    });
    Say::at("/control/agents/a/progress/llm", told.to_string())
}

#[tokio::test]
async fn r43_a_caller_that_asks_for_events_sees_progress_and_then_the_result() {
    let broker = Mosquitto::start().await;
    let _worker = Worker::start(broker.port, "a", |task| {
        let mut foreign = task.clone();
        foreign["task_id"] = json!("another");
        let last = match task["input"]["fails"] == true {
            true => {
                json!({"error": {"code": "llm_error", "message": "sk-secret"}, "task_id": task["task_id"]}).to_string()
            }
            false => response(task, json!({"done": true})),
        };
        vec![
            progress(task, "TaskStart"),
            progress(&foreign, "Foreign"),
            progress(task, "LlmRequest").after(50),
            Say::on(task, "a", last),
        ]
    })
    .await;
    let gate = gate(&broker).await;
    let stream = |input: Value, accept: &str| gate.post("/agents/a/invoke").header("accept", accept).json(&input);
    let answer = send(stream(json!({}), "text/event-stream")).await;
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("text/event-stream")));
    let text = answer.text();
    let events: Vec<&str> = text.split("\n\n").filter(|event| event.starts_with("event: ")).collect();
    assert_eq!(events.len(), 3, "{text}");
    assert!(events[0].starts_with("event: progress\ndata: {") && events[0].contains("TaskStart"), "{text}");
    assert!(events[1].starts_with("event: progress\ndata: {") && events[1].contains("LlmRequest"), "{text}");
    assert_eq!(events[2], "event: result\ndata: {\"done\":true}");
    let failed = send(stream(json!({"fails": true}), "text/event-stream")).await;
    assert!(failed.text().contains("event: error") && failed.text().contains("AgentError"), "{}", failed.text());
    failed.hides(&["sk-secret"]);
    assert_eq!(send(stream(json!({}), "application/json, text/event-stream")).await.is_ok(), json!({"done": true}));
}

#[tokio::test]
async fn a_caller_that_leaves_leaves_nothing_behind() {
    let broker = Mosquitto::start().await;
    let worker = Worker::start(broker.port, "a", |task| {
        let answer = Say::on(task, "a", response(task, task["input"].clone()));
        vec![answer.after(if task["input"]["n"] == 0 { 600 } else { 0 })]
    })
    .await;
    let gate = gate(&broker).await;
    let leaver = gate.post("/agents/a/invoke").json(&json!({"n": 0}));
    let leaver = tokio::spawn(async move { drop(leaver.send().await) });
    eventually("the task is there", async || worker.got().len() == 1).await;
    leaver.abort();
    eventually("the place is free, and the late answer nobody's", async || {
        let answer = invoke(&gate, json!({"n": 1})).await;
        answer.status == 200 && answer.json() == json!({"n": 1})
    })
    .await;
}

#[tokio::test]
async fn a_gateway_that_stops_lets_its_calls_finish() {
    let broker = Mosquitto::start().await;
    let worker =
        Worker::start(broker.port, "a", |task| vec![Say::on(task, "a", response(task, json!(1))).after(500)]).await;
    let mut gate = gate(&broker).await;
    let call = tokio::spawn(send(gate.post("/agents/a/invoke").json(&json!({}))));
    eventually("the task is there", async || worker.got().len() == 1).await;
    gate.signal(rustix::process::Signal::TERM);
    assert_eq!(call.await.unwrap().is_ok(), json!(1));
    assert!(gate.ended().await.success());
}

#[tokio::test]
async fn a_reload_leaves_a_call_in_flight_alone() {
    let broker = Mosquitto::start().await;
    let worker = Worker::start(broker.port, "a", |task| {
        vec![Say::on(task, "a", response(task, json!(1))).after(if task["input"]["slow"] == true { 900 } else { 0 })]
    })
    .await;
    // To read a configuration anew takes a debug build on a busy machine a while.
    let build = gateway().section("agents:\n  from: [agents.json]\n  defaults: {timeouts: {first_byte: 30s}}\n");
    let gate = build.document(document(&broker.url(), "a")).start().await;
    let call = tokio::spawn(send(gate.post("/agents/a/invoke").json(&json!({"slow": true}))));
    eventually("the task is there", async || worker.got().len() == 1).await;
    let config = gate.read("gatepost.yaml");
    gate.write("gatepost.yaml", &format!("{config}errors:\n  format: problem\n"));
    assert_eq!(call.await.unwrap().is_ok(), json!(1));
    eventually("the next is answered", async || invoke(&gate, json!({})).await.status == 200).await;
}

#[tokio::test]
async fn a_call_costs_no_more_than_its_round_trip() {
    let broker = Mosquitto::start().await;
    let _worker = Worker::echo(broker.port, "a").await;
    let gate = gate(&broker).await;
    let mut took = Vec::new();
    for n in 0..60 {
        let began = Instant::now();
        invoke(&gate, json!({"n": n})).await.is_ok();
        took.push(began.elapsed());
    }
    took.sort();
    println!("p50 {:?}, least {:?}", took[30], took[0]);
    // Without TCP_NODELAY it would be 40 ms and more; other programs on this machine may hold up most of them.
    assert!(took[5] < Duration::from_millis(30), "{took:?}");
}
