//! The measured gateway. Everything that depends on the form of its configuration, its documents and its command line
//! is in this file.

use crate::agent::{BYTES_PATH, ENDLESS_EVENTS_PATH, EVENTS_PATH};
use crate::body_lengths::BODY_LENGTHS;
use crate::certificate::TestCertificate;
use crate::http1_client::PreparedRequest;
use crate::load::CallTarget;
use crate::process::{CpuCore, ServerProcess};
use crate::proxy::RunningProxy;
use crate::request_body::{input_schema, request_body};
use crate::reserved_port::ReservedPort;
use crate::token_issuer::{AUDIENCE, TokenIssuer};
use crate::transport_agents::{AgentAddresses, MQTT_AGENT_ID};
use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use std::cell::Cell;
use std::fs::{self, OpenOptions};
use std::io::{BufWriter, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The caller of the API key and of the token.
const CALLER_ID: &str = "loadtest";

/// Passes the invocations of an agent as requests to its own API, too.
const API_RULE: &str = "  rules:\n    - { agents: [open], api: { routes: [{ methods: [POST], path: /invoke }] } }\n";

/// The language in the request bodies.
pub(crate) const LANGUAGE: &str = "fr";

/// Starts gateways: the program, a folder for its files, and the agent behind it.
pub(crate) struct GatewayLauncher {
    program: PathBuf,
    folder: PathBuf,
    agent: SocketAddr,
    /// With a certificate, the gateway serves TLS beside plain HTTP.
    certificate: Option<TestCertificate>,
    /// The number of gateways that [`Self::start_open`] has started.
    open_gateways: Cell<u64>,
}

impl GatewayLauncher {
    pub(crate) fn new(program: PathBuf, folder: PathBuf, agent: SocketAddr) -> Self {
        Self { program, folder, agent, certificate: None, open_gateways: Cell::new(0) }
    }

    /// Returns a launcher whose gateways serve TLS, too ([`Self::start_open`] and [`Self::start_guarded`]).
    pub(crate) fn with_certificate(self, certificate: &TestCertificate) -> Self {
        Self { certificate: Some(certificate.clone()), ..self }
    }

    /// Starts a gateway that has nothing to check: everybody may call, without a limit or a schema.
    pub(crate) fn start_open(&self) -> anyhow::Result<RunningProxy> {
        let document = |id: &str, path: &str| self.agent_document(id, "none", path, None);
        let mut agents =
            vec![document("open", "/invoke"), document("stream", EVENTS_PATH), document("ticker", ENDLESS_EVENTS_PATH)];
        let lengths = [0].into_iter().chain(BODY_LENGTHS);
        agents.extend(lengths.map(|length| document(&format!("bulk-{length}"), &format!("{BYTES_PATH}{length}"))));
        let agents = json!(agents);
        // Several of these gateways run at the same time, and each watches its own files.
        let name = format!("open-{}", self.open_gateways.get());
        self.open_gateways.update(|count| count + 1);
        let file = self.write_agents(&name, &agents)?;
        let (sources, rules) = (format!("  sources: [{file}]\n"), format!("  sources: [{file}]\n{API_RULE}"));
        let common = self.common_config(&file).replace(&sources, &rules);
        let config = format!("{common}limits:\n  per_address: null\n  concurrency: {{ max_per_agent: null }}\n");
        self.start_with_tls(&self.write_config(&name, &config)?)
    }

    /// Starts a gateway that goes on listening for a while after SIGTERM.
    pub(crate) fn start_with_close_delay(&self, delay: &str) -> anyhow::Result<ServerProcess> {
        let number = self.open_gateways.get();
        self.open_gateways.set(number + 1);
        let name = format!("upgraded-{number}");
        let agents = json!([self.agent_document("open", "none", "/invoke", None)]);
        let common = self.common_config(&self.write_agents(&name, &agents)?);
        let config = format!("{common}limits:\n  per_address: null\nshutdown:\n  listener_close_delay: {delay}\n");
        self.start(&self.write_config(&name, &config)?)
    }

    /// Starts a gateway with API keys, tokens, a rate limit that never refuses, and a schema. Returns an API key that
    /// the gateway accepts, too.
    pub(crate) fn start_guarded(&self) -> anyhow::Result<(RunningProxy, String)> {
        let (file, key) = self.write_guarded_config()?;
        Ok((self.start_with_tls(&file)?, key))
    }

    /// Writes the configuration of [`Self::start_guarded`], with this many keys besides the returned one.
    pub(crate) fn write_guarded_config_with_keys(&self, other_keys: usize) -> anyhow::Result<(PathBuf, String)> {
        let (file, key) = self.write_guarded_config()?;
        let mut keys = BufWriter::new(OpenOptions::new().append(true).open(self.folder.join("keys.jsonl"))?);
        for number in 0..other_keys {
            // No key has this hash.
            let (hash, created) = (format!("{number:064x}"), "2026-01-01T00:00:00Z");
            let line = json!({"prefix": format!("{number:012}"), "hash": hash, "caller": format!("caller-{number}"), "created": created});
            writeln!(keys, "{line}")?;
        }
        keys.flush()?;
        Ok((file, key))
    }

    fn write_guarded_config(&self) -> anyhow::Result<(PathBuf, String)> {
        let agents = json!([
            self.agent_document("keyed", "api_key", "/invoke", Some(input_schema())),
            self.agent_document("signed", "oauth2_bearer", "/invoke", Some(input_schema())),
        ]);
        let issuer = self.issuer_url();
        let config = format!(
            "{common}auth:
  api_keys:
    files: [{keys}]
  bearer:
    issuers:
      - issuer: {issuer}
        jwks_url: {issuer}/jwks
        audience: [{AUDIENCE}]
        algorithms: [EdDSA]
limits:
  per_address: 1000000/s
  per_caller: 1000000/s
",
            common = self.common_config(&self.write_agents("guarded", &agents)?),
            keys = self.folder.join("keys.jsonl").display(),
        );
        let file = self.write_config("guarded", &config)?;
        let key = self.create_key(&file)?;
        Ok((file, key))
    }

    /// Starts a gateway with the agents of a file, which everybody may discover and call.
    pub(crate) fn start_with_agents_file(&self, agents: &Path, count: usize) -> anyhow::Result<ServerProcess> {
        let config = format!(
            "{}directory:\n  public_agents: [\"*\"]\nlimits:\n  per_address: null\n  per_caller_search: null\n",
            self.common_config(&agents.display().to_string())
        );
        self.start(&self.write_config(&format!("catalogue-{count}"), &config)?)
    }

    /// Starts a gateway with the agents of [`crate::transport_agents`], by transport. A call times out after `timeout`.
    pub(crate) fn start_with_all_transports(
        &self,
        addresses: &AgentAddresses,
        timeout: Duration,
    ) -> anyhow::Result<ServerProcess> {
        let agent = |(id, endpoint): (&str, String)| json!({"id": id, "name": id, "endpoint": endpoint});
        let endpoints = [
            ("http", format!("http://{}/invoke", addresses.http)),
            ("unix", format!("agent+unix://{}#/invoke", addresses.unix.display())),
            ("ws", format!("agent+ws://{}/", addresses.ws)),
            ("mqtt", format!("mqtt://{}/control/agents/{MQTT_AGENT_ID}/input", addresses.broker)),
        ];
        let agents: Vec<Value> = endpoints.into_iter().map(agent).collect();
        let file = self.write_agents("transports", &json!(agents))?;
        let millis = timeout.as_millis();
        let rules = format!(
            "agents:
  sources: [{file}]
  defaults:
    timeouts: {{ first_byte: {millis}ms, total: {millis}ms }}
  rules:
    - {{ agents: [ws], settings: {{ websocket: {{ framing: bare }} }} }}
    - {{ agents: [mqtt], max_concurrency: 1000 }}
"
        );
        let config = self.common_config(&file).replace(&format!("agents:\n  sources: [{file}]\n"), &rules);
        let config = config.replace("127.0.0.0/8]\n", "127.0.0.0/8]\n  allowed_sockets: [\"/*\"]\n");
        self.start(&self.write_config("transports", &format!("{config}limits:\n  per_address: null\n"))?)
    }

    /// Writes the documents of `agents` agents and the keys of `callers` callers.
    pub(crate) fn write_limited_setup(&self, agents: usize, callers: usize) -> anyhow::Result<LimitedSetup> {
        let document = |number| self.agent_document(&format!("agent-{number}"), "api_key", "/invoke", None);
        let agents_file = self.write_agents("limited", &json!((0..agents).map(document).collect::<Vec<_>>()))?;
        let keys_file = self.folder.join("limited-keys.jsonl");
        let mut lines = BufWriter::new(fs::File::create(&keys_file)?);
        let mut keys = Vec::with_capacity(callers);
        for number in 0..callers {
            let (prefix, key) = (format!("{number:012}"), format!("gp_{number:012}_{number:040}"));
            let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, key.as_bytes());
            let hash: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
            let (caller, created) = (format!("caller-{number}"), "2026-01-01T00:00:00Z");
            writeln!(lines, "{}", json!({"prefix": prefix, "hash": hash, "caller": caller, "created": created}))?;
            keys.push(key);
        }
        lines.flush()?;
        Ok(LimitedSetup { agents, agents_file, keys_file, keys })
    }

    /// Starts a gateway whose callers may make `per_second` calls a second to each agent, and to all agents; with
    /// `redis`, its limits are shared there.
    pub(crate) fn start_limited(
        &self,
        setup: &LimitedSetup,
        per_second: u64,
        redis: Option<SocketAddr>,
    ) -> anyhow::Result<LimitedGateway> {
        let number = self.open_gateways.get();
        self.open_gateways.set(number + 1);
        let metrics = ReservedPort::new()?;
        let state = redis.map_or_else(String::new, |redis| {
            format!("state:\n  redis: {{ url: \"redis://{redis}\" }}\n  timeout: 500ms\n")
        });
        let config = format!(
            "{common}health:
  address: {metrics}
  metrics: true
auth:
  api_keys:
    files: [{keys}]
{state}limits:
  per_address: null
  max_share: 1
  per_caller: {per_second}/s
  per_caller_agent: {per_second}/s
",
            common = self.common_config(&setup.agents_file),
            metrics = metrics.address(),
            keys = setup.keys_file.display(),
        );
        let process = self.start(&self.write_config(&format!("limited-{number}"), &config)?)?;
        Ok(LimitedGateway { process, metrics })
    }

    fn write_agents(&self, name: &str, agents: &Value) -> anyhow::Result<String> {
        let documents = self.folder.join(format!("{name}-agents.json"));
        fs::write(&documents, agents.to_string())?;
        Ok(documents.display().to_string())
    }

    /// Creates an API key with the gateway's own command, before the gateway starts.
    fn create_key(&self, config: &Path) -> anyhow::Result<String> {
        let mut command = Command::new(&self.program);
        command.args(["key", "new", "--caller", CALLER_ID, "--config"]).arg(config);
        let output = command.output()?;
        let stdout = String::from_utf8(output.stdout)?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{command:?} failed: {stderr}");
        let key = stdout.split_ascii_whitespace().last();
        Ok(key.context("`gatepost key new` printed no key")?.to_owned())
    }

    /// Signs a token in the name of the one issuer that the gateway trusts.
    pub(crate) fn sign_token(&self, issuer: &TokenIssuer) -> anyhow::Result<String> {
        issuer.sign_token(&self.issuer_url())
    }

    fn issuer_url(&self) -> String {
        format!("http://{}", self.agent)
    }

    fn common_config(&self, agents_file: &str) -> String {
        let tls_listener = self.certificate.as_ref().map_or_else(String::new, |certificate| {
            let (chain, key) = (certificate.chain.display(), certificate.key.display());
            format!("  - address: 127.0.0.1:0\n    tls: {{ certificate: {chain}, key: {key} }}\n")
        });
        format!(
            "listeners:
  - address: 127.0.0.1:0
{tls_listener}connections:
  max_connections: 20000
  max_connections_per_address: 20000
  idle_timeout: 10m
admin:
  address: 127.0.0.1:0
agents:
  sources: [{agents_file}]
network:
  allowed_addresses: [127.0.0.0/8]
access:
  grants:
    - callers: [\"*\", anonymous]
      agents: [\"*\"]
access_log:
  output: /dev/null
"
        )
    }

    fn agent_document(&self, id: &str, auth: &str, path: &str, inputs: Option<Value>) -> Value {
        let mut operation = json!({ "name": "ask", "description": "Answers" });
        if let (Some(inputs), Some(fields)) = (inputs, operation.as_object_mut()) {
            fields.insert("inputs".to_owned(), inputs);
        }
        json!({
            "id": id, "name": id, "description": "An agent of the load test", "version": "1.0.0",
            "endpoint": format!("http://{}{path}", self.agent),
            "authentication": { "type": auth },
            "operations": [operation],
        })
    }

    fn write_config(&self, name: &str, config: &str) -> anyhow::Result<PathBuf> {
        let file = self.folder.join(format!("{name}.yaml"));
        fs::write(&file, config)?;
        Ok(file)
    }

    pub(crate) fn start(&self, config: &Path) -> anyhow::Result<ServerProcess> {
        ServerProcess::start_announcing(self.run_command(config), CpuCore::Proxy)
    }

    /// Starts a gateway whose second listener serves TLS.
    fn start_with_tls(&self, config: &Path) -> anyhow::Result<RunningProxy> {
        ensure!(self.certificate.is_some(), "the gateway has no certificate");
        let (process, tls) = ServerProcess::start_announcing_tls(self.run_command(config), CpuCore::Proxy)?;
        Ok(RunningProxy { process, tls })
    }

    fn run_command(&self, config: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("run").arg("--config").arg(config).env("GATEPOST_LOG", "warn");
        command
    }
}

/// Agents and keys of [`GatewayLauncher::start_limited`].
pub(crate) struct LimitedSetup {
    /// Number of agents, which are named `agent-0` and so on.
    pub(crate) agents: usize,
    agents_file: String,
    keys_file: PathBuf,
    /// A key of each caller.
    pub(crate) keys: Vec<String>,
}

/// A gateway with limits, and the port of its metrics.
pub(crate) struct LimitedGateway {
    pub(crate) process: ServerProcess,
    metrics: ReservedPort,
}

impl LimitedGateway {
    /// Returns how many trips the gateway has made to the shared limits.
    pub(crate) fn trips(&self) -> anyhow::Result<f64> {
        self.metric("gatepost_store_operation_duration_seconds_count{store=\"limits\"}")
    }

    /// Returns how many gateways the gateway knows.
    pub(crate) fn known_gateways(&self) -> anyhow::Result<f64> {
        self.metric("gatepost_state_gateways")
    }

    /// Returns the value of a series; 0 if there is none.
    fn metric(&self, series: &str) -> anyhow::Result<f64> {
        let mut connection = TcpStream::connect(self.metrics.address())?;
        // A listener on loopback knows no other host name.
        connection.write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
        let mut page = String::new();
        connection.read_to_string(&mut page)?;
        ensure!(page.starts_with("HTTP/1.1 200"), "{}", page.lines().next().unwrap_or_default());
        let value = page.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok());
        Ok(value.unwrap_or_default())
    }
}

/// A call without credentials, to the agent itself, to a proxy without checks, or to an open agent.
pub(crate) fn anonymous_target(address: SocketAddr, path: &str) -> CallTarget {
    CallTarget::plain(address, PreparedRequest::post_json(path, "", &request_body(LANGUAGE)))
}

/// A call through the gateway to one of the agents of [`crate::transport_agents`].
pub(crate) fn transport_target(address: SocketAddr, transport: &str, body: &str) -> CallTarget {
    CallTarget::plain(address, PreparedRequest::post_json(&invoke_path(transport), "", body))
}

/// Returns the gateway's path for calls to an agent.
pub(crate) fn invoke_path(agent: &str) -> String {
    format!("/agents/{agent}/invoke")
}

/// A call with an API key.
pub(crate) fn api_key_target(address: SocketAddr, key: &str) -> CallTarget {
    api_key_call(address, key, "keyed", LANGUAGE)
}

/// A call of an agent with an API key; the schema of inputs lists the languages.
pub(crate) fn api_key_call(address: SocketAddr, key: &str, agent: &str, language: &str) -> CallTarget {
    let header = format!("x-api-key: {key}\r\n");
    CallTarget::plain(address, PreparedRequest::post_json(&invoke_path(agent), &header, &request_body(language)))
}

/// A call with a token.
pub(crate) fn token_target(address: SocketAddr, token: &str) -> CallTarget {
    let header = format!("authorization: Bearer {token}\r\n");
    CallTarget::plain(address, PreparedRequest::post_json("/agents/signed/invoke", &header, &request_body(LANGUAGE)))
}

/// Returns the path of the gateway's program beside this one, where cargo builds both.
pub(crate) fn sibling_program() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe()?;
    let program = own.with_file_name("gatepost");
    ensure!(program.is_file(), "{} is missing (cargo build --release)", program.display());
    Ok(program)
}

#[cfg(test)]
mod tests;
