//! The directory with its documents in PostgreSQL: gateways that share a database, and documents that survive a crash.

use super::support::postgres::Postgres;
use crate::{
    directory::{PUBLISHERS, publish, send_as},
    support::{
        agent::Agent,
        eventually,
        gateway::{Gateway, gateway},
    },
};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

/// Publishes agents until the gateway is killed meanwhile, and returns the ids that were acknowledged.
async fn publish_until_killed(gate: &mut Gateway, agent: &Agent) -> Vec<String> {
    let (url, key) = (gate.url("/agents"), gate.key("team-a").to_owned());
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let acknowledged_count = Arc::new(AtomicUsize::new(0));
    let publishers: Vec<_> = (0..4)
        .map(|publisher| {
            let (url, key, client) = (url.clone(), key.clone(), client.clone());
            let count = Arc::clone(&acknowledged_count);
            let documents: Vec<Value> = (0..10_000).map(|n| agent.document(&format!("a-{publisher}-{n}"))).collect();
            tokio::spawn(async move {
                let mut acknowledged = Vec::new();
                for document in documents {
                    let response = client.post(&url).header("x-api-key", &key).json(&document).send().await;
                    match response.map(|response| response.status().as_u16()) {
                        Ok(201) => {
                            acknowledged.push(document["id"].as_str().unwrap().to_owned());
                            count.fetch_add(1, Ordering::SeqCst);
                        }
                        Ok(status) => panic!("{status}"),
                        Err(_) => break,
                    }
                }
                acknowledged
            })
        })
        .collect();
    eventually("many documents are acknowledged", async || acknowledged_count.load(Ordering::SeqCst) > 100).await;
    gate.send_signal(Signal::KILL);
    gate.wait_for_exit().await;
    let mut all = Vec::new();
    for publisher in publishers {
        all.extend(publisher.await.unwrap());
    }
    all
}

#[tokio::test]
async fn r17_acknowledged_documents_survive_a_kill_in_both_stores() {
    let (echo, mut server) = (Agent::echo().await, Postgres::start().await);
    let database = format!("  database: {}\n", server.create_database().await);
    for store in ["", &database] {
        let mut gate = gateway().section(&format!("{PUBLISHERS}{store}")).start().await;
        let acknowledged = publish_until_killed(&mut gate, &echo).await;
        assert!(acknowledged.len() > 100, "{} agents are too few for this test", acknowledged.len());
        let keys = gate.keys.clone();
        let (folder, _child) = gate.into_folder_and_child();
        let gate = tokio::task::spawn_blocking(move || Gateway::spawn(folder, keys, &[], &[])).await.unwrap();
        for id in acknowledged {
            assert_eq!(gate.invoke(&id, &json!({})).await.status, 200, "{id} was acknowledged but is lost");
        }
    }
}

#[tokio::test]
async fn r16_gateways_with_a_shared_database_apply_changes_of_each_other_within_a_second() {
    let (echo, mut database) = (Agent::echo().await, Postgres::start().await);
    let address = database.create_database().await;
    let start = async || {
        let build = gateway().caller("team-b", &[]);
        build.section(&format!("{PUBLISHERS}  database: {address}\n")).start().await
    };
    let (one, other) = (start().await, start().await);
    assert_eq!(publish(&one, "team-a", &echo.document("shared")).await.status, 201);
    let start_time = Instant::now();
    let status = async |gate: &Gateway| gate.invoke("shared", &json!({})).await.status;
    eventually("the other gateway serves the agent", async || status(&other).await == 200).await;
    assert!(start_time.elapsed() < Duration::from_secs(1), "{:?}", start_time.elapsed());
    publish(&other, "team-b", &echo.document("shared")).await.expect_fault(403, "PermissionDenied");
    assert_eq!(send_as(&other, "team-a", ("DELETE", "/agents/shared"), None).await.status, 204);
    let start_time = Instant::now();
    eventually("the agent is removed", async || status(&one).await == 404).await;
    assert!(start_time.elapsed() < Duration::from_secs(1), "{:?}", start_time.elapsed());
}
