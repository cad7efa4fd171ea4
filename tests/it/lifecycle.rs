//! Lifecycle of a gateway: connection limits, certificate reload, shutdown, and handover to a successor.

use crate::support::{
    agent::{Agent, Latch, Step, json_response, latch, write},
    certs::{CertificateAuthority, IssuedCertificate},
    eventually,
    gateway::{Gateway, GatewayBuilder, gatepost_command, gateway, send},
    gateway_response::{GatewayResponse, read_response, send_raw},
    ports::ReservedPort,
};
use rustix::process::Signal;
use serde_json::json;
use std::{
    net::SocketAddr,
    process::{Child, ExitStatus, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

/// Starts an agent that responds once the latch is closed.
async fn slow_agent(latch: &Latch) -> Agent {
    let steps = [vec![Step::WaitForLatch(Arc::clone(latch))], json_response(&json!({"done": true}))].concat();
    Agent::with_steps(steps).await
}

/// Starts an agent that streams one event, and a second one once the latch is closed.
async fn streaming_agent(latch: &Latch) -> Agent {
    let event =
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n";
    Agent::with_steps(vec![write(event), Step::WaitForLatch(Arc::clone(latch)), write("9\r\ndata: 2\n\n\r\n0\r\n\r\n")])
        .await
}

fn spawn_call(gate: &Gateway, id: &str) -> JoinHandle<GatewayResponse> {
    tokio::spawn(send(gate.post(&format!("/agents/{id}/invoke")).json(&json!({}))))
}

fn raw_request(gate: &Gateway, id: &str) -> Vec<u8> {
    let key = gate.key("team-a");
    format!("POST /agents/{id}/invoke HTTP/1.1\r\nHost: g\r\nX-API-Key: {key}\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{{}}").into_bytes()
}

async fn is_refused(address: SocketAddr) -> bool {
    TcpStream::connect(address).await.is_err()
}

/// Waits until the peer closes the connection; returns how long that took.
async fn wait_for_close(stream: &mut TcpStream) -> Duration {
    let started = Instant::now();
    let mut rest = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(8), stream.read_to_end(&mut rest)).await;
    assert!(read.is_ok(), "the connection stays open");
    assert_eq!(String::from_utf8_lossy(&rest), "");
    started.elapsed()
}

/// Starts the binary without waiting for it.
fn spawn_process(folder: &TempDir, config: &str) -> Child {
    std::fs::write(folder.path().join("agents.json"), "[]").unwrap();
    std::fs::write(folder.path().join("gatepost.yaml"), config).unwrap();
    let mut command = gatepost_command();
    command.args(["run", "-c"]).arg(folder.path().join("gatepost.yaml"));
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn send_signal(child: &Child, signal: Signal) {
    rustix::process::kill_process(rustix::process::Pid::from_child(child), signal).unwrap();
}

/// Waits for the end of a process; returns its status, and what it has printed.
fn wait_for_end(child: Child) -> (ExitStatus, String) {
    let output = child.wait_with_output().unwrap();
    (output.status, String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
}

#[tokio::test]
async fn a_signal_while_the_gateway_starts_ends_it_before_it_serves() {
    for signal in [Signal::TERM, Signal::INT] {
        // Redis that never answers: the gateway waits for it before it opens its listeners.
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let config = format!(
            "listeners: [{{address: '127.0.0.1:0'}}]\nadmin: {{address: '127.0.0.1:0'}}\n\
             agents: {{sources: [agents.json]}}\nstate: {{redis: {{url: 'redis://{}'}}}}\n",
            silent.local_addr().unwrap()
        );
        let folder = TempDir::new().unwrap();
        let child = spawn_process(&folder, &config);
        let _connection = silent.accept().await.unwrap();
        send_signal(&child, signal);
        let (status, printed) = tokio::task::spawn_blocking(move || wait_for_end(child)).await.unwrap();
        assert!(status.success(), "{signal:?}: {status:?}: {printed}");
        assert!(!printed.contains("listening on"), "{signal:?}: {printed}");
        assert!(printed.contains("stopped by a signal before the listeners were open"), "{signal:?}: {printed}");
    }
}

#[tokio::test]
async fn a_signal_as_soon_as_a_port_is_open_does_not_kill_the_gateway() {
    let port = ReservedPort::new();
    let address = SocketAddr::from(([127, 0, 0, 1], port.number()));
    let config = format!(
        "listeners: [{{address: '{address}'}}]\nadmin: {{address: '127.0.0.1:0'}}\nagents: {{sources: [agents.json]}}\n\
         shutdown: {{listener_close_delay: 0s}}\n"
    );
    for _ in 0..5 {
        let folder = TempDir::new().unwrap();
        let child = spawn_process(&folder, &config);
        let deadline = Instant::now() + Duration::from_secs(20);
        while is_refused(address).await {
            assert!(Instant::now() < deadline, "the gateway did not start");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // The gateway would reload its configuration once it runs; without a handler this would end it.
        send_signal(&child, Signal::HUP);
        send_signal(&child, Signal::TERM);
        let (status, printed) = tokio::task::spawn_blocking(move || wait_for_end(child)).await.unwrap();
        assert!(status.success(), "{status:?}: {printed}");
        assert!(printed.contains("draining"), "{printed}");
    }
}

#[tokio::test]
async fn on_sigterm_calls_in_flight_finish_and_new_connections_are_refused() {
    let latch = latch();
    let (slow, stream) = (slow_agent(&latch).await, streaming_agent(&latch).await);
    let mut gate = gateway().agent("slow", &slow).agent("stream", &stream).start().await;
    let mut idle = TcpStream::connect(gate.address()).await.unwrap();
    idle.write_all(&raw_request(&gate, "unknown")).await.unwrap();
    assert_eq!(read_response(&mut idle).await.unwrap().status, 404);
    let calls = [spawn_call(&gate, "slow"), spawn_call(&gate, "stream")];
    eventually("both agents receive their call", async || slow.call_count() + stream.call_count() == 2).await;
    gate.send_signal(Signal::TERM);
    eventually("new connections are refused", async || is_refused(gate.address()).await).await;
    assert!(wait_for_close(&mut idle).await < Duration::from_secs(1), "the idle connection stays open");
    let ready = gate.admin_page("/readyz").await;
    assert_eq!((ready.status, ready.json()["reasons"].clone()), (503, json!(["draining"])));
    let [slow, stream] = calls;
    assert!(!slow.is_finished() && !stream.is_finished());
    latch.close();
    assert_eq!(slow.await.unwrap().expect_ok()["done"], true);
    assert_eq!(stream.await.unwrap().text(), "data: 1\n\ndata: 2\n\n");
    assert!(gate.wait_for_exit().await.success());
    let lines = gate.access_log(3).await;
    assert_eq!(lines.len(), 3);
    assert_eq!(lines.iter().filter(|line| line["code"] == "ok").count(), 2, "{lines:?}");
}

#[tokio::test]
async fn on_sigint_calls_over_http_2_finish_and_the_connections_close() {
    let latch = latch();
    let slow = slow_agent(&latch).await;
    let mut gate = gateway().agent("slow", &slow).start().await;
    let client = reqwest::Client::builder().no_proxy().http2_prior_knowledge().build().unwrap();
    let call = client.post(gate.url("/agents/slow/invoke")).header("x-api-key", gate.key("team-a")).json(&json!({}));
    let call = tokio::spawn(send(call));
    let idle = reqwest::Client::builder().no_proxy().http2_prior_knowledge().build().unwrap();
    assert_eq!(idle.get(gate.url("/")).send().await.unwrap().version(), reqwest::Version::HTTP_2);
    eventually("the agent receives the call", async || slow.call_count() == 1).await;
    gate.send_signal(Signal::INT);
    eventually("the shutdown has begun", async || is_refused(gate.address()).await).await;
    latch.close();
    assert_eq!(call.await.unwrap().expect_ok()["done"], true);
    let started = Instant::now();
    assert!(gate.wait_for_exit().await.success());
    assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
    drop((client, idle));
}

#[tokio::test]
async fn connections_opened_just_before_the_shutdown_are_served() {
    let echo = Agent::echo().await;
    let mut gate = gateway().agent("echo", &echo).start().await;
    let mut streams = Vec::new();
    for _ in 0..20 {
        streams.push(TcpStream::connect(gate.address()).await.unwrap());
    }
    let request = raw_request(&gate, "echo");
    gate.send_signal(Signal::TERM);
    eventually("the listener is closed", async || is_refused(gate.address()).await).await;
    for stream in &mut streams {
        stream.write_all(&request).await.unwrap();
        let answer = read_response(stream).await.expect("an answer");
        answer.expect_ok();
        assert_eq!(answer.header("connection"), Some("close"));
    }
    drop(streams);
    assert!(gate.wait_for_exit().await.success());
}

fn with_handover() -> GatewayBuilder {
    gateway().section("shutdown:\n  handover_socket: handover.sock\n")
}

#[tokio::test]
async fn a_successor_takes_over_without_refusing_a_call() {
    let latch = latch();
    let (echo, slow) = (Agent::echo().await, slow_agent(&latch).await);
    let mut gate = with_handover().agent("echo", &echo).agent("slow", &slow).start().await;
    let long = spawn_call(&gate, "slow");
    eventually("the agent receives the long call", async || slow.call_count() == 1).await;
    let stop = Arc::new(AtomicBool::new(false));
    let callers: Vec<JoinHandle<u32>> = (0..4)
        .map(|_| {
            let (stop, address, request) = (Arc::clone(&stop), gate.address(), raw_request(&gate, "echo"));
            tokio::spawn(async move {
                let mut calls = 0;
                while !stop.load(Relaxed) {
                    let answer = send_raw(address, &request).await.expect("an answer");
                    assert_eq!(answer.status, 200, "{}", answer.text());
                    calls += 1;
                }
                calls
            })
        })
        .collect();
    let mut next = gate.start_successor().await;
    assert_eq!((next.addresses.clone(), next.admin_address), (gate.addresses.clone(), gate.admin_address));
    // The successor serves the admin listener while the first process still waits for its long call.
    eventually("the successor serves the admin listener", async || gate.admin_page("/readyz").await.status == 200)
        .await;
    assert!(!long.is_finished());
    latch.close();
    assert_eq!(long.await.unwrap().expect_ok()["done"], true);
    assert!(gate.wait_for_exit().await.success());
    let before = echo.call_count();
    eventually("the successor serves calls", async || echo.call_count() > before + 20).await;
    stop.store(true, Relaxed);
    for caller in callers {
        assert!(caller.await.expect("no call is refused") > 0);
    }
    // The successor can hand over in turn.
    let last = next.start_successor().await;
    assert!(next.wait_for_exit().await.success());
    last.invoke("echo", &json!({})).await.expect_ok();
}

#[tokio::test]
async fn a_successor_that_cannot_start_changes_nothing() {
    let echo = Agent::echo().await;
    let gate = with_handover().agent("echo", &echo).start().await;
    let config = gate.read_file("gatepost.yaml");
    let busy = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let busy_admin =
        config.replace("admin:\n  address: 127.0.0.1:0", &format!("admin:\n  address: {}", busy.local_addr().unwrap()));
    for text in [format!("{config}surprise: 1\n"), busy_admin] {
        let path = gate.folder().join("broken.yaml");
        std::fs::write(&path, text).unwrap();
        let mut command = crate::support::gateway::gatepost_command();
        command.args(["run", "--take-over", "-c"]).arg(&path);
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        assert!(!output.status.success());
        gate.invoke("echo", &json!({})).await.expect_ok();
        assert_eq!(gate.admin_page("/readyz").await.status, 200);
    }
    let last = gate.start_successor().await;
    last.invoke("echo", &json!({})).await.expect_ok();
}

#[tokio::test]
async fn without_a_running_gateway_there_is_nothing_to_take_over() {
    let build = with_handover();
    let folder = build.folder().to_owned();
    let mut gate = build.start().await;
    gate.send_signal(Signal::TERM);
    assert!(gate.wait_for_exit().await.success());
    let mut command = crate::support::gateway::gatepost_command();
    command.args(["run", "--take-over", "-c"]).arg(folder.join("gatepost.yaml"));
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("listeners"), "{output:?}");
}

#[tokio::test]
async fn r5_quotas_are_handed_to_the_successor() {
    let echo = Agent::echo().await;
    let limits = "limits:\n  quota: {per_day: 4}\n  quota_state_file: quotas.json\n";
    let mut gate = with_handover().section(limits).agent("echo", &echo).start().await;
    for _ in 0..3 {
        gate.invoke("echo", &json!({})).await.expect_ok();
    }
    let next = gate.start_successor().await;
    assert!(gate.wait_for_exit().await.success());
    next.invoke("echo", &json!({})).await.expect_ok();
    assert_eq!(next.invoke("echo", &json!({})).await.status, 429);
    assert_eq!(echo.call_count(), 4);
}

const TLS: &str = "listeners:\n  - address: 127.0.0.1:0\n    tls: {certificate: server.pem, key: server.key}\n";

fn client_trusting(authority: &CertificateAuthority) -> reqwest::Client {
    let root = reqwest::Certificate::from_pem(authority.pem().as_bytes()).unwrap();
    reqwest::Client::builder().no_proxy().tls_certs_only([root]).build().unwrap()
}

async fn accepts_handshake(gate: &Gateway, authority: &CertificateAuthority) -> bool {
    let url = format!("https://localhost:{}/agents/x/invoke", gate.address().port());
    client_trusting(authority).get(url).send().await.is_ok()
}

fn replace_certificate(gate: &Gateway, issued: &IssuedCertificate) {
    gate.write_file("server.pem", &issued.certificate);
    gate.write_file("server.key", &issued.key);
}

#[tokio::test]
async fn a_changed_certificate_is_reloaded_and_an_invalid_one_is_rejected() {
    let (first, second) = (CertificateAuthority::new("first"), CertificateAuthority::new("second"));
    let build = gateway().listeners(TLS);
    first.server(&["localhost"]).write(build.folder(), "server");
    let gate = build.start().await;
    assert!(accepts_handshake(&gate, &first).await && !accepts_handshake(&gate, &second).await);
    gate.write_file("server.pem", "-----BEGIN CERTIFICATE-----\ngarbage\n");
    eventually("the rejection is counted", async || {
        gate.metric("gatepost_events_total{event=\"certificates_rejected\"}").await >= Some(1.0)
    })
    .await;
    assert!(accepts_handshake(&gate, &first).await);
    assert!(gate.stderr().contains("tls.certificate"), "{}", gate.stderr());
    replace_certificate(&gate, &second.server(&["localhost"]));
    eventually("the new certificate is served", async || accepts_handshake(&gate, &second).await).await;
    assert!(!accepts_handshake(&gate, &first).await);
    // The key belongs to another certificate.
    gate.write_file("server.key", &first.server(&["localhost"]).key);
    let rejections = "gatepost_events_total{event=\"certificates_rejected\"}";
    let before = gate.metric(rejections).await;
    eventually("the mismatch is rejected", async || {
        gate.metric(rejections).await >= before && gate.stderr().contains("cannot be used together")
    })
    .await;
    assert!(accepts_handshake(&gate, &second).await);
}

#[tokio::test]
async fn connections_beyond_the_limit_are_closed_until_another_one_ends() {
    let echo = Agent::echo().await;
    let gate = gateway()
        .agent("echo", &echo)
        .section("connections:\n  max_connections: 2\n  max_connections_per_address: 2\n")
        .start()
        .await;
    let request = raw_request(&gate, "echo");
    let mut first = TcpStream::connect(gate.address()).await.unwrap();
    let second = TcpStream::connect(gate.address()).await.unwrap();
    let mut third = TcpStream::connect(gate.address()).await.unwrap();
    let mut byte = [0];
    assert!(matches!(third.read(&mut byte).await, Ok(0) | Err(_)), "the third connection stays open");
    first.write_all(&request).await.unwrap();
    read_response(&mut first).await.unwrap().expect_ok();
    assert!(gate.metric("gatepost_connections_total{result=\"refused\"}").await >= Some(1.0));
    drop(second);
    eventually("a new connection is accepted", async || send_raw(gate.address(), &request).await.is_some()).await;
}

const CONNECTION_LIMITS: &str = "connections:\n  header_timeout: 300ms\n  idle_timeout: 300ms\n  body_idle_timeout: 300ms\n  max_header_size: 2KiB\n  max_headers: 10\n";

#[tokio::test]
async fn slow_heads_and_slow_bodies_get_408_and_idle_connections_are_closed_silently() {
    let echo = Agent::echo().await;
    let gate = gateway().agent("echo", &echo).section(CONNECTION_LIMITS).start().await;
    send_raw(gate.address(), b"POST /agents/echo/in").await.unwrap().expect_fault(408, "Timeout");
    let whole = String::from_utf8(raw_request(&gate, "echo")).unwrap();
    let unfinished = whole.replace("Content-Length: 2", "Content-Length: 20");
    send_raw(gate.address(), unfinished.as_bytes()).await.unwrap().expect_fault(408, "Timeout");
    assert_eq!(echo.call_count(), 0);
    let mut idle = TcpStream::connect(gate.address()).await.unwrap();
    assert!(wait_for_close(&mut idle).await < Duration::from_secs(3));
    let mut keep_alive = TcpStream::connect(gate.address()).await.unwrap();
    keep_alive.write_all(whole.as_bytes()).await.unwrap();
    read_response(&mut keep_alive).await.unwrap().expect_ok();
    assert!(wait_for_close(&mut keep_alive).await < Duration::from_secs(3));
    // A head that trickles in is never idle, but must still arrive within the header timeout.
    let mut slow = TcpStream::connect(gate.address()).await.unwrap();
    let started = Instant::now();
    let (mut from, mut to) = slow.split();
    let trickle = async {
        for byte in whole.as_bytes().iter().cycle() {
            if to.write_all(&[*byte]).await.is_err() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let mut first = [0; 12];
    tokio::select! {
        () = trickle => {}
        read = from.read_exact(&mut first) => assert_eq!((read.unwrap(), &first), (12, b"HTTP/1.1 408")),
    }
    assert!(started.elapsed() < Duration::from_secs(3));
    let lines = gate.access_log(4).await;
    assert_eq!(lines.iter().filter(|line| line["status"] == 408).count(), 3, "{lines:?}");
}

#[tokio::test]
async fn heads_that_are_too_large_get_431() {
    let echo = Agent::echo().await;
    let gate = gateway().agent("echo", &echo).section(CONNECTION_LIMITS).start().await;
    let head = |extra: &str| {
        String::from_utf8(raw_request(&gate, "echo")).unwrap().replacen("Host", &format!("{extra}Host"), 1)
    };
    let large = head(&format!("X-Large: {}\r\n", "x".repeat(2_100)));
    let many = head(&(0..8).map(|at| format!("X-{at}: 1\r\n")).collect::<String>());
    for text in [large, many] {
        let answer = send_raw(gate.address(), text.as_bytes()).await.unwrap();
        assert_eq!(answer.status, 431, "{}", answer.text());
    }
    let fits = head(&(0..5).map(|at| format!("X-{at}: 1\r\n")).collect::<String>());
    send_raw(gate.address(), fits.as_bytes()).await.unwrap().expect_ok();
    assert_eq!(echo.call_count(), 1);
}

#[tokio::test]
async fn the_process_uses_no_huge_pages_unless_the_operator_wants_them() {
    let pages_of = |gate: &Gateway| {
        let status = std::fs::read_to_string(format!("/proc/{}/status", gate.child.id())).unwrap();
        status.lines().find_map(|line| line.strip_prefix("THP_enabled:")).map(|value| value.trim().to_owned())
    };
    let gate = gateway().start().await;
    // A kernel without the line has no switch.
    assert!(pages_of(&gate).is_none_or(|value| value == "0"), "{:?}", pages_of(&gate));
    let own = gateway().env("MIMALLOC_ALLOW_THP", "1").start().await;
    let of_tests = std::fs::read_to_string("/proc/self/status").unwrap();
    let inherited = of_tests.lines().find_map(|line| line.strip_prefix("THP_enabled:")).map(|value| value.trim());
    assert_eq!(pages_of(&own).as_deref(), inherited);
}

/// The processor time that the process has used.
fn processor_time(gate: &Gateway) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", gate.child.id())).unwrap();
    // The second field is the name, in parentheses; user and system time are the 14th and 15th.
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let ticks: u64 = fields.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum();
    Duration::from_millis(ticks * 10)
}

#[tokio::test]
async fn an_idle_gateway_uses_almost_no_processor_time_whatever_is_configured() {
    let tasks_with_webhooks = "tasks:\n  callbacks: {secret: env:CALLBACK_SECRET}\n  resume: {window: 30s}\n";
    let others = "idempotency: {}\naudit: {file: audit.log}\nexplain: {}\nmetrics: {}\nregistry: {}\n";
    for sections in [
        "tasks: {}\n".to_owned(),
        tasks_with_webhooks.to_owned(),
        others.to_owned(),
        format!("{tasks_with_webhooks}{others}"),
    ] {
        let gate = gateway().env("CALLBACK_SECRET", "a secret of webhooks").section(&sections).start().await;
        // What the start leaves to do is done meanwhile.
        tokio::time::sleep(Duration::from_secs(2)).await;
        let before = processor_time(&gate);
        tokio::time::sleep(Duration::from_secs(2)).await;
        let used = processor_time(&gate) - before;
        assert!(used <= Duration::from_millis(200), "{used:?} in two seconds with\n{sections}");
    }
}
