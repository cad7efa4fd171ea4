//! Notifications to a service manager (`sd_notify(3)`), received on a real unix datagram socket in systemd's place.

use crate::support::{
    agent::{Agent, Step},
    eventually,
    gateway::{Gateway, GatewayBuilder, gateway, send},
};
use rustix::process::Signal;
use serde_json::json;
use std::{
    os::{
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixDatagram},
    },
    time::Duration,
};
use tempfile::TempDir;

/// A service manager: the socket, and what the environment of its services says.
struct ServiceManager {
    socket: UnixDatagram,
    name: String,
    _folder: TempDir,
}

impl ServiceManager {
    fn at_path() -> Self {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        Self::new(socket, path.display().to_string(), folder)
    }

    fn in_abstract_namespace() -> Self {
        let name = format!("gatepost-test-{}", uuid::Uuid::new_v4());
        let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        Self::new(socket, format!("@{name}"), TempDir::new().unwrap())
    }

    fn new(socket: UnixDatagram, name: String, folder: TempDir) -> Self {
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        Self { socket, name, _folder: folder }
    }

    /// The assignments of the next notification.
    fn receive(&self) -> Vec<(String, String)> {
        let mut buffer = [0; 4096];
        let length = self.socket.recv(&mut buffer).expect("a notification");
        let text = std::str::from_utf8(&buffer[..length]).unwrap();
        text.lines()
            .map(|line| line.split_once('=').unwrap())
            .map(|(name, value)| (name.into(), value.into()))
            .collect()
    }

    /// The next notification that has this assignment.
    fn receive_with(&self, name: &str) -> Vec<(String, String)> {
        loop {
            let received = self.receive();
            if received.iter().any(|(received, _)| received == name) {
                return received;
            }
        }
    }

    fn environment(&self) -> Vec<(String, String)> {
        vec![("NOTIFY_SOCKET".into(), self.name.clone())]
    }
}

fn value<'a>(notification: &'a [(String, String)], name: &str) -> Option<&'a str> {
    notification.iter().find(|(assigned, _)| assigned == name).map(|(_, value)| value.as_str())
}

fn started_by(manager: &ServiceManager, build: GatewayBuilder) -> GatewayBuilder {
    build.env("NOTIFY_SOCKET", &manager.name)
}

fn monotonic_usec() -> u128 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u128::try_from(now.tv_sec).unwrap() * 1_000_000 + u128::try_from(now.tv_nsec).unwrap() / 1_000
}

fn pid(gate: &Gateway) -> String {
    gate.child.id().to_string()
}

/// Whether the process has a handler for the signal (`proc_pid_status(5)`, `SigCgt`).
fn handles(gate: &Gateway, signal: Signal) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", pid(gate))).unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    u64::from_str_radix(caught.trim(), 16).unwrap() & 1 << (signal.as_raw() - 1) != 0
}

async fn expect_start_reload_and_stop(manager: ServiceManager) {
    let echo = Agent::echo().await;
    let mut gate = started_by(&manager, gateway().agent("echo", &echo)).start().await;
    let ready = manager.receive();
    assert_eq!((value(&ready, "READY"), value(&ready, "MAINPID")), (Some("1"), Some(&*pid(&gate))), "{ready:?}");
    for signal in [Signal::HUP, Signal::INT, Signal::TERM] {
        assert!(handles(&gate, signal), "{signal:?} would end the process");
    }
    gate.invoke("echo", &json!({})).await.expect_ok();

    for (suffix, status) in [("limits: {per_caller: 100/s}\n", "Serving"), ("surprise: 1\n", "reload failed")] {
        let config = gate.read_file("gatepost.yaml");
        let before = monotonic_usec();
        gate.write_file("gatepost.yaml", &format!("{config}{suffix}"));
        gate.send_signal(Signal::HUP);
        let reloading = manager.receive_with("RELOADING");
        let usec: u128 = value(&reloading, "MONOTONIC_USEC").unwrap().parse().unwrap();
        assert!((before..=monotonic_usec()).contains(&usec), "{reloading:?}");
        let reloaded = manager.receive();
        assert_eq!(value(&reloaded, "READY"), Some("1"), "{reloaded:?}");
        assert!(value(&reloaded, "STATUS").unwrap().contains(status), "{reloaded:?}");
    }

    gate.send_signal(Signal::TERM);
    let stopping = manager.receive_with("STOPPING");
    assert_eq!(value(&stopping, "STOPPING"), Some("1"));
    // The longest call of five minutes, 5 s for its response, and a margin.
    assert_eq!(value(&stopping, "EXTEND_TIMEOUT_USEC"), Some("325000000"), "{stopping:?}");
    assert!(gate.wait_for_exit().await.success());
}

#[tokio::test]
async fn a_service_manager_learns_of_start_reload_and_stop() {
    expect_start_reload_and_stop(ServiceManager::at_path()).await;
}

#[tokio::test]
async fn a_requested_reload_without_a_file_ends_and_is_reported() {
    let (manager, echo) = (ServiceManager::at_path(), Agent::echo().await);
    let gate = started_by(&manager, gateway().agent("echo", &echo)).start().await;
    manager.receive_with("READY");
    let config = gate.read_file("gatepost.yaml");
    std::fs::remove_file(gate.folder().join("gatepost.yaml")).unwrap();
    gate.send_signal(Signal::HUP);
    manager.receive_with("RELOADING");
    let reloaded = manager.receive();
    assert_eq!(value(&reloaded, "READY"), Some("1"), "{reloaded:?}");
    assert!(value(&reloaded, "STATUS").unwrap().contains("reload failed"), "{reloaded:?}");
    eventually("the failure is logged", async || gate.stderr().contains("configuration reload failed")).await;
    gate.invoke("echo", &json!({})).await.expect_ok();
    // The file that comes back is loaded without a further signal.
    gate.write_file("gatepost.yaml", &config);
    manager.receive_with("RELOADING");
    assert_eq!(value(&manager.receive(), "STATUS"), Some("Serving"));
}

#[tokio::test]
async fn a_socket_in_the_abstract_namespace_is_notified_too() {
    expect_start_reload_and_stop(ServiceManager::in_abstract_namespace()).await;
}

#[tokio::test]
async fn after_a_take_over_the_successor_is_the_main_process_and_nothing_says_that_the_service_stops() {
    let manager = ServiceManager::at_path();
    let silent = Agent::with_steps(vec![Step::Hang]).await;
    let shutdown = "shutdown:\n  handover_socket: handover.sock\n  drain_timeout: 500ms\n";
    let build = gateway().agent("silent", &silent).section(shutdown);
    let mut gate = started_by(&manager, build).start().await;
    assert_eq!(value(&manager.receive(), "MAINPID"), Some(&*pid(&gate)));
    let call = tokio::spawn(send(gate.post("/agents/silent/invoke").json(&json!({}))));
    eventually("the agent receives the call", async || silent.call_count() == 1).await;

    let next = gate.start_successor_with_environment(manager.environment()).await;
    // The running process names its successor, as it is the one that the service manager believes; so does the successor.
    let notifications = [manager.receive(), manager.receive()];
    for notification in &notifications {
        assert_eq!(value(notification, "MAINPID"), Some(&*pid(&next)), "{notifications:?}");
        assert_eq!(value(notification, "STOPPING"), None, "{notifications:?}");
    }
    assert!(notifications.iter().any(|notification| value(notification, "READY") == Some("1")), "{notifications:?}");
    assert_eq!(call.await.unwrap().status, 503);
    assert!(gate.wait_for_exit().await.success());
    manager.socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    assert!(manager.socket.recv(&mut [0; 64]).is_err(), "the first process says that the service stops");
}

#[tokio::test]
async fn a_watchdog_gets_signs_of_life_also_while_calls_drain() {
    let manager = ServiceManager::at_path();
    let silent = Agent::with_steps(vec![Step::Hang]).await;
    let build =
        gateway().agent("silent", &silent).section("shutdown: {drain_timeout: 2s}\n").env("WATCHDOG_USEC", "200000");
    let gate = started_by(&manager, build).start().await;
    assert_eq!(value(&manager.receive_with("WATCHDOG"), "WATCHDOG"), Some("1"));
    let call = tokio::spawn(send(gate.post("/agents/silent/invoke").json(&json!({}))));
    eventually("the agent receives the call", async || silent.call_count() == 1).await;
    gate.send_signal(Signal::TERM);
    manager.receive_with("STOPPING");
    manager.receive_with("WATCHDOG");
    assert!(!call.is_finished());
    call.abort();

    // Another process is watched.
    let manager = ServiceManager::at_path();
    let build = gateway().env("WATCHDOG_USEC", "100000").env("WATCHDOG_PID", "1");
    let _gate = started_by(&manager, build).start().await;
    manager.receive_with("READY");
    manager.socket.set_read_timeout(Some(Duration::from_millis(400))).unwrap();
    assert!(manager.socket.recv(&mut [0; 64]).is_err());
}

#[tokio::test]
async fn a_service_manager_that_is_gone_or_full_does_not_stop_the_gateway() {
    let echo = Agent::echo().await;
    for name in ["/nowhere/notify", "neither a path nor abstract", "@"] {
        let gate = gateway().agent("echo", &echo).env("NOTIFY_SOCKET", name).start().await;
        gate.invoke("echo", &json!({})).await.expect_ok();
        eventually("the failure is logged", async || gate.stderr().contains("NOTIFY_SOCKET")).await;
    }
    // Nothing reads this socket, whose queue is full.
    let manager = ServiceManager::at_path();
    let fillers: Vec<_> = (0..16).map(|_| UnixDatagram::unbound().unwrap()).collect();
    for filler in &fillers {
        filler.set_nonblocking(true).unwrap();
        while filler.send_to(b"X=1", &manager.name).is_ok() {}
    }
    let gate = started_by(&manager, gateway().agent("echo", &echo)).start().await;
    eventually("the failure is logged", async || gate.stderr().contains("was not notified")).await;
    gate.invoke("echo", &json!({})).await.expect_ok();
}
