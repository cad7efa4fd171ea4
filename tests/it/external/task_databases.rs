//! Tasks in a PostgreSQL database: gateways that share it, and an outage of it.

use super::support::postgres::Postgres;
use crate::{
    support::{
        agent::{Agent, Step},
        eventually, eventually_within,
        gateway::gateway,
    },
    tasks::{call_with_prefer, request_as, task_path, wait_for_status},
};
use rustix::process::Signal;
use serde_json::json;
use std::time::Duration;

#[tokio::test]
async fn r79_gateways_with_one_database_share_tasks_and_fail_those_of_a_dead_gateway() {
    let mut server = Postgres::start().await;
    let address = server.create_database().await;
    let echo = Agent::echo().await;
    let silent = Agent::with_steps(vec![Step::Hang]).await;
    let shared = format!("tasks:\n  database: {address}\n  lease_ttl: 4s\n  poll_interval: 1s\n");
    let build = || gateway().section(&shared).agent("echo", &echo).agent("silent", &silent);
    let (one, two) = (build().start().await, build().start().await);
    let completed = task_path(&call_with_prefer(&one, "echo", "respond-async").await);
    assert_eq!(wait_for_status(&two, &completed, "completed").await["result"], json!({"echo": {"text": "hi"}}));
    let canceled = task_path(&call_with_prefer(&one, "silent", "respond-async").await);
    eventually("the agent receives the call", async || silent.call_count() == 1).await;
    assert_eq!(request_as(&two, "team-a", "GET", &canceled).await.json()["status"], "working");
    assert_eq!(request_as(&two, "team-a", "DELETE", &canceled).await.json()["status"], "canceled");
    eventually("the other gateway disconnects from the agent", async || silent.aborted_responses() == 1).await;
    wait_for_status(&one, &canceled, "canceled").await;
    let lost = task_path(&call_with_prefer(&one, "silent", "respond-async").await);
    let working = task_path(&call_with_prefer(&two, "silent", "respond-async").await);
    eventually("the agent receives the call", async || silent.call_count() == 3).await;
    one.send_signal(Signal::KILL);
    assert_eq!(wait_for_status(&two, &lost, "failed").await["error"]["code"], "AgentUnavailable");
    assert_eq!(
        request_as(&two, "team-a", "GET", &working).await.json()["status"],
        "working",
        "the task of the other gateway continues"
    );
    server.stop();
    let down = request_as(&two, "team-a", "GET", &completed).await;
    down.expect_fault(503, "Overloaded");
    assert!(down.header("retry-after").is_some());
    server.restart().await;
    wait_for_status(&two, &completed, "completed").await;
}

#[tokio::test]
async fn r79_a_database_outage_longer_than_the_lease_fails_no_task_of_a_running_gateway() {
    let mut server = Postgres::start().await;
    let address = server.create_database().await;
    let silent = Agent::with_steps(vec![Step::Hang]).await;
    let abandoned = Agent::with_steps(vec![Step::Hang]).await;
    let tasks =
        format!("tasks:\n  database: {address}\n  lease_ttl: 1s\n  poll_interval: 1s\n  max_tasks_per_caller: 8\n");
    let echo = Agent::echo().await;
    let build =
        || gateway().section(&tasks).agent("silent", &silent).agent("echo", &echo).agent("abandoned", &abandoned);
    let (one, two, dying) = (build().start().await, build().start().await, build().start().await);
    let mut tasks = Vec::new();
    for gate in [&one, &two, &one, &two] {
        tasks.push(task_path(&call_with_prefer(gate, "silent", "respond-async").await));
    }
    eventually("all agents are called", async || silent.call_count() == 4).await;
    for _ in 0..12 {
        // A caller has at most eight tasks, so each call has to wait for the end of an earlier one.
        eventually("the task is accepted", async || {
            call_with_prefer(&one, "echo", "respond-async").await.status == 202
        })
        .await;
    }
    let lost = task_path(&call_with_prefer(&dying, "abandoned", "respond-async").await);
    eventually("the agent is called", async || abandoned.call_count() == 1).await;
    server.stop();
    // The outage has to last longer than the lease of a second.
    tokio::time::sleep(Duration::from_secs(2)).await;
    server.restart().await;
    for path in &tasks {
        for gate in [&one, &two] {
            eventually("the task can be read again", async || {
                request_as(gate, "team-a", "GET", path).await.status == 200
            })
            .await;
        }
    }
    // The task of a gateway that dies now fails, so the tasks whose lease has ended have been looked for again. After an
    // outage the gateways give each other ten seconds for a heartbeat.
    dying.send_signal(Signal::KILL);
    let has_failed = async || request_as(&one, "team-a", "GET", &lost).await.json()["status"] == "failed";
    eventually_within(Duration::from_secs(40), "the task of the dead gateway is failed", has_failed).await;
    let failed = request_as(&one, "team-a", "GET", &lost).await.json();
    assert_eq!(failed["error"]["code"], "AgentUnavailable", "{failed}");
    for path in &tasks {
        for gate in [&one, &two] {
            assert_eq!(request_as(gate, "team-a", "GET", path).await.json()["status"], "working");
        }
    }
    assert_eq!(silent.aborted_responses(), 0, "no response was aborted");
}
