//! What documents say beyond their publisher's words: times of the registry, findings about schemas and examples, the
//! paths of Agent Framework, and formats.

use super::{PUBLISHERS, get, publish, registry, send_as};
use crate::{
    support::{
        agent::{Agent, http_response, json_response, write},
        eventually,
        gateway::{gateway, send},
    },
    tasks::{call_with_prefer, gateway_with_tasks, request_as, task_path, wait_for_status},
};
use serde_json::{Value, json};

const FRAMEWORK_LIST: &str = "/.well-known/agentframework/v1/agents";

#[tokio::test]
async fn r160_times_that_the_registry_keeps_are_shown_where_the_document_has_none() {
    let echo = Agent::echo().await;
    let gate = registry().start().await;
    let document = echo.document("echo");
    assert_eq!(publish(&gate, "team-a", &document).await.status, 201);
    let times = async |id: &str| {
        let shown = get(&gate, "reader", &format!("{FRAMEWORK_LIST}/{id}")).await.expect_ok();
        let times = ["created_at", "updated_at"].map(|name| shown[name].as_str().map(str::to_owned));
        times.map(|time| time.unwrap_or_else(|| panic!("{shown}")))
    };
    let [created, updated] = times("echo").await;
    assert_eq!(created, updated);
    assert!(created.ends_with('Z') && created.len() == "2026-11-22T10:15:30Z".len(), "{created}");
    assert_eq!(get(&gate, "team-a", "/agents/echo").await.expect_ok(), document, "its publisher reads it unchanged");
    tokio::time::sleep(std::time::Duration::from_millis(1_100)).await;
    let mut changed = document.clone();
    changed["description"] = json!("Changed.");
    assert_eq!(publish(&gate, "team-a", &changed).await.status, 200);
    let [still_created, changed_at] = times("echo").await;
    assert_eq!(still_created, created);
    assert!(changed_at > updated, "{changed_at} {updated}");
    // A time that the document has is kept, and one that only another member has is no time of the document.
    let mut own = echo.document("own");
    own["created_at"] = json!("2020-01-02T03:04:05Z");
    own["metadata"] = json!({"updated_at": "never"});
    assert_eq!(publish(&gate, "team-a", &own).await.status, 201);
    let [created, updated] = times("own").await;
    assert!(created == "2020-01-02T03:04:05Z" && updated > created, "{created} {updated}");
}

/// A document with one operation that has these examples.
fn with_examples(agent: &Agent, id: &str, examples: &Value) -> Value {
    let mut document = agent.document(id);
    document["operations"] = json!([{
        "name": "add",
        "inputs": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
        "outputs": {"type": "object", "properties": {"sum": {"type": "integer"}}},
        "examples": examples,
    }]);
    document
}

#[tokio::test]
async fn r13_missing_schemas_and_invalid_examples_are_reported_once_for_each_document_state() {
    let echo = Agent::echo().await;
    let gate = gateway()
        .section("agents:\n  sources: [agents.json]\n  poll_interval: 50ms\n")
        .section("contract: {missing_schemas: report}\n")
        .agent("silent", &echo)
        .document(with_examples(&echo, "wrong", &json!([{"input": {"n": "one"}, "output": {"sum": 1}}, {"foo": 1}])))
        .document(with_examples(&echo, "right", &json!([{"input": {"n": 1}, "output": {"sum": 1}}])))
        .start()
        .await;
    for id in ["silent", "wrong", "right"] {
        assert_eq!(gate.invoke(id, &json!({"n": 1})).await.status, 200, "{id}");
    }
    let sources = gate.admin_page("/sources").await.json();
    let source = sources["sources"].as_array().unwrap().iter().find(|source| source["agents"] == 3).unwrap().clone();
    assert_eq!(source["documents_with_findings"], 2, "{source}");
    let findings = source["document_findings"].to_string();
    for finding in [
        "silent: inputs: is missing",
        "outputs: is missing",
        "wrong: operations[0].examples[0].input: does not match the schema (at /n:",
    ] {
        assert!(findings.contains(finding), "{finding}: {findings}");
    }
    let logged = |id: &str| gate.stderr().matches(&format!("\"agent\":\"{id}\",\"source\"")).count();
    assert_eq!((logged("silent"), logged("wrong"), logged("right")), (1, 1, 0), "{}", gate.stderr());
    // Another agent is added: what was reported is not reported again.
    let documents = json!([
        echo.document("silent"),
        with_examples(&echo, "wrong", &json!([{"input": {"n": "two"}}])),
        echo.document("added"),
    ]);
    gate.write_file("agents.json", &documents.to_string());
    eventually("the added agent is served", async || gate.invoke("added", &json!({})).await.status == 200).await;
    assert_eq!((logged("silent"), logged("wrong"), logged("added")), (1, 2, 1), "{}", gate.stderr());
}

#[tokio::test]
async fn r13_documents_with_findings_are_refused_or_allowed_as_configured() {
    let (echo, published) = (Agent::echo().await, Agent::echo().await);
    let wrong = with_examples(&echo, "wrong", &json!([{"input": {}, "output": {"sum": "x"}}]));
    let strict = "contract: {missing_schemas: refuse, invalid_examples: refuse}\n";
    let gate = gateway().section(strict).section(PUBLISHERS).agent("silent", &echo).document(wrong.clone());
    let gate = gate.document(with_examples(&echo, "right", &json!([{"input": {"n": 1}}]))).start().await;
    assert_eq!(gate.invoke("right", &json!({"n": 1})).await.status, 200);
    for id in ["silent", "wrong"] {
        gate.invoke(id, &json!({"n": 1})).await.expect_fault(404, "NotFound");
    }
    let rejected = gate.admin_page("/agents").await.json()["rejected"].to_string();
    for reason in ["inputs: is missing", "outputs: is missing", "operations[0].examples[0].input: does not match"] {
        assert!(rejected.contains(reason), "{reason}: {rejected}");
    }
    for (document, pointers) in [
        (published.document("published"), &["/inputs", "/outputs"][..]),
        (with_examples(&published, "published", &json!([{"input": {}}])), &["/operations/0/examples/0/input"][..]),
    ] {
        let error = publish(&gate, "team-a", &document).await.expect_fault(400, "InvalidInput");
        let violations = error["details"].as_array().unwrap().iter().map(|detail| detail["pointer"].as_str().unwrap());
        assert_eq!(violations.collect::<Vec<_>>(), pointers, "{error}");
    }
    let right = with_examples(&published, "published", &json!([{"input": {"n": 2}, "output": {"sum": 2}}]));
    assert_eq!(publish(&gate, "team-a", &right).await.status, 201);

    let lenient = "contract: {missing_schemas: allow, invalid_examples: allow}\n";
    let gate = gateway().section(lenient).section(PUBLISHERS).agent("silent", &echo).document(wrong).start().await;
    assert_eq!(gate.invoke("wrong", &json!({"n": 1})).await.status, 200);
    assert_eq!(publish(&gate, "team-a", &published.document("published")).await.status, 201);
    assert!(!gate.stderr().contains("agent document has findings"), "{}", gate.stderr());
    assert!(!gate.admin_page("/sources").await.text().contains("documents_with_findings"));
}

#[tokio::test]
async fn r13_a_served_document_always_describes_inputs_and_outputs() {
    let echo = Agent::echo().await;
    let mut partial = echo.document("partial");
    partial["operations"] = json!([{"name": "run", "inputs": {"type": "object"}}, {"name": "walk"}]);
    let gate = gateway().agent("silent", &echo).document(partial).start().await;
    let undeclared = json!({"$comment": "not declared by the agent"});
    let silent = get(&gate, "team-a", "/agents/silent").await.expect_ok();
    assert_eq!((&silent["inputs"], &silent["outputs"]), (&undeclared, &undeclared));
    let partial = get(&gate, "team-a", "/agents/partial").await.expect_ok();
    assert!(partial.get("inputs").is_none(), "{partial}");
    assert_eq!(partial["operations"][0]["inputs"], json!({"type": "object"}));
    assert_eq!((&partial["operations"][0]["outputs"], &partial["operations"][1]["inputs"]), (&undeclared, &undeclared));
    // A gateway that reads the document does not take them for schemas: any body still passes.
    let mut copy = silent;
    copy["endpoint"] = json!(echo.url());
    let second = gateway().document(copy).start().await;
    let call = second.post("/agents/silent/invoke").header("content-type", "application/octet-stream");
    assert_eq!(send(call.body(vec![0, 159, 146, 150])).await.status, 200);
}

#[tokio::test]
async fn r144_the_published_paths_of_agent_framework_call_stream_and_answer_tasks() {
    let events = "data: {\"n\":1}\n\ndata: {\"n\":2}\n\n";
    let agent = Agent::scripted(move |request| {
        if request.header("accept") == Some("text/event-stream") {
            http_response("200 OK", "text/event-stream", events)
        } else {
            json_response(&json!({"echo": request.json()}))
        }
    })
    .await;
    let gate = gateway_with_tasks("").agent("agent", &agent).agent("other", &agent).start().await;
    let message = json!({"message": {"role": "user", "parts": [{"text": "hi"}]}, "operation": "kept"});
    let sent = send(gate.post("/agents/agent/v1/message:send").json(&message)).await;
    assert_eq!(sent.expect_ok(), json!({"echo": message}), "the body passes as it is");
    for accept in ["application/json", "*/*", "text/event-stream"] {
        let streamed = send(gate.post("/agents/agent/v1/message:stream").header("accept", accept).json(&message)).await;
        assert_eq!((streamed.status, streamed.header("content-type")), (200, Some("text/event-stream")), "{accept}");
        // The gateway numbers the events, because this stream can be resumed.
        assert_eq!(streamed.text(), "id: 1\ndata: {\"n\":1}\n\nid: 2\ndata: {\"n\":2}\n\n", "{accept}");
    }
    let started = call_with_prefer(&gate, "agent", "respond-async").await;
    let path = task_path(&started);
    let task = wait_for_status(&gate, &path, "completed").await;
    let of_agent = format!("/agents/agent/v1{path}");
    assert_eq!(request_as(&gate, "team-a", "GET", &of_agent).await.expect_ok(), task);
    let of_other = format!("/agents/other/v1{path}");
    request_as(&gate, "team-a", "GET", &of_other).await.expect_fault(404, "NotFound");
    request_as(&gate, "team-b", "GET", &of_agent).await.expect_fault(404, "NotFound");
    let sent = send(gate.post("/agents/agent/v1/message:send").header("prefer", "respond-async").json(&message)).await;
    assert_eq!(sent.status, 202, "{}", sent.text());
    for (method, path) in
        [("GET", "/agents/agent/v1/message:send"), ("GET", "/agents/agent/v1/message:stream"), ("DELETE", &*of_agent)]
    {
        request_as(&gate, "team-a", method, path).await.expect_fault(405, "MethodNotAllowed");
    }
    let unknown = send(gate.post("/agents/nothing/v1/message:send").json(&message)).await;
    unknown.expect_fault(404, "NotFound");
    send(gate.request("POST", "/agents/agent/v1/message:send").json(&message)).await.expect_fault(401, "Unauthorized");
    let endpoints = get(&gate, "team-a", &format!("{FRAMEWORK_LIST}/agent")).await.expect_ok()["endpoints"].clone();
    for (method, path) in [
        ("POST", "/agents/agent/v1/message:send"),
        ("POST", "/agents/agent/v1/message:stream"),
        ("GET", "/agents/agent/v1/tasks/{id}"),
    ] {
        let is_listed = |entry: &Value| entry["method"] == method && entry["path"] == path;
        assert!(endpoints.as_array().unwrap().iter().any(is_listed), "{path}: {endpoints}");
    }
}

#[tokio::test]
async fn r70_r75_documents_list_the_formats_that_calls_accept_and_415_lists_the_declared_ones() {
    let agent = Agent::with_steps(json_response(&json!({"done": true}))).await;
    let declaring = |id: &str, formats: Value, schema: Option<Value>| {
        let mut document = agent.document(id);
        document["operations"] = json!([{"name": "run", "inputFormats": formats}]);
        schema.into_iter().for_each(|schema| document["operations"][0]["inputs"] = schema);
        document
    };
    let gate = gateway()
        .document(declaring("checked", json!(["text/csv"]), Some(json!({"type": "object"}))))
        .document(declaring("images", json!(["image/png", "IMAGE/GIF; q=1"]), None))
        .document(declaring("image-or-json", json!(["image/png", "json"]), None))
        .document(declaring("words", json!(["text", "image/png"]), None))
        .document(declaring("empty", json!([]), None))
        .document(declaring("range", json!(["text/csv", "image/*"]), None))
        .start()
        .await;
    let call = async |id: &str, media: Option<&str>| {
        let call = gate.post(&format!("/agents/{id}/invoke")).body("{}");
        send(media.into_iter().fold(call, |call, media| call.header("content-type", media))).await
    };
    let json_only: &[&str] = &["application/json"];
    for (id, listed, undeclared) in [
        ("checked", json_only, &["text/csv", "image/png"][..]),
        ("images", &["image/gif", "image/png"], &["application/json", "text/csv", "image/pngx", "image"]),
        ("image-or-json", &["application/json", "image/png"], &["text/csv"]),
        ("words", &["application/json", "image/png"], &[]),
        ("empty", json_only, &[]),
    ] {
        let get = async |path: &str| send_as(&gate, "team-a", ("GET", path), None).await.expect_ok();
        let openapi = get(&format!("/agents/{id}/openapi.json")).await;
        for path in [format!("/agents/{id}/invoke"), format!("/agents/{id}/invoke/run")] {
            let content = openapi["paths"][&path]["post"]["requestBody"]["content"].as_object().unwrap();
            let mut media: Vec<&str> = content.keys().map(String::as_str).collect();
            media.sort_unstable();
            assert_eq!(media, listed, "{path}");
        }
        for media in listed.iter().copied().chain((id == "image-or-json").then_some("application/ld+json")) {
            assert_eq!(call(id, Some(media)).await.status, 200, "{id}: {media}");
        }
        assert_eq!(call(id, None).await.status, 200, "{id}: no media type");
        let descriptor = get(&format!("/agents/{id}/agent.json")).await;
        let skill = get(&format!("/agents/{id}/agent-card.json")).await["skills"][0].clone();
        let formats = descriptor["capabilities"][0]["inputFormats"].as_array().unwrap().clone();
        let formats: Vec<&str> = formats.iter().map(|format| format.as_str().unwrap()).collect();
        for format in formats.iter().filter(|format| format.contains('/')) {
            assert_eq!(call(id, Some(format)).await.status, 200, "{id}: {format}");
        }
        for mode in skill["inputModes"].as_array().into_iter().flatten() {
            assert!(formats.contains(&mode.as_str().unwrap()), "{id}: {skill}");
        }
        let calls_so_far = agent.call_count();
        for media in undeclared {
            assert!(!formats.contains(media), "{id}: {formats:?}");
            let error = call(id, Some(media)).await.expect_fault(415, "UnsupportedMediaType");
            let message = error["message"].as_str().unwrap();
            let is_named =
                |listed: &&str| message.contains(listed.trim_start_matches("application/")) || id == "checked";
            assert!(listed.iter().all(is_named), "{id}: {message}");
        }
        assert_eq!(agent.call_count(), calls_so_far, "the agent sees no call that is 415");
    }
    assert_eq!(call("words", Some("text/csv")).await.status, 200, "the agent knows what its words mean");
    assert_eq!(call("empty", Some("image/png")).await.status, 200, "an empty list declares nothing");
    assert_eq!(call("range", Some("image/png")).await.status, 200, "a range is not read");
}

#[tokio::test]
async fn r75_a_call_reaches_an_agent_that_declares_the_accepted_format_and_406_lists_the_declared_ones() {
    let agent = Agent::scripted(|request| match request.header("accept") {
        Some("application/xml") => http_response("200 OK", "application/xml; charset=utf-8", "<a/>"),
        _ => vec![write("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 7\r\n\r\n{\"a\":1}")],
    })
    .await;
    let declaring = |id: &str, declared: Value| {
        let mut document = agent.document(id);
        document["operations"] = json!([{"name": "run", "outputs": {"type": "object", "required": ["a"]}}]);
        document["operations"][0].as_object_mut().unwrap().extend(declared.as_object().unwrap().clone());
        document
    };
    let mut without_schema = agent.document("without-schema");
    without_schema["outputFormats"] = json!(["text/csv"]);
    let in_words = |id: &str, formats: Value| {
        let mut document = agent.document(id);
        document["outputFormats"] = formats;
        document
    };
    let gate = gateway()
        .document(in_words("word", json!(["text"])))
        .document(in_words("words", json!(["text", "application/yaml"])))
        .document(in_words("json", json!(["json"])))
        .document(declaring("word-and-schema", json!({"outputFormats": "text"})))
        .section("contract: {output: enforce}\n")
        .document(declaring("formats", json!({"outputFormats": ["application/xml"]})))
        .document(declaring("types", json!({"contentTypes": {"outputFormat": ["application/xml"]}})))
        .document(declaring("plain", json!({})))
        .document(without_schema)
        .start()
        .await;
    let call = async |id: &str, accept: &str| {
        send(gate.post(&format!("/agents/{id}/invoke")).header("accept", accept).json(&json!({}))).await
    };
    for id in ["formats", "types"] {
        let answer = call(id, "application/xml").await;
        assert_eq!((answer.status, &*answer.text()), (200, "<a/>"), "{id}");
        assert_eq!(call(id, "application/json").await.expect_ok(), json!({"a": 1}), "{id}");
    }
    // The agent knows what its words mean.
    for id in ["word", "words"] {
        assert_eq!(call(id, "application/xml").await.status, 200, "{id}");
    }
    assert_eq!(call("word-and-schema", "text/csv").await.status, 200);
    assert_eq!(call("json", "text/csv").await.status, 200, "the word `json` alone declares no media type");
    let calls_so_far = agent.call_count();
    for (id, accept, offered) in [
        ("formats", "text/csv", "this agent answers application/xml, application/json"),
        ("plain", "application/xml", "this agent answers application/json"),
        ("without-schema", "application/xml", "this agent answers text/csv, application/json"),
    ] {
        let error = call(id, accept).await.expect_fault(406, "NotAcceptable");
        assert!(error["message"].as_str().unwrap().contains(offered), "{id}: {error}");
    }
    assert_eq!(agent.call_count(), calls_so_far, "the agent sees no call that is 406");
    let openapi = send_as(&gate, "team-a", ("GET", "/agents/formats/openapi.json"), None).await.expect_ok();
    let content = &openapi["paths"]["/agents/formats/invoke/run"]["post"]["responses"]["200"]["content"];
    let types: Vec<&String> = content.as_object().unwrap().keys().collect();
    assert_eq!(types, ["application/json", "application/xml", "text/event-stream"], "{content}");
}

#[tokio::test]
async fn r70_a_reply_in_any_media_type_of_json_keeps_to_the_output_schema() {
    let agent = Agent::with_steps(http_response("200 OK", "text/json", "{\"b\":1}")).await;
    let mut document = agent.document("a");
    document["operations"] = json!([{
        "name": "run", "outputs": {"type": "object", "required": ["a"]}, "outputFormats": ["text/json", "text/csv"],
    }]);
    let gate = gateway().document(document).section("contract: {output: enforce}\n").start().await;
    let call = || gate.post("/agents/a/invoke").json(&json!({}));
    let steps = json!({"steps": [{"agent": "a"}], "input": {}});
    for request in [call(), call().header("idempotency-key", "k1"), gate.post("/pipelines/invoke").json(&steps)] {
        send(request).await.expect_fault(502, "AgentError");
    }
}

#[tokio::test]
async fn r65_a_stored_document_with_an_operation_at_another_server_keeps_its_agent() {
    let agent = Agent::echo().await;
    let gate = gateway().section(&format!("{PUBLISHERS}  poll_interval: 500ms\n")).start().await;
    let mut document = agent.document("stored");
    document["operations"] = json!([{"name": "there", "endpoint": "/there"}, {"name": "here"}]);
    let created = publish(&gate, "team-a", &document).await;
    assert_eq!(created.status, 201, "{}", created.text());
    let call = |operation: &str| send(gate.post(&format!("/agents/stored/{operation}")).json(&json!({})));
    assert_eq!(call("there").await.status, 200);
    // Publishing refuses such an operation; an earlier version stored it.
    let store = rusqlite::Connection::open(gate.folder().join("gatepost.db")).unwrap();
    let change = "update gatepost_state set revision = revision + 1;
        update gatepost_documents set revision = (select revision from gatepost_state),
            document = replace(document, '\"/there\"', '\"https://elsewhere.example/x\"')";
    store.execute_batch(change).unwrap();
    eventually("the changed document is read", async || call("there").await.status == 404).await;
    call("there").await.expect_fault(404, "CapabilityNotFound");
    assert_eq!(call("here").await.status, 200);
    let findings = gate.admin_page("/sources").await.text();
    assert!(findings.contains("the operation cannot be called"), "{findings}");
}
