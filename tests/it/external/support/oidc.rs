//! A real OpenID provider (npm `oidc-provider`) on a free port, which can be killed and restarted with new keys.

use super::npm::{install_packages, node_command};
use crate::support::ports::ReservedPort;
use gatepost::{
    net::{self, FetchClient, FetchLimits, FormRequest},
    values::{ByteSize, ConfigDuration, Secret},
};
use std::{
    io::{BufRead, BufReader},
    process::{Child, Stdio},
};

/// A provider that runs until it is dropped.
pub struct OpenIdProvider {
    port: ReservedPort,
    redirect_uri: Option<String>,
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
        Self::start_with(None).await
    }

    /// Starts a provider at which operators log in to the console with this redirect URI.
    pub async fn for_console(redirect_uri: &str) -> Self {
        Self::start_with(Some(redirect_uri.to_owned())).await
    }

    async fn start_with(redirect_uri: Option<String>) -> Self {
        let port = ReservedPort::new();
        let process = start(port.number(), redirect_uri.clone()).await;
        Self { port, redirect_uri, process }
    }

    pub fn issuer(&self) -> String {
        format!("http://127.0.0.1:{}", self.port.number())
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
        self.process = start(self.port.number(), self.redirect_uri.clone()).await;
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
        let form = FormRequest { fields, basic: Some(("app-1", &Secret::new("app-1-secret"))) };
        let limits = FetchLimits { size: ByteSize::from_kib(64), time: ConfigDuration::from_secs(10) };
        client.post(&format!("{}{path}", self.issuer()), &form, limits).await.unwrap().body
    }
}

async fn start(port: u16, redirect_uri: Option<String>) -> Child {
    tokio::task::spawn_blocking(move || run(port, redirect_uri)).await.unwrap()
}

fn run(port: u16, redirect_uri: Option<String>) -> Child {
    let mut command = node_command();
    // The provider ends when its standard input ends, which is with this process.
    command.arg("provider.mjs").arg(port.to_string()).args(redirect_uri).current_dir(install_packages("oidc"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut process = command.spawn().unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.starts_with("listening ")), "the provider does not listen");
    // Further output is read and dropped, so that the provider never blocks on a full pipe.
    std::thread::spawn(move || lines.for_each(drop));
    process
}
