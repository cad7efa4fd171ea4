//! Agents on Matrix: a real homeserver for what goes well and for what homeservers and agents do to each other, a
//! scripted one for what no homeserver should do.

use crate::support::{
    agent::{Agent, Do, answer, latch, write},
    eventually,
    gateway::{Build, Gate, gateway, send},
    synapse::{Bot, Synapse, User, reply},
};
use serde_json::{Value, json};
use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

fn document(id: &str, endpoint: &str) -> Value {
    json!({"id": id, "name": id, "endpoint": endpoint, "authentication": {"type": "api_key"}})
}

/// A gateway whose account is `user`; `more` are further lines of `settings.matrix`.
fn with(url: &str, token: &str, more: &str) -> Build {
    let matrix = format!("    matrix:\n      homeserver: {url}\n      access_token: env:MATRIX_TOKEN\n{more}");
    let section = format!("agents:\n  from: [agents.json]\n  defaults:\n{matrix}");
    gateway().section(&section).env("MATRIX_TOKEN", token)
}

async fn in_time(gate: &Gate, id: &str, input: &Value, time: &str) -> crate::support::reply::Answer {
    send(gate.post(&format!("/agents/{id}/invoke")).header("x-request-timeout", time).json(input)).await
}

/// What the agent of these tests does is told by the input.
fn script(event: &Value, other: &Mutex<Vec<Value>>) -> Vec<Value> {
    let call = &event["content"]["gatepost.invocation"];
    let own = |own: Value| reply(event, json!({"gatepost.answer": own}));
    match call["input"]["do"].as_str().unwrap_or_default() {
        "output" => vec![own(json!({"output": {"said": call["input"]["text"]}}))],
        "fraction" => vec![own(json!({"output_json": "{\"half\":0.5}"}))],
        "words" => vec![reply(event, json!({"body": "> <@gateway:localhost> ask\n\nHello there"}))],
        "json" => vec![reply(event, json!({"body": "{\"a\": [1, 2]}"}))],
        "named" => vec![json!({"msgtype": "x.y", "body": "", "gatepost.answer": {"call": call["call"], "output": 7}})],
        "thread" => vec![json!({"msgtype": "m.text", "body": "in a thread",
            "m.relates_to": {"rel_type": "m.thread", "event_id": event["event_id"]}})],
        "twice" => vec![own(json!({"output": 1})), own(json!({"output": 2}))],
        "edit" => vec![
            json!({"msgtype": "m.text", "body": "* no", "m.new_content": {"msgtype": "m.text", "body": "no"},
                "m.relates_to": {"rel_type": "m.replace", "event_id": event["event_id"]}}),
            own(json!({"progress": 0.5.to_string()})),
            json!({"msgtype": "m.text", "body": "about nothing"}),
            reply(event, json!({"body": "at last"})),
        ],
        "fail" => vec![own(json!({"error": {"code": "InvalidInput", "message": "text is missing"}}))],
        "leak" => vec![own(json!({"error": {"code": "boom", "message": "Traceback: /srv/app at 10.0.0.7"}}))],
        "problem" => {
            vec![own(json!({"error": {"type": "AgentUnavailable", "title": "Down", "status": 503, "detail": "db"}}))]
        }
        "elsewhere" => {
            other.lock().unwrap().push(event.clone());
            Vec::new()
        }
        _ => Vec::new(),
    }
}

struct Stage {
    server: Synapse,
    gateway: User,
    agent: User,
    room: String,
}

impl Stage {
    async fn new(server: Synapse) -> Self {
        let (gateway, agent) = (server.user("gateway").await, server.user("bot").await);
        let room = agent.room(&[&gateway], &json!({"room_alias_name": "work"})).await;
        gateway.join(&room).await;
        Self { server, gateway, agent, room }
    }

    fn endpoint(&self) -> String {
        format!("agent+matrix://{}/{}", self.agent.id, self.room)
    }
}

#[tokio::test]
async fn r51_r98_a_call_is_a_message_in_the_agents_room_and_its_reply_is_the_answer() {
    let stage = Stage::new(Synapse::start().await).await;
    let other = Arc::new(Mutex::new(Vec::new()));
    let asked = Arc::clone(&other);
    let bot = stage.agent.answers(move |event| script(event, &asked));
    let beside = format!("agent+matrix://127.0.0.1:{}/{}/{}", stage.server.port, stage.room, stage.agent.id);
    let mut named = document("named", &stage.endpoint());
    named["operations"] = json!([{"name": "greet"}, {"name": "other"}]);
    let gate = with(&stage.server.url(), &stage.gateway.token, "")
        .document(document("bot", &stage.endpoint()))
        .document(document("alias", &format!("agent+matrix://{}/#work:localhost", stage.agent.id)))
        .document(document("beside", &beside.replace('@', "%40")))
        .document(named)
        .start()
        .await;
    for (input, wanted) in [
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
            // Events hold no fractions: both sides write the text of the JSON, and the script sees no `input`.
            let answer = in_time(&gate, "bot", &input, "8s").await;
            answer.is_fault(504, "Timeout");
            let heard = bot.heard();
            let call = &heard.last().unwrap()["content"]["gatepost.invocation"];
            assert_eq!(call["input_json"], input.to_string());
            continue;
        }
        assert_eq!(gate.invoke("bot", &input).await.is_ok(), wanted, "{input}");
    }
    assert_eq!(gate.invoke("bot", &json!({"do": "fraction"})).await.is_ok(), json!({"half": 0.5}));
    envelopes(&gate, &bot).await;
    errors_and_sizes(&gate, &bot).await;
    strangers_and_crowds(&stage, &gate, &other).await;
    repeated(&gate, &bot).await;
}

/// R78: the ids stand inside the envelope, and each form of an address leads to the room.
async fn envelopes(gate: &Gate, bot: &Bot) {
    for id in ["alias", "beside"] {
        assert_eq!(gate.invoke(id, &json!({"do": "output", "text": id})).await.is_ok(), json!({"said": id}));
    }
    let request = gate.post("/agents/named/invoke/greet").header("x-request-id", "my-id").header("x-session-id", "s-1");
    send(request.json(&json!({"do": "output"}))).await.is_ok();
    let heard = bot.heard();
    let last = &heard.last().unwrap()["content"];
    let call = &last["gatepost.invocation"];
    assert_eq!((&call["requestId"], &call["sessionId"]), (&json!("my-id"), &json!("s-1")), "{call}");
    assert_eq!((&call["operation"], &last["msgtype"]), (&json!("greet"), &json!("m.text")), "{last}");
    assert_ne!(call["call"], "my-id", "callers choose their ids, and must not choose this one");
}

/// R93, R41: errors are mapped, and what speaks of the agent's inside is not told; an event that no homeserver would
/// take is refused before anything is said.
async fn errors_and_sizes(gate: &Gate, bot: &Bot) {
    let told = gate.invoke("bot", &json!({"do": "fail"})).await;
    assert_eq!(told.is_fault(400, "InvalidInput")["message"], "text is missing");
    let leak = gate.invoke("bot", &json!({"do": "leak"})).await;
    leak.is_fault(502, "AgentError");
    leak.hides(&["Traceback", "/srv", "10.0.0.7", "boom"]);
    gate.invoke("bot", &json!({"do": "problem"})).await.is_fault(503, "AgentUnavailable");
    let said = bot.heard().len();
    gate.invoke("bot", &json!({"do": "output", "text": "x".repeat(70 << 10)})).await.is_fault(413, "PayloadTooLarge");
    gate.invoke("bot", &json!({"do": "output", "text": "x".repeat(50 << 10)})).await.is_ok();
    assert_eq!(bot.heard().len(), said + 1);
}

/// Somebody else in the room does not answer for the agent, nobody gets what comes too late, and of many calls at once
/// each gets its own answer.
async fn strangers_and_crowds(stage: &Stage, gate: &Gate, other: &Mutex<Vec<Value>>) {
    let stranger = stage.server.user("stranger").await;
    stage.agent.ask("POST", &format!("/rooms/{}/invite", stage.room), &json!({"user_id": stranger.id})).await;
    stranger.join(&stage.room).await;
    let elsewhere = json!({"do": "elsewhere"});
    let waits = in_time(gate, "bot", &elsewhere, "3s");
    let speaks = async {
        eventually("the call is there", async || !other.lock().unwrap().is_empty()).await;
        let event = other.lock().unwrap()[0].clone();
        let call = &event["content"]["gatepost.invocation"]["call"];
        stranger.send(&stage.room, &reply(&event, json!({"gatepost.answer": {"call": call, "output": "mine"}}))).await;
        event
    };
    let (waited, event) = tokio::join!(waits, speaks);
    waited.is_fault(504, "Timeout");
    stage.agent.send(&stage.room, &reply(&event, json!({"gatepost.answer": {"output": "late"}}))).await;
    assert_eq!(gate.invoke("bot", &json!({"do": "json"})).await.is_ok(), json!({"a": [1, 2]}));

    let calls = (0..30).map(|number| {
        let (gate, input) = (gate, json!({"do": "output", "text": format!("{number}")}));
        async move { assert_eq!(gate.invoke("bot", &input).await.is_ok(), json!({"said": format!("{number}")})) }
    });
    futures_util::future::join_all(calls).await;
}

/// The transaction id is the idempotency key: the call that is repeated is one event, with one answer.
async fn repeated(gate: &Gate, bot: &Bot) {
    let said = bot.heard().len();
    for _ in 0..2 {
        let request = gate.post("/agents/bot/invoke").header("idempotency-key", "k-1");
        let answer = send(request.json(&json!({"do": "output", "text": "once"}))).await;
        assert_eq!(answer.is_ok(), json!({"said": "once"}));
    }
    assert_eq!(bot.heard().len(), said + 1);
}

#[tokio::test]
async fn r51_r98_rooms_in_which_the_gateway_cannot_speak_are_refused_by_name() {
    let stage = Stage::new(Synapse::start().await).await;
    let (agent, gateway) = (&stage.agent, &stage.gateway);
    let _bot = agent.answers(|event| vec![reply(event, json!({"body": "yes"}))]);
    let encryption =
        json!([{"type": "m.room.encryption", "state_key": "", "content": {"algorithm": "m.megolm.v1.aes-sha2"}}]);
    let encrypted = agent.room(&[gateway], &json!({"initial_state": encryption})).await;
    gateway.join(&encrypted).await;
    let foreign = agent.room(&[], &json!({})).await;
    let invited = agent.room(&[gateway], &json!({})).await;
    let empty = gateway.room(&[agent], &json!({})).await;
    let at = |room: &str| format!("agent+matrix://{}/{room}", agent.id);
    let rules = "  rules:\n    - agents: [invited, foreign-join]\n      settings:\n        matrix: {join: true}\n    - \
                 agents: [bare]\n      settings:\n        matrix: {room: '#work:localhost'}\n";
    let gate = with(&stage.server.url(), &gateway.token, rules)
        .document(document("encrypted", &at(&encrypted)))
        .document(document("foreign", &at(&foreign)))
        .document(document("foreign-join", &at(&foreign)))
        .document(document("not-joined", &at(&invited)))
        .document(document("invited", &at(&invited)))
        .document(document("empty", &at(&empty)))
        .document(document("nowhere", &at("!nothing:localhost")))
        .document(document("no-alias", &at("#nothing:localhost")))
        .document(document("bare", &format!("agent+matrix://{}", agent.id)))
        .document(document("no-room", &format!("agent+matrix://{}", agent.id)))
        .document(document("other-server", &format!("agent+matrix://matrix.example.org/{}/{}", stage.room, agent.id)))
        .start()
        .await;
    for (id, words) in [
        ("encrypted", "encrypted"),
        ("foreign", "not in the agent's room"),
        ("foreign-join", "cannot be entered"),
        ("not-joined", "not in the agent's room"),
        ("empty", "agent is not in its room"),
        ("nowhere", "not in the agent's room"),
        ("no-alias", "cannot be entered"),
    ] {
        let answer = gate.invoke(id, &json!({})).await;
        let error = answer.is_fault(503, "AgentUnavailable");
        assert!(error["message"].as_str().unwrap().contains(words), "{id}: {error}");
        answer.hides(&["localhost", "@bot", "M_"]);
    }
    for id in ["invited", "bare"] {
        assert_eq!(gate.invoke(id, &json!({})).await.is_ok(), json!({"text": "yes"}), "{id}");
    }
    // What can never be called is not served, and the operator is told why.
    for id in ["no-room", "other-server"] {
        gate.invoke(id, &json!({})).await.is_fault(404, "NotFound");
    }
    let refused = gate.admin("/agents").await.json()["rejected"].to_string();
    assert!(refused.contains("matrix.room: is missing") && refused.contains("matrix.example.org"), "{refused}");
    assert!(!refused.contains(&gateway.token) && !gate.stderr().contains(&gateway.token));
    // The account's token ends: that is the gateway's trouble, not the caller's.
    gateway.ask("POST", "/logout", &json!({})).await;
    let answer = gate.invoke("bare", &json!({})).await;
    answer.is_fault(503, "AgentUnavailable");
    answer.hides(&["M_UNKNOWN", "oken"]);
}

#[tokio::test]
async fn r51_a_homeserver_that_is_killed_and_comes_back_loses_no_call_that_waits() {
    let mut stage = Stage::new(Synapse::start().await).await;
    let bot = stage.agent.answers(|event| match event["content"]["gatepost.invocation"]["input"]["wait"] == true {
        true => Vec::new(),
        false => vec![reply(event, json!({"body": "here"}))],
    });
    // Python reads a lot before it serves again.
    let patient = "    timeouts: {first_byte: 150s, total: 150s}\n";
    let patient = with(&stage.server.url(), &stage.gateway.token, patient);
    let gate = patient.document(document("bot", &stage.endpoint())).start().await;
    gate.invoke("bot", &json!({})).await.is_ok();
    let waits = async { gate.invoke("bot", &json!({"wait": true})).await };
    let restarts = async {
        eventually("the call is there", async || bot.heard().len() == 2).await;
        stage.server.kill();
        let began = Instant::now();
        gate.invoke("bot", &json!({})).await.is_fault(503, "AgentUnavailable");
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
        stage.server.again().await;
        stage.agent.send(&stage.room, &reply(&bot.heard()[1], json!({"body": "after all"}))).await;
    };
    let (answer, ()) = tokio::join!(waits, restarts);
    assert_eq!(answer.is_ok(), json!({"text": "after all"}));
    gate.invoke("bot", &json!({})).await.is_ok();
}

#[tokio::test]
async fn r51_the_homeservers_limits_are_kept_to_and_told_where_they_take_too_long() {
    let server = Synapse::limited("rc_message: {per_second: 2, burst_count: 2}\n").await;
    let stage = Stage::new(server).await;
    // The agent is limited like everybody: it answers as fast as it may.
    let _bot = stage.agent.answers(|event| vec![reply(event, json!({"body": "yes"}))]);
    let gate =
        with(&stage.server.url(), &stage.gateway.token, "").document(document("bot", &stage.endpoint())).start().await;
    let input = json!({});
    let calls = (0..6).map(|_| gate.invoke("bot", &input));
    for answer in futures_util::future::join_all(calls).await {
        answer.is_ok();
    }
    let calls = (0..12).map(|_| in_time(&gate, "bot", &input, "2s"));
    for answer in futures_util::future::join_all(calls).await {
        match answer.status {
            200 => {}
            504 => drop(answer.is_fault(504, "Timeout")),
            _ => {
                answer.is_fault(503, "Overloaded");
                assert!(answer.header("retry-after").is_some());
            }
        }
    }
}

/// A homeserver that does as it is told: `send` is what it answers to a message, `sync` to a look.
async fn puppet(send: Vec<Do>, sync: impl Fn(usize) -> Vec<Do> + Send + Sync + 'static) -> Agent {
    let looks = Mutex::new(0);
    Agent::scripted(move |got| {
        let line = got.head.lines().next().unwrap_or_default().to_owned();
        let ok = |body: &str| answer("200 OK", "application/json", body);
        match () {
            () if line.contains("/whoami") => ok(r#"{"user_id":"@gateway:localhost"}"#),
            () if line.contains("/filter") => ok(r#"{"filter_id":"1"}"#),
            () if line.contains("/sync") => {
                let mut looks = looks.lock().unwrap();
                *looks += 1;
                sync(*looks - 1)
            }
            () if line.contains("m.room.encryption") => {
                answer("404 Not Found", "application/json", r#"{"errcode":"M_NOT_FOUND","error":"no"}"#)
            }
            () if line.contains("m.room.member") => ok(r#"{"membership":"join"}"#),
            () if line.contains("/send/") => send.clone(),
            // What was said before is long in coming.
            () if line.contains("/messages") => vec![Do::Hang],
            () => ok("{}"),
        }
    })
    .await
}

fn looks(number: usize) -> Vec<Do> {
    if number == 0 { answer("200 OK", "application/json", r#"{"next_batch":"s1"}"#) } else { vec![Do::Hang] }
}

fn sent() -> Vec<Do> {
    answer("200 OK", "application/json", r#"{"event_id":"$1"}"#)
}

async fn over(homeserver: &Agent) -> Gate {
    let url = format!("http://{}", homeserver.address);
    with(&url, "token-1", "    timeouts: {connect: 1s, first_byte: 3s}\n")
        .document(document("bot", "agent+matrix://@bot:localhost/!room:localhost"))
        .start()
        .await
}

#[tokio::test]
async fn r51_a_homeserver_that_breaks_its_protocol_costs_one_call_and_no_more() {
    let error = |status: &str, code: &str| {
        let body = json!({"errcode": code, "error": "internal at 10.0.0.7", "retry_after_ms": 600_000});
        answer(status, "application/json", &body.to_string())
    };
    let huge = vec![write("HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n"), Do::Hang];
    for (send, status, code) in [
        (vec![Do::Close], 503, "AgentUnavailable"),
        (vec![Do::Reset], 503, "AgentUnavailable"),
        (vec![write("nonsense\r\n\r\n"), Do::Close], 503, "AgentUnavailable"),
        (vec![write("HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{\"event"), Do::Close], 503, "AgentUnavailable"),
        (answer("200 OK", "text/html", "<html>"), 503, "AgentUnavailable"),
        (answer("200 OK", "application/json", "{}"), 503, "AgentUnavailable"),
        (huge, 503, "AgentUnavailable"),
        (answer("502 Bad Gateway", "text/html", "down"), 503, "AgentUnavailable"),
        (error("401 Unauthorized", "M_UNKNOWN_TOKEN"), 503, "AgentUnavailable"),
        (error("403 Forbidden", "M_FORBIDDEN"), 503, "AgentUnavailable"),
        (error("413 Too Large", "M_TOO_LARGE"), 413, "PayloadTooLarge"),
        (error("429 Too Many", "M_LIMIT_EXCEEDED"), 503, "Overloaded"),
        (vec![Do::Hang], 504, "Timeout"),
        (sent(), 504, "Timeout"),
    ] {
        let told = format!("{send:?}");
        let homeserver = puppet(send, looks).await;
        let gate = over(&homeserver).await;
        let answer = gate.invoke("bot", &json!({"a": 1})).await;
        assert_eq!(answer.status, status, "{told}: {}", answer.text());
        answer.is_fault(status, code);
        answer.hides(&["10.0.0.7", "token-1", "M_", "@bot", "127.0.0.1"]);
        if code == "Overloaded" {
            assert_eq!(answer.header("retry-after"), Some("600"));
        }
    }
}

#[tokio::test]
async fn r51_a_homeserver_that_cannot_be_listened_to_is_told_before_anything_is_said() {
    for (sync, status) in [
        (answer("200 OK", "text/html", "<html>"), 503),
        (answer("401 Unauthorized", "application/json", r#"{"errcode":"M_UNKNOWN_TOKEN"}"#), 503),
        (answer("500 Oh", "text/plain", "no"), 503),
        (vec![Do::Reset], 503),
        (vec![Do::Hang], 504),
    ] {
        let homeserver = puppet(sent(), move |_| sync.clone()).await;
        let gate = over(&homeserver).await;
        let answer = gate.invoke("bot", &json!({})).await;
        assert_eq!(answer.status, status, "{}", answer.text());
        let said = homeserver.got().iter().any(|got| got.head.contains("/send/"));
        assert!(!said, "an answer would not have been heard");
    }
}

#[tokio::test]
async fn r51_an_answer_that_overtakes_its_event_and_garbage_around_it_are_read() {
    let said = latch();
    let event = |relates: &str, sender: &str| {
        json!({"type": "m.room.message", "sender": sender, "event_id": "$x", "content": {"msgtype": "m.text",
            "body": sender, "m.relates_to": {"m.in_reply_to": {"event_id": relates}}}})
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
    let mut send = vec![Do::Until(Arc::clone(&said))];
    send.extend(sent());
    let heard = Arc::clone(&said);
    let homeserver = puppet(send, move |number| match number {
        1 | 2 => {
            // The second look begins when the call's room is known; by then the call may have been sent.
            let mut steps = vec![Do::Wait(Duration::from_millis(300))];
            steps.extend(answer("200 OK", "application/json", &synced.to_string()));
            if number == 2 {
                heard.close();
            }
            steps
        }
        number => looks(number),
    })
    .await;
    let gate = over(&homeserver).await;
    let input = json!({});
    let call = gate.invoke("bot", &input);
    let release = async {
        tokio::time::sleep(Duration::from_millis(1500)).await;
        said.close();
    };
    let (answer, ()) = tokio::join!(call, release);
    assert_eq!(answer.is_ok(), json!({"text": "@bot:localhost"}));
}

#[tokio::test]
async fn r51_an_answer_is_heard_before_what_another_room_has_missed() {
    let event = json!({"type": "m.room.message", "sender": "@bot:localhost", "event_id": "$x", "content": {
        "msgtype": "m.text", "body": "here", "m.relates_to": {"m.in_reply_to": {"event_id": "$1"}}}});
    let gap = |events: Value| json!({"timeline": {"events": events, "limited": true, "prev_batch": "p1"}});
    let synced = json!({"next_batch": "s2", "rooms": {"join": {
        "!a:localhost": gap(json!([])), "!room:localhost": gap(json!([event])), "!z:localhost": gap(json!([]))}}});
    let homeserver = puppet(sent(), move |number| match number {
        0 => looks(0),
        _ => [vec![Do::Wait(Duration::from_millis(500))], answer("200 OK", "application/json", &synced.to_string())]
            .concat(),
    })
    .await;
    let gate = over(&homeserver).await;
    assert_eq!(gate.invoke("bot", &json!({})).await.is_ok(), json!({"text": "here"}));
}

#[tokio::test]
async fn r51_accounts_that_cannot_be_are_refused_with_their_place() {
    let told = |settings: &str| {
        let folder = tempfile::TempDir::new().unwrap();
        let text = format!(
            "listen:\n  - address: 127.0.0.1:0\nagents:\n  from: [agents.json]\n  defaults:\n    matrix: {settings}\n"
        );
        std::fs::write(folder.path().join("agents.json"), "[]").unwrap();
        std::fs::write(folder.path().join("gatepost.yaml"), text).unwrap();
        let mut command = crate::support::gateway::command();
        let output = command.arg("check").arg("-c").arg(folder.path().join("gatepost.yaml")).output().unwrap();
        assert!(!output.status.success(), "{settings}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    for (settings, words) in [
        ("{homeserver: 'http://matrix.example.org', access_token: 'env:PATH'}", "must be https"),
        ("{homeserver: 'https://matrix.example.org'}", "matrix.access_token"),
        ("{access_token: 'env:PATH'}", "matrix.homeserver"),
        ("{homeserver: 'https://a:b@matrix.example.org', access_token: 'env:PATH'}", "user or password"),
        ("{homeserver: 'https://matrix.example.org', access_token: 'env:NO_SUCH'}", "NO_SUCH is not set"),
        ("{room: 'work'}", "matrix.room"),
        ("{token: x}", "token"),
    ] {
        let why = told(settings);
        assert!(why.contains(words), "{settings}: {why}");
    }
}
