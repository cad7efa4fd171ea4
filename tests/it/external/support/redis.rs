//! A real Redis server on a free port, with its data in a temporary folder. It is stopped when it is dropped.

use crate::support::ports::ReservedPort;
use rustix::process::{Pid, Signal, kill_process};
use std::{
    fs,
    net::{Ipv4Addr, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// A server that runs until it is dropped. It writes each change to its file before it replies.
pub struct Redis {
    port: ReservedPort,
    process: Child,
    folder: TempDir,
    bus_port: Option<ReservedPort>,
}

impl Redis {
    /// Starts an empty server.
    pub async fn start() -> Self {
        Self::start_node(None).await
    }

    /// Starts an empty node of a cluster, which has no slots yet.
    pub(super) async fn start_cluster_node() -> Self {
        Self::start_node(Some(ReservedPort::new())).await
    }

    async fn start_node(bus_port: Option<ReservedPort>) -> Self {
        let (folder, port) = (TempDir::new().unwrap(), ReservedPort::new());
        let process = run(folder.path(), port.number(), bus_port.as_ref()).await;
        Self { port, process, folder, bus_port }
    }

    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// The port of its cluster bus, if it is a node of a cluster.
    pub(super) fn bus_port(&self) -> Option<u16> {
        self.bus_port.as_ref().map(ReservedPort::number)
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port())
    }

    /// Sends a command, with words that are separated by spaces.
    pub async fn command<T: redis::FromRedisValue>(&self, command: &str) -> T {
        self.try_command(command).await.unwrap()
    }

    /// Sends a command that may fail.
    pub(super) async fn try_command<T: redis::FromRedisValue>(&self, command: &str) -> redis::RedisResult<T> {
        let mut connection = redis::Client::open(self.url())?.get_multiplexed_async_connection().await?;
        let words: Vec<&str> = command.split(' ').collect();
        redis::Cmd::new().arg(words).query_async(&mut connection).await
    }

    /// Stops the server at once (SIGKILL).
    pub fn stop(&mut self) {
        if matches!(self.process.try_wait(), Ok(None)) {
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
    }

    /// Starts the stopped server again, with its data.
    pub async fn restart(&mut self) {
        self.process = run(self.folder.path(), self.port(), self.bus_port.as_ref()).await;
    }

    /// Starts the stopped server again, without its data.
    pub async fn restart_empty(&mut self) {
        self.folder = TempDir::new().unwrap();
        self.restart().await;
    }

    /// The folder with the server's data.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Makes the server hang (SIGSTOP): it keeps its connections and does not reply.
    pub fn pause(&self) {
        kill_process(Pid::from_child(&self.process), Signal::STOP).unwrap();
    }

    /// Ends a pause.
    pub fn resume(&self) {
        kill_process(Pid::from_child(&self.process), Signal::CONT).unwrap();
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.stop();
    }
}

async fn run(folder: &Path, port: u16, bus_port: Option<&ReservedPort>) -> Child {
    let log = fs::OpenOptions::new().create(true).append(true).open(folder.join("log")).unwrap();
    let cluster = bus_port.map(|port| {
        let port = port.number().to_string();
        ["--cluster-enabled", "yes", "--cluster-port", &port, "--cluster-node-timeout", "1000"].map(str::to_owned)
    });
    let mut process = Command::new("redis-server")
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "yes"])
        .args(["--appendfsync", "always", "--dir"])
        .arg(folder)
        .args(cluster.into_iter().flatten())
        .stdout(log)
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|why| {
            panic!("redis-server is missing ({why}): run: sudo apt-get install redis-server");
        });
    let deadline = Instant::now() + Duration::from_secs(30);
    while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
        let waiting = process.try_wait().unwrap().is_none() && Instant::now() < deadline;
        let log = || fs::read_to_string(folder.join("log")).unwrap_or_default();
        assert!(waiting, "Redis did not start: {}", log());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    process
}
