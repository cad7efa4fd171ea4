//! `gatepost demo`: the gateway with three agents of its own on loopback, a fresh key, and lines to paste.
//! Nothing is needed beforehand, and nothing is written outside a temporary folder.

mod agents;

use crate::{
    app::Running,
    auth::{NewKey, append_key, new_key},
    config::Loaded,
};
use anyhow::{Context, anyhow};
use std::path::PathBuf;
use tokio::net::TcpListener;

/// The demonstration, ready to run.
pub struct Demo {
    gateway: Running,
    key: String,
    folder: Folder,
}

/// A temporary folder, gone when dropped.
struct Folder(PathBuf);

impl Demo {
    /// Starts the agents and the gateway in front of them.
    ///
    /// # Errors
    /// A port or the temporary folder cannot be had.
    pub async fn start() -> anyhow::Result<Self> {
        let folder = std::env::temp_dir().join(format!("gatepost-demo-{}", uuid::Uuid::new_v4().simple()));
        std::fs::create_dir(&folder).with_context(|| format!("{} cannot be made", folder.display()))?;
        let held = Folder(folder.clone());
        let agents = TcpListener::bind("127.0.0.1:0").await?;
        let port = agents.local_addr()?.port();
        tokio::spawn(async move { axum::serve(agents, agents::router()).await });
        let documents = serde_json::to_vec_pretty(&agents::documents(port))?;
        std::fs::write(folder.join("agents.json"), documents)?;
        let (key, line) =
            new_key(&NewKey { caller: "demo".to_owned(), ..NewKey::default() }, None).map_err(|why| anyhow!(why))?;
        append_key(&folder.join("keys.jsonl"), &line).map_err(|why| anyhow!(why))?;
        std::fs::write(folder.join("gatepost.yaml"), CONFIG)?;
        let loaded = Loaded::parse(CONFIG, &folder, std::iter::empty())?;
        let gateway = Running::start(loaded, false).await?;
        Ok(Self { gateway, key: key.expose().to_owned(), folder: held })
    }

    /// What to read and paste.
    pub fn welcome(&self) -> String {
        let at = self.gateway.addresses().first().map(ToString::to_string).unwrap_or_default();
        let (key, admin, folder) = (&self.key, self.gateway.admin(), self.folder.0.display());
        let call = |agent: &str| format!("http://{at}/agents/{agent}/invoke");
        format!(
            r#"
Gatepost is listening on http://{at}, in front of three agents: echo, agent-12345 (the
translator of the AIDIP draft) and streamer. This demo's files are in {folder}.

A call that succeeds:
  curl -s -H 'X-API-Key: {key}' -H 'Content-Type: application/json' {translator} -d '{{"text":"你好世界","source_language":"zh","target_language":"en"}}'

A call that breaks the translator's schema, refused before the agent sees it:
  curl -s -H 'X-API-Key: {key}' -H 'Content-Type: application/json' {translator} -d '{{"text":"Hello","source_language":"en","target_language":"fr"}}'

A call without a key:
  curl -s -H 'Content-Type: application/json' {echo} -d '{{"hello":"world"}}'

A stream, token by token:
  curl -sN -H 'X-API-Key: {key}' -H 'Content-Type: application/json' {streamer} -d '{{"prompt":"Once upon a time"}}'

What it counted:
  curl -s http://{admin}/metrics | grep gatepost_calls_total

Press Ctrl-C to stop.
"#,
            translator = call("agent-12345"),
            echo = call("echo"),
            streamer = call("streamer"),
        )
    }

    /// Runs until Ctrl-C or SIGTERM.
    ///
    /// # Errors
    /// Signals cannot be received.
    pub async fn until_stopped(self) -> anyhow::Result<()> {
        let config = self.folder.0.join("gatepost.yaml");
        self.gateway.live(&config).await
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A folder that cannot be removed is the system's to clean: it is a temporary one.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const CONFIG: &str = "\
listen:
  - address: 127.0.0.1:0
admin:
  address: 127.0.0.1:0
agents:
  from: [agents.json]
network:
  allow: [127.0.0.0/8]
auth:
  api_keys:
    files: [keys.jsonl]
access:
  grants:
    - callers: ['key:demo']
      agents: ['*']
limits:
  per_caller: 20/s burst 40
access_log:
  to: off
";
