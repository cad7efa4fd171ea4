//! What is counted: the cases, the gateway's configuration for them, the agent behind it and the caller before it.
//! Caller and agent stand outside callgrind and speak just enough HTTP for this.

use super::gauge::Gauge;
use super::question::{question, schema};
use super::token::{AUDIENCE, Issuer};
use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use std::fs;
use std::io::{self, Read, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// Calls of a case before it is counted: pools, caches and buffers are what they will be.
const WARM: u32 = 30;

/// A case is counted so many times; the median stands.
const WINDOWS: u32 = 3;

/// Bytes of an answer.
const ANSWER: usize = 300;

/// How long an answer may take, under callgrind and beside a compiler.
const PATIENCE: Duration = Duration::from_secs(60);

/// What one case costs.
pub(crate) struct Count {
    /// Its name in the record.
    pub(crate) case: &'static str,
    /// Instructions of one call.
    pub(crate) instructions: u64,
    /// Those of them that make digests: see [`super::gauge::Spent::digests`].
    pub(crate) digests: u64,
    /// The largest window less the smallest, as a share of the median.
    pub(crate) spread: f64,
}

/// The whole path with a key, and with a token whose signature was checked before.
pub(crate) const KEY: &str = "API key + limit + schema";
pub(crate) const JWT: &str = "cached JWT + limit + schema";

/// Counts every case of `program`, `calls` calls in each of its windows. The configuration stands in `folder`, and
/// callgrind's dumps will: three for each case, numbered in order, a file for each thread.
pub(crate) fn count(program: &Path, calls: u32, folder: &Path) -> anyhow::Result<Vec<Count>> {
    // A name without a folder would be looked for in PATH.
    let program = &fs::canonicalize(program)?;
    let place = Place::new(folder)?;
    let config = place.config()?;
    let cases = place.cases(&key(program, &config)?)?;
    let mut gauge = Gauge::start(program, &config, folder)?;
    gauge.begin()?;
    cases.iter().map(|case| case.count(&mut gauge, calls).context(case.name)).collect()
}

struct Case {
    name: &'static str,
    request: Vec<u8>,
    status: u16,
}

impl Case {
    fn count(&self, gauge: &mut Gauge, calls: u32) -> anyhow::Result<Count> {
        let mut stream = TcpStream::connect(gauge.address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut call = |times: u32| (0..times).try_for_each(|_| self.call(&mut stream));
        call(WARM)?;
        let window = |_| gauge.during(|| call(calls));
        let mut windows = (0..WINDOWS).map(window).collect::<anyhow::Result<Vec<_>>>()?;
        windows.sort_unstable_by_key(|spent| spent.all);
        let median = windows.get(windows.len() / 2).context("a window")?;
        let range = windows.last().zip(windows.first()).map_or(0, |(most, least)| most.all - least.all);
        let of_one = |all: u64| all / u64::from(calls.max(1));
        Ok(Count {
            case: self.name,
            instructions: of_one(median.all),
            digests: of_one(median.digests),
            spread: range as f64 / median.all as f64,
        })
    }

    fn call(&self, stream: &mut TcpStream) -> anyhow::Result<()> {
        stream.write_all(&self.request)?;
        let answer = message(stream)?.context("closed instead of an answer")?;
        let expected = format!("HTTP/1.1 {} ", self.status);
        ensure!(answer.starts_with(&expected), "{expected}was expected; this came:\n{answer}");
        Ok(())
    }
}

struct Place<'a> {
    folder: &'a Path,
    agent: Agent,
    issuer: Issuer,
}

impl<'a> Place<'a> {
    fn new(folder: &'a Path) -> anyhow::Result<Self> {
        let issuer = Issuer::new()?;
        Ok(Self { folder, agent: Agent::start(issuer.jwks().to_string())?, issuer })
    }

    fn issuer_url(&self) -> String {
        format!("http://{}", self.agent.address)
    }

    /// Writes the configuration and what it names. Files are looked at once an hour: what has nothing to do with a call
    /// is not to be counted with it.
    fn config(&self) -> anyhow::Result<PathBuf> {
        let at = |name: &str| self.folder.join(name);
        let agents = json!([
            self.document("keyed", "api_key", Some(schema())),
            self.document("signed", "oauth2_bearer", Some(schema())),
            self.document("open", "none", None),
        ]);
        fs::write(at("agents.json"), agents.to_string())?;
        let issuer = self.issuer_url();
        let config = format!(
            "listen:
  - address: 127.0.0.1:0
admin:
  address: 127.0.0.1:0
agents:
  from: [agents.json]
  poll: 1h
network:
  allow: [127.0.0.0/8]
access:
  grants:
    - callers: [\"*\", anonymous]
      agents: [\"*\"]
auth:
  api_keys:
    files: [keys.jsonl]
  bearer:
    issuers:
      - issuer: {issuer}
        jwks_url: {issuer}/jwks
        audience: [{AUDIENCE}]
        algorithms: [EdDSA]
limits:
  per_address: 1000000/s
  per_caller: 1000000/s
access_log:
  to: access.log
"
        );
        fs::write(at("gatepost.yaml"), config)?;
        Ok(at("gatepost.yaml"))
    }

    fn document(&self, id: &str, authentication: &str, inputs: Option<Value>) -> Value {
        let mut operation = json!({ "name": "ask" });
        if let (Some(inputs), Some(fields)) = (inputs, operation.as_object_mut()) {
            fields.insert("inputs".to_owned(), inputs);
        }
        json!({
            "id": id, "name": id, "version": "1.0.0", "endpoint": format!("http://{}/invoke", self.agent.address),
            "authentication": { "type": authentication }, "operations": [operation],
        })
    }

    fn cases(&self, key: &str) -> anyhow::Result<Vec<Case>> {
        let key = format!("x-api-key: {key}\r\n");
        let token = format!("authorization: Bearer {}\r\n", self.issuer.token(&self.issuer_url())?);
        let case = |name, status, agent: &str, credential: &str, language: &str| {
            let body = question(language);
            let request = format!(
                "POST /agents/{agent}/invoke HTTP/1.1\r\nhost: counts.local\r\ncontent-type: application/json\r\n\
                 {credential}content-length: {}\r\n\r\n{body}",
                body.len()
            );
            Case { name, status, request: request.into_bytes() }
        };
        Ok(vec![
            case(KEY, 200, "keyed", &key, "fr"),
            case(JWT, 200, "signed", &token, "fr"),
            case("open agent + limit", 200, "open", "", "fr"),
            case("401: no credential", 401, "keyed", "", "fr"),
            case("400: against the schema", 400, "keyed", &key, "xx"),
        ])
    }
}

/// A key, made by the gateway's own command.
fn key(program: &Path, config: &Path) -> anyhow::Result<String> {
    let mut command = Command::new(program);
    command.args(["key", "new", "--caller", "counts", "--config"]).arg(config);
    let output = command.stderr(Stdio::null()).output().with_context(|| format!("{command:?} does not start"))?;
    ensure!(output.status.success(), "{command:?} failed ({})", output.status);
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// An agent in this process, a thread a connection. The connections end with the gateway, the rest when it is dropped.
struct Agent {
    address: SocketAddr,
    ending: Arc<AtomicBool>,
}

impl Agent {
    fn start(jwks: String) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let agent = Self { address: listener.local_addr()?, ending: Arc::default() };
        let ending = Arc::clone(&agent.ending);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok).take_while(|_| !ending.load(Relaxed)) {
                let jwks = jwks.clone();
                // A gateway that leaves ends its connection; there is nobody to tell.
                std::thread::spawn(move || drop(serve(stream, &jwks)));
            }
        });
        Ok(agent)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.ending.store(true, Relaxed);
        // It waits for one more connection; that there is nobody any more is as good.
        let _ = TcpStream::connect(self.address);
    }
}

fn serve(mut stream: TcpStream, jwks: &str) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (head, tail) = ("{\"text\":\"", "\"}");
    let answer = format!("{head}{}{tail}", "x".repeat(ANSWER - head.len() - tail.len()));
    while let Some(asked) = message(&mut stream)? {
        let body = if asked.starts_with("GET /jwks ") { jwks } else { &answer };
        let length = body.len();
        // In one write, so that the gateway always reads it in as many pieces.
        let answer = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\
             date: Sun, 22 Nov 2026 12:00:00 GMT\r\n\r\n{body}"
        );
        stream.write_all(answer.as_bytes())?;
    }
    Ok(())
}

/// One whole message, head and body as they came; `None` where the connection ends instead. Nothing is pipelined.
fn message(stream: &mut impl Read) -> io::Result<Option<String>> {
    let mut got = Vec::new();
    let mut room = [0; 8192];
    loop {
        let count = stream.read(&mut room)?;
        if count == 0 {
            return Ok(None);
        }
        got.extend(room.iter().take(count));
        let text = String::from_utf8_lossy(&got);
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let length = |line: &str| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
        };
        if body.len() >= head.lines().find_map(length).unwrap_or_default() {
            return Ok(Some(text.into_owned()));
        }
    }
}
