//! What an answer costs that the gateway makes itself: memory until it is read, and time while it is made. The bounds are
//! the defaults, unless a test says otherwise.

use super::resident_bytes;
use crate::support::{
    agent::{Agent, json_response},
    eventually,
    gateway::{Gateway, gateway, send},
    websocket::{connect, receive_json, send_text},
};
use bytes::Bytes;
use futures_util::{FutureExt, future::join_all};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

/// The longest time of an honest call while the attack runs, in a development build beside other tests.
const MAX_DELAY: Duration = Duration::from_secs(2);

/// A document of about 900 KB.
fn large_document(agent: &Agent, id: &str) -> Value {
    let words: Vec<String> = (0..30_000).map(|number| format!("a word with number {number:06}")).collect();
    json!({"id": id, "name": id, "description": "It is large.", "endpoint": agent.url(), "tags": words})
}

/// Requests `path` again and again over one HTTP/2 connection, whose windows are closed. Returns the statuses that arrived,
/// once no further one arrives.
async fn read_nothing(gate: &Gateway, key: &str, path: &str, requests: usize) -> (Vec<u16>, impl Sized + use<>) {
    let connection = tokio::net::TcpStream::connect(gate.address()).await.unwrap();
    let (mut client, connection) =
        h2::client::Builder::new().initial_window_size(0).handshake::<_, Bytes>(connection).await.unwrap();
    // Aborts the connection when it is dropped.
    let mut driver = tokio::task::JoinSet::new();
    driver.spawn(connection);
    let (mut pending, mut responses) = (Vec::new(), Vec::new());
    for _ in 0..requests {
        let request =
            http::Request::get(format!("http://gate.example{path}")).header("x-api-key", key).body(()).unwrap();
        client = client.ready().await.unwrap();
        pending.push(client.send_request(request, true).unwrap().0);
    }
    for answered in join_all(pending.into_iter().map(|head| tokio::time::timeout(Duration::from_secs(60), head))).await
    {
        responses.push(answered.unwrap().unwrap());
    }
    let statuses = responses.iter().map(|response| response.status().as_u16()).collect();
    (statuses, (driver, client, responses))
}

#[tokio::test]
async fn r5_documents_that_a_caller_does_not_read_take_its_share_and_hold_up_no_call() {
    let agent = Agent::echo().await;
    let gate = gateway()
        .caller("mallory", &[])
        .agent("echo", &agent)
        .document(large_document(&agent, "large"))
        .section("limits: {max_buffered_answers: 16MiB}\n")
        .start()
        .await;
    let before = resident_bytes(&gate);
    let key = gate.key("mallory").to_owned();
    let attack = join_all((0..4).map(|_| read_nothing(&gate, &key, "/agents/large", 90)));
    let honest = async {
        let mut slowest = Duration::ZERO;
        for n in 0..40 {
            let started = Instant::now();
            assert_eq!(gate.invoke("echo", &json!({"n": n})).await.status, 200);
            slowest = slowest.max(started.elapsed());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        slowest
    };
    let (attacks, slowest) = tokio::join!(attack, honest);
    let statuses: Vec<u16> = attacks.iter().flat_map(|(statuses, _)| statuses.clone()).collect();
    let count = |status| statuses.iter().filter(|found| **found == status).count();
    assert!((4..=9).contains(&count(200)), "half of 16 MiB: {statuses:?}");
    assert_eq!(count(200) + count(429), 360, "{statuses:?}");
    let grown = resident_bytes(&gate).saturating_sub(before) >> 20;
    println!("{} answers are not read: {grown} MiB, the slowest honest call {slowest:?}", count(200));
    assert!(slowest < MAX_DELAY && grown < 256, "{slowest:?}, {grown} MiB");
    // Another caller reads the same document meanwhile; mallory may again once its connections are closed.
    let read = async |key: &str| send(gate.request("GET", "/agents/large").header("x-api-key", key)).await.status;
    assert_eq!(read(gate.key("team-a")).await, 200);
    assert_eq!(read(&key).await, 429);
    drop(attacks);
    eventually("the memory is returned", async || read(&key).await == 200).await;
}

#[tokio::test]
async fn r5_an_answer_that_is_not_read_is_given_up_after_the_idle_timeout() {
    let agent = Agent::echo().await;
    let settings = "limits: {max_buffered_answers: 16MiB, max_share: 0.01}\nconnections: {body_idle_timeout: 4s}\n";
    let gate =
        gateway().agent("echo", &agent).document(large_document(&agent, "large")).section(settings).start().await;
    let key = gate.key("team-a").to_owned();
    let (statuses, _open) = read_nothing(&gate, &key, "/agents/large", 2).await;
    assert!(statuses.contains(&200) && statuses.contains(&429), "one that is longer than the share: {statuses:?}");
    let read = async || send(gate.request("GET", "/agents/large").header("x-api-key", &key)).await.status;
    eventually("the answer is given up", async || read().await == 200).await;
}

/// Requests as [`read_nothing`] does, with a head of about 50 KB and no credential; returns how many answers are neither
/// read nor given up.
async fn hold_heads(gate: &Gateway, requests: usize) -> (usize, impl Sized + use<>) {
    let connection = tokio::net::TcpStream::connect(gate.address()).await.unwrap();
    let (client, connection) =
        h2::client::Builder::new().initial_window_size(0).handshake::<_, Bytes>(connection).await.unwrap();
    let mut driver = tokio::task::JoinSet::new();
    driver.spawn(connection);
    let mut bodies = Vec::new();
    for _ in 0..requests {
        let url = format!("http://gate.example{}", "/agents/nope");
        let request = http::Request::get(url).header("x-filler", "x".repeat(50 << 10)).body(()).unwrap();
        let mut client = client.clone().ready().await.unwrap();
        let head = client.send_request(request, true).unwrap().0;
        let answer = tokio::time::timeout(Duration::from_secs(60), head).await.unwrap();
        // A request may be given up before the head of its answer has arrived.
        bodies.extend(answer.ok().map(http::Response::into_body));
    }
    // Until no further one is given up.
    let mut open = usize::MAX;
    loop {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let before = open;
        open = bodies.iter_mut().map(|body| body.data().now_or_never()).filter(Option::is_none).count();
        if open == before {
            break;
        }
    }
    (open, (driver, client, bodies))
}

#[tokio::test]
async fn r5_requests_whose_short_answers_are_not_read_count_against_their_address() {
    let agent = Agent::echo().await;
    let settings = "limits: {max_buffered_answers: 16MiB, max_share: 0.125}\n";
    let gate = gateway().agent("echo", &agent).section(settings).start().await;
    let (first, open) = hold_heads(&gate, 100).await;
    // 2 MiB, of which each takes 48 KiB, 50 KiB of a head and the answer.
    assert!((15..=25).contains(&first), "{first}");
    let (second, _open) = hold_heads(&gate, 20).await;
    assert_eq!(second, 0, "of the same address, over another connection");
    // A caller that reads is served from there, too.
    assert_eq!(gate.invoke("echo", &json!({})).await.status, 200);
    drop(open);
    eventually("the memory is returned", async || hold_heads(&gate, 2).await.0 == 2).await;
}

#[tokio::test]
async fn r5_thousands_of_large_heads_whose_answers_are_not_read_take_a_share_of_the_memory() {
    let agent = Agent::echo().await;
    let gate = gateway().agent("echo", &agent).start().await;
    let before = resident_bytes(&gate);
    let held = join_all((0..20).map(|_| hold_heads(&gate, 120))).await;
    let open: usize = held.iter().map(|(open, _)| open).sum();
    let grown = resident_bytes(&gate).saturating_sub(before) >> 20;
    println!("{open} of 2,400 requests are open: {grown} MiB");
    // Half of 128 MiB for this address.
    assert!((400..=700).contains(&open) && grown < 200, "{open}, {grown} MiB");
    assert_eq!(gate.invoke("echo", &json!({})).await.status, 200);
}

#[tokio::test]
async fn r5_answers_to_websocket_messages_count_until_they_are_written() {
    let agent = Agent::scripted(|_| json_response(&json!({"text": "x".repeat(100 << 10)}))).await;
    let settings = "limits: {max_buffered_answers: 16MiB, max_share: 0.01}\n";
    let gate =
        gateway().agent("echo", &agent).document(large_document(&agent, "large")).section(settings).start().await;
    let mut socket = connect(&gate, "/agents/echo/invoke").await;
    send_text(&mut socket, "{}").await;
    assert!(receive_json(&mut socket).await["text"].is_string());
    let key = gate.key("team-a").to_owned();
    let (statuses, open) = read_nothing(&gate, &key, "/agents/large", 1).await;
    assert_eq!(statuses, [200]);
    send_text(&mut socket, "{}").await;
    let answer = receive_json(&mut socket).await;
    assert_eq!(answer["error"]["code"], "RateLimited", "{answer}");
    drop(open);
    eventually("the memory is returned", async || {
        send_text(&mut socket, "{}").await;
        receive_json(&mut socket).await["text"].is_string()
    })
    .await;
}

#[tokio::test]
async fn r44_the_results_of_a_batch_count_while_others_are_awaited() {
    let agent = Agent::scripted(|_| json_response(&json!({"text": "x".repeat(100 << 10)}))).await;
    let settings = "limits: {max_buffered_answers: 16MiB, max_share: 0.01}\n";
    let mut document = agent.document("echo");
    document["operations"] = json!([{"name": "echo", "inputs": {"type": "object"}}]);
    let gate = gateway().document(document).section(settings).start().await;
    let results = gate.invoke("echo", &json!([{"n": 1}, {"n": 2}, {"n": 3}])).await.json();
    let has_text = results.as_array().unwrap().iter().filter(|result| result["text"].is_string()).count();
    let codes: Vec<&Value> = results.as_array().unwrap().iter().map(|result| &result["error"]["code"]).collect();
    assert_eq!(has_text, 1, "{codes:?}");
    assert_eq!(codes.iter().filter(|code| **code == "RateLimited").count(), 2, "{codes:?}");
    // Nothing is left of it.
    assert!(gate.invoke("echo", &json!({})).await.json()["text"].is_string());
}

#[tokio::test]
async fn r21_a_list_of_large_documents_ends_early_and_its_links_lead_to_all_of_them() {
    let agent = Agent::echo().await;
    let mut build = gateway();
    for n in 0..4 {
        build = build.document(large_document(&agent, &format!("large-{n}")));
    }
    let gate = build.start().await;
    for (list, members, max_pages) in [
        ("/agents?per_page=3", "", 2),
        ("/.well-known/agents.json", "agents", 1),
        ("/.well-known/agentframework/v1/agents?view=full", "agents", 4),
    ] {
        let (mut path, mut ids, mut pages) = (Some(list.to_owned()), BTreeSet::new(), 0);
        while let Some(next) = path {
            let page = send(gate.request("GET", &next).header("x-api-key", gate.key("team-a"))).await;
            assert_eq!(page.status, 200, "{next}: {}", page.text());
            assert!(page.body.len() < 3 << 20, "{next}: {} bytes", page.body.len());
            let body = page.json();
            let entries = if members.is_empty() { &body } else { &body[members] };
            let found: Vec<String> = match entries {
                Value::Object(map) => map.keys().cloned().collect(),
                list => list.as_array().unwrap().iter().map(|entry| entry["id"].as_str().unwrap().to_owned()).collect(),
            };
            assert!(!found.is_empty() && found.iter().all(|id| ids.insert(id.clone())), "{next}: {found:?}");
            pages += 1;
            let link =
                page.header("link").map(|link| link.split_once('<').unwrap().1.split_once('>').unwrap().0.to_owned());
            path = link.map(|link| {
                link.split_once("://").unwrap().1.split_once('/').map(|(_, path)| format!("/{path}")).unwrap()
            });
        }
        assert_eq!((ids.len(), pages), (4, max_pages), "{list}");
    }
    let last = "/agents?page=2&per_page=2&offset=1";
    let last = send(gate.request("GET", last).header("x-api-key", gate.key("team-a"))).await;
    assert_eq!(last.json().as_array().unwrap().len(), 1, "{}", last.text());
}
