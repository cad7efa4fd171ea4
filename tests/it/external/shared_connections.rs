//! The connections of gateways to a shared state: secrets that hang, change or are not valid yet, servers that are slow or
//! move, and the permissions that a server must give.

use super::support::{
    delaying_proxy::DelayingProxy,
    hanging_file::HangingFile,
    redis::Redis,
    redis_cluster::RedisCluster,
    sentinel::RedisWithSentinel,
    state_server::{StateServer, open_state},
};
use crate::support::{
    agent::Agent,
    eventually, eventually_within,
    gateway::{Gateway, gateway, send},
};
use bytes::Bytes;
use gatepost::store::{
    IdempotencyRecords, LogAppend, NewValue, RedemptionAttempt, SharedState, StateError, TokenBatch, TripKind,
    ValueKind,
};
use serde_json::{Value, json};
use std::{
    fs,
    time::{Duration, Instant},
};
use tempfile::TempDir;
use tokio::time::sleep;

/// Longer than a gateway counts as alive without a heartbeat.
const LONG: Duration = Duration::from_secs(7);
/// How long a change of a file takes to be noticed, and more.
const NOTICE_TIME: Duration = Duration::from_secs(4);

/// Makes a trip for tokens that changes nothing.
async fn exchange(state: &SharedState) -> Result<(), StateError> {
    let batch = TokenBatch { sequence: 0, confirmed: 0, shard: 0, entries: Vec::new() };
    state.exchange_tokens(&[batch], Duration::from_secs(1)).await.map(drop)
}

/// Asserts that every trip within `time` is answered.
async fn assert_answers_for(state: &SharedState, time: Duration) {
    let started = Instant::now();
    while started.elapsed() < time {
        assert_eq!(exchange(state).await, Ok(()), "after {:?}", started.elapsed());
        sleep(Duration::from_millis(20)).await;
    }
}

async fn a_file_that_hangs_stops_nothing(server: StateServer) {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("url");
    let section = match &server {
        StateServer::Redis(server) => {
            fs::write(&file, server.url()).unwrap();
            json!({"redis": {"url": format!("file:{}", file.display())}, "timeout": "1s"})
        }
        StateServer::Postgres { url, .. } => {
            fs::write(&file, url).unwrap();
            json!({"database": format!("file:{}", file.display()), "timeout": "1s"})
        }
    };
    let state = open_state(&section).await;
    let hanging = HangingFile::replace(&file);
    assert_answers_for(&state, LONG).await;
    let other = server.open().await;
    assert_eq!(other.gateway_count(), 2, "heartbeats go on");
    drop(hanging);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_a_secret_file_that_does_not_answer_stops_no_heartbeat() {
    a_file_that_hangs_stops_nothing(StateServer::redis().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgresql_a_secret_file_that_does_not_answer_stops_no_heartbeat() {
    a_file_that_hangs_stops_nothing(StateServer::postgres().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_connects_again_with_the_previous_secret_while_its_file_does_not_answer() {
    let mut server = Redis::start().await;
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("url");
    fs::write(&file, server.url()).unwrap();
    let state = open_state(&json!({"redis": {"url": format!("file:{}", file.display())}, "timeout": "1s"})).await;
    let hanging = HangingFile::replace(&file);
    sleep(Duration::from_secs(2)).await;
    server.stop();
    eventually("the outage is noticed", async || exchange(&state).await.is_err() && !state.is_available()).await;
    server.restart().await;
    eventually_within(LONG, "the server is used again", async || exchange(&state).await.is_ok()).await;
    drop(hanging);
}

/// How many connections a gateway has: for most trips, for large values, and for outcomes that are read.
const CONNECTIONS: usize = 3;

/// The ids of the connections of a user.
async fn connections_of(server: &Redis, user: &str) -> Vec<u64> {
    let clients: String = server.command("CLIENT LIST").await;
    let of_user = clients.lines().filter(|line| line.contains(&format!("user={user} ")));
    let id = |line: &str| line.split(' ').next().unwrap().strip_prefix("id=").unwrap().parse().unwrap();
    let mut ids: Vec<u64> = of_user.map(id).collect();
    // The order of the list is no promise.
    ids.sort_unstable();
    ids
}

#[tokio::test]
async fn a_password_that_redis_does_not_accept_yet_ends_no_connection() {
    let server = Redis::start().await;
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("password");
    fs::write(&file, "one").unwrap();
    let _: () = server.command("ACL SETUSER gateway on >one ~* +@all").await;
    let section = json!({
        "redis": {
            "url": format!("redis://gateway@127.0.0.1:{}", server.port()),
            "password": format!("file:{}", file.display()),
        },
        "timeout": "1s",
    });
    let state = open_state(&section).await;
    let before = connections_of(&server, "gateway").await;
    assert_eq!(before.len(), CONNECTIONS);
    fs::write(&file, "two").unwrap();
    assert_answers_for(&state, NOTICE_TIME).await;
    assert_eq!(connections_of(&server, "gateway").await, before);
    let _: () = server.command("ACL SETUSER gateway resetpass >two").await;
    eventually("the accepted password is used", async || {
        assert_eq!(exchange(&state).await, Ok(()), "nothing fails while connections are replaced");
        let now = connections_of(&server, "gateway").await;
        now.len() == CONNECTIONS && now.iter().all(|id| !before.contains(id))
    })
    .await;
}

#[tokio::test]
async fn a_url_file_that_changes_to_a_server_without_tls_is_not_followed() {
    let server = Redis::start().await;
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("url");
    fs::write(&file, server.url()).unwrap();
    let state = open_state(&json!({"redis": {"url": format!("file:{}", file.display())}, "timeout": "1s"})).await;
    // An address for documentation, which no machine has.
    fs::write(&file, "redis://192.0.2.2").unwrap();
    assert_answers_for(&state, NOTICE_TIME).await;
}

/// A gateway process with a state, and an agent `echo`.
async fn process(state: &Value, echo: &Agent, limits: &str) -> Gateway {
    gateway().agent("echo", echo).section(&format!("state: {state}\nlimits: {limits}\n")).start().await
}

async fn keyed_call(gate: &Gateway, key: &str) -> u16 {
    send(gate.post("/agents/echo/invoke").header("idempotency-key", key).json(&json!({}))).await.status
}

#[tokio::test]
async fn calls_with_keys_are_made_while_the_server_is_too_slow_for_limits() {
    let (server, echo) = (Redis::start().await, Agent::echo().await);
    let proxy = DelayingProxy::start(server.port()).await;
    let state = json!({"redis": {"url": format!("redis://{}", proxy.address)}, "timeout": "20ms"});
    // Each call near the end of a limit draws from the server.
    let gate = process(&state, &echo, "{per_caller: 1000/s burst 1, per_address: null}").await;
    proxy.set_delay(Duration::from_millis(40));
    for number in 0..100 {
        gate.invoke("echo", &json!({})).await;
        let status = keyed_call(&gate, &number.to_string()).await;
        assert!([200, 429].contains(&status), "call {number}: {status}\n{}", gate.stderr());
        sleep(Duration::from_millis(20)).await;
    }
    let up = async |store: &str| gate.metric(&format!("gatepost_store_up{{store=\"{store}\"}}")).await;
    assert_eq!((up("limits").await, up("idempotency").await), (Some(0.0), Some(1.0)));
    let warnings = gate.stderr().matches("does not answer in time").count();
    assert!((1..=3).contains(&warnings), "{warnings} {}", gate.stderr());
    proxy.set_delay(Duration::ZERO);
    eventually("limits use the server again", async || up("limits").await == Some(1.0)).await;
}

#[tokio::test]
async fn a_cluster_without_one_node_serves_the_keys_of_the_others_and_then_all() {
    let mut cluster = RedisCluster::start_with_replicas().await;
    let state = open_state(&cluster.section()).await;
    let records = IdempotencyRecords::new(&state);
    let look_up = async |shard: u8| records.look_up(shard, &[1; 32], &[1; 32], Duration::from_millis(250)).await;
    let lost = (cluster.node_of_shard(0).await + 1) % 3;
    let (mut others, mut of_lost) = (Vec::new(), Vec::new());
    for shard in 0..state.shards() {
        assert!(look_up(shard).await.is_ok(), "{shard}");
        if cluster.node_of_shard(shard).await == lost { of_lost.push(shard) } else { others.push(shard) }
    }
    cluster.kill_node(lost);
    let (started, mut failures, mut lookups) = (Instant::now(), 0, 0);
    while started.elapsed() < Duration::from_secs(3) {
        for shard in &others {
            failures += usize::from(look_up(*shard).await.is_err());
            lookups += 1;
        }
        let _ = look_up(of_lost[lookups % of_lost.len()]).await;
        assert!(state.is_available_for(TripKind::Keys));
    }
    // The client of the cluster waits for its new view of the nodes.
    assert!(failures * 20 <= lookups, "{failures} of {lookups}");
    eventually_within(Duration::from_secs(30), "the replica has its place", async || {
        let mut all = true;
        for shard in &of_lost {
            all &= look_up(*shard).await.is_ok();
        }
        all
    })
    .await;
}

#[tokio::test]
async fn a_cluster_without_the_node_of_the_heartbeats_serves_the_keys_of_the_others() {
    let mut cluster = RedisCluster::start_with_replicas().await;
    let state = open_state(&cluster.section()).await;
    let records = IdempotencyRecords::new(&state);
    let lost = cluster.node_of_shard(0).await;
    let mut other = 0;
    while cluster.node_of_shard(other).await == lost {
        other += 1;
    }
    cluster.kill_node(lost);
    let (started, mut failures, mut lookups) = (Instant::now(), 0, 0);
    while started.elapsed() < Duration::from_secs(3) {
        let reply = records.look_up(other, &[1; 32], &[1; 32], Duration::from_millis(250)).await;
        failures += usize::from(reply.is_err());
        lookups += 1;
        sleep(Duration::from_millis(10)).await;
    }
    assert!(failures * 10 <= lookups, "{failures} of {lookups}");
}

#[tokio::test]
async fn a_gateway_follows_the_sentinels_although_it_still_reaches_the_old_primary() {
    let (redis, other) = (RedisWithSentinel::start().await, StateServer::redis().await);
    let state = open_state(&json!({"redis": redis.section(), "timeout": "1s"})).await;
    let StateServer::Redis(new_primary) = &other else { unreachable!() };
    redis.name_another_primary(new_primary.port()).await;
    eventually_within(Duration::from_secs(10), "the gateway has moved", async || {
        new_primary.command::<u64>("ZCARD gatepost:{0}:gateways").await == 1
    })
    .await;
    assert_eq!(exchange(&state).await, Ok(()));
}

#[tokio::test]
async fn a_replica_is_refused() {
    let (primary, replica) = (Redis::start().await, Redis::start().await);
    let _: () = replica.command(&format!("REPLICAOF 127.0.0.1 {}", primary.port())).await;
    let state = open_state(&json!({"redis": {"url": replica.url()}})).await;
    assert!(state.last_error().unwrap().contains("is a replica"), "{:?}", state.last_error());
}

/// The rights of the user that the documentation creates: a line of a file of users.
fn documented_rights() -> String {
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/scale-out.md")).unwrap();
    let line = page.lines().find(|line| line.starts_with("user gatepost on ")).unwrap();
    line.strip_prefix("user ").unwrap().replace(">PASSWORD", ">secret")
}

/// The section `state` of that user, with the password in a file.
fn as_user_gatepost(server: &Redis, folder: &TempDir) -> Value {
    let file = folder.path().join("password");
    fs::write(&file, "secret").unwrap();
    let url = format!("redis://gatepost@127.0.0.1:{}", server.port());
    json!({"redis": {"url": url, "password": format!("file:{}", file.display())}, "timeout": "1s"})
}

/// Makes each kind of trip of small values and logs.
async fn use_values_and_logs(state: &SharedState) {
    let (key, minute) = ([7; 32], Duration::from_secs(60));
    let value = || NewValue { key, value: b"v".to_vec(), lifetime: minute };
    for kind in [ValueKind::Revocation, ValueKind::PairingCode, ValueKind::PairedPage] {
        assert_eq!(state.put_values(kind, &[value()]).await, Ok(vec![true]));
        assert!(state.get_value(kind, &key).await.unwrap().is_some());
        state.changed_values(kind, 0, 10).await.unwrap();
        for presented in [[1; 32], [2; 32]] {
            let attempt = RedemptionAttempt { presented: &presented, max_mismatches: 2 };
            state.redeem_value(kind, &key, attempt).await.unwrap();
        }
    }
    for number in 0..3 {
        let append = LogAppend {
            log: 1,
            header: Bytes::from_static(b"h"),
            first_index: Some(number),
            entries: vec![Bytes::from_static(b"e")],
            max_entries: 1,
            max_bytes: 10,
            lifetime: minute,
        };
        state.append_to_logs(&[append]).await.unwrap();
    }
    assert!(state.read_log(1, 0, 100).await.unwrap().is_some());
    assert_eq!(state.check_gateway(state.gateway_id()).await, Ok(true));
}

#[tokio::test]
async fn the_documented_rights_of_redis_are_enough() {
    let (server, echo) = (Redis::start().await, Agent::echo().await);
    let _: () = server.command(&format!("ACL SETUSER {}", documented_rights())).await;
    let folder = TempDir::new().unwrap();
    let section = as_user_gatepost(&server, &folder);
    let limits = "{per_caller: 100/h, quota: {per_day: 50}, per_address: null, concurrency: {shared_max_per_agent: 4}}";
    let sections = format!("state: {section}\nlimits: {limits}\nidempotency: {{ttl: 2s}}\n");
    let gate = gateway().agent("echo", &echo).section(&sections).start().await;
    for key in ["a", "a", "b"] {
        assert_eq!(keyed_call(&gate, key).await, 200, "{}", gate.stderr());
    }
    for _ in 0..60 {
        gate.invoke("echo", &json!({})).await;
    }
    let state = open_state(&section).await;
    use_values_and_logs(&state).await;
    // Keys end, and buckets are full again.
    sleep(Duration::from_secs(4)).await;
    state.leave().await;
    for store in ["limits", "leases", "idempotency", "state"] {
        let failures = gate.metric(&format!("gatepost_store_operation_failures_total{{store=\"{store}\"}}")).await;
        assert_eq!(failures, Some(0.0), "{store} {}", gate.stderr());
    }
    let refused: Vec<redis::Value> = server.command("ACL LOG").await;
    assert!(refused.is_empty(), "{refused:?}");
}

#[tokio::test]
async fn a_right_that_is_missing_is_reported_with_where_the_rights_are_listed() {
    let server = Redis::start().await;
    let _: () = server.command(&format!("ACL SETUSER {}", documented_rights().replace("+time", "-time"))).await;
    let folder = TempDir::new().unwrap();
    let state = open_state(&as_user_gatepost(&server, &folder)).await;
    let why = state.last_error().unwrap();
    assert!(why.contains("can't run this command") && why.contains("docs/scale-out.md"), "{why}");
}
