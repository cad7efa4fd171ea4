//! `gatepost demo`: the gateway on loopback with three demo agents and a new API key, and commands to paste. Writes to
//! a temporary folder only.

mod agents;
mod traffic;

use crate::{
    app::{self, ProcessSignals, RunningGateway},
    auth::{NewApiKey, append_api_key, generate_api_key},
    config::LoadedConfig,
};
use anyhow::{Context, anyhow};
use std::{fs::DirBuilder, os::unix::fs::DirBuilderExt as _, path::PathBuf, sync::Arc};
use tokio::{
    net::TcpListener,
    signal::unix::{Signal, SignalKind, signal},
};

/// The demo, ready to run.
pub struct DemoGateway {
    gateway: RunningGateway,
    key: String,
    folder: TemporaryFolder,
    signals: ProcessSignals,
    hangup: Signal,
}

/// A temporary folder, removed when dropped.
pub struct TemporaryFolder(PathBuf);

impl DemoGateway {
    /// Starts the agents and the gateway in front of them.
    ///
    /// # Errors
    /// A port or the temporary folder is not available, or the signal handlers cannot be installed.
    pub async fn start() -> anyhow::Result<Self> {
        let (signals, hangup) = (ProcessSignals::install()?, signal(SignalKind::hangup())?);
        let folder = std::env::temp_dir().join(format!("gatepost-demo-{}", uuid::Uuid::new_v4().simple()));
        let created = DirBuilder::new().mode(0o700).create(&folder);
        created.with_context(|| format!("cannot create the folder {}", folder.display()))?;
        let temporary_folder = TemporaryFolder(folder.clone());
        let agents = TcpListener::bind("127.0.0.1:0").await?;
        let port = agents.local_addr()?.port();
        tokio::spawn(async move { axum::serve(agents, agents::agents_router()).await });
        let documents = serde_json::to_vec_pretty(&agents::agent_documents(port))?;
        std::fs::write(folder.join("agents.json"), documents)?;
        let (key, line) = generate_api_key(&NewApiKey { caller: "demo".to_owned(), ..NewApiKey::default() }, None)
            .map_err(|why| anyhow!(why))?;
        append_api_key(&folder.join("keys.jsonl"), &line).map_err(|why| anyhow!(why))?;
        let config = folder.join("gatepost.yaml");
        std::fs::write(&config, DEMO_CONFIG)?;
        let loaded = LoadedConfig::read_with_environment(&config, std::iter::empty())?;
        let gateway = RunningGateway::start(loaded, false).await?;
        tokio::spawn(traffic::make_calls(Arc::clone(gateway.gateway()), key.clone()));
        Ok(Self { gateway, key: key.expose().to_owned(), folder: temporary_folder, signals, hangup })
    }

    /// Returns the instructions for the user.
    fn instructions(&self) -> String {
        let address = self.gateway.addresses().first().map(ToString::to_string).unwrap_or_default();
        let (key, admin, folder) = (&self.key, self.gateway.admin_address(), self.folder.0.display());
        let call = |agent: &str| format!("http://{address}/agents/{agent}/invoke -H 'Content-Type: application/json'");
        let (translator, echo, streamer) = (call("agent-12345"), call("echo"), call("streamer"));
        format!(
            r#"
Gatepost listens on http://{address}, in front of three agents: echo, agent-12345 (the translator
of the AIDIP draft) and streamer. Paste these lines into another terminal.

1. A call that succeeds: the translator answers.
curl -sS -w '\n' {translator} -H 'X-API-Key: {key}' -d '{{"text":"你好世界","source_language":"zh","target_language":"en"}}'

2. A call that breaks the translator's schema: 400, and the agent never sees it.
curl -sS -w '\n' {translator} -H 'X-API-Key: {key}' -d '{{"text":"Hello","source_language":"en","target_language":"fr"}}'

3. A call without a key: 401.
curl -sS -w '\n' {echo} -H 'X-Request-ID: no-key' -d '{{"hello":"world"}}'

4. A stream, one event for each word.
curl -sSN {streamer} -H 'X-API-Key: {key}' -d '{{"prompt":"Once upon a time"}}'

5. What the gateway counted.
curl -sS http://{admin}/metrics | grep gatepost_calls_total

6. Why the third call was refused: the step, the rule, and its line of the configuration.
curl -sS -w '\n' http://{admin}/explain/no-key -H 'X-API-Key: {key}'

The console, where you log in with the key {key}; a few calls are made all the time:
http://{admin}/console

The configuration, to read and to change while the gateway runs: {folder}/gatepost.yaml
Press Ctrl-C to stop; this removes the folder."#
        )
    }

    /// Passes the instructions to `print`, and runs until Ctrl-C, SIGTERM or SIGHUP. Returns the folder: the caller
    /// drops it after the runtime, which may still be reading the files.
    pub async fn run(mut self, print: impl FnOnce(&str)) -> TemporaryFolder {
        print(&self.instructions());
        let config = self.folder.0.join("gatepost.yaml");
        let no_service_manager = app::ServiceManager::default();
        tokio::select! {
            // The gateway reloads its configuration on SIGHUP; the demo ends with its terminal.
            biased;
            _ = self.hangup.recv() => {}
            () = app::run_until_stopped(self.gateway, &config, self.signals, &no_service_manager) => {}
        }
        self.folder
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        // If this fails, the system removes the folder with its other temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const DEMO_CONFIG: &str = "\
listeners:
  - address: 127.0.0.1:0
admin:
  address: 127.0.0.1:0
  access:
    roles:
      - {role: admin, callers: ['key:demo']}
agents:
  sources: [agents.json]
network:
  allowed_addresses: [127.0.0.0/8]
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
  output: access.log
audit:
  file: audit.log
tasks:
  sqlite_file: tasks.sqlite
";
