//! The gateway under measurement: everything that depends on the form of its configuration,
//! its documents and its command line stands in this file.

use crate::agent::{BULK, SSE, TICKER};
use crate::bodies::LENGTHS;
use crate::certificate::Certificate;
use crate::client::Request;
use crate::load::Target;
use crate::peers::{ON_BROKER, Places};
use crate::process::{Core, Process, free_address};
use crate::proxy::{CHECKED, Proxy};
use crate::question::{question, schema};
use crate::token::{AUDIENCE, Issuer};
use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use std::fs::{self, OpenOptions};
use std::io::{BufWriter, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Who the key and the token belong to.
const CALLER: &str = "loadtest";

/// What it asks for.
const LANGUAGE: &str = "fr";

/// A program, a folder for its files, and the agent behind it.
pub(crate) struct Gateway {
    program: PathBuf,
    folder: PathBuf,
    agent: SocketAddr,
    /// With it, TLS is served beside plain HTTP.
    certificate: Option<Certificate>,
}

impl Gateway {
    pub(crate) fn new(program: PathBuf, folder: PathBuf, agent: SocketAddr) -> Self {
        Self { program, folder, agent, certificate: None }
    }

    /// One that serves TLS, too, where [`Self::open`] and [`Self::guarded`] say.
    pub(crate) fn with(self, certificate: &Certificate) -> Self {
        Self { certificate: Some(certificate.clone()), ..self }
    }

    /// With nothing to check: anyone may call, no limit, no schema.
    pub(crate) fn open(&self) -> anyhow::Result<Proxy> {
        let document = |id: &str, path: &str| self.document(id, "none", path, None);
        let mut agents = vec![document("open", "/invoke"), document("stream", SSE), document("ticker", TICKER)];
        let lengths = [0].into_iter().chain(LENGTHS);
        agents.extend(lengths.map(|length| document(&format!("bulk-{length}"), &format!("{BULK}{length}"))));
        let agents = json!(agents);
        let tls = free_address()?;
        // Several run at once, and each watches its files.
        let name = format!("open-{}", tls.port());
        let common = self.common(&self.agents(&name, &agents)?, Some(tls));
        let config = format!("{common}limits:\n  per_address: null\n  concurrency: {{ per_agent: null }}\n");
        Ok(Proxy { process: self.start(&self.write(&name, &config)?)?, tls })
    }

    /// With everything: keys, tokens, a limit that holds and never refuses, a schema. With it
    /// comes a key that it knows.
    pub(crate) fn guarded(&self) -> anyhow::Result<(Proxy, String)> {
        let (file, key, tls) = self.guard()?;
        Ok((Proxy { process: self.start(&file)?, tls }, key))
    }

    /// The configuration of [`Self::guarded`], to be started; its one known key is among so many others.
    pub(crate) fn keys_among(&self, others: usize) -> anyhow::Result<(PathBuf, String)> {
        let (file, key, _) = self.guard()?;
        let mut out = BufWriter::new(OpenOptions::new().append(true).open(self.folder.join("keys.jsonl"))?);
        for number in 0..others {
            // What they hash is nobody's key.
            let (hash, created) = (format!("{number:064x}"), "2026-01-01T00:00:00Z");
            let line = json!({"prefix": format!("{number:012}"), "hash": hash, "caller": format!("caller-{number}"), "created": created});
            writeln!(out, "{line}")?;
        }
        out.flush()?;
        Ok((file, key))
    }

    fn guard(&self) -> anyhow::Result<(PathBuf, String, SocketAddr)> {
        let agents = json!([
            self.document("keyed", "api_key", "/invoke", Some(schema())),
            self.document("signed", "oauth2_bearer", "/invoke", Some(schema())),
        ]);
        let (issuer, tls) = (self.issuer(), free_address()?);
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
            common = self.common(&self.agents("guarded", &agents)?, Some(tls)),
            keys = self.folder.join("keys.jsonl").display(),
        );
        let file = self.write("guarded", &config)?;
        let key = self.key(&file)?;
        Ok((file, key, tls))
    }

    /// With the agents of a file, which anyone may discover and call.
    pub(crate) fn crowded(&self, agents: &Path, count: usize) -> anyhow::Result<Process> {
        let config = format!(
            "{}directory:\n  public: [\"*\"]\nlimits:\n  per_address: null\n  per_caller_search: null\n",
            self.common(&agents.display().to_string(), None)
        );
        self.start(&self.write(&format!("crowd-{count}"), &config)?)
    }

    /// With the agents of [`crate::peers`], by kind. Whoever does not answer within `bound` is given up.
    pub(crate) fn over_everything(&self, places: &Places, bound: Duration) -> anyhow::Result<Process> {
        let agent = |(kind, endpoint): (&str, String)| json!({"id": kind, "name": kind, "endpoint": endpoint});
        let endpoints = [
            ("http", format!("http://{}/invoke", places.http)),
            ("unix", format!("agent+unix://{}#/invoke", places.unix.display())),
            ("ws", format!("agent+ws://{}/", places.ws)),
            ("mqtt", format!("mqtt://{}/control/agents/{ON_BROKER}/input", places.broker)),
        ];
        let agents: Vec<Value> = endpoints.into_iter().map(agent).collect();
        let file = self.agents("everything", &json!(agents))?;
        let millis = bound.as_millis();
        let rules = format!(
            "agents:
  from: [{file}]
  defaults:
    timeouts: {{ first_byte: {millis}ms, total: {millis}ms }}
  rules:
    - {{ agents: [ws], settings: {{ websocket: {{ frames: bare }} }} }}
    - {{ agents: [mqtt], concurrency: 1000 }}
"
        );
        let config = self.common(&file, None).replace(&format!("agents:\n  from: [{file}]\n"), &rules);
        let config = config.replace("127.0.0.0/8]\n", "127.0.0.0/8]\n  allow_sockets: [\"/*\"]\n");
        self.start(&self.write("everything", &format!("{config}limits:\n  per_address: null\n"))?)
    }

    fn agents(&self, name: &str, agents: &Value) -> anyhow::Result<String> {
        let documents = self.folder.join(format!("{name}-agents.json"));
        fs::write(&documents, agents.to_string())?;
        Ok(documents.display().to_string())
    }

    /// The key, made by the gateway's own command before it starts.
    fn key(&self, config: &Path) -> anyhow::Result<String> {
        let mut command = Command::new(&self.program);
        command.args(["key", "new", "--caller", CALLER, "--config"]).arg(config);
        let output = command.output()?;
        let text = String::from_utf8(output.stdout)?;
        let why = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{command:?} failed: {why}");
        let key = text.split_ascii_whitespace().last();
        Ok(key.context("`gatepost key new` printed no key")?.to_owned())
    }

    /// A token of the one issuer that the gateway knows.
    pub(crate) fn token(&self, issuer: &Issuer) -> anyhow::Result<String> {
        issuer.token(&self.issuer())
    }

    fn issuer(&self) -> String {
        format!("http://{}", self.agent)
    }

    fn common(&self, documents: &str, tls: Option<SocketAddr>) -> String {
        let secure = tls.zip(self.certificate.as_ref()).map_or_else(String::new, |(tls, certificate)| {
            let (chain, key) = (certificate.chain.display(), certificate.key.display());
            format!("  - address: {tls}\n    tls: {{ certificate: {chain}, key: {key} }}\n")
        });
        format!(
            "listen:
  - address: 127.0.0.1:0
{secure}connections:
  connections: 20000
  idle: 10m
admin:
  address: 127.0.0.1:0
agents:
  from: [{documents}]
network:
  allow: [127.0.0.0/8]
access:
  grants:
    - callers: [\"*\", anonymous]
      agents: [\"*\"]
access_log:
  to: /dev/null
"
        )
    }

    fn document(&self, id: &str, auth: &str, path: &str, inputs: Option<Value>) -> Value {
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

    fn write(&self, name: &str, config: &str) -> anyhow::Result<PathBuf> {
        let file = self.folder.join(format!("{name}.yaml"));
        fs::write(&file, config)?;
        Ok(file)
    }

    pub(crate) fn start(&self, config: &Path) -> anyhow::Result<Process> {
        let mut command = Command::new(&self.program);
        command.arg("run").arg("--config").arg(config).env("GATEPOST_LOG", "warn");
        Process::telling(command, Core::Proxy)
    }
}

/// A call without credentials, for the agent itself, plain proxies and open agents.
pub(crate) fn plain(address: SocketAddr, path: &str) -> Target {
    Target::plain(address, Request::post(path, "", &question(LANGUAGE)))
}

/// A call to one of the agents of [`crate::peers`], through the gateway.
pub(crate) fn asking(address: SocketAddr, kind: &str, body: &str) -> Target {
    Target::plain(address, Request::post(&path_of(kind), "", body))
}

/// Where the gateway takes calls to an agent.
pub(crate) fn path_of(agent: &str) -> String {
    format!("/agents/{agent}/invoke")
}

/// A call that shows an API key.
pub(crate) fn keyed(address: SocketAddr, key: &str) -> Target {
    let header = format!("x-api-key: {key}\r\n");
    Target::plain(address, Request::post(CHECKED, &header, &question(LANGUAGE)))
}

/// A call that shows a token.
pub(crate) fn signed(address: SocketAddr, token: &str) -> Target {
    let header = format!("authorization: Bearer {token}\r\n");
    Target::plain(address, Request::post("/agents/signed/invoke", &header, &question(LANGUAGE)))
}

/// A program beside this one, as cargo leaves them.
pub(crate) fn beside() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe()?;
    let program = own.with_file_name("gatepost");
    ensure!(program.is_file(), "{} is missing (cargo build --release)", program.display());
    Ok(program)
}

#[cfg(test)]
mod tests;
