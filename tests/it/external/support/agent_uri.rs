//! The reference implementation of `agent://` (Python): its client, which reaches the gateway as a user's would, and an
//! agent on its server.

use super::python_packages::PythonPackages;
use crate::support::{certs::CertificateAuthority, gateway::Gateway, ports::ReservedPort};
use serde_json::Value;
use std::{
    fs::File,
    io::Write,
    net::SocketAddr,
    process::{Child, Command, Output, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
    time::Instant,
};

/// The host of names under the gateway. The client drops the port of a name, so a proxy leads port 443 of this host to
/// the gateway.
pub const GATEWAY_HOST: &str = "gateway.test";

/// How long an agent may take to start, imports of Python modules included.
const START_TIMEOUT: Duration = Duration::from_secs(120);

async fn install() -> PythonPackages {
    tokio::task::spawn_blocking(|| PythonPackages::install("agent_uri")).await.unwrap()
}

/// A forward proxy (CONNECT) with one destination, whatever is asked for.
pub struct ForwardProxy {
    pub address: SocketAddr,
    /// The host and port of each CONNECT.
    pub targets: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl ForwardProxy {
    pub async fn start(destination: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let targets = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::clone(&targets);
        let task = tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let targets = Arc::clone(&shared);
                tokio::spawn(async move {
                    let mut head = Vec::new();
                    while !head.ends_with(b"\r\n\r\n") {
                        let Ok(byte) = client.read_u8().await else { return };
                        head.push(byte);
                    }
                    let head = String::from_utf8_lossy(&head).into_owned();
                    targets.lock().unwrap().extend(head.split(' ').nth(1).map(str::to_owned));
                    let Ok(mut server) = TcpStream::connect(destination).await else { return };
                    if client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.is_ok() {
                        let _ = copy_bidirectional(&mut client, &mut server).await;
                    }
                });
            }
        });
        Self { address, targets, task }
    }
}

impl Drop for ForwardProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Runs the commands in one process of the reference client, with the credential in the environment, and returns the
/// result of each.
pub async fn run_client(
    gate: &Gateway,
    authority: &CertificateAuthority,
    key: Option<&str>,
    commands: &[Value],
) -> Vec<Value> {
    let packages = install().await;
    let mut python = packages.python();
    python.arg(packages.source().join("client.py")).envs(key.map(|key| ("API_KEY", key)));
    let lines: String = commands.iter().map(|command| format!("{command}\n")).collect();
    let output = run_python(gate, authority, python, lines).await;
    let stderr = String::from_utf8_lossy(&output.stderr);
    let results: Vec<Value> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|why| panic!("{why}: {line} {stderr}")))
        .collect();
    assert_eq!(results.len(), commands.len(), "{stderr}");
    results
}

/// Runs the command line `agent-uri` of the package, and returns the JSON that it prints.
pub async fn run_command(gate: &Gateway, authority: &CertificateAuthority, args: &[&str]) -> Value {
    let mut python = install().await.python();
    python.args(["-m", "agent_uri.cli"]).args(args).arg("--json");
    let output = run_python(gate, authority, python, String::new()).await;
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|why| panic!("{why}: {stderr}"))
}

/// Runs a client that reaches the gateway by the proxy. It trusts `authority` as a user would make it: by its
/// environment.
async fn run_python(gate: &Gateway, authority: &CertificateAuthority, mut python: Command, input: String) -> Output {
    let proxy = ForwardProxy::start(gate.address()).await;
    let folder = TempDir::new().unwrap();
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, authority.pem()).unwrap();
    python
        .env("HTTPS_PROXY", format!("http://{}", proxy.address))
        .env_remove("NO_PROXY")
        .env_remove("no_proxy")
        .env_remove("https_proxy")
        .env("REQUESTS_CA_BUNDLE", &ca)
        .env("WEBSOCKET_CLIENT_CA_BUNDLE", &ca)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let output = tokio::task::spawn_blocking(move || {
        let mut child = python.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    });
    let output = output.await.unwrap();
    let targets = proxy.targets.lock().unwrap().clone();
    assert!(targets.iter().all(|target| target == &format!("{GATEWAY_HOST}:443")), "{targets:?}");
    output
}

/// An agent on the server of the reference implementation.
pub struct ReferenceAgent {
    port: ReservedPort,
    process: Child,
    folder: TempDir,
}

impl ReferenceAgent {
    /// Starts the agent with a certificate of `authority`. Its descriptor has the URL that `url` makes of its host, if
    /// any.
    pub async fn start(authority: &CertificateAuthority, url: impl Fn(&str) -> Option<String>) -> Self {
        let (packages, port, folder) = (install().await, ReservedPort::new(), TempDir::new().unwrap());
        let (certificate, key) = authority.server(&["localhost", "127.0.0.1"]).write(folder.path(), "agent");
        let host = format!("localhost:{}", port.number());
        let mut python = packages.python();
        python.arg(packages.source().join("server.py")).args(["--port", &port.number().to_string()]);
        python.arg("--certificate").arg(certificate).arg("--key").arg(key);
        if let Some(url) = url(&host) {
            python.args(["--url", &url]);
        }
        let log = File::create(folder.path().join("log")).unwrap();
        let process = python.stdout(Stdio::null()).stderr(log).spawn().unwrap();
        let mut agent = Self { port, process, folder };
        let deadline = Instant::now() + START_TIMEOUT;
        while TcpStream::connect(("127.0.0.1", agent.port.number())).await.is_err() {
            let is_running = agent.process.try_wait().unwrap().is_none();
            assert!(is_running && Instant::now() < deadline, "the agent does not start: {}", agent.log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        agent
    }

    pub fn host(&self) -> String {
        format!("localhost:{}", self.port.number())
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

impl Drop for ReferenceAgent {
    fn drop(&mut self) {
        // An error means that the process has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
