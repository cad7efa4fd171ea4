//! The 2389 protocol with software of others (R104, R124): agents and clients with paho-mqtt and amqtt, and the broker of
//! amqtt, which knows only MQTT 3.1.1.

use super::support::{
    bridge_peer::{bridged, bridged_at, latched_agent, partly_latched_agent, reply_topic, start_again, task},
    mosquitto::Mosquitto,
    mqtt_peers::{AmqttBroker, LIBRARIES, MqttPeer},
};
use crate::support::{
    TEST_TIMEOUT,
    agent::Agent,
    eventually,
    gateway::{Gateway, gateway, send},
};
use futures_util::future::join_all;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::time::Instant;

fn document(port: u16, id: &str) -> Value {
    json!({"id": id, "name": id, "endpoint": format!("mqtt://127.0.0.1:{port}/control/agents/{id}/input")})
}

/// Waits until the bridge has announced these agents.
async fn announced(gate: &Gateway, agents: &[&str]) {
    eventually("the agents are announced", async || {
        let log = gate.stderr();
        let is_announced =
            |agent: &&str| log.lines().any(|line| line.contains("announced as available") && line.contains(*agent));
        agents.iter().all(is_announced)
    })
    .await;
}

#[tokio::test]
async fn r104_r124_agents_of_other_libraries_answer_calls_and_their_last_will_ends_them() {
    let broker = Mosquitto::start().await;
    let agents = join_all(LIBRARIES.map(|library| MqttPeer::agent(library, broker.port, library))).await;
    let build = LIBRARIES.iter().fold(gateway(), |build, id| build.document(document(broker.port, id)));
    let gate = build.start().await;
    for (id, mut agent) in LIBRARIES.into_iter().zip(agents) {
        let call = gate.post(&format!("/agents/{id}/invoke")).json(&json!({"n": 1, "instruction": "count"}));
        let answer = send(call.header("x-session-id", "session-1")).await.expect_ok();
        assert_eq!(answer["agent"], id);
        let received = &answer["task"];
        assert_eq!((&received["input"]["n"], &received["instruction"]), (&json!(1), &json!("count")), "{received}");
        assert_eq!(received["sessionId"], "session-1", "{received}");
        agent.expect_line("task").await;
        let started = Instant::now();
        let input = json!("never");
        let death = async {
            agent.expect_line("task").await;
            drop(agent);
        };
        let (lost, ()) = tokio::join!(gate.invoke(id, &input), death);
        lost.expect_fault(502, "AgentError");
        assert!(started.elapsed() < TEST_TIMEOUT, "{id}: {:?}", started.elapsed());
    }
}

#[tokio::test]
async fn r112_r124_r154_clients_of_other_libraries_use_agents_and_pipelines_of_the_bridge() {
    let (broker, agent) = (Mosquitto::start().await, Agent::echo().await);
    let _foreign = MqttPeer::agent("paho-3.1.1", broker.port, "foreign").await;
    let settings = "    final_destinations: ['results/+']\n";
    let gate = bridged(&broker, settings).agent("first", &agent).agent("last", &agent).start().await;
    announced(&gate, &["first", "last"]).await;
    for library in LIBRARIES {
        let (plain, mut pipeline) = (task("first", json!({"n": 1})), task("first", json!({"n": 2})));
        let destination = format!("results/{library}");
        let last = json!({"topic": "/control/agents/last/input", "next": {"topic": destination}});
        pipeline["next"] = json!({"topic": "/control/agents/foreign/input", "instruction": "go on", "next": last});
        let reply = format!("/conversations/{}/first", plain["conversation_id"].as_str().unwrap());
        let mut client = MqttPeer::client(library, broker.port, &[&reply, &destination], &[&plain, &pipeline]).await;
        for _ in 0..2 {
            let (topic, message) = client.next_message().await;
            if topic == reply {
                assert_eq!(message, json!({"response": {"echo": {"n": 1}}, "task_id": plain["task_id"]}), "{library}");
                continue;
            }
            assert_eq!(topic, destination);
            let foreign_result = &message["echo"];
            assert_eq!(foreign_result["agent"], "foreign", "{library}: {message}");
            let task_of_foreign = &foreign_result["task"];
            assert_eq!(task_of_foreign["input"], json!({"echo": {"n": 2}}), "{library}: {message}");
            assert_eq!(task_of_foreign["instruction"], "go on", "{library}: {message}");
        }
    }
}

#[tokio::test]
async fn r104_r124_r161_tasks_that_other_libraries_publish_during_a_restart_are_done_afterwards() {
    let (broker, agent) = (Mosquitto::start().await, Agent::echo().await);
    let mut gate = bridged(&broker, "").agent("echo", &agent).start().await;
    announced(&gate, &["echo"]).await;
    for (done, library) in LIBRARIES.into_iter().enumerate() {
        gate.send_signal(Signal::TERM);
        gate.wait_for_exit().await;
        let sent_task = task("echo", json!({"sent": library}));
        // The broker has the task when the client is started.
        let mut client =
            MqttPeer::client(library, broker.port, &[&reply_topic(&sent_task, "echo")], &[&sent_task]).await;
        assert_eq!(agent.call_count(), done, "{library}: the gateway does not run");
        gate = start_again(gate).await;
        let answer = client.next_message().await.1;
        assert_eq!(answer, json!({"response": {"echo": {"sent": library}}, "task_id": sent_task["task_id"]}));
    }
    assert_eq!(agent.call_count(), LIBRARIES.len(), "each task once");
}

#[tokio::test]
async fn r104_r124_r161_running_tasks_of_other_libraries_survive_a_kill_of_the_gateway_and_a_restart_of_the_broker() {
    let mut broker = Mosquitto::start_with_persistence().await;
    for library in LIBRARIES {
        let (agent, agent_latch) = latched_agent().await;
        let mut gate = bridged(&broker, "").agent("slow", &agent).start().await;
        announced(&gate, &["slow"]).await;
        let running = task("slow", json!({"sent": library}));
        let topic = reply_topic(&running, "slow");
        let client = MqttPeer::client(library, broker.port, &[&topic], &[&running]).await;
        eventually("the agent is called", async || agent.call_count() == 1).await;
        gate.child.kill().unwrap();
        let gate = start_again(gate).await;
        eventually("the agent is called again after the kill", async || agent.call_count() == 2).await;
        broker.stop().await;
        drop(client);
        broker.restart().await;
        let mut client = MqttPeer::client(library, broker.port, &[&topic], &[]).await;
        agent_latch.close();
        let answer = client.next_message().await.1;
        assert_eq!(answer, json!({"response": "done", "task_id": running["task_id"]}), "{library}");
        assert_eq!(agent.call_count(), 2, "{library}: the restart of the broker repeated the task");
        drop(gate);
    }
}

/// The tasks of a restart are no part of this test: this broker marks the messages that it kept as retained, and agents
/// ignore retained tasks (R106).
#[tokio::test]
async fn r104_r124_a_broker_of_amqtt_serves_calls_and_the_bridge() {
    let (broker, agent) = (AmqttBroker::start().await, Agent::echo().await);
    let port = broker.port();
    let _foreign = MqttPeer::agent("amqtt", port, "foreign").await;
    let (mixed, mixed_latch) = partly_latched_agent().await;
    let build = bridged_at(&format!("mqtt://127.0.0.1:{port}"), "").agent("echo", &agent).agent("mixed", &mixed);
    let gate = build.document(document(port, "foreign")).start().await;
    assert_eq!(gate.invoke("foreign", &json!({"n": 1})).await.expect_ok()["task"]["input"], json!({"n": 1}));
    announced(&gate, &["echo"]).await;
    let sent_task = task("echo", json!({"n": 2}));
    let reply = format!("/conversations/{}/echo", sent_task["conversation_id"].as_str().unwrap());
    let mut client = MqttPeer::client("paho-3.1.1", port, &[&reply], &[&sent_task]).await;
    assert_eq!(client.next_message().await.1["response"], json!({"echo": {"n": 2}}));
    announced(&gate, &["mixed"]).await;
    // A slow task is acknowledged after later ones.
    let tasks = [task("mixed", json!({"is_slow": true})), task("mixed", json!({})), task("mixed", json!({}))];
    let replies = tasks.each_ref().map(|task| reply_topic(task, "mixed"));
    let topics = replies.each_ref().map(String::as_str);
    let mut client = MqttPeer::client("paho-3.1.1", port, &topics, &tasks.each_ref()).await;
    for _ in 0..2 {
        assert_ne!(client.next_message().await.0, replies[0]);
    }
    mixed_latch.close();
    assert_eq!(client.next_message().await.0, replies[0]);
    let last = task("mixed", json!({}));
    let mut client = MqttPeer::client("paho-3.1.1", port, &[&reply_topic(&last, "mixed")], &[&last]).await;
    assert_eq!(client.next_message().await.1["response"], "done");
    assert!(!gate.stderr().contains("no MQTT connection for the agent"), "{}", gate.stderr());
}
