//! Agents on Matrix: a real homeserver for calls, rooms, restarts and rate limits, and a scripted one for responses
//! that violate the protocol.

use super::support::synapse::{MatrixAgent, MatrixUser, Synapse, reply_content};
use crate::support::{
    agent::{Agent, Step, http_response, latch, write},
    eventually,
    gateway::{Gateway, GatewayBuilder, gateway, send},
};
use serde_json::{Value, json};
use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

fn document(id: &str, endpoint: &str) -> Value {
    json!({"id": id, "name": id, "endpoint": endpoint, "authentication": {"type": "api_key"}})
}

/// A gateway with the account of `token` at the homeserver `url`; `more` are further lines of the section `agents`.
fn gateway_with_account(url: &str, token: &str, more: &str) -> GatewayBuilder {
    let matrix = format!(
        "    matrix:\n      homeserver: {url}\n      access_token: env:MATRIX_TOKEN\n      destinations: {{sources: [files]}}\n{more}"
    );
    let section = format!("agents:\n  sources: [agents.json]\n  defaults:\n{matrix}");
    gateway().section(&section).env("MATRIX_TOKEN", token)
}

async fn invoke_within(
    gate: &Gateway,
    id: &str,
    input: &Value,
    time: &str,
) -> crate::support::gateway_response::GatewayResponse {
    send(gate.post(&format!("/agents/{id}/invoke")).header("x-request-timeout", time).json(input)).await
}

/// The events with which the agent responds to a call, selected by the member `do` of its input.
fn answer_events(event: &Value, other: &Mutex<Vec<Value>>) -> Vec<Value> {
    let call = &event["content"]["gatepost.invocation"];
    let own_answer = |content: Value| reply_content(event, json!({"gatepost.answer": content}));
    match call["input"]["do"].as_str().unwrap_or_default() {
        "output" => vec![own_answer(json!({"output": {"said": call["input"]["text"]}}))],
        "fraction" => vec![own_answer(json!({"output_json": "{\"half\":0.5}"}))],
        "words" => vec![reply_content(event, json!({"body": "> <@gateway:localhost> ask\n\nHello there"}))],
        "json" => vec![reply_content(event, json!({"body": "{\"a\": [1, 2]}"}))],
        "named" => vec![json!({"msgtype": "x.y", "body": "", "gatepost.answer": {"call": call["call"], "output": 7}})],
        "thread" => vec![json!({"msgtype": "m.text", "body": "in a thread",
            "m.relates_to": {"rel_type": "m.thread", "event_id": event["event_id"]}})],
        "twice" => vec![own_answer(json!({"output": 1})), own_answer(json!({"output": 2}))],
        "edit" => vec![
            json!({"msgtype": "m.text", "body": "* no", "m.new_content": {"msgtype": "m.text", "body": "no"},
                "m.relates_to": {"rel_type": "m.replace", "event_id": event["event_id"]}}),
            own_answer(json!({"progress": 0.5.to_string()})),
            json!({"msgtype": "m.text", "body": "about nothing"}),
            reply_content(event, json!({"body": "at last"})),
        ],
        "fail" => vec![own_answer(json!({"error": {"code": "InvalidInput", "message": "text is missing"}}))],
        "leak" => vec![own_answer(json!({"error": {"code": "boom", "message": "Traceback: /srv/app at 10.0.0.7"}}))],
        "problem" => {
            vec![own_answer(
                json!({"error": {"type": "AgentUnavailable", "title": "Down", "status": 503, "detail": "db"}}),
            )]
        }
        "elsewhere" => {
            other.lock().unwrap().push(event.clone());
            Vec::new()
        }
        _ => Vec::new(),
    }
}

struct MatrixSetup {
    server: Synapse,
    gateway: MatrixUser,
    agent: MatrixUser,
    room: String,
}

impl MatrixSetup {
    async fn new(server: Synapse) -> Self {
        let (gateway, agent) = (server.register_user("gateway").await, server.register_user("bot").await);
        let room = agent.create_room(&[&gateway], &json!({"room_alias_name": "work"})).await;
        gateway.join(&room).await;
        Self { server, gateway, agent, room }
    }

    fn endpoint(&self) -> String {
        format!("agent+matrix://{}/{}", self.agent.id, self.room)
    }
}

#[tokio::test]
async fn r51_r98_a_call_is_a_message_in_the_agents_room_and_the_reply_is_its_answer() {
    let setup = MatrixSetup::new(Synapse::start().await).await;
    let other = Arc::new(Mutex::new(Vec::new()));
    let unanswered = Arc::clone(&other);
    let bot = setup.agent.answer_with(move |event| answer_events(event, &unanswered));
    let with_host = format!("agent+matrix://127.0.0.1:{}/{}/{}", setup.server.port, setup.room, setup.agent.id);
    let mut named = document("named", &setup.endpoint());
    named["operations"] = json!([{"name": "greet"}, {"name": "other"}]);
    let gate = gateway_with_account(&setup.server.url(), &setup.gateway.token, "")
        .document(document("bot", &setup.endpoint()))
        .document(document("alias", &format!("agent+matrix://{}/#work:localhost", setup.agent.id)))
        .document(document("with-host", &with_host.replace('@', "%40")))
        .document(named)
        .start()
        .await;
    for (input, expected) in [
        (json!({"do": "output", "text": "hi"}), json!({"said": "hi"})),
        (json!({"do": "fraction", "x": 0.25}), Value::Null),
        (json!({"do": "words"}), json!({"text": "Hello there"})),
        (json!({"do": "json"}), json!({"a": [1, 2]})),
        (json!({"do": "named"}), json!(7)),
        (json!({"do": "thread"}), json!({"text": "in a thread"})),
        (json!({"do": "twice"}), json!(1)),
        (json!({"do": "edit"}), json!({"text": "at last"})),
    ] {
        if input["x"].is_number() {
            // Events must not contain fractions: the gateway sends the JSON as text, and the script finds no `input`.
            let answer = invoke_within(&gate, "bot", &input, "8s").await;
            answer.expect_fault(504, "Timeout");
            let calls = bot.invocations();
            let call = &calls.last().unwrap()["content"]["gatepost.invocation"];
            assert_eq!(call["input_json"], input.to_string());
            continue;
        }
        assert_eq!(gate.invoke("bot", &input).await.expect_ok(), expected, "{input}");
    }
    assert_eq!(gate.invoke("bot", &json!({"do": "fraction"})).await.expect_ok(), json!({"half": 0.5}));
    check_envelopes(&gate, &bot).await;
    check_errors_and_sizes(&gate, &bot).await;
    check_strangers_and_concurrent_calls(&setup, &gate, &other).await;
    check_repeated_calls(&gate, &bot).await;
}

/// R78: the envelope carries the ids, and each form of an address leads to the room.
async fn check_envelopes(gate: &Gateway, bot: &MatrixAgent) {
    for id in ["alias", "with-host"] {
        assert_eq!(gate.invoke(id, &json!({"do": "output", "text": id})).await.expect_ok(), json!({"said": id}));
    }
    let request = gate.post("/agents/named/invoke/greet").header("x-request-id", "my-id").header("x-session-id", "s-1");
    send(request.json(&json!({"do": "output"}))).await.expect_ok();
    let calls = bot.invocations();
    let last = &calls.last().unwrap()["content"];
    let call = &last["gatepost.invocation"];
    assert_eq!((&call["requestId"], &call["sessionId"]), (&json!("my-id"), &json!("s-1")), "{call}");
    assert_eq!((&call["operation"], &last["msgtype"]), (&json!("greet"), &json!("m.text")), "{last}");
    assert_ne!(call["call"], "my-id", "callers choose the request id, but must not choose the call id");
}

/// R93, R41: errors are mapped, and internals of the agent are redacted; an input too large for an event is refused
/// before the gateway sends anything.
async fn check_errors_and_sizes(gate: &Gateway, bot: &MatrixAgent) {
    let failed = gate.invoke("bot", &json!({"do": "fail"})).await;
    assert_eq!(failed.expect_fault(400, "InvalidInput")["message"], "text is missing");
    let leak = gate.invoke("bot", &json!({"do": "leak"})).await;
    leak.expect_fault(502, "AgentError");
    leak.assert_hides(&["Traceback", "/srv", "10.0.0.7", "boom"]);
    gate.invoke("bot", &json!({"do": "problem"})).await.expect_fault(503, "AgentUnavailable");
    let events_before = bot.invocations().len();
    gate.invoke("bot", &json!({"do": "output", "text": "x".repeat(70 << 10)}))
        .await
        .expect_fault(413, "PayloadTooLarge");
    gate.invoke("bot", &json!({"do": "output", "text": "x".repeat(50 << 10)})).await.expect_ok();
    assert_eq!(bot.invocations().len(), events_before + 1);
}

/// Other users in the room cannot answer for the agent, a late answer reaches no caller, and each of many concurrent
/// calls gets its own answer.
async fn check_strangers_and_concurrent_calls(setup: &MatrixSetup, gate: &Gateway, other: &Mutex<Vec<Value>>) {
    let stranger = setup.server.register_user("stranger").await;
    setup.agent.request("POST", &format!("/rooms/{}/invite", setup.room), &json!({"user_id": stranger.id})).await;
    stranger.join(&setup.room).await;
    let elsewhere = json!({"do": "elsewhere"});
    let call = invoke_within(gate, "bot", &elsewhere, "3s");
    let interfere = async {
        eventually("the agent receives the call", async || !other.lock().unwrap().is_empty()).await;
        let event = other.lock().unwrap()[0].clone();
        let call = &event["content"]["gatepost.invocation"]["call"];
        stranger
            .send(&setup.room, &reply_content(&event, json!({"gatepost.answer": {"call": call, "output": "mine"}})))
            .await;
        event
    };
    let (timed_out, event) = tokio::join!(call, interfere);
    timed_out.expect_fault(504, "Timeout");
    setup.agent.send(&setup.room, &reply_content(&event, json!({"gatepost.answer": {"output": "late"}}))).await;
    assert_eq!(gate.invoke("bot", &json!({"do": "json"})).await.expect_ok(), json!({"a": [1, 2]}));

    let calls = (0..30).map(|number| {
        let (gate, input) = (gate, json!({"do": "output", "text": format!("{number}")}));
        async move { assert_eq!(gate.invoke("bot", &input).await.expect_ok(), json!({"said": format!("{number}")})) }
    });
    futures_util::future::join_all(calls).await;
}

/// The transaction id is the idempotency key: a repeated call is one event with one answer.
async fn check_repeated_calls(gate: &Gateway, bot: &MatrixAgent) {
    let events_before = bot.invocations().len();
    for _ in 0..2 {
        let request = gate.post("/agents/bot/invoke").header("idempotency-key", "k-1");
        let answer = send(request.json(&json!({"do": "output", "text": "once"}))).await;
        assert_eq!(answer.expect_ok(), json!({"said": "once"}));
    }
    assert_eq!(bot.invocations().len(), events_before + 1);
}

#[tokio::test]
async fn r51_r98_rooms_in_which_the_gateway_cannot_send_are_refused_with_a_reason() {
    let setup = MatrixSetup::new(Synapse::start().await).await;
    let (agent, gateway) = (&setup.agent, &setup.gateway);
    let _bot = agent.answer_with(|event| vec![reply_content(event, json!({"body": "yes"}))]);
    let encryption =
        json!([{"type": "m.room.encryption", "state_key": "", "content": {"algorithm": "m.megolm.v1.aes-sha2"}}]);
    let encrypted = agent.create_room(&[gateway], &json!({"initial_state": encryption})).await;
    gateway.join(&encrypted).await;
    let foreign = agent.create_room(&[], &json!({})).await;
    let invited = agent.create_room(&[gateway], &json!({})).await;
    let empty = gateway.create_room(&[agent], &json!({})).await;
    let endpoint = |room: &str| format!("agent+matrix://{}/{room}", agent.id);
    let rules = "  rules:\n    - agents: [invited, foreign-join]\n      settings:\n        matrix: {auto_join: true}\n    - \
                 agents: [bare]\n      settings:\n        matrix: {default_room: '#work:localhost'}\n";
    let gate = gateway_with_account(&setup.server.url(), &gateway.token, rules)
        .document(document("encrypted", &endpoint(&encrypted)))
        .document(document("foreign", &endpoint(&foreign)))
        .document(document("foreign-join", &endpoint(&foreign)))
        .document(document("not-joined", &endpoint(&invited)))
        .document(document("invited", &endpoint(&invited)))
        .document(document("empty", &endpoint(&empty)))
        .document(document("nowhere", &endpoint("!nothing:localhost")))
        .document(document("no-alias", &endpoint("#nothing:localhost")))
        .document(document("bare", &format!("agent+matrix://{}", agent.id)))
        .document(document("no-room", &format!("agent+matrix://{}", agent.id)))
        .document(document("other-server", &format!("agent+matrix://matrix.example.org/{}/{}", setup.room, agent.id)))
        .start()
        .await;
    for (id, reason) in [
        ("encrypted", "encrypted"),
        ("foreign", "not in the agent's room"),
        ("foreign-join", "cannot be entered"),
        ("not-joined", "not in the agent's room"),
        ("empty", "agent is not in its room"),
        ("nowhere", "not in the agent's room"),
        ("no-alias", "cannot be entered"),
    ] {
        let answer = gate.invoke(id, &json!({})).await;
        let error = answer.expect_fault(503, "AgentUnavailable");
        assert!(error["message"].as_str().unwrap().contains(reason), "{id}: {error}");
        answer.assert_hides(&["localhost", "@bot", "M_"]);
    }
    for id in ["invited", "bare"] {
        assert_eq!(gate.invoke(id, &json!({})).await.expect_ok(), json!({"text": "yes"}), "{id}");
    }
    // An agent that can never be called is not served, and the admin page shows the reason.
    for id in ["no-room", "other-server"] {
        gate.invoke(id, &json!({})).await.expect_fault(404, "NotFound");
    }
    let rejected = gate.admin_page("/agents").await.json()["rejected"].to_string();
    assert!(
        rejected.contains("matrix.default_room: is missing") && rejected.contains("matrix.example.org"),
        "{rejected}"
    );
    assert!(!rejected.contains(&gateway.token) && !gate.stderr().contains(&gateway.token));
    // The account's token is revoked: an outage of the agent, not an error of the caller.
    gateway.request("POST", "/logout", &json!({})).await;
    let answer = gate.invoke("bare", &json!({})).await;
    answer.expect_fault(503, "AgentUnavailable");
    answer.assert_hides(&["M_UNKNOWN", "oken"]);
}

#[tokio::test]
async fn r51_a_waiting_call_survives_a_restart_of_the_homeserver() {
    let mut setup = MatrixSetup::new(Synapse::start().await).await;
    let bot = setup.agent.answer_with(|event| {
        if event["content"]["gatepost.invocation"]["input"]["wait"] == true {
            Vec::new()
        } else {
            vec![reply_content(event, json!({"body": "here"}))]
        }
    });
    // The homeserver takes long to start.
    let long_timeouts = "    timeouts: {first_byte: 150s, total: 150s}\n";
    let build = gateway_with_account(&setup.server.url(), &setup.gateway.token, long_timeouts);
    let gate = build.document(document("bot", &setup.endpoint())).start().await;
    gate.invoke("bot", &json!({})).await.expect_ok();
    let waiting_call = async { gate.invoke("bot", &json!({"wait": true})).await };
    let restart = async {
        eventually("the agent receives the call", async || bot.invocations().len() == 2).await;
        setup.server.kill();
        let started = Instant::now();
        gate.invoke("bot", &json!({})).await.expect_fault(503, "AgentUnavailable");
        assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
        setup.server.restart().await;
        setup.agent.send(&setup.room, &reply_content(&bot.invocations()[1], json!({"body": "after all"}))).await;
    };
    let (answer, ()) = tokio::join!(waiting_call, restart);
    assert_eq!(answer.expect_ok(), json!({"text": "after all"}));
    gate.invoke("bot", &json!({})).await.expect_ok();
}

#[tokio::test]
async fn r51_calls_wait_for_the_rate_limit_of_the_homeserver_or_report_it() {
    let server = Synapse::start_with_config("rc_message: {per_second: 2, burst_count: 2}\n").await;
    let setup = MatrixSetup::new(server).await;
    // The agent is rate limited too, and answers as fast as it is allowed.
    let _bot = setup.agent.answer_with(|event| vec![reply_content(event, json!({"body": "yes"}))]);
    let gate = gateway_with_account(&setup.server.url(), &setup.gateway.token, "")
        .document(document("bot", &setup.endpoint()))
        .start()
        .await;
    let input = json!({});
    let calls = (0..6).map(|_| gate.invoke("bot", &input));
    for answer in futures_util::future::join_all(calls).await {
        answer.expect_ok();
    }
    let calls = (0..12).map(|_| invoke_within(&gate, "bot", &input, "2s"));
    for answer in futures_util::future::join_all(calls).await {
        match answer.status {
            200 => {}
            504 => drop(answer.expect_fault(504, "Timeout")),
            _ => {
                answer.expect_fault(503, "Overloaded");
                assert!(answer.header("retry-after").is_some());
            }
        }
    }
}

/// A scripted homeserver: it responds with `send` to a message, and with `sync(n)` to the n-th sync, from 0.
async fn scripted_homeserver(send: Vec<Step>, sync: impl Fn(usize) -> Vec<Step> + Send + Sync + 'static) -> Agent {
    let syncs = Mutex::new(0);
    Agent::scripted(move |got| {
        let request_line = got.head.lines().next().unwrap_or_default().to_owned();
        let ok = |body: &str| http_response("200 OK", "application/json", body);
        match () {
            () if request_line.contains("/whoami") => ok(r#"{"user_id":"@gateway:localhost"}"#),
            () if request_line.contains("/filter") => ok(r#"{"filter_id":"1"}"#),
            () if request_line.contains("/sync") => {
                let mut syncs = syncs.lock().unwrap();
                *syncs += 1;
                sync(*syncs - 1)
            }
            () if request_line.contains("m.room.encryption") => {
                http_response("404 Not Found", "application/json", r#"{"errcode":"M_NOT_FOUND","error":"no"}"#)
            }
            () if request_line.contains("m.room.member") => ok(r#"{"membership":"join"}"#),
            () if request_line.contains("/send/") => send.clone(),
            // The history never arrives.
            () if request_line.contains("/messages") => vec![Step::Hang],
            () => ok("{}"),
        }
    })
    .await
}

fn first_sync_only(number: usize) -> Vec<Step> {
    if number == 0 { http_response("200 OK", "application/json", r#"{"next_batch":"s1"}"#) } else { vec![Step::Hang] }
}

fn event_sent() -> Vec<Step> {
    http_response("200 OK", "application/json", r#"{"event_id":"$1"}"#)
}

async fn start_gateway(homeserver: &Agent) -> Gateway {
    let url = format!("http://{}", homeserver.address);
    gateway_with_account(&url, "token-1", "    timeouts: {connect: 1s, first_byte: 3s}\n")
        .document(document("bot", "agent+matrix://@bot:localhost/!room:localhost"))
        .start()
        .await
}

#[tokio::test]
async fn r51_a_protocol_violation_of_the_homeserver_fails_only_that_call() {
    let error = |status: &str, code: &str| {
        let body = json!({"errcode": code, "error": "internal at 10.0.0.7", "retry_after_ms": 600_000});
        http_response(status, "application/json", &body.to_string())
    };
    let huge = vec![write("HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n"), Step::Hang];
    // What the homeserver did not refuse may have reached the agent.
    for (send, status, code, tried) in [
        (vec![Step::Close], 503, "AgentUnavailable", "reset"),
        (vec![Step::Reset], 503, "AgentUnavailable", "reset"),
        (vec![write("nonsense\r\n\r\n"), Step::Close], 503, "AgentUnavailable", "reset"),
        (
            vec![write("HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{\"event"), Step::Close],
            503,
            "AgentUnavailable",
            "reset",
        ),
        (http_response("200 OK", "text/html", "<html>"), 503, "AgentUnavailable", "reset"),
        (http_response("200 OK", "application/json", "{}"), 503, "AgentUnavailable", "reset"),
        (huge, 503, "AgentUnavailable", "reset"),
        (http_response("502 Bad Gateway", "text/html", "down"), 503, "AgentUnavailable", "reset"),
        (error("401 Unauthorized", "M_UNKNOWN_TOKEN"), 503, "AgentUnavailable", "connect_failed"),
        (error("403 Forbidden", "M_FORBIDDEN"), 503, "AgentUnavailable", "connect_failed"),
        (error("413 Too Large", "M_TOO_LARGE"), 413, "PayloadTooLarge", "aborted"),
        (error("429 Too Many", "M_LIMIT_EXCEEDED"), 503, "Overloaded", "connect_failed"),
        (vec![Step::Hang], 504, "Timeout", "timeout"),
        (event_sent(), 504, "Timeout", "timeout"),
    ] {
        let case = format!("{send:?}");
        let homeserver = scripted_homeserver(send, first_sync_only).await;
        let gate = start_gateway(&homeserver).await;
        let answer = gate.invoke("bot", &json!({"a": 1})).await;
        assert_eq!(answer.status, status, "{case}: {}", answer.text());
        answer.expect_fault(status, code);
        answer.assert_hides(&["10.0.0.7", "token-1", "M_", "@bot", "127.0.0.1"]);
        if code == "Overloaded" {
            assert_eq!(answer.header("retry-after"), Some("600"));
        }
        let metric = format!("gatepost_upstream_attempts_total{{agent=\"bot\",result=\"{tried}\"}}");
        assert_eq!(gate.metric(&metric).await, Some(1.0), "{case}: {metric}");
    }
}

#[tokio::test]
async fn r51_a_message_that_was_lost_from_sight_may_have_reached_the_agent_unless_its_key_makes_it_repeatable() {
    let failed = || http_response("502 Bad Gateway", "text/html", "down");
    for (key, tried) in [(None, "reset"), (Some("once"), "connect_failed")] {
        let homeserver = scripted_homeserver(failed(), first_sync_only).await;
        let gate = start_gateway(&homeserver).await;
        let mut call = gate.post("/agents/bot/invoke").json(&json!({"a": 1}));
        if let Some(key) = key {
            call = call.header("idempotency-key", key);
        }
        send(call).await.expect_fault(503, "AgentUnavailable");
        let metric = format!("gatepost_upstream_attempts_total{{agent=\"bot\",result=\"{tried}\"}}");
        assert_eq!(gate.metric(&metric).await, Some(1.0), "{key:?}: {metric}");
    }
}

#[tokio::test]
async fn r51_nothing_is_sent_to_a_homeserver_that_cannot_be_synced() {
    for (sync, status) in [
        (http_response("200 OK", "text/html", "<html>"), 503),
        (http_response("401 Unauthorized", "application/json", r#"{"errcode":"M_UNKNOWN_TOKEN"}"#), 503),
        (http_response("500 Oh", "text/plain", "no"), 503),
        (vec![Step::Reset], 503),
        (vec![Step::Hang], 504),
    ] {
        let homeserver = scripted_homeserver(event_sent(), move |_| sync.clone()).await;
        let gate = start_gateway(&homeserver).await;
        let answer = gate.invoke("bot", &json!({})).await;
        assert_eq!(answer.status, status, "{}", answer.text());
        let sent_message = homeserver.requests().iter().any(|got| got.head.contains("/send/"));
        assert!(!sent_message, "the gateway sent a call whose answer it could not receive");
    }
}

#[tokio::test]
async fn r51_an_answer_that_arrives_before_the_send_response_and_between_garbage_is_found() {
    let send_latch = latch();
    let event = |related_event: &str, sender: &str| {
        json!({"type": "m.room.message", "sender": sender, "event_id": "$x", "content": {"msgtype": "m.text",
            "body": sender, "m.relates_to": {"m.in_reply_to": {"event_id": related_event}}}})
    };
    let garbage =
        [json!(1), json!({"type": "m.room.message"}), json!({"type": "m.room.message", "sender": 1, "content": []})];
    let events: Vec<Value> = garbage
        .into_iter()
        .chain([event("$0", "@bot:localhost"), event("$1", "@eve:localhost"), event("$1", "@bot:localhost")])
        .collect();
    let synced = json!({"next_batch": "s2", "rooms": {"join": {
        "!other:localhost": {"timeline": {"events": [event("$1", "@bot:localhost")]}},
        "!room:localhost": {"timeline": {"events": events}}}}});
    let mut send = vec![Step::WaitForLatch(Arc::clone(&send_latch))];
    send.extend(event_sent());
    let homeserver = scripted_homeserver(send, move |number| match number {
        1..50 => {
            let mut steps = vec![Step::Sleep(Duration::from_millis(100))];
            steps.extend(http_response("200 OK", "application/json", &synced.to_string()));
            steps
        }
        number => first_sync_only(number),
    })
    .await;
    let gate = start_gateway(&homeserver).await;
    let input = json!({});
    let call = gate.invoke("bot", &input);
    let release = async {
        let count = |part: &str| homeserver.requests().iter().filter(|request| request.head.contains(part)).count();
        eventually("the call is sent", async || count("/send/") == 1).await;
        let syncs = count("/sync");
        eventually("a later sync has delivered the events", async || count("/sync") >= syncs + 2).await;
        send_latch.close();
    };
    let (answer, ()) = tokio::join!(call, release);
    assert_eq!(answer.expect_ok(), json!({"text": "@bot:localhost"}));
}

#[tokio::test]
async fn r51_an_answer_is_delivered_before_gaps_of_other_rooms_are_filled() {
    let event = json!({"type": "m.room.message", "sender": "@bot:localhost", "event_id": "$x", "content": {
        "msgtype": "m.text", "body": "here", "m.relates_to": {"m.in_reply_to": {"event_id": "$1"}}}});
    let gap = |events: Value| json!({"timeline": {"events": events, "limited": true, "prev_batch": "p1"}});
    let synced = json!({"next_batch": "s2", "rooms": {"join": {
        "!a:localhost": gap(json!([])), "!room:localhost": gap(json!([event])), "!z:localhost": gap(json!([]))}}});
    let homeserver = scripted_homeserver(event_sent(), move |number| match number {
        0 => first_sync_only(0),
        _ => [
            vec![Step::Sleep(Duration::from_millis(500))],
            http_response("200 OK", "application/json", &synced.to_string()),
        ]
        .concat(),
    })
    .await;
    let gate = start_gateway(&homeserver).await;
    assert_eq!(gate.invoke("bot", &json!({})).await.expect_ok(), json!({"text": "here"}));
}

#[tokio::test]
async fn r51_invalid_accounts_are_refused_with_the_configuration_key() {
    let check_output = |settings: &str| {
        let folder = tempfile::TempDir::new().unwrap();
        let text = format!(
            "listeners:\n  - address: 127.0.0.1:0\nagents:\n  sources: [agents.json]\n  defaults:\n    matrix: {settings}\n"
        );
        std::fs::write(folder.path().join("agents.json"), "[]").unwrap();
        std::fs::write(folder.path().join("gatepost.yaml"), text).unwrap();
        let mut command = crate::support::gateway::gatepost_command();
        let output = command.arg("check").arg("-c").arg(folder.path().join("gatepost.yaml")).output().unwrap();
        assert!(!output.status.success(), "{settings}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    for (settings, expected) in [
        ("{homeserver: 'http://matrix.example.org', access_token: 'env:PATH'}", "must be https"),
        ("{homeserver: 'https://matrix.example.org'}", "matrix.access_token"),
        ("{access_token: 'env:PATH'}", "matrix.homeserver"),
        ("{homeserver: 'https://a:b@matrix.example.org', access_token: 'env:PATH'}", "user name or password"),
        ("{homeserver: 'https://matrix.example.org', access_token: 'env:NO_SUCH'}", "NO_SUCH is not set"),
        ("{default_room: 'work'}", "matrix.default_room"),
        ("{token: x}", "token"),
    ] {
        let stderr = check_output(settings);
        assert!(stderr.contains(expected), "{settings}: {stderr}");
    }
}
