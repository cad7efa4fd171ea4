//! The MQTT bridge: agents of the gateway as agents of the 2389 protocol, at a real broker, called by a client that
//! speaks only the protocol.

use super::support::{
    bridge_peer::{Peer, bridged, bridged_at, latched_agent, reply_topic, task},
    mosquitto::{Mosquitto, status_payload, status_topic},
    mqtt_task_agent::{ProxyFault, SubackHoldingProxy, start_broker_proxy},
};
use crate::support::{
    agent::{Agent, Step, http_response, json_response},
    closed_port::ClosedPort,
    eventually,
    gateway::{Gateway, new_key, translator_document},
};
use serde_json::{Value, json};

#[tokio::test]
async fn r118_r124_a_protocol_client_calls_an_http_agent_over_mqtt() {
    let (broker, agent) = (Mosquitto::start().await, Agent::echo().await);
    let peer = Peer::connect(&broker).await;
    let mut document = agent.document("echo");
    document["description"] = json!("Says it again");
    document["capabilities"] = json!(["echo"]);
    let gate = bridged(&broker, "").document(document).document(translator_document(&agent)).start().await;
    let available = peer.wait_for_status("echo", "available").await.payload;
    assert_eq!((&available["agent_id"], &available["description"]), (&json!("echo"), &json!("Says it again")));
    assert_eq!(available["capabilities"], json!(["echo"]));
    assert!(available["timestamp"].as_str().unwrap().ends_with('Z'));
    let late_peer = Peer::connect(&broker).await;
    assert!(late_peer.wait_for_status("echo", "available").await.retained, "R107");
    let plain_task = task("echo", json!({"text": "hi"}));
    let response = peer.call("echo", &plain_task).await;
    assert_eq!(response, json!({"response": {"echo": {"text": "hi"}}, "task_id": plain_task["task_id"]}));
    let mut instructed_task = task("echo", json!("a string"));
    instructed_task["instruction"] = json!("repeat");
    let response = peer.call("echo", &instructed_task).await;
    assert_eq!(response["response"]["echo"], json!({"instruction": "repeat", "input": "a string"}));
    let input = json!({"text": "hi", "source_language": "en", "target_language": "zh"});
    let mut operation_task = task("agent-12345", input);
    operation_task["instruction"] = json!("translateText");
    peer.wait_for_status("agent-12345", "available").await;
    let response = peer.call("agent-12345", &operation_task).await;
    assert!(response["response"]["echo"].is_object(), "the instruction is an operation");
    assert_eq!(agent.requests()[2].header("x-operation"), Some("translateText"));
    assert!(agent.requests()[2].json().get("instruction").is_none());
    let later_peer = Peer::connect(&broker).await;
    later_peer.wait_for_status("echo", "available").await;
    assert!(later_peer.all_on(&reply_topic(&plain_task, "echo")).is_empty(), "answers are not retained (R107)");
    let entry = gate.access_log(2).await.remove(0);
    assert_eq!(
        (&entry["caller"], &entry["agent"], &entry["request_id"]),
        (&json!("key:bridge"), &json!("echo"), &plain_task["task_id"])
    );
}

#[tokio::test]
async fn r118_an_unreachable_agent_is_announced_as_unavailable() {
    let (broker, port) = (Mosquitto::start().await, ClosedPort::new());
    let peer = Peer::connect(&broker).await;
    let endpoint = format!("http://{}/invoke", port.address);
    let document = json!({"id": "echo", "name": "echo", "endpoint": endpoint, "authentication": {"type": "api_key"}});
    let _gate = bridged(&broker, "").document(document).start().await;
    peer.wait_for_status("echo", "unavailable").await;
    assert!(peer.all_on(&status_topic("echo")).iter().all(|message| message.payload["status"] == "unavailable"));
    let listener = port.open();
    peer.wait_for_status("echo", "available").await;
    drop(listener);
    peer.wait_for_status("echo", "unavailable").await;
}

#[tokio::test]
async fn an_agent_that_is_withdrawn_while_it_connects_can_be_announced_again() {
    let (broker, agent) = (Mosquitto::start().await, Agent::echo().await);
    let peer = Peer::connect(&broker).await;
    let proxy = SubackHoldingProxy::start(broker.port).await;
    let gate = bridged_at(&format!("mqtt://{}", proxy.address), "").agent("echo", &agent).start().await;
    eventually("the agent subscribes", async || proxy.held_count() > 0).await;
    gate.write_file("agents.json", "[]");
    eventually("the agent is removed", async || gate.invoke("echo", &json!({})).await.status == 404).await;
    proxy.release();
    eventually("each SUBACK arrives or finds its connection closed", async || proxy.held_count() == 0).await;
    gate.write_file("agents.json", &json!([agent.document("echo")]).to_string());
    peer.wait_for_status("echo", "available").await;
}

#[tokio::test]
async fn r119_a_killed_gateway_leaves_its_last_will() {
    let (broker, agent) = (Mosquitto::start().await, Agent::echo().await);
    let peer = Peer::connect(&broker).await;
    let mut gate = bridged(&broker, "").agent("echo", &agent).start().await;
    peer.wait_for_status("echo", "available").await;
    gate.child.kill().unwrap();
    let last = peer.wait_for_status("echo", "unavailable").await.payload;
    assert_eq!(last["agent_id"], "echo");
    assert!(last["timestamp"].as_str().unwrap().ends_with('Z'));
    let late_peer = Peer::connect(&broker).await;
    assert!(late_peer.wait_for_status("echo", "unavailable").await.retained);
}

#[tokio::test]
async fn r119_a_graceful_stop_announces_unavailable_first_and_finishes_running_tasks() {
    let broker = Mosquitto::start().await;
    let (agent, agent_latch) = latched_agent().await;
    let peer = Peer::connect(&broker).await;
    let mut gate = bridged(&broker, "").agent("slow", &agent).start().await;
    peer.wait_for_status("slow", "available").await;
    let sent_task = task("slow", json!({}));
    peer.send_task("slow", &sent_task).await;
    eventually("the agent is called", async || agent.call_count() == 1).await;
    gate.send_signal(rustix::process::Signal::TERM);
    peer.wait_for_status("slow", "unavailable").await;
    assert!(peer.all_on(&reply_topic(&sent_task, "slow")).is_empty());
    agent_latch.close();
    assert_eq!(peer.first_on(&reply_topic(&sent_task, "slow")).await.payload["response"], "done");
    assert!(gate.wait_for_exit().await.success());
    let statuses = peer.all_on(&status_topic("slow"));
    assert_eq!(statuses.iter().filter(|message| message.payload["status"] == "unavailable").count(), 1);
}

#[tokio::test]
async fn r119_r122_a_task_that_outlasts_the_drain_timeout_fails() {
    let (broker, agent) = (Mosquitto::start().await, Agent::with_steps(vec![Step::Hang]).await);
    let peer = Peer::connect(&broker).await;
    let build = bridged(&broker, "    max_concurrency: 1\n    session_expiry: 0s\n")
        .section("shutdown:\n  drain_timeout: 1s\n");
    let mut gate = build.agent("slow", &agent).start().await;
    peer.wait_for_status("slow", "available").await;
    let tasks: Vec<Value> = (0..8).map(|n| task("slow", json!({"n": n}))).collect();
    for task in &tasks {
        peer.send_task("slow", task).await;
    }
    eventually("the agent is called", async || agent.call_count() == 1).await;
    gate.send_signal(rustix::process::Signal::TERM);
    for task in &tasks {
        let reply = peer.first_on(&reply_topic(task, "slow")).await.payload;
        assert_eq!(reply["error"]["code"], "internal_error", "{reply}");
        assert_eq!(reply["task_id"], task["task_id"], "{reply}");
    }
    gate.wait_for_exit().await;
    assert_eq!(agent.call_count(), 1);
    // The shutdown is the gateway's, and no failure of the agent.
    let entries = gate.access_log(1).await;
    let is_cut_off = |entry: &Value| entry["code"] == "Overloaded" && entry["blame"] == "gateway";
    assert!(entries.iter().all(is_cut_off), "{entries:?}");
}

#[tokio::test]
async fn r120_invalid_tasks_are_discarded_and_later_tasks_are_processed() {
    let (broker, agent) = (Mosquitto::start().await, Agent::echo().await);
    let peer = Peer::connect(&broker).await;
    // Published before the agent subscribes, and therefore delivered as a retained message (R106).
    let early = task("echo", json!({"early": true}));
    peer.publish("/control/agents/echo/input", early.to_string(), true).await;
    let _gate = bridged(&broker, "").agent("echo", &agent).agent("other", &agent).start().await;
    peer.wait_for_status("echo", "available").await;
    peer.wait_for_status("other", "available").await;
    let mut foreign = task("other", json!({}));
    foreign["next"] = json!(3);
    peer.send_task("echo", &foreign).await;
    let repeated = task("echo", json!({"repeated": true}));
    for _ in 0..3 {
        peer.send_task("echo", &repeated).await;
    }
    let too_deep = (0..17).fold(Value::Null, |next, _| json!({"topic": "/control/agents/echo/input", "next": next}));
    let mut nested_task = task("echo", json!({}));
    nested_task["next"] = too_deep;
    let depth_error = peer.call("echo", &nested_task).await;
    assert_eq!(depth_error["error"]["code"], "pipeline_depth_exceeded");
    assert_eq!(depth_error["task_id"], nested_task["task_id"]);
    let mut broken = task("echo", json!({}));
    broken["task_id"] = json!("not a uuid");
    assert_eq!(peer.call("echo", &broken).await["error"]["code"], "invalid_input");
    let mut unnormalised = task("echo", json!({"unnormalised": true}));
    unnormalised["topic"] = json!("//control/agents//echo/input/");
    assert_eq!(peer.call("echo", &unnormalised).await["response"]["echo"]["unnormalised"], true);
    let relative = task("echo", json!({"relative": true}));
    peer.publish("control/agents/echo/input", relative.to_string(), false).await;
    peer.first_on(&reply_topic(&relative, "echo")).await;
    peer.first_on(&reply_topic(&repeated, "echo")).await;
    let inputs: Vec<Value> = agent.requests().iter().map(|request| request.json()).collect();
    assert_eq!(inputs.len(), 3, "{inputs:?}");
    assert!(!inputs.contains(&json!({"early": true})), "{inputs:?}");
    assert_eq!(peer.all_on(&reply_topic(&repeated, "echo")).len(), 1);
    for agent in ["echo", "other"] {
        assert!(peer.all_on(&reply_topic(&foreign, agent)).is_empty(), "{agent}");
    }
}

#[tokio::test]
async fn r112_a_pipeline_passes_each_result_on_and_only_the_last_agent_answers() {
    let broker = Mosquitto::start().await;
    let first = Agent::with_steps(json_response(&json!({"from": "first"}))).await;
    let second = Agent::echo().await;
    let peer = Peer::connect(&broker).await;
    let _gate = bridged(&broker, "").agent("first", &first).agent("second", &second).start().await;
    peer.wait_for_status("first", "available").await;
    peer.wait_for_status("second", "available").await;
    let mut sent_task = task("first", json!({"a": 1}));
    sent_task["next"] =
        json!({"topic": "/control/agents/second/input", "instruction": "go on", "input": null, "next": null});
    peer.send_task("first", &sent_task).await;
    let response = peer.first_on(&reply_topic(&sent_task, "second")).await.payload;
    assert_eq!(response["response"]["echo"], json!({"instruction": "go on", "from": "first"}));
    assert_eq!(response["task_id"], sent_task["task_id"]);
    assert!(peer.all_on(&reply_topic(&sent_task, "first")).is_empty());
    let mut invalid_next = task("first", json!({}));
    invalid_next["next"] = json!({"topic": "/control/agents/+/input"});
    assert_eq!(peer.call("first", &invalid_next).await["error"]["code"], "invalid_input");
    assert_eq!((first.call_count(), second.call_count()), (1, 1), "a pipeline with an invalid step is not started");
}

#[tokio::test]
async fn r40_r112_an_error_of_json_rpc_is_an_error_and_no_input_of_the_next_agent() {
    let broker = Mosquitto::start().await;
    let rpc_error = json!({"jsonrpc": "2.0", "id": 1, "error": {"code": -32000, "message": "boom"}});
    let failing = Agent::with_steps(json_response(&rpc_error)).await;
    let echo = Agent::echo().await;
    let peer = Peer::connect(&broker).await;
    let _gate = bridged(&broker, "").agent("failing", &failing).agent("echo", &echo).start().await;
    peer.wait_for_status("failing", "available").await;
    peer.wait_for_status("echo", "available").await;
    let alone = task("failing", json!({"a": 1}));
    let mut pipeline = task("failing", json!({"a": 1}));
    pipeline["next"] = json!({"topic": "/control/agents/echo/input", "instruction": null, "input": null, "next": null});
    for sent_task in [alone, pipeline] {
        let failure = peer.call("failing", &sent_task).await;
        assert_eq!(failure["error"]["code"], "tool_execution_failed", "{failure}");
        assert!(failure.get("response").is_none(), "{failure}");
    }
    assert_eq!(echo.call_count(), 0);
}

#[tokio::test]
async fn r111_r124_an_instruction_breaks_no_strict_schema_and_reaches_agents_that_declare_it() {
    let (broker, agent) = (Mosquitto::start().await, Agent::echo().await);
    let strict = |id: &str, properties: Value| {
        let mut document = agent.document(id);
        let inputs =
            json!({"type": "object", "properties": properties, "required": ["text"], "additionalProperties": false});
        document["operations"] = json!([{"name": "work", "inputs": inputs, "outputs": {"type": "object"}}]);
        document
    };
    let text = json!({"type": "string"});
    let peer = Peer::connect(&broker).await;
    let build = bridged(&broker, "").document(strict("strict", json!({"text": text})));
    let build = build.document(strict("declaring", json!({"text": text, "instruction": text})));
    let _gate = build.document(strict("short", json!({"text": text, "instruction": {"maxLength": 3}}))).start().await;
    let (plain, instructed) = (json!({"text": "hi"}), json!({"text": "hi", "instruction": "summarise"}));
    for (id, expected) in [("strict", &plain), ("declaring", &instructed), ("short", &plain)] {
        peer.wait_for_status(id, "available").await;
        let mut sent_task = task(id, plain.clone());
        sent_task["instruction"] = json!("summarise");
        assert_eq!(&peer.call(id, &sent_task).await["response"]["echo"], expected, "{id}");
        let mut invalid = task(id, json!({"text": 1}));
        invalid["instruction"] = json!("summarise");
        let refused = peer.call(id, &invalid).await;
        assert_eq!(refused["error"]["code"], "invalid_input", "{id}: {refused}");
    }
    assert_eq!(agent.call_count(), 3);
}

#[tokio::test]
async fn r111_an_instruction_reaches_an_agent_whose_contract_only_reports() {
    let (broker, agent) = (Mosquitto::start().await, Agent::echo().await);
    let mut document = agent.document("strict");
    let inputs = json!({"type": "object", "properties": {"text": {}}, "additionalProperties": false});
    document["operations"] = json!([{"name": "work", "inputs": inputs, "outputs": {"type": "object"}}]);
    let peer = Peer::connect(&broker).await;
    let _gate = bridged(&broker, "").document(document).section("contract: {input: report}\n").start().await;
    peer.wait_for_status("strict", "available").await;
    let mut sent_task = task("strict", json!({"text": "hi"}));
    sent_task["instruction"] = json!("summarise");
    let echoed = json!({"text": "hi", "instruction": "summarise"});
    assert_eq!(peer.call("strict", &sent_task).await["response"]["echo"], echoed);
}

#[tokio::test]
async fn r112_r154_a_final_destination_receives_the_result_and_no_topic_of_others_does() {
    let (broker, agent) = (Mosquitto::start().await, Agent::echo().await);
    let peer =
        Peer::subscribe(&broker, &["/conversations/#", "/control/agents/+/status", "results/#", "elsewhere/#"]).await;
    let _gate = bridged(&broker, "    final_destinations: ['results/#']\n").agent("echo", &agent).start().await;
    peer.wait_for_status("echo", "available").await;
    let with_next = |next: Value| {
        let mut sent_task = task("echo", json!({"n": 1}));
        sent_task["next"] = next;
        sent_task
    };
    let to_destination = with_next(json!({"topic": "results/app"}));
    peer.send_task("echo", &to_destination).await;
    let result = peer.first_on("results/app").await;
    assert_eq!(result.payload, json!({"echo": {"n": 1}}), "the bare result");
    assert!(!result.retained && peer.all_on(&reply_topic(&to_destination, "echo")).is_empty());
    let further = json!({"topic": "/control/agents/later/input", "instruction": "go on"});
    let to_conversation = with_next(json!({"topic": "/conversations/other", "instruction": "read", "next": further}));
    peer.send_task("echo", &to_conversation).await;
    let passed_on = peer.first_on("/conversations/other").await.payload;
    assert_eq!((&passed_on["input"], &passed_on["next"]), (&json!({"echo": {"n": 1}}), &further));
    assert_eq!((&passed_on["instruction"], &passed_on["task_id"]), (&json!("read"), &to_conversation["task_id"]));
    for topic in ["elsewhere/app", "/control/agents/echo/status", "$SYS/broker/x", "/$SYS/x", "results/+", "results/#"]
    {
        let refused = peer.call("echo", &with_next(json!({"topic": topic}))).await;
        assert_eq!(refused["error"]["code"], "invalid_input", "{topic}: {refused}");
    }
    assert_eq!(agent.call_count(), 2, "a task with a destination that is not permitted is not started");
    assert!(peer.all_on("elsewhere/app").is_empty() && peer.all_on(&status_topic("echo")).len() == 1);
}

#[tokio::test]
async fn r154_without_final_destinations_a_task_reaches_no_other_topic() {
    let (broker, agent) = (Mosquitto::start().await, Agent::echo().await);
    let peer = Peer::subscribe(&broker, &["/conversations/#", "/control/agents/+/status", "results/#"]).await;
    let _gate = bridged(&broker, "").agent("echo", &agent).start().await;
    peer.wait_for_status("echo", "available").await;
    let mut sent_task = task("echo", json!({"n": 1}));
    sent_task["next"] = json!({"topic": "results/app"});
    let refused = peer.call("echo", &sent_task).await;
    assert_eq!(refused["error"]["code"], "invalid_input", "{refused}");
    assert!(agent.call_count() == 0 && peer.all_on("results/app").is_empty());
}

#[tokio::test]
async fn r78_the_session_and_task_of_an_envelope_reach_the_agent_in_its_header() {
    let (broker, agent) = (Mosquitto::start().await, Agent::echo().await);
    let peer = Peer::connect(&broker).await;
    let _gate = bridged(&broker, "").agent("echo", &agent).agent("next", &agent).start().await;
    peer.wait_for_status("echo", "available").await;
    peer.wait_for_status("next", "available").await;
    let mut named = task("echo", json!({}));
    (named["sessionId"], named["taskId"]) = (json!("session-1"), json!("task-1"));
    named["next"] = json!({"topic": "/control/agents/next/input"});
    peer.send_task("echo", &named).await;
    peer.first_on(&reply_topic(&named, "next")).await;
    let mut unnamed = task("echo", json!({}));
    unnamed["sessionId"] = Value::Null;
    peer.call("echo", &unnamed).await;
    let ids: Vec<[Option<String>; 2]> = agent
        .requests()
        .iter()
        .map(|request| ["x-session-id", "x-task-id"].map(|name| request.header(name).map(str::to_owned)))
        .collect();
    let named_ids = ["session-1", "task-1"].map(|id| Some(id.to_owned()));
    assert_eq!(ids, [named_ids.clone(), named_ids, [None, None]], "also the next step's");
    for invalid_id in [json!(""), json!("a b"), json!("a\r\nx: y"), json!(1), json!("x".repeat(257))] {
        let mut invalid = task("echo", json!({}));
        invalid["sessionId"] = invalid_id.clone();
        assert_eq!(peer.call("echo", &invalid).await["error"]["code"], "invalid_input", "{invalid_id}");
    }
    assert_eq!(agent.call_count(), 3);
}

#[tokio::test]
async fn r115_r117_failures_have_the_codes_of_the_protocol_and_leak_no_internals() {
    let broker = Mosquitto::start().await;
    let failing = Agent::with_steps(http_response(
        "500 Internal Server Error",
        "text/plain",
        "Traceback at /srv/app.py key sk-1",
    ))
    .await;
    let dying = Agent::with_steps(vec![Step::Reset]).await;
    let silent = Agent::with_steps(vec![Step::Hang]).await;
    let large = Agent::with_steps(json_response(&json!("x".repeat(300 << 10)))).await;
    let strict = Agent::echo().await;
    let mut unreachable = strict.document("unreachable");
    unreachable["endpoint"] = json!("http://127.0.0.1:1/");
    let peer = Peer::connect(&broker).await;
    let agents = "agents:\n  sources: [agents.json]\n  defaults: {timeouts: {total: 500ms}}\n";
    let build = bridged(&broker, "").section(agents).agent("failing", &failing).agent("dying", &dying);
    let build = build.agent("silent", &silent).agent("large", &large).document(unreachable);
    let _gate = build.document(translator_document(&strict)).start().await;
    for (agent, code) in [
        ("failing", "tool_execution_failed"),
        ("dying", "tool_execution_failed"),
        ("silent", "tool_execution_failed"),
        ("large", "tool_execution_failed"),
        ("unreachable", "tool_execution_failed"),
        ("agent-12345", "invalid_input"),
    ] {
        peer.wait_for_status(agent, if agent == "unreachable" { "unavailable" } else { "available" }).await;
        let sent_task = task(agent, json!({"text": "hi"}));
        let failure = peer.call(agent, &sent_task).await;
        assert_eq!(failure["error"]["code"], code, "{agent}: {failure}");
        assert_eq!(failure["task_id"], sent_task["task_id"], "{agent}: {failure}");
        assert!(!failure["error"]["message"].as_str().unwrap().is_empty());
        for internal in ["Traceback", "/srv", "sk-1", "127.0.0.1", "key:bridge"] {
            assert!(!failure.to_string().contains(internal), "{failure}");
        }
    }
    assert_eq!(strict.call_count(), 0);
}

#[tokio::test]
async fn r122_r123_hostile_messages_do_not_disturb_other_tasks() {
    let (broker, agent) = (Mosquitto::start().await, Agent::echo().await);
    let peer = Peer::connect(&broker).await;
    let _gate = bridged(&broker, "").agent("echo", &agent).start().await;
    peer.wait_for_status("echo", "available").await;
    let input = "/control/agents/echo/input";
    let nested = format!("{{\"topic\":\"{input}\",\"input\":{}{}}}", "[".repeat(50_000), "]".repeat(50_000));
    let huge = json!({"topic": input, "conversation_id": "huge", "input": "x".repeat(400 << 10)}).to_string();
    for payload in [&b""[..], b"\0\xff\xfe", b"{", b"null", b"[]", b"\"text\"", nested.as_bytes(), huge.as_bytes()] {
        peer.publish(input, payload, false).await;
    }
    for (member, value) in [
        ("conversation_id", json!("../control/agents/echo")),
        ("conversation_id", json!("#")),
        ("conversation_id", json!("a/b")),
        ("conversation_id", json!("")),
        ("conversation_id", Value::Null),
    ] {
        let mut invalid = task("echo", json!({}));
        invalid[member] = value;
        peer.send_task("echo", &invalid).await;
    }
    for (member, value) in
        [("input", json!([1])), ("input", Value::Null), ("instruction", json!([])), ("next", json!("x"))]
    {
        let mut invalid = task("echo", json!({}));
        invalid[member] = value;
        assert_eq!(peer.call("echo", &invalid).await["error"]["code"], "invalid_input");
    }
    for round in 0..200 {
        peer.publish(input, format!("garbage {round}"), false).await;
    }
    let valid = task("echo", json!({"still": "here"}));
    assert_eq!(peer.call("echo", &valid).await["response"]["echo"]["still"], "here");
    assert_eq!(agent.call_count(), 1);
    assert_eq!(peer.all_on(&status_topic("echo")).len(), 1, "the agent stayed connected");
}

#[tokio::test]
async fn after_a_broker_restart_the_agents_return_and_a_running_task_is_answered() {
    let mut broker = Mosquitto::start().await;
    let (agent, agent_latch) = latched_agent().await;
    let peer = Peer::connect(&broker).await;
    let _gate = bridged(&broker, "").agent("slow", &agent).start().await;
    peer.wait_for_status("slow", "available").await;
    let sent_task = task("slow", json!({}));
    peer.send_task("slow", &sent_task).await;
    eventually("the agent is called", async || agent.call_count() == 1).await;
    broker.kill();
    drop(peer);
    broker.restart().await;
    let peer = Peer::connect(&broker).await;
    peer.wait_for_status("slow", "available").await;
    agent_latch.close();
    assert_eq!(peer.first_on(&reply_topic(&sent_task, "slow")).await.payload["response"], "done");
    peer.send_task("slow", &sent_task).await;
    let after = task("slow", json!({}));
    assert_eq!(peer.call("slow", &after).await["response"], "done");
    assert_eq!(agent.call_count(), 2, "a task is remembered over a lost connection (R125)");
}

#[tokio::test]
async fn r105_a_result_lost_with_its_connection_is_sent_over_the_next_one() {
    let (broker, agent) = (Mosquitto::start().await, Agent::echo().await);
    let peer = Peer::connect(&broker).await;
    let breaking_url = format!("mqtt://{}", start_broker_proxy(broker.port, ProxyFault::ClosesOnce).await);
    let _gate = bridged_at(&breaking_url, "").agent("echo", &agent).start().await;
    peer.wait_for_status("echo", "available").await;
    let sent_task = task("echo", json!({"n": 1}));
    assert_eq!(peer.call("echo", &sent_task).await["response"]["echo"]["n"], 1);
    peer.wait_for_status("echo", "available").await;
    assert_eq!(peer.call("echo", &task("echo", json!({"n": 2}))).await["response"]["echo"]["n"], 2);
    assert_eq!(peer.all_on(&reply_topic(&sent_task, "echo")).len(), 1);
    assert_eq!(agent.call_count(), 2);
}

#[tokio::test]
async fn tasks_beyond_the_queue_limit_fail_at_once() {
    let broker = Mosquitto::start().await;
    let (agent, agent_latch) = latched_agent().await;
    let peer = Peer::connect(&broker).await;
    let settings = "    max_concurrency: 1\n    max_queued: 1\n    session_expiry: 0s\n";
    let _gate = bridged(&broker, settings).agent("slow", &agent).start().await;
    peer.wait_for_status("slow", "available").await;
    let tasks: Vec<Value> = (0..3).map(|_| task("slow", json!({}))).collect();
    for task in &tasks {
        peer.send_task("slow", task).await;
    }
    let busy = peer.first_on(&reply_topic(&tasks[2], "slow")).await.payload;
    assert_eq!(busy["error"]["code"], "internal_error");
    // The first task holds its permit before the agent has read the call.
    eventually("the first task is with the agent", async || agent.call_count() == 1).await;
    agent_latch.close();
    for task in &tasks[..2] {
        assert_eq!(peer.first_on(&reply_topic(task, "slow")).await.payload["response"], "done");
    }
}

#[tokio::test]
async fn r3_only_active_agents_that_the_key_may_call_are_offered_and_changes_take_effect() {
    let (broker, agent) = (Mosquitto::start().await, Agent::echo().await);
    let peer = Peer::connect(&broker).await;
    let mut idle = agent.document("idle");
    idle["status"] = json!("inactive");
    let access = "access:\n  grants:\n    - {callers: ['key:bridge'], agents: [granted, idle]}\n    - {callers: ['key:team-a'], agents: ['*']}\n";
    let build = bridged(&broker, "").access(access).agent("granted", &agent).agent("hidden", &agent).document(idle);
    let gate = build.start().await;
    peer.wait_for_status("granted", "available").await;
    assert!(peer.all_on(&status_topic("hidden")).is_empty() && peer.all_on(&status_topic("idle")).is_empty());
    let (mut granted, mut idle) = (agent.document("granted"), agent.document("idle"));
    granted["description"] = json!("Better now");
    idle["status"] = json!("active");
    gate.write_file("agents.json", &json!([granted, idle]).to_string());
    peer.wait_for_status("idle", "available").await;
    eventually("the new description is published", async || {
        peer.all_on(&status_topic("granted"))
            .last()
            .is_some_and(|message| message.payload["description"] == "Better now")
    })
    .await;
    gate.write_file("agents.json", &json!([granted]).to_string());
    peer.wait_for_status("idle", "unavailable").await;
    let config = gate.read_file("gatepost.yaml");
    gate.write_file("gatepost.yaml", &config.replace("agents: ['*']\n", "agents: ['nothing*']\n"));
    peer.wait_for_status("granted", "unavailable").await;
    gate.write_file("gatepost.yaml", &config);
    peer.wait_for_status("granted", "available").await;
    assert_eq!(peer.call("granted", &task("granted", json!({"a": 1}))).await["response"]["echo"]["a"], 1);
}

#[tokio::test]
async fn a_status_that_another_client_published_is_corrected() {
    let (broker, agent) = (Mosquitto::start().await, Agent::echo().await);
    let peer = Peer::connect(&broker).await;
    let _gate = bridged(&broker, "").agent("echo", &agent).start().await;
    peer.wait_for_status("echo", "available").await;
    peer.publish(&status_topic("echo"), status_payload("echo", "unavailable").to_string(), true).await;
    peer.wait_for_status("echo", "unavailable").await;
    peer.wait_for_status("echo", "available").await;
}

#[tokio::test]
async fn a_successor_takes_over_the_agents_and_each_task_runs_once() {
    let (broker, agent) = (Mosquitto::start().await, Agent::echo().await);
    let peer = Peer::connect(&broker).await;
    let build = bridged(&broker, "").agent("echo", &agent).section("shutdown:\n  handover_socket: handover.sock\n");
    let mut predecessor = build.start().await;
    peer.wait_for_status("echo", "available").await;
    let _successor: Gateway = predecessor.start_successor().await;
    assert!(predecessor.wait_for_exit().await.success());
    peer.wait_for_status("echo", "available").await;
    let tasks: Vec<Value> = (0..5).map(|_| task("echo", json!({}))).collect();
    for task in &tasks {
        peer.call("echo", task).await;
    }
    // A second run of one of the tasks would have begun before this one.
    let last = task("echo", json!({}));
    peer.call("echo", &last).await;
    assert!(tasks.iter().all(|task| peer.all_on(&reply_topic(task, "echo")).len() == 1));
    assert_eq!(agent.call_count(), tasks.len() + 1);
    peer.wait_for_status("echo", "available").await;
}

#[tokio::test]
async fn r129_r130_problems_of_the_bridge_name_the_configuration_key() {
    let folder = tempfile::TempDir::new().unwrap();
    let config = "listeners:\n  - address: 127.0.0.1:0\nagents:\n  sources: [agents.json]\nauth:\n  api_keys: {files: [keys.jsonl]}\n";
    std::fs::write(folder.path().join("agents.json"), "[]").unwrap();
    new_key(folder.path(), "team-a", &[]);
    let path = folder.path().join("gatepost.yaml");
    let check = |bridge: &str| {
        std::fs::write(&path, format!("{config}{bridge}")).unwrap();
        let output = crate::support::gateway::gatepost_command().args(["check", "-c"]).arg(&path).output().unwrap();
        assert!(!output.status.success(), "{bridge}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let stderr = check(
        "mqtt_bridge:\n  - {url: 'mqtt://broker.example', api_key: 'env:NO_SUCH_KEY', agents: ['*'], deduplication_ttl: 0s, session_expiry: 1500ms, final_destinations: [ok, 'a#']}\n",
    );
    let problems = ["url: is plain text", "api_key", "deduplication_ttl", "session_expiry", "final_destinations[1]"];
    for problem in problems.map(|problem| format!("mqtt_bridge[0].{problem}")) {
        assert!(stderr.contains(&problem), "{problem} is not reported: {stderr}");
    }
    let stderr = check("mqtt_bridge:\n  - {url: 'mqtts://broker.example', api_key: 'env:NO_SUCH_KEY', agents: []}\n");
    assert!(stderr.contains("mqtt_bridge[0].agents"), "{stderr}");
}
