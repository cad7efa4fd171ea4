//! A real OpenID provider (npm `oidc-provider`) on a free port, which can be killed and started again with new keys.

use gatepost::{
    net::{self, FetchClient, FetchLimits, FormRequest},
    values::{ByteSize, ConfigDuration, Secret},
};
use std::{
    fs::File,
    io::{BufRead, BufReader, ErrorKind},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

/// A provider that runs until it is dropped.
pub struct Provider {
    port: u16,
    process: Child,
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Provider {
    /// Starts one; installs its packages the first time.
    pub async fn start() -> Self {
        let (port, process) = start(0).await;
        Self { port, process }
    }

    pub fn issuer(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub fn introspection(&self) -> String {
        format!("{}/token/introspection", self.issuer())
    }

    pub fn kill(&mut self) {
        // It may have ended by itself, which is what is wanted.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// Starts it again on its port, with new keys.
    pub async fn again(&mut self) {
        self.kill();
        (self.port, self.process) = start(self.port).await;
    }

    /// A token of `format`: RS256, ES256, EdDSA, opaque, or elsewhere for one meant for somebody else.
    pub async fn token(&self, format: &str) -> String {
        let resource = format!("urn:gatepost:{format}");
        let fields = [("grant_type", "client_credentials"), ("scope", "read"), ("resource", &resource)];
        let answer = self.post("/token", &fields).await;
        let answer: serde_json::Value = serde_json::from_slice(&answer).unwrap();
        answer["access_token"].as_str().unwrap_or_else(|| panic!("no token: {answer}")).to_owned()
    }

    pub async fn revoke(&self, token: &str) {
        self.post("/token/revocation", &[("token", token)]).await;
    }

    async fn post(&self, path: &str, fields: &[(&str, &str)]) -> Vec<u8> {
        let client = FetchClient::build(&net::NetworkConfig::default(), Default::default()).unwrap();
        let form = FormRequest { fields, basic: ("app-1", &Secret::new("app-1-secret")) };
        let bounds = FetchLimits { size: ByteSize::from_kib(64), time: ConfigDuration::from_secs(10) };
        client.post(&format!("{}{path}", self.issuer()), &form, bounds).await.unwrap().body
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oidc")
}

/// `npm ci`, once even if several tests want it.
fn install() {
    let folder = folder();
    let lock = File::create(Path::new(env!("CARGO_TARGET_TMPDIR")).join("oidc.lock")).unwrap();
    lock.lock().unwrap();
    if folder.join("node_modules/.package-lock.json").exists() {
        return;
    }
    let npm = Command::new("npm").args(["ci", "--no-audit", "--no-fund"]).current_dir(folder).output();
    let npm = npm.unwrap_or_else(|why| missing("npm", why.kind()));
    assert!(npm.status.success(), "npm ci failed: {}", String::from_utf8_lossy(&npm.stderr));
}

async fn start(port: u16) -> (u16, Child) {
    let started = tokio::task::spawn_blocking(move || {
        install();
        run(port)
    });
    started.await.unwrap()
}

fn run(port: u16) -> (u16, Child) {
    let mut command = Command::new("node");
    // Its standard input ends with this process, and it with its standard input.
    command.arg("provider.mjs").arg(port.to_string()).current_dir(folder());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut process = command.spawn().unwrap_or_else(|why| missing("nodejs", why.kind()));
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines().map_while(Result::ok);
    let port = lines.find_map(|line| line.strip_prefix("listening ")?.parse().ok());
    // Whatever else it says is read, so that it never waits for a reader.
    std::thread::spawn(move || lines.for_each(drop));
    (port.expect("the provider listens (node 20 or newer runs it)"), process)
}

fn missing<T>(package: &str, why: ErrorKind) -> T {
    panic!("the Debian package {package} is missing (run: sudo apt-get install nodejs npm) [{why}]");
}
