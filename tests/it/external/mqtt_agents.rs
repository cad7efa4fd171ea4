//! Agents over MQTT (2389 Agent Protocol), called through the real binary and a real broker: the published task, the
//! matching of answers, and failures of the agent, the broker or the caller.

use super::support::{
    mosquitto::Mosquitto,
    mqtt_task_agent::{ProxyFault, Publication, TaskAgent, response_payload, start_broker_proxy},
};
use crate::support::{
    TEST_TIMEOUT,
    certs::CertificateAuthority,
    eventually,
    gateway::{Gateway, GatewayBuilder, gateway, send},
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

/// The document of an agent at a broker such as `mqtt://127.0.0.1:1883`.
fn document(broker_url: &str, id: &str) -> Value {
    json!({"id": id, "name": id, "endpoint": format!("{broker_url}/control/agents/{id}/input")})
}

/// Short timeouts for tests that wait for them.
fn with_short_timeouts(build: GatewayBuilder, more: &str) -> GatewayBuilder {
    build.section(&format!(
        "agents:\n  sources: [agents.json]\n  defaults: {{timeouts: {{first_byte: 1500ms, connect: 1s}}{more}}}\n"
    ))
}

/// A gateway in front of the agent `a` at this broker.
async fn start_gateway(broker: &Mosquitto) -> Gateway {
    with_short_timeouts(gateway(), "").document(document(&broker.url(), "a")).start().await
}

async fn invoke(gate: &Gateway, input: Value) -> crate::support::gateway_response::GatewayResponse {
    gate.invoke("a", &input).await
}

#[tokio::test]
async fn r105_r110_r111_each_call_is_one_task_and_gets_its_answer() {
    let broker = Mosquitto::start().await;
    let worker = TaskAgent::echo(broker.port, "a").await;
    let gate = start_gateway(&broker).await;
    for n in 0..3 {
        let answer = invoke(&gate, json!({"n": n, "instruction": "count"})).await;
        assert_eq!(answer.header("content-type"), Some("application/json"));
        assert_eq!(answer.expect_ok(), json!({"echo": {"n": n, "instruction": "count"}}));
    }
    let got = worker.tasks();
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
async fn the_connection_to_the_broker_of_an_agent_is_reported() {
    let mut broker = Mosquitto::start().await;
    let _worker = TaskAgent::echo(broker.port, "a").await;
    let gate = start_gateway(&broker).await;
    let metric = format!("gatepost_broker_connected{{broker=\"127.0.0.1:{}\"}}", broker.port);
    assert_eq!(gate.metric(&metric).await, None);
    // The connection counts, and not the answer.
    invoke(&gate, json!({"n": 1, "instruction": "count"})).await;
    eventually("the connection is reported", async || gate.metric(&metric).await == Some(1.0)).await;
    broker.stop().await;
    eventually("the lost connection is reported", async || gate.metric(&metric).await == Some(0.0)).await;
}

#[tokio::test]
async fn answers_of_every_form_are_read_and_error_messages_are_redacted() {
    let broker = Mosquitto::start().await;
    let _worker = TaskAgent::start(broker.port, "a", |task| {
        let input = &task["input"];
        let mut message = input["say"].clone();
        if input["mine"] == true {
            message["task_id"] = task["task_id"].clone();
        }
        let text = input["raw"].as_str().map_or_else(|| message.to_string(), str::to_owned);
        vec![Publication::in_conversation(task, "a", text)]
    })
    .await;
    let gate = start_gateway(&broker).await;
    for (say, expected) in [
        (json!({"response": "done"}), json!("done")),
        (json!({"response": "{\"a\": [1]}"}), json!({"a": [1]})),
        (json!({"response": {"a": 1}}), json!({"a": 1})),
        (json!({"plan": ["bare"]}), json!({"plan": ["bare"]})),
    ] {
        assert_eq!(invoke(&gate, json!({"say": say})).await.expect_ok(), expected, "{say}");
    }
    assert_eq!(invoke(&gate, json!({"raw": "[1, 2]"})).await.expect_ok(), json!([1, 2]));
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
        answer.expect_fault(status, name);
        answer.assert_hides(&["sk-secret", "agent.py"]);
    }
    for raw in ["", "no json", "{\"response\": ", "{} {}"] {
        invoke(&gate, json!({"raw": raw})).await.expect_fault(502, "AgentError");
    }
}

#[tokio::test]
async fn r40_an_answer_that_states_a_failure_is_one_over_mqtt_too() {
    let broker = Mosquitto::start().await;
    let _worker = TaskAgent::start(broker.port, "a", |task| {
        vec![Publication::in_conversation(task, "a", json!({"response": task["input"]["say"]}).to_string())]
    })
    .await;
    let gate = start_gateway(&broker).await;
    for say in [
        json!({"success": false, "message": "boom at /srv/agent.py"}),
        json!({"error": "boom at /srv/agent.py", "data": {"n": 1}}),
    ] {
        let answer = invoke(&gate, json!({"say": say})).await;
        answer.expect_fault(502, "AgentError");
        answer.assert_hides(&["boom", "agent.py"]);
    }
    let result = json!({"success": false, "score": 0.5});
    assert_eq!(invoke(&gate, json!({"say": result})).await.expect_ok(), result);
}

#[tokio::test]
async fn r78_the_callers_session_and_task_are_members_of_the_envelope() {
    let broker = Mosquitto::start().await;
    let worker = TaskAgent::echo(broker.port, "a").await;
    let gate = start_gateway(&broker).await;
    let call = gate.post("/agents/a/invoke").json(&json!({}));
    send(call.header("x-session-id", "session-1").header("x-task-id", "task-1")).await.expect_ok();
    send(gate.post("/agents/a/invoke?sessionId=session-2").json(&json!({}))).await.expect_ok();
    let ids = |index: usize| ["sessionId", "taskId"].map(|name| worker.tasks()[index].task.get(name).cloned());
    assert_eq!(ids(0), [Some(json!("session-1")), Some(json!("task-1"))]);
    assert_eq!(ids(1), [Some(json!("session-2")), None]);
    assert_ne!(worker.tasks()[0].task["task_id"], "task-1", "the task of the protocol has an id of its own");
}

#[tokio::test]
async fn r119_an_agents_last_will_ends_its_calls_in_flight_and_no_others() {
    let broker = Mosquitto::start().await;
    let dying = TaskAgent::start(broker.port, "a", |_| Vec::new()).await;
    let slow = TaskAgent::start(broker.port, "b", |task| {
        vec![Publication::in_conversation(task, "b", response_payload(task, json!("done"))).after_millis(1_000)]
    })
    .await;
    let presence = broker.connect_agent("a").await;
    let documents = ["a", "b"].map(|id| document(&broker.url(), id));
    let build = documents.into_iter().fold(gateway(), |build, document| build.document(document));
    let gate = build.start().await;
    let input = json!({});
    let started = Instant::now();
    let death = async {
        eventually("the agents have their tasks", async || dying.tasks().len() + slow.tasks().len() == 2).await;
        presence.kill();
    };
    let (lost, other, ()) = tokio::join!(gate.invoke("a", &input), gate.invoke("b", &input), death);
    lost.expect_fault(502, "AgentError");
    assert_eq!(other.expect_ok(), json!("done"));
    assert!(started.elapsed() < TEST_TIMEOUT, "{:?}", started.elapsed());
}

#[tokio::test]
async fn messages_for_other_tasks_are_never_taken_as_the_answer() {
    let broker = Mosquitto::start().await;
    let previous_task = Arc::new(std::sync::Mutex::new(None));
    let worker = TaskAgent::start(broker.port, "a", move |task| {
        let mut says = vec![
            Publication::in_conversation(
                task,
                "a",
                json!({"response": "foreign", "task_id": "7f9619ff-8b86-4d01-b42d-00cf4fc964ff"}).to_string(),
            ),
            Publication::in_conversation(task, "b", response_payload(task, json!("another agent"))),
            Publication::on_topic("/conversations/not-asked-for/a", "1"),
        ];
        // The matching answer counts; later ones reach no caller, not even that of the next call.
        if let Some(previous) = previous_task.lock().unwrap().replace(task.clone()) {
            says.push(Publication::in_conversation(&previous, "a", response_payload(&previous, json!("late"))));
        }
        says.push(
            Publication::in_conversation(task, "a", response_payload(task, task["input"]["n"].clone()))
                .after_millis(50),
        );
        says.push(Publication::in_conversation(task, "a", response_payload(task, json!("twice"))));
        says
    })
    .await;
    let gate = start_gateway(&broker).await;
    for n in 0..4 {
        assert_eq!(invoke(&gate, json!({"n": n})).await.expect_ok(), json!(n));
    }
    assert_eq!(worker.tasks().len(), 4);
}

#[tokio::test]
async fn r116_oversized_inputs_and_answers_are_refused() {
    let broker = Mosquitto::start().await;
    let worker = TaskAgent::start(broker.port, "a", |task| {
        let length = task["input"]["answer"].as_u64().unwrap_or_default() as usize;
        vec![Publication::in_conversation(task, "a", response_payload(task, json!("x".repeat(length))))]
    })
    .await;
    let gate = start_gateway(&broker).await;
    let long = |length: usize| json!({"text": "x".repeat(length)});
    invoke(&gate, long(200 << 10)).await.expect_ok();
    for length in [(256 << 10) - 20, 256 << 10, 1 << 20] {
        invoke(&gate, long(length)).await.expect_fault(413, "PayloadTooLarge");
    }
    assert_eq!(worker.tasks().len(), 1);
    assert_eq!(invoke(&gate, json!({"answer": 250_000})).await.expect_ok().as_str().unwrap().len(), 250_000);
    invoke(&gate, json!({"answer": 270_000})).await.expect_fault(502, "AgentError");
    // The broker itself withholds a packet of this size, because the gateway set a maximum packet size.
    invoke(&gate, json!({"answer": 2_000_000})).await.expect_fault(504, "Timeout");
    invoke(&gate, json!({})).await.expect_ok();
}

#[tokio::test]
async fn a_silent_agent_is_504_and_a_disconnected_one_503() {
    let broker = Mosquitto::start().await;
    let gate = start_gateway(&broker).await;
    invoke(&gate, json!({})).await.expect_fault(503, "AgentUnavailable");
    let silent = TaskAgent::start(broker.port, "a", |_| Vec::new()).await;
    let started = Instant::now();
    invoke(&gate, json!({})).await.expect_fault(504, "Timeout");
    assert!((Duration::from_millis(1400)..TEST_TIMEOUT).contains(&started.elapsed()));
    assert_eq!(silent.tasks().len(), 1, "the task was not published exactly once");
    let short_timeout = gate.post("/agents/a/invoke").header("x-request-timeout", "300ms").json(&json!({}));
    send(short_timeout).await.expect_fault(504, "Timeout");
}

#[tokio::test]
async fn inputs_that_the_protocol_cannot_carry_are_refused() {
    let broker = Mosquitto::start().await;
    let worker = TaskAgent::echo(broker.port, "a").await;
    let gate = start_gateway(&broker).await;
    for body in ["7", "null", "{", "{\"a\":1,\"a\":2}", "a=b", "\u{feff}{}"] {
        let call = gate.post("/agents/a/invoke").header("content-type", "application/json").body(body);
        send(call).await.expect_fault(400, "InvalidInput");
    }
    assert!(worker.tasks().is_empty());
    let call = gate.post("/agents/a/invoke").header("content-type", "application/json").body("\"hello\"");
    assert_eq!(send(call).await.expect_ok(), json!({"echo": "hello"}));
}

#[tokio::test]
async fn an_unreachable_broker_fails_calls_quickly_and_is_used_once_it_is_back() {
    let mut broker = Mosquitto::stopped("allow_anonymous true\n");
    let gate = start_gateway(&broker).await;
    for _ in 0..3 {
        let started = Instant::now();
        let answer = invoke(&gate, json!({})).await;
        answer.expect_fault(503, "AgentUnavailable");
        assert!(answer.header("retry-after").is_some());
        assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    }
    broker.restart().await;
    let _worker = TaskAgent::echo(broker.port, "a").await;
    eventually("the gateway reaches the broker", async || invoke(&gate, json!({})).await.status == 200).await;
}

#[tokio::test]
async fn a_broker_restart_fails_the_calls_in_flight_and_serves_the_next() {
    let mut broker = Mosquitto::start().await;
    let gate = start_gateway(&broker).await;
    let silent = TaskAgent::start(broker.port, "a", |_| Vec::new()).await;
    let call = invoke(&gate, json!({"n": 1}));
    let restart = async {
        eventually("the agent receives the task", async || silent.tasks().len() == 1).await;
        broker.restart().await;
    };
    let (answer, ()) = tokio::join!(call, restart);
    answer.expect_fault(502, "AgentError");
    let worker = TaskAgent::echo(broker.port, "a").await;
    eventually("the next call is answered", async || invoke(&gate, json!({"n": 2})).await.status == 200).await;
    let tasks: Vec<Value> =
        silent.tasks().iter().chain(&worker.tasks()).map(|got| got.task["task_id"].clone()).collect();
    let unique: HashSet<String> = tasks.iter().map(Value::to_string).collect();
    assert_eq!(unique.len(), tasks.len(), "a task was published twice");
    assert!(worker.tasks().iter().all(|got| got.task["input"]["n"] == 2));
}

#[tokio::test]
async fn a_silent_broker_or_a_missing_puback_costs_a_call_at_most_its_timeout() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = format!("mqtt://{}", listener.local_addr().unwrap());
    let broker = Mosquitto::start().await;
    let _workers = (TaskAgent::echo(broker.port, "b").await, TaskAgent::start(broker.port, "c", |_| Vec::new()).await);
    let unacknowledged = format!("mqtt://{}", start_broker_proxy(broker.port, ProxyFault::DropsPuback).await);
    let build = with_short_timeouts(gateway(), "").document(document(&silent, "a"));
    let build = build.document(document(&unacknowledged, "b")).document(document(&unacknowledged, "c"));
    let gate = build.start().await;
    let started = Instant::now();
    assert!(matches!(invoke(&gate, json!({})).await.status, 503 | 504));
    assert!(started.elapsed() < TEST_TIMEOUT);
    gate.invoke("b", &json!({})).await.expect_ok();
    gate.invoke("c", &json!({})).await.expect_fault(504, "Timeout");
}

#[tokio::test]
async fn r130_r131_the_password_comes_from_the_environment_and_is_never_logged() {
    let broker = Mosquitto::start_with_user("gateway", "hunter2").await;
    for (password, accepted) in [("hunter2", true), ("hunter3", false)] {
        let login = ", mqtt: {username: 'env:BROKER_USER', password: 'env:BROKER_PASSWORD', destinations: {origins: ['mqtt://127.0.0.1:*']}}";
        let build = with_short_timeouts(gateway(), login).document(document(&broker.url(), "a"));
        let gate = build.env("BROKER_USER", "gateway").env("BROKER_PASSWORD", password).start().await;
        let answer = invoke(&gate, json!({})).await;
        // No agent is connected; only a gateway with the right password learns that.
        answer.expect_fault(503, "AgentUnavailable");
        let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
        assert_eq!(message.contains("is not connected"), accepted, "{message}");
        assert!(!gate.stderr().contains("hunter") && !gate.read_file("access.log").contains("hunter"));
    }
}

#[tokio::test]
async fn r129_a_broker_over_tls_must_prove_its_name() {
    let authority = CertificateAuthority::new("brokers");
    let broker = Mosquitto::start_with_tls(&authority.server(&["localhost"])).await;
    let build = gateway();
    std::fs::write(build.folder().join("ca.pem"), authority.pem()).unwrap();
    let url = |host: &str| format!("mqtts://{host}:{}", broker.port);
    let build = with_short_timeouts(build, ", tls: {ca: ca.pem}").document(document(&url("localhost"), "right"));
    let gate = build.document(document(&url("127.0.0.1"), "wrong")).start().await;
    let unavailable_message = |answer: crate::support::gateway_response::GatewayResponse| {
        answer.expect_fault(503, "AgentUnavailable");
        answer.json()["error"]["message"].as_str().unwrap().to_owned()
    };
    assert!(unavailable_message(gate.invoke("right", &json!({})).await).contains("is not connected"));
    assert!(unavailable_message(gate.invoke("wrong", &json!({})).await).contains("cannot be reached"));
}

#[tokio::test]
async fn r104_a_broker_with_mqtt_3_1_1_serves_calls_too() {
    let broker = Mosquitto::start().await;
    let worker = TaskAgent::echo(broker.port, "a").await;
    let older = format!("mqtt://{}", start_broker_proxy(broker.port, ProxyFault::RejectsMqtt5).await);
    let gate = with_short_timeouts(gateway(), "").document(document(&older, "a")).start().await;
    for n in 0..3 {
        assert_eq!(invoke(&gate, json!({"n": n})).await.expect_ok(), json!({"echo": {"n": n}}));
    }
    invoke(&gate, json!({"text": "x".repeat(200 << 10)})).await.expect_ok();
    assert_eq!(worker.tasks().len(), 4);
}

#[tokio::test]
async fn an_agent_has_one_task_at_a_time_unless_its_document_allows_more() {
    let broker = Mosquitto::start().await;
    let (running, max_running) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let worker = {
        let (running, max_running) = (Arc::clone(&running), Arc::clone(&max_running));
        TaskAgent::start(broker.port, "a", move |task| {
            max_running.fetch_max(running.fetch_add(1, SeqCst) + 1, SeqCst);
            let (running, answer) = (
                Arc::clone(&running),
                Publication::in_conversation(task, "a", response_payload(task, task["input"].clone())),
            );
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(20)).await;
                running.fetch_sub(1, SeqCst);
            });
            vec![answer.after_millis(40)]
        })
        .await
    };
    let mut concurrent = document(&broker.url(), "a");
    concurrent["max_concurrency"] = json!(4);
    for (document, limit) in [(document(&broker.url(), "a"), 1), (concurrent, 4)] {
        max_running.store(0, SeqCst);
        let long_queue = "limits:\n  concurrency: {queue_timeout: 20s}\n";
        let gate = with_short_timeouts(gateway(), "").section(long_queue).document(document).start().await;
        let calls = (0..12).map(|n| {
            let gate = &gate;
            async move { assert_eq!(invoke(gate, json!({"n": n})).await.expect_ok(), json!({"n": n})) }
        });
        futures_util::future::join_all(calls).await;
        assert!((1..=limit).contains(&max_running.load(SeqCst)), "{} at once", max_running.load(SeqCst));
    }
    assert_eq!(worker.tasks().len(), 24);
}

/// Progress of a task, as the reference agent publishes it.
fn progress_message(task: &Value, event: &str) -> Publication {
    let progress = json!({
        "agent_id": "a", "task_id": task["task_id"], "conversation_id": task["conversation_id"], "event_type": event,
    });
    Publication::on_topic("/control/agents/a/progress/llm", progress.to_string())
}

#[tokio::test]
async fn r43_a_caller_that_accepts_events_gets_progress_and_then_the_result() {
    let broker = Mosquitto::start().await;
    let _worker = TaskAgent::start(broker.port, "a", |task| {
        let mut foreign = task.clone();
        foreign["task_id"] = json!("another");
        let last = if task["input"]["fails"] == true {
            json!({"error": {"code": "llm_error", "message": "sk-secret"}, "task_id": task["task_id"]}).to_string()
        } else {
            response_payload(task, json!({"done": true}))
        };
        vec![
            progress_message(task, "TaskStart"),
            progress_message(&foreign, "Foreign"),
            progress_message(task, "LlmRequest").after_millis(50),
            Publication::in_conversation(task, "a", last),
        ]
    })
    .await;
    let gate = start_gateway(&broker).await;
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
    failed.assert_hides(&["sk-secret"]);
    assert_eq!(send(stream(json!({}), "application/json, text/event-stream")).await.expect_ok(), json!({"done": true}));
}

#[tokio::test]
async fn a_caller_that_disconnects_releases_its_permit_and_its_answer_is_dropped() {
    let broker = Mosquitto::start().await;
    let worker = TaskAgent::start(broker.port, "a", |task| {
        let answer = Publication::in_conversation(task, "a", response_payload(task, task["input"].clone()));
        vec![answer.after_millis(if task["input"]["n"] == 0 { 600 } else { 0 })]
    })
    .await;
    let gate = start_gateway(&broker).await;
    let call = gate.post("/agents/a/invoke").json(&json!({"n": 0}));
    let call = tokio::spawn(async move { drop(call.send().await) });
    eventually("the agent receives the task", async || worker.tasks().len() == 1).await;
    call.abort();
    eventually("the permit is free, and the late answer is dropped", async || {
        let answer = invoke(&gate, json!({"n": 1})).await;
        answer.status == 200 && answer.json() == json!({"n": 1})
    })
    .await;
}

#[tokio::test]
async fn a_gateway_that_shuts_down_lets_its_calls_finish() {
    let broker = Mosquitto::start().await;
    let worker = TaskAgent::start(broker.port, "a", |task| {
        vec![Publication::in_conversation(task, "a", response_payload(task, json!(1))).after_millis(500)]
    })
    .await;
    let mut gate = start_gateway(&broker).await;
    let call = tokio::spawn(send(gate.post("/agents/a/invoke").json(&json!({}))));
    eventually("the agent receives the task", async || worker.tasks().len() == 1).await;
    gate.send_signal(rustix::process::Signal::TERM);
    assert_eq!(call.await.unwrap().expect_ok(), json!(1));
    assert!(gate.wait_for_exit().await.success());
}

#[tokio::test]
async fn a_reload_does_not_affect_a_call_in_flight() {
    let broker = Mosquitto::start().await;
    let worker = TaskAgent::start(broker.port, "a", |task| {
        vec![
            Publication::in_conversation(task, "a", response_payload(task, json!(1)))
                .after_millis(if task["input"]["slow"] == true { 900 } else { 0 }),
        ]
    })
    .await;
    // A debug build on a busy machine takes a while to reload a configuration.
    let build = gateway().section("agents:\n  sources: [agents.json]\n  defaults: {timeouts: {first_byte: 30s}}\n");
    let gate = build.document(document(&broker.url(), "a")).start().await;
    let call = tokio::spawn(send(gate.post("/agents/a/invoke").json(&json!({"slow": true}))));
    eventually("the agent receives the task", async || worker.tasks().len() == 1).await;
    let config = gate.read_file("gatepost.yaml");
    gate.write_file("gatepost.yaml", &format!("{config}errors:\n  format: problem\n"));
    assert_eq!(call.await.unwrap().expect_ok(), json!(1));
    eventually("the next call is answered", async || invoke(&gate, json!({})).await.status == 200).await;
}

#[tokio::test]
async fn a_call_takes_little_longer_than_its_round_trip() {
    let broker = Mosquitto::start().await;
    let _worker = TaskAgent::echo(broker.port, "a").await;
    let gate = start_gateway(&broker).await;
    let mut durations = Vec::new();
    for n in 0..60 {
        let started = Instant::now();
        invoke(&gate, json!({"n": n})).await.expect_ok();
        durations.push(started.elapsed());
    }
    durations.sort();
    println!("p50 {:?}, min {:?}", durations[30], durations[0]);
    // Without TCP_NODELAY each call would take 40 ms or more; other programs on this machine may delay most of them.
    assert!(durations[5] < Duration::from_millis(30), "{durations:?}");
}
