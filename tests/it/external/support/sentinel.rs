//! A Redis primary with a replica and a sentinel, on free ports. They are stopped when this is dropped.

use super::redis::Redis;
use crate::support::{eventually_within, ports::ReservedPort};
use std::{
    fs,
    process::{Child, Command, Stdio},
    time::Duration,
};
use tempfile::TempDir;

/// How long a failover may take.
const FAILOVER_TIME: Duration = Duration::from_secs(30);

pub struct RedisWithSentinel {
    primary: Redis,
    replica: Redis,
    port: ReservedPort,
    sentinel: Child,
    _folder: TempDir,
}

impl RedisWithSentinel {
    /// Starts the three, and waits until the replica has the primary's data.
    pub async fn start() -> Self {
        let (primary, replica) = (Redis::start().await, Redis::start().await);
        let primary_port = primary.port().to_string();
        let _: () = command(&replica, &["REPLICAOF", "127.0.0.1", &primary_port]).await.unwrap();
        eventually_within(FAILOVER_TIME, "the replica follows the primary", async || {
            info(&replica).await.contains("master_link_status:up")
        })
        .await;
        let (folder, port) = (TempDir::new().unwrap(), ReservedPort::new());
        let file = folder.path().join("sentinel.conf");
        let settings = format!(
            "port {}\nbind 127.0.0.1\ndir {}\nsentinel monitor gatepost 127.0.0.1 {primary_port} 1\n\
             sentinel down-after-milliseconds gatepost 500\nsentinel failover-timeout gatepost 3000\n",
            port.number(),
            folder.path().display()
        );
        fs::write(&file, settings).unwrap();
        let sentinel = Command::new("redis-sentinel")
            .arg(&file)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|why| {
                panic!("redis-sentinel is missing ({why}): run: sudo apt-get install redis-sentinel")
            });
        let this = Self { primary, replica, port, sentinel, _folder: folder };
        // A failover needs a replica that the sentinel knows.
        eventually_within(FAILOVER_TIME, "the sentinel knows the replica", async || {
            this.ask_sentinel("INFO").await.contains("slaves=1")
        })
        .await;
        this
    }

    /// The section `redis` of the state.
    pub fn section(&self) -> serde_json::Value {
        let url = format!("redis://127.0.0.1:{}", self.port.number());
        serde_json::json!({"url": url, "sentinel": {"master": "gatepost"}})
    }

    /// Waits until the replica has what the primary has now.
    pub async fn wait_for_replica(&self) {
        let offset = |info: &str, name: &str| -> u64 {
            let line = info.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
            line.trim().parse().unwrap_or_default()
        };
        let target = offset(&info(&self.primary).await, "master_repl_offset:");
        eventually_within(FAILOVER_TIME, "the replica has the data", async || {
            offset(&info(&self.replica).await, "slave_repl_offset:") >= target
        })
        .await;
    }

    /// Kills the primary, and waits until the replica has its place.
    pub async fn fail_over(&mut self) {
        self.primary.stop();
        eventually_within(FAILOVER_TIME, "the replica is the primary", async || {
            info(&self.replica).await.contains("role:master")
        })
        .await;
    }

    /// Makes the sentinel name another server as the primary. The old one does not notice it, as in a partition.
    pub async fn name_another_primary(&self, port: u16) {
        let monitor = format!("SENTINEL MONITOR gatepost 127.0.0.1 {port} 1");
        for command in ["SENTINEL REMOVE gatepost", &monitor] {
            assert_eq!(self.ask_sentinel(command).await, "OK", "{command}");
        }
    }

    async fn ask_sentinel(&self, command: &str) -> String {
        let Ok(client) = redis::Client::open(format!("redis://127.0.0.1:{}", self.port.number())) else {
            return String::new();
        };
        let Ok(mut connection) = client.get_multiplexed_async_connection().await else { return String::new() };
        let words: Vec<&str> = command.split(' ').collect();
        redis::Cmd::new().arg(words).query_async(&mut connection).await.unwrap_or_default()
    }
}

impl Drop for RedisWithSentinel {
    fn drop(&mut self) {
        let _ = self.sentinel.kill();
        let _ = self.sentinel.wait();
    }
}

async fn command<T: redis::FromRedisValue>(server: &Redis, arguments: &[&str]) -> redis::RedisResult<T> {
    let mut connection = redis::Client::open(server.url())?.get_multiplexed_async_connection().await?;
    let mut command = redis::Cmd::new();
    command.arg(arguments).query_async(&mut connection).await
}

async fn info(server: &Redis) -> String {
    command(server, &["INFO", "replication"]).await.unwrap_or_default()
}
