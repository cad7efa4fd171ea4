//! Events of tasks and streams of gateways that share a state in a real Redis or PostgreSQL server: what runs at one
//! gateway is followed, resumed and canceled at another. The gateway that runs it is killed; the server hangs, is killed,
//! or loses its data.

use super::support::{postgres::Postgres, state_server::StateServer};
use crate::{
    support::{
        agent::{Agent, Latch, Step, latch, write},
        eventually, eventually_within,
        gateway::{Gateway, GatewayBuilder, gateway, send},
        gateway_response::GatewayResponse,
    },
    tasks::{call_with_prefer, request_as, task_path, wait_for_status},
};
use rustix::process::Signal;
use serde_json::json;
use std::time::{Duration, Instant};
use tokio::time::timeout;

const SECOND: Duration = Duration::from_secs(1);
const EVENTS: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";

/// Gateways with one state and one task store, and an agent that sends the events 1 and 2, and one more with each latch.
struct Site {
    server: StateServer,
    /// The server of the task store, if it is not that of the state.
    _task_store: Option<Postgres>,
    task_database: String,
    agent: Agent,
    latches: [Latch; 2],
    settings: &'static str,
}

impl Site {
    async fn new(mut server: StateServer, settings: &'static str) -> Self {
        let mut task_store = None;
        let task_database = match &mut server {
            StateServer::Postgres { server, .. } => server.create_database().await,
            StateServer::Redis(_) => task_store.insert(Postgres::start().await).create_database().await,
        };
        let latches = [latch(), latch()];
        let steps = vec![
            write(format!("{EVENTS}data: 1\n\ndata: 2\n\n")),
            Step::WaitForLatch(latches[0].clone()),
            write("data: 3\n\n"),
            Step::WaitForLatch(latches[1].clone()),
            write("data: 4\n\n"),
            Step::Close,
        ];
        let agent = Agent::with_steps(steps).await;
        Self { server, _task_store: task_store, task_database, agent, latches, settings }
    }

    fn gateway(&self) -> GatewayBuilder {
        let (database, settings) = (&self.task_database, self.settings);
        gateway()
            .section(&format!("state: {}\n", self.server.section()))
            .section(&format!("tasks:\n  database: {database}\n  lease_ttl: 2s\n  poll_interval: 1s\n{settings}"))
            // An outage may take longer than an agent may be silent by default.
            .section("agents:\n  sources: [agents.json]\n  defaults: {timeouts: {idle: 10m, total: 20m}}\n")
            .agent("stream", &self.agent)
            .caller("team-b", &[])
    }

    async fn two_gateways(&self) -> (Gateway, Gateway) {
        (self.gateway().start().await, self.gateway().start().await)
    }

    /// Starts a task, and returns its path.
    async fn start_task(&self, gate: &Gateway) -> String {
        let calls = self.agent.call_count();
        let path = task_path(&call_with_prefer(gate, "stream", "respond-async").await);
        eventually("the agent is called", async || self.agent.call_count() > calls).await;
        path
    }
}

/// A response that is read while it is written.
struct Follower {
    response: reqwest::Response,
    seen: String,
}

impl Follower {
    async fn open(gate: &Gateway, path: &str, last_event_id: &str) -> Self {
        let request = gate.request("GET", &format!("{path}/events")).header("x-api-key", gate.key("team-a"));
        let request = if last_event_id.is_empty() { request } else { request.header("last-event-id", last_event_id) };
        let response = timeout(10 * SECOND, request.send()).await.unwrap().unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { response, seen: String::new() }
    }

    /// Calls the agent for a stream. Returns it with the path for resumption, without `/events`.
    async fn call(gate: &Gateway, agent: &str) -> (Self, String) {
        let request = gate.post(&format!("/agents/{agent}/invoke")).json(&json!({}));
        let response = timeout(10 * SECOND, request.send()).await.unwrap().unwrap();
        let id = response.headers()["x-task-id"].to_str().unwrap().to_owned();
        (Self { response, seen: String::new() }, format!("/tasks/{id}"))
    }

    /// Reads until `text` has come.
    async fn expect(&mut self, text: &str) {
        self.expect_within(10 * SECOND, text).await;
    }

    async fn expect_within(&mut self, limit: Duration, text: &str) {
        assert!(self.reaches(limit, text).await, "no {text:?} after {:?}", self.seen);
    }

    /// Reads until `text` has come, and returns whether it has.
    async fn reaches(&mut self, limit: Duration, text: &str) -> bool {
        let deadline = Instant::now() + limit;
        while !self.seen.contains(text) {
            let rest = deadline.saturating_duration_since(Instant::now());
            let Ok(Ok(Some(chunk))) = timeout(rest, self.response.chunk()).await else { return false };
            self.push(&chunk);
        }
        true
    }

    /// Asserts that no event comes for a time.
    async fn expect_silence(&mut self, time: Duration) {
        let before = self.seen.len();
        assert!(!self.reaches(time, "no such text").await);
        assert_eq!(&self.seen[before..], "");
    }

    fn push(&mut self, chunk: &[u8]) {
        self.seen.push_str(&String::from_utf8_lossy(chunk).replace(": keep-alive\n\n", ""));
    }

    /// Reads to the end, which comes within `limit`, and returns the text.
    async fn finish(mut self, limit: Duration) -> String {
        let rest = async {
            while let Ok(Some(chunk)) = self.response.chunk().await {
                self.push(&chunk);
            }
        };
        let has_ended = timeout(limit, rest).await.is_ok();
        assert!(has_ended, "no end after {:?}", self.seen);
        self.seen
    }
}

async fn events_as(gate: &Gateway, caller: &str, path: &str, last_event_id: &str) -> GatewayResponse {
    let call = gate.request("GET", &format!("{path}/events")).header("x-api-key", gate.key(caller));
    send(if last_event_id.is_empty() { call } else { call.header("last-event-id", last_event_id) }).await
}

/// Asserts that a caller gets the same answer at all gateways: status, code and message.
#[track_caller]
fn assert_same_refusal(answers: &[GatewayResponse], status: u16, code: &str) {
    let messages: Vec<_> = answers.iter().map(|answer| answer.expect_fault(status, code)["message"].clone()).collect();
    assert!(messages.iter().all(|message| *message == messages[0]), "{messages:?}");
}

async fn a_task_is_followed_elsewhere(server: StateServer) {
    let site = Site::new(server, "").await;
    let (one, two) = site.two_gateways().await;
    let path = site.start_task(&one).await;
    let mut here = Follower::open(&one, &path, "").await;
    let mut elsewhere = Follower::open(&two, &path, "").await;
    for follower in [&mut here, &mut elsewhere] {
        follower.expect("data: 2\n\n").await;
    }
    assert!(elsewhere.seen.starts_with("id: 1\nevent: status\n"), "{}", elsewhere.seen);
    elsewhere.expect_silence(SECOND).await;
    // Resumed after each event that the caller may have.
    let (mut from_one, mut from_three) =
        (Follower::open(&two, &path, "1").await, Follower::open(&two, &path, "3").await);
    site.latches[0].close();
    for follower in [&mut here, &mut elsewhere, &mut from_one, &mut from_three] {
        follower.expect("id: 4\ndata: 3\n\n").await;
    }
    assert_eq!(from_three.seen, "id: 4\ndata: 3\n\n");
    // Callers that may not see the task, and positions that do not exist, while it runs.
    for (caller, last_event_id) in [("team-b", ""), ("team-b", "1"), ("team-b", "99")] {
        let answers = [
            events_as(&one, caller, &path, last_event_id).await,
            events_as(&two, caller, &path, last_event_id).await,
            events_as(&two, caller, "/tasks/0123456789abcdef0123456789abcdef", last_event_id).await,
            events_as(&two, caller, "/tasks/0", last_event_id).await,
        ];
        assert_same_refusal(&answers, 404, "NotFound");
    }
    for method in ["GET", "DELETE"] {
        let answers =
            [request_as(&one, "team-b", method, &path).await, request_as(&two, "team-b", method, &path).await];
        assert_same_refusal(&answers, 404, "NotFound");
    }
    let anonymous = [&one, &two].map(|gate| gate.request("GET", &format!("{path}/events")).header("x-api-key", "x"));
    for request in anonymous {
        assert_eq!(send(request).await.status, 401);
    }
    let answers = [events_as(&one, "team-a", &path, "99").await, events_as(&two, "team-a", &path, "99").await];
    assert_same_refusal(&answers, 410, "Gone");
    let answers = [events_as(&one, "team-a", &path, "x").await, events_as(&two, "team-a", &path, "x").await];
    assert_same_refusal(&answers, 400, "InvalidInput");
    // To the end: the same bytes at both.
    site.latches[1].close();
    let text = here.finish(10 * SECOND).await;
    assert_eq!(elsewhere.finish(10 * SECOND).await, text);
    let from_one = from_one.finish(10 * SECOND).await;
    assert!(text.ends_with(&from_one) && from_one.starts_with("id: 2\ndata: 1\n\n"), "{from_one}");
    assert!(text.ends_with(&from_three.finish(10 * SECOND).await));
    assert!(text.contains("id: 5\ndata: 4\n\nid: 6\nevent: status\n") && text.contains("\"completed\""), "{text}");
    wait_for_status(&two, &path, "completed").await;
    assert_eq!(events_as(&two, "team-a", &path, "6").await.status, 204, "the caller has everything");
    let rest = events_as(&two, "team-a", &path, "4").await.text();
    assert!(rest.starts_with("id: 5\ndata: 4\n\nid: 6\nevent: status\n"), "{rest}");
    assert!(two.metric("gatepost_events_total{event=\"stream_resumed\"}").await >= Some(3.0));
    assert_eq!(site.agent.call_count(), 1);
}

#[tokio::test]
async fn r80_redis_a_task_is_followed_and_resumed_at_another_gateway_by_its_caller_only() {
    a_task_is_followed_elsewhere(StateServer::redis().await).await;
}

#[tokio::test]
async fn r80_postgresql_a_task_is_followed_and_resumed_at_another_gateway_by_its_caller_only() {
    a_task_is_followed_elsewhere(StateServer::postgres().await).await;
}

async fn a_stream_is_resumed_and_canceled_elsewhere(server: StateServer) {
    let hold = latch();
    let steps = vec![
        write(format!("{EVENTS}data: 1\n\ndata: 2\n\n")),
        Step::WaitForLatch(hold.clone()),
        write("data: 3\n\n"),
        Step::Hang,
    ];
    let agent = Agent::with_steps(steps).await;
    let site = Site::new(server, "  resume: {window: 2s}\n").await;
    let one = site.gateway().agent("hanging", &agent).start().await;
    let two = site.gateway().start().await;
    let (mut caller, path) = Follower::call(&one, "hanging").await;
    caller.expect("data: 2\n\n").await;
    let mut resumed = Follower::open(&two, &path, "1").await;
    drop(caller);
    resumed.expect("id: 2\ndata: 2\n\n").await;
    // Longer than the window: the reader elsewhere keeps the stream alive.
    resumed.expect_silence(5 * SECOND).await;
    assert_eq!(agent.aborted_responses(), 0);
    for caller in ["team-b", "team-a"] {
        let status = if caller == "team-a" { 200 } else { 404 };
        assert_eq!(request_as(&two, caller, "GET", &path).await.status, status);
        assert_eq!(events_as(&two, "team-b", &path, "1").await.status, 404);
    }
    assert_eq!(request_as(&two, "team-b", "DELETE", &path).await.status, 404);
    hold.close();
    resumed.expect("id: 3\ndata: 3\n\n").await;
    // Canceled where it does not run.
    assert_eq!(request_as(&two, "team-a", "DELETE", &path).await.expect_ok()["status"], "canceled");
    let text = resumed.finish(5 * SECOND).await;
    assert!(text.contains("id: 4\nevent: status\n") && text.contains("canceled"), "{text}");
    eventually("the agent is left", async || agent.aborted_responses() == 1).await;
    assert_eq!(request_as(&two, "team-a", "DELETE", &path).await.expect_ok()["status"], "canceled");
    // Without readers at any gateway a stream ends, and nothing stays on the server.
    let (mut caller, path) = Follower::call(&one, "hanging").await;
    caller.expect("data: 3\n\n").await;
    let mut resumed = Follower::open(&two, &path, "2").await;
    resumed.expect("data: 3\n\n").await;
    drop((caller, resumed));
    eventually_within(10 * SECOND, "the agent is left", async || agent.aborted_responses() == 2).await;
    eventually_within(10 * SECOND, "the stream is forgotten", async || {
        request_as(&two, "team-a", "GET", &path).await.status == 404
    })
    .await;
    eventually_within(30 * SECOND, "no log is left", async || site.server.logs().await == 0).await;
}

#[tokio::test]
async fn r80_redis_a_stream_is_resumed_at_another_gateway_which_keeps_it_alive_and_cancels_it() {
    a_stream_is_resumed_and_canceled_elsewhere(StateServer::redis().await).await;
}

#[tokio::test]
async fn r80_postgresql_a_stream_is_resumed_at_another_gateway_which_keeps_it_alive_and_cancels_it() {
    a_stream_is_resumed_and_canceled_elsewhere(StateServer::postgres().await).await;
}

async fn a_large_stream_waits_for_its_reader_elsewhere(server: StateServer) {
    let hold = latch();
    let event = |number: u32| format!("data: {number} {}\n\n", "x".repeat(2_000));
    let body: String = (2..=300).map(event).collect();
    let steps = vec![
        write(format!("{EVENTS}{}", event(1))),
        Step::WaitForLatch(hold.clone()),
        write(body.clone()),
        Step::Close,
    ];
    let agent = Agent::with_steps(steps).await;
    let site = Site::new(server, "  resume: {max_size: 16KiB, window: 5s}\n").await;
    let one = site.gateway().agent("large", &agent).start().await;
    let two = site.gateway().start().await;
    let (mut caller, path) = Follower::call(&one, "large").await;
    caller.expect("data: 1 ").await;
    drop(caller);
    let resumed = Follower::open(&two, &path, "1").await;
    hold.close();
    let text = resumed.finish(60 * SECOND).await;
    let plain: String = text.lines().filter(|line| !line.starts_with("id: ")).map(|line| format!("{line}\n")).collect();
    assert_eq!(plain.len(), body.len());
    assert!(plain == body, "events are lost, repeated or out of order");
}

#[tokio::test]
async fn r80_redis_a_large_stream_passes_whole_through_a_small_log_to_a_reader_elsewhere() {
    a_large_stream_waits_for_its_reader_elsewhere(StateServer::redis().await).await;
}

#[tokio::test]
async fn r80_postgresql_a_large_stream_passes_whole_through_a_small_log_to_a_reader_elsewhere() {
    a_large_stream_waits_for_its_reader_elsewhere(StateServer::postgres().await).await;
}

async fn a_killed_gateway_is_an_end(server: StateServer) {
    let site = Site::new(server, "").await;
    let (one, two) = site.two_gateways().await;
    let task = site.start_task(&one).await;
    let (mut caller, stream) = Follower::call(&one, "stream").await;
    caller.expect("data: 2\n\n").await;
    let mut followers = [Follower::open(&two, &task, "").await, Follower::open(&two, &stream, "").await];
    for follower in &mut followers {
        follower.expect("data: 2\n\n").await;
    }
    let killed = Instant::now();
    one.send_signal(Signal::KILL);
    for follower in followers {
        let text = follower.finish(20 * SECOND).await;
        let (_, end) = text.split_once("data: 2\n\n").unwrap();
        assert!(end.starts_with("event: error\n") && end.contains("Overloaded"), "{text}");
        assert!(end.contains("whether the agent finished is unknown") && !end.contains("id: "), "{text}");
    }
    assert!(killed.elapsed() < 20 * SECOND, "{:?}", killed.elapsed());
    // A reader that comes later gets what was written, and an end as well.
    let late = Follower::open(&two, &stream, "1").await.finish(20 * SECOND).await;
    assert!(late.starts_with("id: 2\ndata: 2\n\n") && late.contains("Overloaded"), "{late}");
    // Whether the agent goes on is unknown: nothing can cancel it.
    let started = Instant::now();
    request_as(&two, "team-a", "DELETE", &stream).await.expect_fault(503, "Overloaded");
    assert!(started.elapsed() < 10 * SECOND, "{:?}", started.elapsed());
    // The end of a task is in its store, and is told to those that have its events.
    wait_for_status(&two, &task, "failed").await;
    for last_event_id in ["", "1", "3"] {
        let end = events_as(&two, "team-a", &task, last_event_id).await;
        assert_eq!(end.status, 200);
        assert!(end.text().contains("event: status\n") && end.text().contains("Overloaded"), "{}", end.text());
    }
    assert_eq!(events_as(&two, "team-b", &task, "1").await.status, 404);
}

#[tokio::test]
async fn r80_redis_events_of_a_killed_gateway_end_with_an_error_at_the_others() {
    a_killed_gateway_is_an_end(StateServer::redis().await).await;
}

#[tokio::test]
async fn r80_postgresql_events_of_a_killed_gateway_end_with_an_error_at_the_others() {
    a_killed_gateway_is_an_end(StateServer::postgres().await).await;
}

#[tokio::test]
async fn r80_a_gateway_that_stops_tells_followers_elsewhere_how_its_tasks_ended() {
    let site = Site::new(StateServer::redis().await, "shutdown: {drain_timeout: 1s}\n").await;
    let (one, two) = site.two_gateways().await;
    let task = site.start_task(&one).await;
    let mut follower = Follower::open(&two, &task, "").await;
    follower.expect("data: 2\n\n").await;
    one.send_signal(Signal::TERM);
    let text = follower.finish(10 * SECOND).await;
    let (_, end) = text.split_once("data: 2\n\n").unwrap();
    assert!(end.starts_with("id: 4\nevent: status\n") && end.contains("was stopped before"), "{text}");
}

async fn a_server_that_is_away_delays_no_stream(server: StateServer, kills: bool) {
    let mut site = Site::new(server, "").await;
    let (one, two) = site.two_gateways().await;
    // A short pause loses nothing.
    let (mut caller, path) = Follower::call(&one, "stream").await;
    caller.expect("data: 2\n\n").await;
    let mut follower = Follower::open(&two, &path, "").await;
    follower.expect("data: 2\n\n").await;
    site.server.pause();
    site.latches[0].close();
    caller.expect_within(SECOND, "data: 3\n\n").await;
    follower.expect_silence(2 * SECOND).await;
    site.server.resume();
    follower.expect("id: 3\ndata: 3\n\n").await;
    // A long one ends readers elsewhere, and refuses new ones; there is no difference between what exists and what not.
    if kills {
        site.server.stop();
    } else {
        site.server.pause();
    }
    let (mut other, _) = Follower::call(&one, "stream").await;
    other.expect_within(2 * SECOND, "data: 3\n\n").await;
    let text = follower.finish(25 * SECOND).await;
    let (_, end) = text.rsplit_once("data: 3\n\n").unwrap();
    assert!(end.starts_with("event: error\n") && end.contains("Overloaded"), "{text}");
    for (caller, path) in
        [("team-a", &*path), ("team-b", &*path), ("team-b", "/tasks/0123456789abcdef0123456789abcdef")]
    {
        let started = Instant::now();
        let refused = events_as(&two, caller, path, "1").await;
        // The task store of the PostgreSQL server is away as well.
        refused.expect_fault(503, "Overloaded");
        assert!(started.elapsed() < 10 * SECOND, "{:?}", started.elapsed());
    }
    caller.expect_silence(SECOND / 10).await;
    if kills {
        site.server.restart().await;
    } else {
        site.server.resume();
    }
    eventually_within(30 * SECOND, "the stream is readable again", async || {
        let request = two.request("GET", &path).header("x-api-key", two.key("team-a"));
        send(request).await.status == 200
    })
    .await;
    // A PostgreSQL server that crashed has lost what it had confirmed.
    let is_lost = kills && matches!(site.server, StateServer::Postgres { .. });
    let mut follower = Follower::open(&two, &path, if is_lost { "" } else { "2" }).await;
    if !is_lost {
        follower.expect("id: 3\ndata: 3\n\n").await;
    }
    site.latches[1].close();
    assert!(caller.finish(5 * SECOND).await.ends_with("data: 4\n\n"));
    assert!(follower.finish(10 * SECOND).await.ends_with("id: 4\ndata: 4\n\n"));
}

#[tokio::test]
async fn r80_redis_a_server_that_hangs_delays_no_stream_and_ends_readers_elsewhere() {
    a_server_that_is_away_delays_no_stream(StateServer::redis().await, false).await;
}

#[tokio::test]
async fn r80_redis_a_server_that_is_killed_delays_no_stream_and_ends_readers_elsewhere() {
    a_server_that_is_away_delays_no_stream(StateServer::redis().await, true).await;
}

#[tokio::test]
async fn r80_postgresql_a_server_that_hangs_delays_no_stream_and_ends_readers_elsewhere() {
    a_server_that_is_away_delays_no_stream(StateServer::postgres().await, false).await;
}

#[tokio::test]
async fn r80_postgresql_a_server_that_is_killed_delays_no_stream_and_ends_readers_elsewhere() {
    a_server_that_is_away_delays_no_stream(StateServer::postgres().await, true).await;
}

#[tokio::test]
async fn r80_while_the_state_is_away_the_end_of_a_task_comes_from_the_task_store() {
    let mut site = Site::new(StateServer::redis().await, "").await;
    let (one, two) = site.two_gateways().await;
    let path = site.start_task(&one).await;
    Follower::open(&two, &path, "").await.expect("data: 2\n\n").await;
    site.server.stop();
    site.latches.iter().for_each(|latch| latch.close());
    assert!(Follower::open(&one, &path, "3").await.finish(5 * SECOND).await.contains("\"completed\""));
    // Polled until the end is stored.
    let end = events_as(&two, "team-a", &path, "5").await;
    assert!(end.text().starts_with("id: 6\nevent: status\n") && end.text().contains("\"completed\""), "{}", end.text());
    events_as(&two, "team-a", &path, "2").await.expect_fault(410, "Gone");
    wait_for_status(&two, &path, "completed").await;
    assert_eq!(events_as(&two, "team-a", &path, "6").await.status, 204);
}

async fn a_server_that_loses_its_data(server: StateServer) {
    let mut site = Site::new(server, "").await;
    let (one, two) = site.two_gateways().await;
    let (mut caller, path) = Follower::call(&one, "stream").await;
    caller.expect("data: 2\n\n").await;
    let mut follower = Follower::open(&two, &path, "").await;
    follower.expect("data: 2\n\n").await;
    site.server.lose_data().await;
    site.latches[0].close();
    caller.expect_within(SECOND, "data: 3\n\n").await;
    // The log goes on with the events that were not written before.
    follower.expect_within(30 * SECOND, "id: 3\ndata: 3\n\n").await;
    // What is lost is said, and is still at the gateway that runs the stream.
    events_as(&two, "team-a", &path, "1").await.expect_fault(410, "Gone");
    let mut resumed = Follower::open(&one, &path, "1").await;
    resumed.expect("data: 3\n\n").await;
    site.latches[1].close();
    assert!(follower.finish(10 * SECOND).await.ends_with("id: 4\ndata: 4\n\n"));
    assert!(resumed.finish(10 * SECOND).await.starts_with("id: 2\ndata: 2\n\nid: 3\ndata: 3\n\n"));
}

#[tokio::test]
async fn r80_redis_a_server_that_loses_its_data_loses_old_events_and_hides_no_gap() {
    a_server_that_loses_its_data(StateServer::redis().await).await;
}

#[tokio::test]
async fn r80_postgresql_a_server_that_loses_its_data_loses_old_events_and_hides_no_gap() {
    a_server_that_loses_its_data(StateServer::postgres().await).await;
}

#[tokio::test]
async fn r80_events_beyond_the_buffer_of_an_outage_are_a_gap_elsewhere_and_reach_the_caller_at_once() {
    let hold = latch();
    let body: String = (2..=2_000).map(|number| format!("data: {number} {}\n\n", "x".repeat(1_000))).collect();
    let steps = vec![
        write(format!("{EVENTS}data: 1\n\n")),
        Step::WaitForLatch(hold.clone()),
        write(format!("{body}data: last\n\n")),
        Step::Hang,
    ];
    let agent = Agent::with_steps(steps).await;
    let site = Site::new(StateServer::redis().await, "  resume: {max_size: 64KiB}\n").await;
    let one = site.gateway().agent("large", &agent).start().await;
    let two = site.gateway().start().await;
    let (mut caller, path) = Follower::call(&one, "large").await;
    caller.expect("data: 1\n\n").await;
    let mut follower = Follower::open(&two, &path, "").await;
    follower.expect("data: 1\n\n").await;
    site.server.pause();
    tokio::time::sleep(SECOND).await;
    hold.close();
    caller.expect_within(5 * SECOND, "data: last\n\n").await;
    assert!(one.metric("gatepost_events_total{event=\"event_log_gap\"}").await > Some(0.0));
    site.server.resume();
    let text = follower.finish(20 * SECOND).await;
    // What was on its way when the server hung may arrive; then the gap is said.
    let (events, end) = text.rsplit_once("event: error\n").unwrap();
    let ids: Vec<u64> = events.lines().filter_map(|line| line.strip_prefix("id: ")?.parse().ok()).collect();
    assert_eq!(ids, (1..=u64::try_from(ids.len()).unwrap()).collect::<Vec<_>>());
    assert!(end.contains("\"Gone\"") && !events.contains("data: last"), "{end}");
    events_as(&two, "team-a", &path, "1").await.expect_fault(410, "Gone");
    // The log has old events until the first append after the outage.
    eventually("the newest events are read", async || {
        Follower::open(&two, &path, "").await.reaches(2 * SECOND, "data: last\n\n").await
    })
    .await;
}
