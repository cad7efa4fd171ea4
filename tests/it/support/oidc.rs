//! A real OpenID provider (npm `oidc-provider`) on a free port, which can be killed and restarted with new keys.

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
pub struct OpenIdProvider {
    port: u16,
    process: Child,
}

impl Drop for OpenIdProvider {
    fn drop(&mut self) {
        self.kill();
    }
}

impl OpenIdProvider {
    /// Starts a provider; installs its packages the first time.
    pub async fn start() -> Self {
        let (port, process) = start(0).await;
        Self { port, process }
    }

    pub fn issuer(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub fn introspection_url(&self) -> String {
        format!("{}/token/introspection", self.issuer())
    }

    pub fn kill(&mut self) {
        // An error means that the process has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// Restarts the provider on its port, with new keys.
    pub async fn restart(&mut self) {
        self.kill();
        (self.port, self.process) = start(self.port).await;
    }

    /// Requests a token of `format`: RS256, ES256, EdDSA, opaque, or elsewhere (for another audience).
    pub async fn token(&self, format: &str) -> String {
        let resource = format!("urn:gatepost:{format}");
        let fields = [("grant_type", "client_credentials"), ("scope", "read"), ("resource", &resource)];
        let response = self.post("/token", &fields).await;
        let response: serde_json::Value = serde_json::from_slice(&response).unwrap();
        response["access_token"].as_str().unwrap_or_else(|| panic!("no token: {response}")).to_owned()
    }

    pub async fn revoke(&self, token: &str) {
        self.post("/token/revocation", &[("token", token)]).await;
    }

    async fn post(&self, path: &str, fields: &[(&str, &str)]) -> Vec<u8> {
        let client = FetchClient::build(&net::NetworkConfig::default(), Default::default()).unwrap();
        let form = FormRequest { fields, basic: ("app-1", &Secret::new("app-1-secret")) };
        let limits = FetchLimits { size: ByteSize::from_kib(64), time: ConfigDuration::from_secs(10) };
        client.post(&format!("{}{path}", self.issuer()), &form, limits).await.unwrap().body
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oidc")
}

/// Runs `npm ci`, once even if several tests need it.
fn install() {
    let folder = folder();
    let lock = File::create(Path::new(env!("CARGO_TARGET_TMPDIR")).join("oidc.lock")).unwrap();
    lock.lock().unwrap();
    if folder.join("node_modules/.package-lock.json").exists() {
        return;
    }
    let output = Command::new("npm").args(["ci", "--no-audit", "--no-fund"]).current_dir(folder).output();
    let output = output.unwrap_or_else(|why| panic_missing_package("npm", why.kind()));
    assert!(output.status.success(), "npm ci failed: {}", String::from_utf8_lossy(&output.stderr));
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
    // The provider ends when its standard input ends, which is with this process.
    command.arg("provider.mjs").arg(port.to_string()).current_dir(folder());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut process = command.spawn().unwrap_or_else(|why| panic_missing_package("nodejs", why.kind()));
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines().map_while(Result::ok);
    let port = lines.find_map(|line| line.strip_prefix("listening ")?.parse().ok());
    // Further output is read and dropped, so that the provider never blocks on a full pipe.
    std::thread::spawn(move || lines.for_each(drop));
    (port.expect("the provider listens (node 20 or newer runs it)"), process)
}

fn panic_missing_package<T>(package: &str, why: ErrorKind) -> T {
    panic!("the Debian package {package} is missing (run: sudo apt-get install nodejs npm) [{why}]");
}
