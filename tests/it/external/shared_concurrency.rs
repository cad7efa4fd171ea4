//! Concurrent calls to an agent of three gateways that share state: under load, after the death of a gateway, and through
//! outages of the server.

use super::support::state_server::StateServer;
use crate::support::{
    eventually, eventually_within,
    gateway::{Gateway, gateway},
    servers::RawAgent,
};
use futures_util::future::join_all;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// The calls at the agent.
#[derive(Debug, Default)]
struct CallCounts {
    now: AtomicUsize,
    peak: AtomicUsize,
    completed: AtomicUsize,
}

/// A call at the agent, until it is dropped.
struct CountedCall<'a>(&'a CallCounts);

impl<'a> CountedCall<'a> {
    fn new(counts: &'a CallCounts) -> Self {
        let now = counts.now.fetch_add(1, SeqCst) + 1;
        counts.peak.fetch_max(now, SeqCst);
        Self(counts)
    }
}

impl Drop for CountedCall<'_> {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, SeqCst);
    }
}

/// An agent that answers after the milliseconds that the call asks for.
async fn counting_agent(counts: &Arc<CallCounts>) -> RawAgent {
    let counts = Arc::clone(counts);
    RawAgent::start(move |stream, _| {
        let counts = Arc::clone(&counts);
        async move {
            // The gateway may end the connection at any time.
            let _ = serve(stream, &counts).await;
        }
    })
    .await
}

async fn serve(mut stream: TcpStream, counts: &CallCounts) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut received = Vec::new();
    loop {
        let body = loop {
            let head_end = received.windows(4).position(|window| window == b"\r\n\r\n").map(|at| at + 4);
            if let Some(head_end) = head_end {
                let head = String::from_utf8_lossy(&received[..head_end]).to_ascii_lowercase();
                let length = head.lines().find_map(|line| line.strip_prefix("content-length:")).unwrap().trim();
                let end = head_end + length.parse::<usize>().unwrap();
                if received.len() >= end {
                    let body: Value = serde_json::from_slice(&received[head_end..end]).unwrap();
                    received.drain(..end);
                    break body;
                }
            }
            if stream.read_buf(&mut received).await? == 0 {
                return Ok(());
            }
        };
        let call = CountedCall::new(counts);
        let duration = Duration::from_millis(body["millis"].as_u64().unwrap());
        tokio::select! {
            () = tokio::time::sleep(duration) => {}
            _ = stream.read_u8() => return Ok(()),
        }
        drop(call);
        counts.completed.fetch_add(1, SeqCst);
        let answer = r#"{"ok":true}"#;
        let head =
            format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n", answer.len());
        stream.write_all(format!("{head}{answer}").as_bytes()).await?;
    }
}

/// Three gateways, a server, and an agent that all of them reach.
struct Fleet {
    server: StateServer,
    gateways: Vec<Gateway>,
    counts: Arc<CallCounts>,
    _agent: RawAgent,
}

impl Fleet {
    async fn start(server: StateServer, max: usize, on_error: &str) -> Self {
        let counts = Arc::new(CallCounts::default());
        let agent = counting_agent(&counts).await;
        let mut state = server.section();
        state["timeout"] = json!("100ms");
        let limits = json!({
            "max_share": 1,
            "concurrency": {"shared_max_per_agent": max, "max_queued": 100, "queue_timeout": "10s", "adaptive": false},
            "on_error": {"concurrency": on_error},
        });
        let sections = format!("state: {state}\nlimits: {limits}\n");
        let start = || gateway().document(agent.document("a")).section(&sections).start();
        let gateways = join_all((0..3).map(|_| start())).await;
        for gateway in &gateways {
            eventually("the gateways count each other", async || {
                gateway.metric("gatepost_state_gateways").await == Some(3.0)
            })
            .await;
        }
        Self { server, gateways, counts, _agent: agent }
    }

    async fn call(&self, gateway: usize, millis: u64) -> u16 {
        self.gateways[gateway].invoke("a", &json!({"millis": millis})).await.status
    }

    /// Makes calls from several callers of each gateway while `test` runs. Returns how many each gateway answered.
    async fn under_load(&self, callers: usize, test: impl Future<Output = ()>) -> Vec<usize> {
        let is_over = AtomicBool::new(false);
        let load = (0..self.gateways.len()).map(|gateway| {
            let is_over = &is_over;
            let callers = (0..callers).map(move |_| async move {
                let mut answered = 0;
                while !is_over.load(SeqCst) {
                    tokio::time::sleep(Duration::from_millis(fastrand::u64(..5))).await;
                    assert_eq!(self.call(gateway, fastrand::u64(10..60)).await, 200);
                    answered += 1;
                }
                answered
            });
            async move { join_all(callers).await.into_iter().sum::<usize>() }
        });
        let test = async {
            test.await;
            is_over.store(true, SeqCst);
        };
        tokio::join!(join_all(load), test).0
    }

    /// Waits until `count` more calls have ended.
    async fn wait_for_calls(&self, count: usize) {
        let end = self.counts.completed.load(SeqCst) + count;
        eventually_within(Duration::from_secs(60), "calls are answered", async || {
            self.counts.completed.load(SeqCst) >= end
        })
        .await;
    }

    /// Returns the most calls that were at the agent at once during `count` calls.
    async fn peak_of(&self, count: usize) -> usize {
        self.counts.peak.store(0, SeqCst);
        self.wait_for_calls(count).await;
        self.counts.peak.load(SeqCst)
    }

    async fn wait_for_log(&self, text: &str, count: usize) {
        eventually_within(Duration::from_secs(30), text, async || {
            self.gateways.iter().all(|gateway| gateway.stderr().matches(text).count() >= count)
        })
        .await;
    }
}

async fn three_gateways_never_exceed_the_maximum(server: StateServer) {
    let fleet = Fleet::start(server, 5, "local").await;
    let answered = fleet
        .under_load(6, async {
            let peak = fleet.peak_of(1_000).await;
            assert_eq!(peak, 5, "the maximum is reached and not exceeded");
        })
        .await;
    assert!(answered.iter().all(|own| *own > 150), "no gateway starves: {answered:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn with_redis_three_gateways_never_have_more_calls_at_an_agent_than_the_shared_maximum() {
    three_gateways_never_exceed_the_maximum(StateServer::redis().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_postgresql_three_gateways_never_have_more_calls_at_an_agent_than_the_shared_maximum() {
    three_gateways_never_exceed_the_maximum(StateServer::postgres().await).await;
}

async fn a_killed_gateway_frees_its_slots(server: StateServer) {
    let fleet = Fleet::start(server, 3, "local").await;
    let held = async {
        // They end with the gateway.
        let call = || fleet.gateways[0].post("/agents/a/invoke").json(&json!({"millis": 600_000})).send();
        assert!(join_all((0..3).map(|_| call())).await.iter().all(Result::is_err));
    };
    let test = async {
        eventually("all slots are in use", async || fleet.counts.now.load(SeqCst) == 3).await;
        let waiting = async {
            // A call waits in the queue for ten seconds.
            let started = Instant::now();
            (fleet.call(1, 1).await, started.elapsed())
        };
        let kill = async {
            eventually("a call waits at the other gateway", async || {
                fleet.gateways[1].metric("gatepost_calls_queued").await.is_some_and(|queued| queued > 0.0)
            })
            .await;
            fleet.gateways[0].send_signal(Signal::KILL);
        };
        let ((status, waited), ()) = tokio::join!(waiting, kill);
        assert_eq!(status, 200);
        assert!(waited < Duration::from_secs(9), "the lease ends five seconds after the last exchange: {waited:?}");
        let both = join_all((0..6).map(|call| fleet.call(1 + call % 2, 300))).await;
        assert_eq!(both, [200; 6]);
    };
    tokio::join!(held, test);
    assert_eq!(fleet.counts.peak.load(SeqCst), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn with_redis_the_slots_of_a_killed_gateway_are_free_after_its_lease() {
    a_killed_gateway_frees_its_slots(StateServer::redis().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_postgresql_the_slots_of_a_killed_gateway_are_free_after_its_lease() {
    a_killed_gateway_frees_its_slots(StateServer::postgres().await).await;
}

async fn calls_go_on_through_outages(server: StateServer) {
    let mut fleet = Fleet::start(server, 6, "local").await;
    for (outage, is_paused) in [(1, true), (2, false)] {
        if is_paused {
            fleet.server.pause();
        } else {
            fleet.server.stop();
        }
        let during = fleet.under_load(6, async {
            fleet.wait_for_log("the shared state is unavailable", outage).await;
            // Calls that had a slot of the server end first.
            fleet.wait_for_calls(30).await;
            let peak = fleet.peak_of(200).await;
            assert!((5..=6).contains(&peak), "each gateway has a third: {peak}");
        });
        let during = during.await;
        assert!(during.iter().all(|own| *own > 20), "{during:?}");
        if is_paused {
            fleet.server.resume();
        } else {
            fleet.server.restart().await;
        }
        fleet.wait_for_log("the shared state is available again", outage).await;
        fleet
            .under_load(6, async {
                fleet.wait_for_calls(30).await;
                // A gateway that the busy machine delays may lose the server for another moment, with a third of its own.
                eventually("the gateways share the slots again", async || fleet.peak_of(300).await == 6).await;
            })
            .await;
        // The others keep a slot for their next calls for a second or so.
        eventually("one gateway may use all slots again", async || {
            fleet.counts.peak.store(0, SeqCst);
            let of_one = join_all((0..12).map(|_| fleet.call(0, 500))).await;
            assert_eq!(of_one, [200; 12]);
            fleet.counts.peak.load(SeqCst) == 6
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn with_redis_calls_go_on_while_the_server_hangs_or_is_stopped() {
    calls_go_on_through_outages(StateServer::redis().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_postgresql_calls_go_on_while_the_server_hangs_or_is_stopped() {
    calls_go_on_through_outages(StateServer::postgres().await).await;
}

async fn lost_data_is_restored(server: StateServer) {
    let mut fleet = Fleet::start(server, 4, "local").await;
    let Fleet { server, gateways, counts, .. } = &mut fleet;
    let invoke = async |gateway: usize, millis: u64| gateways[gateway].invoke("a", &json!({"millis": millis})).await;
    let long_calls = join_all((0..4_u64).map(|call| invoke(call as usize % 3, 6_000 + 1_000 * call)));
    let test = async {
        eventually("all slots are in use", async || counts.now.load(SeqCst) == 4).await;
        server.lose_data().await;
        // Gateways renew their leases every second, and an outage before that lasts for a moment.
        eventually("the calls in progress count again", async || server.leased_slots().await == 4).await;
        counts.peak.store(0, SeqCst);
        assert_eq!(join_all((0..3).map(async |call| invoke(call, 10).await.status)).await, [200; 3]);
        assert!((1..=4).contains(&counts.peak.load(SeqCst)) && counts.now.load(SeqCst) < 4, "they wait for a slot");
    };
    let (long_calls, ()) = tokio::join!(long_calls, test);
    assert!(long_calls.iter().all(|answer| answer.status == 200));
}

#[tokio::test(flavor = "multi_thread")]
async fn with_redis_calls_in_progress_count_again_after_the_server_lost_its_data() {
    lost_data_is_restored(StateServer::redis().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_postgresql_calls_in_progress_count_again_after_the_server_lost_its_data() {
    lost_data_is_restored(StateServer::postgres().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_server_on_error_says_whether_calls_pass() {
    for (on_error, status) in [("open", 200), ("closed", 503)] {
        let mut fleet = Fleet::start(StateServer::redis().await, 1, on_error).await;
        assert_eq!(fleet.call(0, 1).await, 200);
        fleet.server.stop();
        fleet.wait_for_log("the shared state is unavailable", 1).await;
        // A lease that has not ended may be used.
        eventually("calls are decided without the server", async || {
            join_all((0..3).map(|_| fleet.call(0, 300))).await == [status; 3]
        })
        .await;
        let refused = fleet.gateways[0].invoke("a", &json!({"millis": 1})).await;
        if status == 503 {
            refused.expect_fault(503, "Overloaded");
        }
        fleet.server.restart().await;
        fleet.wait_for_log("the shared state is available again", 1).await;
        let answered = join_all((0..6).map(|call| fleet.call(call % 3, 50))).await;
        assert_eq!(answered, [200; 6], "calls wait for the one slot");
    }
}
