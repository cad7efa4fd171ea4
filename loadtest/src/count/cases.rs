//! The counted cases: the gateway's configuration, the agent behind the gateway and the client in front of it. Client
//! and agent run outside callgrind and implement only the HTTP that the cases need.

use super::callgrind::CallgrindSession;
use super::request_body::{input_schema, request_body};
use super::token_issuer::{AUDIENCE, TokenIssuer};
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

/// Calls of a case before counting begins, so that pools, caches and buffers have reached their final size.
const WARMUP_CALLS: u32 = 30;

/// How often a case is counted. The median is the result.
const WINDOWS: u32 = 3;

/// Bytes of the agent's response body.
const RESPONSE_BODY_SIZE: usize = 300;

/// How long a response may take, under callgrind and while a compiler uses the machine.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// The cost of one case.
pub(crate) struct CaseCount {
    /// Its name in the record.
    pub(crate) case: &'static str,
    /// Instructions of one call.
    pub(crate) instructions: u64,
    /// The part of [`Self::instructions`] that computes SHA-256, see [`super::callgrind::InstructionTotals::digests`].
    pub(crate) digests: u64,
    /// The difference between the largest and the smallest window, as a share of the median.
    pub(crate) spread: f64,
}

/// The complete call path with an API key, and with a token whose signature the gateway has verified before.
pub(crate) const API_KEY_CASE: &str = "API key + limit + schema";
pub(crate) const CACHED_JWT_CASE: &str = "cached JWT + limit + schema";

/// Counts every case of `program` with `calls` calls in each window. Writes the configuration to `folder`, and
/// callgrind's dumps: three for each case, numbered in order, one file per thread.
pub(crate) fn count_cases(program: &Path, calls: u32, folder: &Path) -> anyhow::Result<Vec<CaseCount>> {
    // A bare file name would be looked up in PATH.
    let program = &fs::canonicalize(program)?;
    let setup = CaseSetup::start(folder)?;
    let config = setup.write_config()?;
    let cases = setup.cases(&create_key(program, &config)?)?;
    let mut session = CallgrindSession::start(program, &config, folder)?;
    session.start_counting()?;
    cases.iter().map(|case| case.count(&mut session, calls).context(case.name)).collect()
}

struct CallCase {
    name: &'static str,
    request: Vec<u8>,
    status: u16,
}

impl CallCase {
    fn count(&self, session: &mut CallgrindSession, calls: u32) -> anyhow::Result<CaseCount> {
        let mut stream = TcpStream::connect(session.address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(READ_TIMEOUT))?;
        let mut call = |times: u32| (0..times).try_for_each(|_| self.call(&mut stream));
        call(WARMUP_CALLS)?;
        let window = |_| session.count_during(|| call(calls));
        let mut windows = (0..WINDOWS).map(window).collect::<anyhow::Result<Vec<_>>>()?;
        windows.sort_unstable_by_key(|window| window.total);
        let median = windows.get(windows.len() / 2).context("no window was counted")?;
        let range = windows.last().zip(windows.first()).map_or(0, |(largest, smallest)| largest.total - smallest.total);
        let per_call = |total: u64| total / u64::from(calls.max(1));
        Ok(CaseCount {
            case: self.name,
            instructions: per_call(median.total),
            digests: per_call(median.digests),
            spread: range as f64 / median.total as f64,
        })
    }

    fn call(&self, stream: &mut TcpStream) -> anyhow::Result<()> {
        stream.write_all(&self.request)?;
        let response = read_message(stream)?.context("the gateway closed the connection instead of responding")?;
        let expected = format!("HTTP/1.1 {} ", self.status);
        ensure!(response.starts_with(&expected), "expected {expected}but received:\n{response}");
        Ok(())
    }
}

struct CaseSetup<'a> {
    folder: &'a Path,
    agent: StubAgent,
    issuer: TokenIssuer,
}

impl<'a> CaseSetup<'a> {
    fn start(folder: &'a Path) -> anyhow::Result<Self> {
        let issuer = TokenIssuer::new()?;
        Ok(Self { folder, agent: StubAgent::start(issuer.jwks().to_string())?, issuer })
    }

    fn issuer_url(&self) -> String {
        format!("http://{}", self.agent.address)
    }

    /// Writes the configuration and the files that it names. The gateway checks its files once an hour, so that this
    /// work, which no call causes, is not counted.
    fn write_config(&self) -> anyhow::Result<PathBuf> {
        let path = |name: &str| self.folder.join(name);
        let agents = json!([
            self.agent_document("keyed", "api_key", Some(input_schema())),
            self.agent_document("signed", "oauth2_bearer", Some(input_schema())),
            self.agent_document("open", "none", None),
        ]);
        fs::write(path("agents.json"), agents.to_string())?;
        let issuer = self.issuer_url();
        let config = format!(
            "listeners:
  - address: 127.0.0.1:0
admin:
  address: 127.0.0.1:0
agents:
  sources: [agents.json]
  poll_interval: 1h
  rules:
    - {{ agents: [open], api: {{ routes: [{{ methods: [POST], path: /invoke }}] }} }}
network:
  allowed_addresses: [127.0.0.0/8]
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
  output: access.log
"
        );
        fs::write(path("gatepost.yaml"), config)?;
        Ok(path("gatepost.yaml"))
    }

    fn agent_document(&self, id: &str, authentication: &str, inputs: Option<Value>) -> Value {
        let mut operation = json!({ "name": "ask" });
        if let (Some(inputs), Some(fields)) = (inputs, operation.as_object_mut()) {
            fields.insert("inputs".to_owned(), inputs);
        }
        json!({
            "id": id, "name": id, "version": "1.0.0", "endpoint": format!("http://{}/invoke", self.agent.address),
            "authentication": { "type": authentication }, "operations": [operation],
        })
    }

    fn cases(&self, key: &str) -> anyhow::Result<Vec<CallCase>> {
        let key = format!("x-api-key: {key}\r\n");
        let token = format!("authorization: Bearer {}\r\n", self.issuer.sign_token(&self.issuer_url())?);
        let case = |name, status, path: &str, credential: &str, language: &str| {
            let body = request_body(language);
            let request = format!(
                "POST /agents/{path} HTTP/1.1\r\nhost: counts.local\r\ncontent-type: application/json\r\n\
                 {credential}content-length: {}\r\n\r\n{body}",
                body.len()
            );
            CallCase { name, status, request: request.into_bytes() }
        };
        Ok(vec![
            case(API_KEY_CASE, 200, "keyed/invoke", &key, "fr"),
            case(CACHED_JWT_CASE, 200, "signed/invoke", &token, "fr"),
            case("open agent + limit", 200, "open/invoke", "", "fr"),
            case("open agent's own API + limit", 200, "open/api/invoke", "", "fr"),
            case("401: no credential", 401, "keyed/invoke", "", "fr"),
            case("400: against the schema", 400, "keyed/invoke", &key, "xx"),
        ])
    }
}

/// Creates an API key with the gateway's own command.
fn create_key(program: &Path, config: &Path) -> anyhow::Result<String> {
    let mut command = Command::new(program);
    command.args(["key", "new", "--caller", "counts", "--config"]).arg(config);
    let output = command.stderr(Stdio::null()).output().with_context(|| format!("{command:?} does not start"))?;
    ensure!(output.status.success(), "{command:?} failed ({})", output.status);
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// An agent in this process, with one thread per connection. The gateway's end closes the connections; dropping the
/// agent closes its listener.
struct StubAgent {
    address: SocketAddr,
    is_stopping: Arc<AtomicBool>,
}

impl StubAgent {
    fn start(jwks: String) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let agent = Self { address: listener.local_addr()?, is_stopping: Arc::default() };
        let is_stopping = Arc::clone(&agent.is_stopping);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok).take_while(|_| !is_stopping.load(Relaxed)) {
                let jwks = jwks.clone();
                // An error means that the gateway closed the connection, so nothing is left to serve.
                std::thread::spawn(move || drop(serve(stream, &jwks)));
            }
        });
        Ok(agent)
    }
}

impl Drop for StubAgent {
    fn drop(&mut self) {
        self.is_stopping.store(true, Relaxed);
        // One more connection wakes the thread that accepts. A failure means that the thread has already ended.
        let _ = TcpStream::connect(self.address);
    }
}

fn serve(mut stream: TcpStream, jwks: &str) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (head, tail) = ("{\"text\":\"", "\"}");
    let json = format!("{head}{}{tail}", "x".repeat(RESPONSE_BODY_SIZE - head.len() - tail.len()));
    while let Some(request) = read_message(&mut stream)? {
        let body = if request.starts_with("GET /jwks ") { jwks } else { &json };
        let length = body.len();
        // One write, so that the gateway always needs the same number of reads.
        let response = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\
             date: Sun, 22 Nov 2026 12:00:00 GMT\r\n\r\n{body}"
        );
        stream.write_all(response.as_bytes())?;
    }
    Ok(())
}

/// Reads one complete message, head and body. `None` means that the peer closed the connection. Neither side pipelines.
fn read_message(stream: &mut impl Read) -> io::Result<Option<String>> {
    let mut received = Vec::new();
    let mut buffer = [0; 8192];
    loop {
        let count = stream.read(&mut buffer)?;
        if count == 0 {
            return Ok(None);
        }
        received.extend(buffer.iter().take(count));
        let text = String::from_utf8_lossy(&received);
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
