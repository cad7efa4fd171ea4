//! Agents from files and folders: documents are watched, and an invalid document affects no other agent.

use crate::support::{
    agent::{Agent, Step, json_response, latch},
    eventually,
    gateway::{Gateway, GatewayBuilder, gateway, send},
};
use serde_json::{Value, json};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

const WATCHED: &str = "agents:\n  sources: [agents.json]\n  poll_interval: 50ms\n";

fn watched_gateway() -> GatewayBuilder {
    gateway().section(WATCHED)
}

fn write_documents(gate: &Gateway, documents: &Value) {
    gate.write_file("agents.json", &documents.to_string());
}

async fn call_status(gate: &Gateway, id: &str) -> u16 {
    gate.invoke(id, &json!({})).await.status
}

async fn wait_for_status(gate: &Gateway, id: &str, expected: u16) {
    eventually(&format!("{id} answers {expected}"), async || call_status(gate, id).await == expected).await;
}

#[tokio::test]
async fn r10_documents_are_read_from_files_and_folders_in_every_format() {
    let echo = Agent::echo().await;
    let build = gateway().section("agents:\n  sources: [documents, agents.json]\n").agent("alone", &echo);
    let folder = build.folder().join("documents");
    std::fs::create_dir(&folder).unwrap();
    let json_array = |ids: &[&str]| json!(ids.iter().map(|id| echo.document(id)).collect::<Vec<_>>());
    let yaml =
        |id: &str| format!("id: {id}\nname: {id}\nendpoint: {}\nauthentication: {{type: api_key}}\n", echo.url());
    let list_item = |id: &str| yaml(id).replace('\n', "\n    ");
    let files = [
        ("one.json", echo.document("one").to_string()),
        ("array.json", json_array(&["two", "three"]).to_string()),
        ("envelope.json", json!({"agents": json_array(&["four"]), "count": 1}).to_string()),
        ("one.yaml", yaml("five")),
        ("array.yml", format!("- {}\n", yaml("six").replace('\n', "\n  "))),
        ("envelope.yaml", format!("agents:\n  - {}\n", list_item("seven"))),
        ("several.yaml", format!("---\n{}---\n{}", yaml("eight"), yaml("nine"))),
        ("notes.txt", echo.document("text").to_string()),
        (".hidden.json", echo.document("hidden").to_string()),
        ("one.json~", echo.document("backup").to_string()),
    ];
    for (name, text) in files {
        std::fs::write(folder.join(name), text).unwrap();
    }
    let gate = build.start().await;
    for id in ["alone", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"] {
        assert_eq!(call_status(&gate, id).await, 200, "{id}");
    }
    for id in ["text", "hidden", "backup"] {
        gate.invoke(id, &json!({})).await.expect_fault(404, "NotFound");
    }
    let page = gate.admin_page("/agents").await.json();
    assert_eq!((page["total"].as_u64(), page["rejected_total"].as_u64()), (Some(10), Some(0)), "{page}");
}

#[tokio::test]
async fn r10_an_added_agent_can_be_called_and_a_removed_agent_is_not_found() {
    let echo = Agent::echo().await;
    let gate = gateway().agent("old", &echo).start().await;
    gate.invoke("new", &json!({})).await.expect_fault(404, "NotFound");
    let start = Instant::now();
    write_documents(&gate, &json!([echo.document("new")]));
    wait_for_status(&gate, "new", 200).await;
    wait_for_status(&gate, "old", 404).await;
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
    std::fs::remove_file(gate.folder().join("agents.json")).unwrap();
    wait_for_status(&gate, "new", 404).await;
    assert_eq!(gate.admin_page("/agents").await.json()["total"], 0);
}

#[tokio::test]
async fn r10_a_missing_folder_is_reported_and_its_agents_stay() {
    let echo = Agent::echo().await;
    let build = gateway().section("agents:\n  sources: [documents]\n  poll_interval: 50ms\n");
    let folder = build.folder().join("documents");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("a.json"), echo.document("a").to_string()).unwrap();
    let gate = build.start().await;
    std::fs::rename(&folder, gate.folder().join("moved")).unwrap();
    eventually("the problem is reported", async || gate.admin_page("/readyz").await.text().contains("documents")).await;
    assert_eq!(call_status(&gate, "a").await, 200);
    std::fs::rename(gate.folder().join("moved"), &folder).unwrap();
    eventually("the problem is gone", async || !gate.admin_page("/readyz").await.text().contains("documents")).await;
    std::fs::remove_file(folder.join("a.json")).unwrap();
    wait_for_status(&gate, "a", 404).await;
}

#[tokio::test]
async fn a_call_in_flight_keeps_the_document_it_started_with() {
    let latch = latch();
    let steps = [vec![Step::WaitForLatch(Arc::clone(&latch))], json_response(&json!({"old": true}))].concat();
    let slow = Agent::with_steps(steps).await;
    let fast = Agent::scripted(|_| json_response(&json!({"new": true}))).await;
    let gate = watched_gateway().agent("changed", &slow).agent("removed", &slow).start().await;
    let call = |id: &str| tokio::spawn(send(gate.post(&format!("/agents/{id}/invoke")).json(&json!({}))));
    let (changed, removed) = (call("changed"), call("removed"));
    eventually("the agent has both calls", async || slow.call_count() == 2).await;
    write_documents(&gate, &json!([fast.document("changed")]));
    eventually("the new snapshot is published", async || gate.admin_page("/agents").await.json()["total"] == 1).await;
    gate.invoke("removed", &json!({})).await.expect_fault(404, "NotFound");
    assert_eq!(gate.invoke("changed", &json!({})).await.expect_ok()["new"], true);
    assert!(!changed.is_finished() && !removed.is_finished());
    latch.close();
    assert_eq!(changed.await.unwrap().expect_ok()["old"], true);
    assert_eq!(removed.await.unwrap().expect_ok()["old"], true);
}

#[tokio::test]
async fn r74_r15_a_rejected_document_is_reported_everywhere_and_affects_no_other_agent() {
    let echo = Agent::echo().await;
    let with = |id: &str, field: &str, value: Value| {
        let mut document = echo.document(id);
        document[field] = value;
        document
    };
    let documents = json!([
        echo.document("good"),
        with("no-scheme", "endpoint", json!("127.0.0.1/invoke")),
        with("number", "version", json!(3.1)),
        with("guess", "authentication", json!({"type": "basic"})),
        with("schema", "inputs", json!({"type": "objekt"})),
        with("remote", "inputs", json!({"$ref": "http://127.0.0.1:1/schema.json"})),
        with("inside", "endpoint", json!("http://169.254.169.254/latest")),
        {"name": "no id"},
        7,
    ]);
    let gate = watched_gateway().start().await;
    // The draft's own example has `"version": 3.1.4`, which is not JSON; only this document is rejected.
    let text = documents.to_string().replace("3.1", "3.1.4");
    gate.write_file("agents.json", &text);
    wait_for_status(&gate, "good", 200).await;
    for id in ["no-scheme", "number", "guess", "schema", "remote"] {
        gate.invoke(id, &json!({})).await.expect_fault(404, "NotFound");
    }
    let page = gate.admin_page("/agents").await.json();
    let rejected = page["rejected"].as_array().unwrap();
    let reasons = |index: u64| {
        let row = rejected.iter().find(|row| row["index"] == index).unwrap_or_else(|| panic!("{index}: {page}"));
        assert!(row["source"].as_str().unwrap().ends_with("agents.json"));
        row["reasons"].to_string()
    };
    for (index, word) in
        [(1, "endpoint"), (2, "3.1.4"), (3, "basic"), (4, "inputs"), (5, "inputs"), (7, "id"), (8, "object")]
    {
        assert!(reasons(index).contains(word), "{}", reasons(index));
    }
    assert_eq!(gate.metric("gatepost_agents{state=\"rejected\"}").await, Some(rejected.len() as f64));
    assert_eq!(gate.metric("gatepost_agents{state=\"served\"}").await, page["total"].as_f64());
    assert_eq!(gate.admin_page("/readyz").await.json()["rejected"], rejected.len());
    assert!(gate.metric("gatepost_events_total{event=\"agent_rejected\"}").await.unwrap() >= rejected.len() as f64);
    for text in ["agent document rejected", "3.1.4", "basic"] {
        assert!(gate.stderr().contains(text), "{text}: {}", gate.stderr());
    }
}

#[tokio::test]
async fn r10_two_documents_with_the_same_id_are_both_rejected_until_one_is_removed() {
    let (echo, other) = (Agent::echo().await, Agent::echo().await);
    let gate = watched_gateway().agent("twin", &echo).agent("single", &echo).agent("twin", &other).start().await;
    gate.invoke("twin", &json!({})).await.expect_fault(404, "NotFound");
    assert_eq!(call_status(&gate, "single").await, 200);
    let page = gate.admin_page("/agents").await.json();
    assert_eq!(page["rejected_total"], 2, "{page}");
    assert!(page["rejected"].to_string().contains("same id"), "{page}");
    write_documents(&gate, &json!([echo.document("single"), other.document("twin")]));
    wait_for_status(&gate, "twin", 200).await;
    assert_eq!((echo.call_count(), other.call_count()), (1, 1));
}

#[tokio::test]
async fn a_truncated_or_invalid_file_keeps_its_previous_agents() {
    let echo = Agent::echo().await;
    let gate = watched_gateway().agent("stays", &echo).start().await;
    let path = gate.folder().join("agents.json");
    let complete = json!([echo.document("stays"), echo.document("comes")]).to_string();
    let truncated = &complete[..complete.len() - 20];
    let broken: [&[u8]; 6] =
        [truncated.as_bytes(), b"", b"\x00\xff\xfe garbage", b"{\"agents\": 7", b"[1,2", b"<html>busy</html>"];
    for text in broken {
        // Written in place, not atomically.
        std::fs::write(&path, text).unwrap();
        eventually("the problem is reported", async || gate.admin_page("/readyz").await.text().contains("agents.json"))
            .await;
        assert_eq!(call_status(&gate, "stays").await, 200);
        let ready = gate.admin_page("/readyz").await;
        assert_eq!((ready.status, ready.json()["agents"].as_u64()), (200, Some(1)), "{}", ready.text());
        std::fs::write(&path, json!([echo.document("stays")]).to_string()).unwrap();
        eventually("the problem is gone", async || !gate.admin_page("/readyz").await.text().contains("agents.json"))
            .await;
    }
    std::fs::write(&path, complete).unwrap();
    wait_for_status(&gate, "comes", 200).await;
}

#[tokio::test]
async fn r35_r39_the_status_of_an_agent_decides_the_response() {
    let echo = Agent::echo().await;
    let with = |id: &str, fields: Value| {
        let mut document = echo.document(id);
        document.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        document
    };
    let old = json!({"status": "deprecated", "deprecated_at": "2026-01-02T03:04:05Z", "sunset": "2027-01-02T03:04:05Z", "successor": "on"});
    let documents = [
        with("off", json!({"status": "inactive"})),
        with("old", old),
        with("bare", json!({"status": "deprecated"})),
        with("on", json!({"status": "active"})),
        with("odd", json!({"status": "retired"})),
        with("when", json!({"status": "deprecated", "sunset": "soon"})),
    ];
    let gate = documents.into_iter().fold(watched_gateway(), GatewayBuilder::document).start().await;
    gate.invoke("off", &json!({})).await.expect_fault(503, "AgentUnavailable");
    send(gate.request("POST", "/agents/off/invoke").json(&json!({}))).await.expect_fault(401, "Unauthorized");
    for id in ["odd", "when"] {
        gate.invoke(id, &json!({})).await.expect_fault(404, "NotFound");
    }
    assert_eq!(echo.call_count(), 0);
    let response = gate.invoke("old", &json!({})).await;
    response.expect_ok();
    assert_eq!(response.header("deprecation"), Some("@1767323045"));
    assert_eq!(response.header("sunset"), Some("Sat, 02 Jan 2027 03:04:05 GMT"));
    assert_eq!(response.header("link"), Some("</agents/on/invoke>; rel=\"successor-version\""));
    let response = gate.invoke("on", &json!({})).await;
    response.expect_ok();
    for field in ["deprecation", "sunset", "link"] {
        assert_eq!(response.header(field), None);
    }
    gate.invoke("bare", &json!({})).await.expect_ok();
    let counts = ["served", "inactive", "deprecated", "rejected"];
    for (state, count) in counts.into_iter().zip([1.0, 1.0, 2.0, 2.0]) {
        assert_eq!(gate.metric(&format!("gatepost_agents{{state=\"{state}\"}}")).await, Some(count), "{state}");
    }
    write_documents(&gate, &json!([echo.document("off")]));
    wait_for_status(&gate, "off", 200).await;
}

#[tokio::test]
async fn r35_an_agent_that_was_made_inactive_fails_no_call_and_one_that_is_gone_does() {
    let echo = Agent::echo().await;
    let with_status = |id: &str, status: &str| {
        let mut document = echo.document(id);
        document["status"] = status.into();
        document
    };
    let build = gateway().document(with_status("off", "inactive")).document(with_status("gone", "unavailable"));
    let gate = build.start().await;
    for id in ["off", "gone"] {
        for _ in 0..3 {
            gate.invoke(id, &json!({})).await.expect_fault(503, "AgentUnavailable");
        }
    }
    let calls = async |id: &str, blame: &str| {
        let metric = format!("gatepost_calls_total{{agent=\"{id}\",blame=\"{blame}\",code=\"AgentUnavailable\"}}");
        gate.metric(&metric).await
    };
    assert_eq!((calls("off", "caller").await, calls("off", "agent").await), (Some(3.0), None));
    assert_eq!((calls("gone", "caller").await, calls("gone", "agent").await), (None, Some(3.0)));
    let lines = gate.access_log(6).await;
    for (id, blame) in [("off", "caller"), ("gone", "agent")] {
        let of_agent: Vec<_> = lines.iter().filter(|line| line["agent"] == id).collect();
        assert!(of_agent.len() == 3 && of_agent.iter().all(|line| line["blame"] == blame), "{lines:#?}");
    }
}

#[tokio::test]
async fn r10_thousands_of_agents_load_and_a_change_of_one_takes_effect() {
    let echo = Agent::echo().await;
    let documents = |extra_id: &str| {
        let ids = (0..5_000).map(|at| format!("agent-{at}")).chain([extra_id.to_owned()]);
        Value::Array(ids.map(|id| {
            let mut document = echo.document(&id);
            document["operations"] = json!([{"name": "say", "inputs": {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}}}]);
            document
        }).collect())
    };
    let build = gateway().section("agents:\n  sources: [many.json]\n");
    std::fs::write(build.folder().join("many.json"), documents("one").to_string()).unwrap();
    let gate = build.start().await;
    let text = json!({"text": "x"});
    for id in ["agent-0", "agent-4999", "one"] {
        gate.invoke(id, &text).await.expect_ok();
    }
    gate.invoke("agent-7", &json!({})).await.expect_fault(400, "InvalidInput");
    gate.write_file("many.json", &documents("two").to_string());
    eventually("the new agent is served", async || gate.invoke("two", &text).await.status == 200).await;
    gate.invoke("one", &text).await.expect_fault(404, "NotFound");
    assert_eq!(gate.metric("gatepost_agents{state=\"served\"}").await, Some(5_001.0));
}
