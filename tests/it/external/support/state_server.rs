//! A server of the state that gateways share: Redis or PostgreSQL, with what tests do to it.

use super::{postgres::Postgres, redis::Redis};
use gatepost::{
    store::{SharedState, StateConfig},
    telemetry::Metrics,
};
use serde_json::json;
use std::{path::Path, process::Command, sync::Arc};
use tempfile::TempDir;

/// A server with one database.
pub enum StateServer {
    Redis(Redis),
    Postgres { server: Postgres, url: String },
}

impl StateServer {
    pub async fn redis() -> Self {
        Self::Redis(Redis::start().await)
    }

    pub async fn postgres() -> Self {
        let mut server = Postgres::start().await;
        let url = server.create_database().await;
        Self::Postgres { server, url }
    }

    /// The section `state` of a gateway's configuration, as JSON.
    pub fn section(&self) -> serde_json::Value {
        match self {
            Self::Redis(server) => json!({"redis": {"url": server.url()}, "timeout": "1s"}),
            Self::Postgres { url, .. } => json!({"database": url, "timeout": "1s"}),
        }
    }

    /// Opens the state as one more gateway.
    pub async fn open(&self) -> Arc<SharedState> {
        open_state(&self.section()).await
    }

    /// Writes everything to disk. PostgreSQL loses the tokens of the last moments in a crash.
    pub async fn persist(&self) {
        if let Self::Postgres { server, url } = self {
            server.run_sql(url, "checkpoint").await;
        }
    }

    /// Stops the server at once.
    pub fn stop(&mut self) {
        match self {
            Self::Redis(server) => server.stop(),
            Self::Postgres { server, .. } => server.stop(),
        }
    }

    /// Starts the stopped server again, with its data.
    pub async fn restart(&mut self) {
        match self {
            Self::Redis(server) => server.restart().await,
            Self::Postgres { server, .. } => server.restart().await,
        }
    }

    /// Deletes everything, the schema of a database too.
    pub async fn lose_data(&mut self) {
        match self {
            Self::Redis(server) => {
                server.stop();
                server.restart_empty().await;
            }
            Self::Postgres { server, url } => {
                server.run_sql(url, "drop schema public cascade; create schema public").await;
            }
        }
    }

    /// Copies the data, for which the server is restarted.
    pub async fn back_up(&mut self) -> TempDir {
        self.stop();
        let backup = TempDir::new().unwrap();
        copy_files(self.folder(), backup.path());
        self.restart().await;
        backup
    }

    /// Restarts the server with the data of a copy.
    pub async fn restore(&mut self, backup: &TempDir) {
        self.stop();
        for entry in std::fs::read_dir(self.folder()).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                std::fs::remove_dir_all(path).unwrap();
            }
        }
        copy_files(backup.path(), self.folder());
        self.restart().await;
    }

    fn folder(&self) -> &Path {
        match self {
            Self::Redis(server) => server.folder(),
            Self::Postgres { server, .. } => server.folder(),
        }
    }

    /// Makes the server hang: it keeps its connections and does not reply.
    pub fn pause(&self) {
        match self {
            Self::Redis(server) => server.pause(),
            Self::Postgres { server, .. } => server.pause(),
        }
    }

    /// Ends a pause.
    pub fn resume(&self) {
        match self {
            Self::Redis(server) => server.resume(),
            Self::Postgres { server, .. } => server.resume(),
        }
    }

    /// Returns how many slots of agents are leased.
    pub async fn leased_slots(&self) -> i64 {
        match self {
            Self::Redis(server) => {
                let client = redis::Client::open(server.url()).unwrap();
                let mut connection = client.get_multiplexed_async_connection().await.unwrap();
                let keys: Vec<String> =
                    redis::cmd("KEYS").arg("*:leases:*").query_async(&mut connection).await.unwrap();
                let mut slots = 0;
                for key in keys {
                    let leases: Vec<String> = redis::cmd("HVALS").arg(key).query_async(&mut connection).await.unwrap();
                    slots += leases
                        .iter()
                        .map(|lease| lease.split(' ').next().unwrap().parse::<i64>().unwrap())
                        .sum::<i64>();
                }
                slots
            }
            Self::Postgres { server, url } => {
                let query = "select coalesce(sum((lease.value ->> 0)::bigint), 0)::bigint
                    from gatepost_shared_leases, jsonb_each(leases) as lease";
                server.query_number(url, query).await.unwrap_or_default()
            }
        }
    }

    /// Returns how many idempotency keys the server holds.
    pub async fn idempotency_keys(&self) -> i64 {
        match self {
            Self::Redis(server) => {
                let client = redis::Client::open(server.url()).unwrap();
                let mut connection = client.get_multiplexed_async_connection().await.unwrap();
                redis::cmd("ZCARD").arg("gatepost:{0}:idempotency:expiry").query_async(&mut connection).await.unwrap()
            }
            Self::Postgres { server, url } => {
                server.query_number(url, "select count(*) from gatepost_shared_keys").await.unwrap()
            }
        }
    }

    /// Returns how many keys or rows of logs the server holds.
    pub async fn logs(&self) -> i64 {
        match self {
            Self::Redis(server) => {
                let client = redis::Client::open(server.url()).unwrap();
                let mut connection = client.get_multiplexed_async_connection().await.unwrap();
                let keys: Vec<String> = redis::cmd("KEYS").arg("*:log:*").query_async(&mut connection).await.unwrap();
                i64::try_from(keys.len()).unwrap()
            }
            Self::Postgres { server, url } => {
                let query = "select (select count(*) from gatepost_shared_logs)
                    + (select count(*) from gatepost_shared_log_entries)";
                server.query_number(url, query).await.unwrap()
            }
        }
    }

    /// Returns how many buckets and quotas the server holds.
    pub async fn token_entries(&self) -> i64 {
        match self {
            Self::Redis(server) => {
                let client = redis::Client::open(server.url()).unwrap();
                let mut connection = client.get_multiplexed_async_connection().await.unwrap();
                let keys: Vec<String> =
                    redis::cmd("KEYS").arg("*:tokens:*").query_async(&mut connection).await.unwrap();
                i64::try_from(keys.len()).unwrap()
            }
            Self::Postgres { server, url } => {
                server.query_number(url, "select count(*) from gatepost_shared_tokens").await.unwrap()
            }
        }
    }
}

/// Opens the state of a section `state`, as one more gateway.
pub async fn open_state(section: &serde_json::Value) -> Arc<SharedState> {
    let config: StateConfig = serde_json::from_value(section.clone()).unwrap();
    assert_eq!(config.problems(), [""; 0]);
    SharedState::open(&config, &Metrics::new().unwrap()).await.unwrap()
}

/// Copies the files of a folder, with their owners.
fn copy_files(from: &Path, to: &Path) {
    let status = Command::new("cp").arg("-a").arg(from.join(".")).arg(to).status().unwrap();
    assert!(status.success(), "{status}");
}
