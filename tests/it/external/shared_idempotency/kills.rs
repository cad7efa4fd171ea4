//! Kills of gateways, of the server of the shared state and of the agent, during calls with idempotency keys.

use super::{counting_agent::CountingAgent, process};
use crate::{external::support::state_server::StateServer, support::gateway::Gateway};
use serde_json::{Value, json};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

const GATEWAYS: usize = 3;
const CALLERS: usize = 12;
const KILLS: usize = 30;

/// Where the gateways are now; they get other ports when they are restarted.
type Targets = Arc<Mutex<Vec<(String, String)>>>;

/// What a caller was told in the end.
#[derive(Clone, Debug, PartialEq)]
enum Answer {
    /// A response or a failure, which every repetition gets.
    Final(u16, Value),
    /// The one error that says that the outcome is unknown.
    Unknown,
}

fn target_of(gate: &Gateway) -> (String, String) {
    (gate.url("/agents/counter/invoke"), gate.key("team-a").to_owned())
}

/// Repeats a call, each time at a random gateway, until its answer is final.
async fn call_until_answered(client: &reqwest::Client, targets: &Targets, key: &str) -> Answer {
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut last = String::new();
    while Instant::now() < deadline {
        let (url, credential) = fastrand::choice(targets.lock().unwrap().iter()).unwrap().clone();
        let call = client.post(url).header("x-api-key", credential).header("idempotency-key", key);
        if let Ok(response) = call.json(&json!({"key": key})).send().await {
            let (status, headers) = (response.status().as_u16(), response.headers().clone());
            let Ok(body) = response.json::<Value>().await else { continue };
            let message = body["error"]["message"].as_str().unwrap_or_default().to_owned();
            if status == 409 && message.contains("is unknown") {
                return Answer::Unknown;
            }
            if status == 200 || headers.contains_key("idempotent-replayed") {
                return Answer::Final(status, without_request_id(body));
            }
            assert!([409, 502, 503, 504].contains(&status), "{status} {body}");
            last = format!("{status} {body}");
        }
        tokio::time::sleep(Duration::from_millis(fastrand::u64(20..200))).await;
    }
    panic!("{key} has no answer after a minute: {last}");
}

fn without_request_id(mut body: Value) -> Value {
    if let Some(error) = body["error"].as_object_mut() {
        error.remove("request_id");
    }
    body
}

/// Makes calls with new keys until `is_over`, and returns their answers.
async fn make_calls(caller: usize, targets: Targets, is_over: Arc<AtomicBool>) -> HashMap<String, Answer> {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let mut answers = HashMap::new();
    while !is_over.load(Ordering::SeqCst) {
        let key = format!("{caller}-{}", answers.len());
        answers.insert(key.clone(), call_until_answered(&client, &targets, &key).await);
        tokio::time::sleep(Duration::from_millis(fastrand::u64(..30))).await;
    }
    answers
}

async fn restart_gateway(gates: &mut Vec<Gateway>, at: usize, targets: &Targets) {
    let mut killed = gates.remove(at);
    killed.child.kill().unwrap();
    killed.child.wait().unwrap();
    let keys = killed.keys.clone();
    let (folder, _) = killed.into_folder_and_child();
    let new = tokio::task::spawn_blocking(|| Gateway::spawn(folder, keys, &[], &[])).await.unwrap();
    targets.lock().unwrap()[at] = target_of(&new);
    gates.insert(at, new);
}

async fn kill_at_random(mut server: StateServer) {
    let mut agent = CountingAgent::start(Duration::from_millis(150)).await;
    let mut gates = Vec::new();
    for _ in 0..GATEWAYS {
        gates.push(process(&server.section(), "{ttl: 10m}").document(agent.document("counter")).start().await);
    }
    let targets: Targets = Arc::new(Mutex::new(gates.iter().map(target_of).collect()));
    let is_over = Arc::new(AtomicBool::new(false));
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| tokio::spawn(make_calls(caller, Arc::clone(&targets), Arc::clone(&is_over))))
        .collect();
    for kill in 0..KILLS {
        tokio::time::sleep(Duration::from_millis(fastrand::u64(100..700))).await;
        match kill % 3 {
            0 => restart_gateway(&mut gates, fastrand::usize(..GATEWAYS), &targets).await,
            1 => {
                server.stop();
                tokio::time::sleep(Duration::from_millis(fastrand::u64(..800))).await;
                server.restart().await;
            }
            _ => {
                agent.kill();
                tokio::time::sleep(Duration::from_millis(fastrand::u64(..300))).await;
                agent.restart().await;
            }
        }
    }
    is_over.store(true, Ordering::SeqCst);
    let mut answers = HashMap::new();
    for caller in callers {
        answers.extend(caller.await.unwrap());
    }
    let executions = agent.executions();
    let repeated: Vec<_> = executions.iter().filter(|(_, count)| **count > 1).collect();
    assert!(repeated.is_empty(), "executed more than once: {repeated:?}");
    let with = |predicate: fn(&Answer) -> bool| answers.values().filter(|answer| predicate(answer)).count();
    let done = with(|answer| matches!(answer, Answer::Final(200, _)));
    let unknown = with(|answer| *answer == Answer::Unknown);
    eprintln!(
        "{} calls: {done} answered, {unknown} unknown, {} failed at the agent",
        answers.len(),
        answers.len() - done - unknown
    );
    assert!(done > 200, "{done}");
    // A caller that asks again, at any gateway, gets the answer that it was given, or is told that the outcome is unknown:
    // a gateway answers its caller without waiting for a server that is down, and may be killed before it stores the answer.
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let mut forgotten = 0;
    for (key, answer) in &answers {
        let again = call_until_answered(&client, &targets, key).await;
        let is_unknown = again == Answer::Unknown || *answer == Answer::Unknown;
        assert!(again == *answer || is_unknown, "{key}: {answer:?}, then {again:?}");
        forgotten += usize::from(again != *answer && again == Answer::Unknown);
    }
    assert!(forgotten * 20 < answers.len(), "{forgotten} of {} answers were forgotten", answers.len());
    // A call that certainly was not sent is released, also after its caller was told that the outcome is unknown: then a
    // repetition is the first that reaches the agent.
    for (key, count) in agent.executions() {
        assert_eq!(count, 1, "{key}");
        let was_answered = matches!(answers.get(&key), Some(Answer::Final(..)));
        assert!(!was_answered || executions.contains_key(&key), "{key} was answered without being executed");
    }
    for gate in &gates {
        assert_eq!(gate.metric("gatepost_events_total{event=\"idempotency_keys_lost\"}").await, Some(0.0));
    }
}

#[tokio::test]
async fn r45_no_key_reaches_the_agent_twice_through_thirty_kills_with_redis() {
    kill_at_random(StateServer::redis().await).await;
}

#[tokio::test]
async fn r45_no_key_reaches_the_agent_twice_through_thirty_kills_with_postgresql() {
    kill_at_random(StateServer::postgres().await).await;
}
