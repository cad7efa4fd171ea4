//! The sessions of bridged agents at a real broker: tasks that meet a restart of the broker or of the gateway, a kill or
//! a listener handover (R104, R125, R161).

use super::support::{
    bridge_peer::{Peer, bridged, bridged_at, latched_agent, partly_latched_agent, reply_topic, start_again, task},
    mosquitto::Mosquitto,
    mqtt_task_agent::{ProxyFault, start_broker_proxy},
};
use crate::support::{
    agent::Agent,
    eventually,
    gateway::{Gateway, GatewayBuilder},
};
use rustix::process::Signal;
use serde_json::{Value, json};

/// How long a gateway waits for its tasks when it stops.
const SHORT_DRAIN: &str = "shutdown:\n  drain_timeout: 1s\n";

/// The URL of the broker for clients of each version of MQTT.
async fn url_of_each_version(broker: &Mosquitto) -> [(&'static str, String); 2] {
    let old = start_broker_proxy(broker.port, ProxyFault::RejectsMqtt5).await;
    [("MQTT 5", broker.url()), ("MQTT 3.1.1", format!("mqtt://{old}"))]
}

async fn stop_and_start_again(gate: Gateway) -> Gateway {
    gate.send_signal(Signal::TERM);
    start_again(gate).await
}

async fn kill_and_start_again(mut gate: Gateway) -> Gateway {
    gate.child.kill().unwrap();
    start_again(gate).await
}

/// Publishes a task, and waits until the broker has it.
async fn hand_to_broker(broker: &Mosquitto, agent: &str, envelope: &Value) {
    broker.publish(&format!("/control/agents/{agent}/input"), envelope.to_string(), false).await;
}

/// A gateway that offers the agent `slow`, and stores no task ids: a task that it did not acknowledge runs again.
fn forgetful(url: &str, agent: &Agent) -> GatewayBuilder {
    bridged_at(url, "    state_folder: null\n").agent("slow", agent).section(SHORT_DRAIN)
}

#[tokio::test]
async fn r104_r161_a_task_that_is_published_while_the_gateway_restarts_is_done_afterwards() {
    let broker = Mosquitto::start().await;
    for (version, url) in url_of_each_version(&broker).await {
        let (agent, peer) = (Agent::echo().await, Peer::connect(&broker).await);
        let mut gate = bridged_at(&url, "").agent("echo", &agent).start().await;
        peer.wait_for_status("echo", "available").await;
        gate.send_signal(Signal::TERM);
        gate.wait_for_exit().await;
        let meanwhile = task("echo", json!({"sent": version}));
        hand_to_broker(&broker, "echo", &meanwhile).await;
        let _gate = start_again(gate).await;
        let response = peer.first_on(&reply_topic(&meanwhile, "echo")).await.payload;
        assert_eq!(response["response"]["echo"]["sent"], version, "{response}");
        assert_eq!(agent.call_count(), 1, "{version}");
    }
    assert_eq!(broker.bridge_connections(), ["p5, c0", "p5, c0", "p2, c0", "p2, c0"], "none in the other version");
}

#[tokio::test]
async fn r161_a_task_that_a_stop_or_a_kill_interrupts_is_done_afterwards_and_not_again() {
    let broker = Mosquitto::start().await;
    for (version, url) in url_of_each_version(&broker).await {
        let ((agent, agent_latch), peer) = (latched_agent().await, Peer::connect(&broker).await);
        let gate = forgetful(&url, &agent).start().await;
        peer.wait_for_status("slow", "available").await;
        let interrupted = task("slow", json!({}));
        peer.send_task("slow", &interrupted).await;
        eventually("the agent is called", async || agent.call_count() == 1).await;
        let gate = stop_and_start_again(gate).await;
        eventually("the agent is called after the stop", async || agent.call_count() == 2).await;
        let gate = kill_and_start_again(gate).await;
        eventually("the agent is called after the kill", async || agent.call_count() == 3).await;
        let topic = reply_topic(&interrupted, "slow");
        assert!(peer.all_on(&topic).is_empty(), "{version}: an interrupted task has no result");
        agent_latch.close();
        assert_eq!(peer.first_on(&topic).await.payload["response"], "done", "{version}");
        // An acknowledgement that was lost with a kill would not be a defect, so this process stops in order.
        let _gate = stop_and_start_again(gate).await;
        let last = task("slow", json!({}));
        assert_eq!(peer.call("slow", &last).await["response"], "done", "{version}");
        assert_eq!((agent.call_count(), peer.all_on(&topic).len()), (4, 1), "{version}: it was acknowledged");
    }
}

/// Kept tasks, with a member of `length` bytes each, are all answered: at most `max_refusals` of them with an error.
async fn kept_tasks_are_answered(broker: &Mosquitto, version: &str, url: &str, length: usize, max_refusals: usize) {
    let (agent, peer) = (Agent::echo().await, Peer::connect(broker).await);
    let settings = "    max_concurrency: 4\n    max_queued: 0\n";
    let mut gate = bridged_at(url, settings).agent("echo", &agent).start().await;
    peer.wait_for_status("echo", "available").await;
    gate.send_signal(Signal::TERM);
    gate.wait_for_exit().await;
    let input = |n: usize| json!({"n": n, "text": "x".repeat(length)});
    let kept: Vec<Value> = (0..KEPT_TASKS).map(|n| task("echo", input(n))).collect();
    for envelope in &kept {
        hand_to_broker(broker, "echo", envelope).await;
    }
    let _gate = start_again(gate).await;
    let (mut done, mut refusals) = (0, Vec::new());
    for envelope in &kept {
        let answer = peer.first_on(&reply_topic(envelope, "echo")).await.payload;
        assert!(answer["response"].is_object() || answer["error"]["code"] == "internal_error", "{version}: {answer}");
        done += usize::from(answer["response"].is_object());
        // A machine under load may make the gateway refuse calls, which has another text.
        if answer["error"]["message"] != "The gateway is overloaded; try again later" {
            refusals.extend(answer.get("error").cloned());
        }
    }
    assert_eq!(agent.call_count(), done, "{version}");
    assert!(refusals.len() <= max_refusals, "{version}: {done} tasks are done: {refusals:?}");
}

const KEPT_TASKS: usize = 100;

#[tokio::test]
async fn r161_each_task_that_the_broker_kept_is_answered_whatever_their_number() {
    let mut broker = Mosquitto::stopped("allow_anonymous true\nmax_inflight_messages 0\n");
    broker.restart().await;
    // This broker delivers more tasks than the Receive Maximum of MQTT 5, and MQTT 3.1.1 has none.
    let [(version_5, url_5), (version_3, url_3)] = url_of_each_version(&broker).await;
    kept_tasks_are_answered(&broker, version_5, &url_5, 0, 0).await;
    kept_tasks_are_answered(&broker, version_3, &url_3, 0, 0).await;
    // Four run, and at least 64 wait.
    kept_tasks_are_answered(&broker, version_3, &url_3, 250_000, KEPT_TASKS - 68).await;
}

#[tokio::test]
async fn r161_a_slow_task_does_not_hold_back_acknowledgements_of_later_tasks() {
    let mut broker = Mosquitto::stopped("allow_anonymous true\nmax_inflight_messages 2\n");
    broker.restart().await;
    for (version, url) in url_of_each_version(&broker).await {
        let ((agent, agent_latch), peer) = (partly_latched_agent().await, Peer::connect(&broker).await);
        let _gate = bridged_at(&url, "").agent("mixed", &agent).start().await;
        peer.wait_for_status("mixed", "available").await;
        let first = task("mixed", json!({"is_slow": true}));
        peer.send_task("mixed", &first).await;
        for n in 0..5 {
            assert_eq!(peer.call("mixed", &task("mixed", json!({"n": n}))).await["response"], "done", "{version}");
        }
        agent_latch.close();
        assert_eq!(peer.first_on(&reply_topic(&first, "mixed")).await.payload["response"], "done", "{version}");
        assert_eq!(agent.call_count(), 6, "{version}: the connection lasts");
    }
}

#[tokio::test]
async fn r125_r161_a_kill_before_the_acknowledgement_repeats_no_task_whose_id_is_stored() {
    for (settings, call_count) in [("", 1), ("    state_folder: null\n", 2)] {
        let (broker, agent) = (Mosquitto::start().await, Agent::echo().await);
        let peer = Peer::connect(&broker).await;
        let url = format!("mqtt://{}", start_broker_proxy(broker.port, ProxyFault::DropsClientPuback).await);
        let gate = bridged_at(&url, settings).agent("echo", &agent).start().await;
        peer.wait_for_status("echo", "available").await;
        let finished = task("echo", json!({"n": 1}));
        peer.call("echo", &finished).await;
        if settings.is_empty() {
            eventually("the id is stored", async || stored_ids(&gate).contains(finished["task_id"].as_str().unwrap()))
                .await;
        }
        let _gate = kill_and_start_again(gate).await;
        // The broker delivers in the order in which the tasks were published.
        peer.call("echo", &task("echo", json!({"n": 2}))).await;
        let topic = reply_topic(&finished, "echo");
        eventually("the tasks are done", async || peer.all_on(&topic).len() == call_count).await;
        assert_eq!(agent.call_count(), call_count + 1, "{settings}");
    }
}

/// The ids of finished tasks in the default folder.
fn stored_ids(gate: &Gateway) -> String {
    let folder = gate.folder().join("gatepost.state/mqtt_bridge");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files.map(|path| std::fs::read_to_string(path).unwrap()).collect()
}

#[tokio::test]
async fn r161_a_task_that_meets_a_restart_of_the_broker_is_done_once_and_acknowledged() {
    let mut broker = Mosquitto::start_with_persistence().await;
    for (version, url) in url_of_each_version(&broker).await {
        let ((agent, agent_latch), peer) = (latched_agent().await, Peer::connect(&broker).await);
        let gate = forgetful(&url, &agent).start().await;
        peer.wait_for_status("slow", "available").await;
        let running = task("slow", json!({}));
        peer.send_task("slow", &running).await;
        eventually("the agent is called", async || agent.call_count() == 1).await;
        broker.stop().await;
        drop(peer);
        broker.restart().await;
        let peer = Peer::connect(&broker).await;
        peer.wait_for_status("slow", "available").await;
        let waiting = task("slow", json!({}));
        peer.send_task("slow", &waiting).await;
        agent_latch.close();
        for task in [&running, &waiting] {
            assert_eq!(peer.first_on(&reply_topic(task, "slow")).await.payload["response"], "done", "{version}");
        }
        let gate = stop_and_start_again(gate).await;
        peer.call("slow", &task("slow", json!({}))).await;
        assert_eq!(agent.call_count(), 3, "{version}: the broker repeated a task that was acknowledged");
        assert_eq!(peer.all_on(&reply_topic(&running, "slow")).len(), 1, "{version}");
        drop(gate);
    }
}

#[tokio::test]
async fn r161_a_handover_runs_a_task_in_flight_once_and_tasks_that_follow_reach_the_successor() {
    let broker = Mosquitto::start().await;
    let ((agent, agent_latch), peer) = (latched_agent().await, Peer::connect(&broker).await);
    let build = bridged(&broker, "").agent("slow", &agent).section("shutdown:\n  handover_socket: handover.sock\n");
    let mut predecessor = build.start().await;
    peer.wait_for_status("slow", "available").await;
    let in_flight = task("slow", json!({}));
    peer.send_task("slow", &in_flight).await;
    eventually("the agent is called", async || agent.call_count() == 1).await;
    let _successor = predecessor.start_successor().await;
    peer.wait_for_status("slow", "unavailable").await;
    let following = task("slow", json!({}));
    hand_to_broker(&broker, "slow", &following).await;
    agent_latch.close();
    assert!(predecessor.wait_for_exit().await.success());
    peer.wait_for_status("slow", "available").await;
    for task in [&in_flight, &following] {
        assert_eq!(peer.first_on(&reply_topic(task, "slow")).await.payload["response"], "done");
    }
    peer.call("slow", &task("slow", json!({}))).await;
    assert_eq!(agent.call_count(), 3);
}

#[tokio::test]
async fn r125_a_task_that_runs_is_not_started_again_whatever_number_of_ids_is_remembered() {
    let broker = Mosquitto::start().await;
    let ((agent, agent_latch), peer) = (partly_latched_agent().await, Peer::connect(&broker).await);
    let _gate = bridged(&broker, "    max_deduplication_ids: 1\n").agent("mixed", &agent).start().await;
    peer.wait_for_status("mixed", "available").await;
    let running = task("mixed", json!({"is_slow": true}));
    peer.send_task("mixed", &running).await;
    peer.call("mixed", &task("mixed", json!({}))).await;
    peer.send_task("mixed", &running).await;
    peer.call("mixed", &task("mixed", json!({}))).await;
    agent_latch.close();
    peer.first_on(&reply_topic(&running, "mixed")).await;
    peer.call("mixed", &task("mixed", json!({}))).await;
    assert_eq!((agent.call_count(), peer.all_on(&reply_topic(&running, "mixed")).len()), (4, 1));
}

#[tokio::test]
async fn r105_r154_a_message_for_which_the_broker_closes_the_connection_is_repeated_once() {
    let mut with_destination = task("echo", json!({"n": 1}));
    with_destination["next"] = json!({"topic": "results/closing/x"});
    let mut unidentified = task("echo", json!({}));
    (unidentified["task_id"], unidentified["conversation_id"]) = (json!("no UUID"), json!("closing"));
    for (sent_task, call_count) in [(with_destination, 3), (unidentified, 2)] {
        let (broker, agent) = (Mosquitto::start().await, Agent::echo().await);
        let peer = Peer::connect(&broker).await;
        let url = format!("mqtt://{}", start_broker_proxy(broker.port, ProxyFault::ClosesOnClosingTopic).await);
        let gate = bridged_at(&url, "    final_destinations: ['results/#']\n").agent("echo", &agent).start().await;
        peer.wait_for_status("echo", "available").await;
        peer.send_task("echo", &sent_task).await;
        let lost_messages = |gate: &Gateway| gate.stderr().matches("did not accept it").count();
        eventually("the message is given up", async || lost_messages(&gate) == 1).await;
        assert_eq!(peer.call("echo", &task("echo", json!({"n": 2}))).await["response"]["echo"]["n"], 2);
        assert_eq!(gate.stderr().matches("no MQTT connection for the agent").count(), 2);
        let gate = stop_and_start_again(gate).await;
        assert_eq!(peer.call("echo", &task("echo", json!({"n": 3}))).await["response"]["echo"]["n"], 3);
        assert_eq!((agent.call_count(), lost_messages(&gate)), (call_count, 1), "it is acknowledged");
        if call_count == 3 {
            let refused = peer.first_on(&reply_topic(&sent_task, "echo")).await.payload;
            assert_eq!(refused["error"]["code"], "internal_error", "{refused}");
        }
    }
}

#[tokio::test]
async fn r161_the_broker_keeps_nothing_for_a_withdrawn_agent_or_without_a_session_expiry() {
    let (broker, agent) = (Mosquitto::start().await, Agent::echo().await);
    let peer = Peer::connect(&broker).await;
    let gate = bridged(&broker, "").agent("echo", &agent).start().await;
    peer.wait_for_status("echo", "available").await;
    gate.write_file("agents.json", "[]");
    peer.wait_for_status("echo", "unavailable").await;
    eventually("the session is closed", async || gate.stderr().contains("agent withdrawn from the MQTT broker")).await;
    let folder = gate.folder().join("gatepost.state/mqtt_bridge");
    eventually("no ids are left", async || std::fs::read_dir(&folder).unwrap().next().is_none()).await;
    hand_to_broker(&broker, "echo", &task("echo", json!({"lost": 1}))).await;
    gate.write_file("agents.json", &json!([agent.document("echo")]).to_string());
    peer.wait_for_status("echo", "available").await;
    peer.call("echo", &task("echo", json!({}))).await;
    let config = gate.read_file("gatepost.yaml");
    gate.write_file("gatepost.yaml", &config.replace("agents: ['*']\n", "agents: ['*']\n    session_expiry: 0s\n"));
    eventually("the agent connects anew", async || {
        peer.all_on(&super::support::mosquitto::status_topic("echo")).len() >= 5
    })
    .await;
    gate.send_signal(Signal::TERM);
    peer.wait_for_status("echo", "unavailable").await;
    let mut gate = gate;
    gate.wait_for_exit().await;
    hand_to_broker(&broker, "echo", &task("echo", json!({"lost": 2}))).await;
    let _gate = start_again(gate).await;
    peer.wait_for_status("echo", "available").await;
    peer.call("echo", &task("echo", json!({}))).await;
    let inputs: Vec<Value> = agent.requests().iter().map(|request| request.json()).collect();
    assert_eq!(inputs, [json!({}), json!({})]);
}
