//! The gateway under test: the real binary on free ports, with its configuration in a temporary folder. The process is
//! killed when its handle is dropped.

use super::{agent::Agent, gateway_response::GatewayResponse};
use serde_json::{Value, json};
use std::{
    fs::OpenOptions,
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc,
    time::Duration,
};
use tempfile::TempDir;

/// Builds the configuration of a gateway under test.
pub struct GatewayBuilder {
    documents: Vec<Value>,
    sections: Vec<String>,
    listeners: String,
    access: String,
    keys: Vec<(String, Vec<String>)>,
    environment: Vec<(String, String)>,
    folder: TempDir,
}

/// Builds a gateway without agents. The caller `team-a` has a key, and every caller may call every agent.
pub fn gateway() -> GatewayBuilder {
    GatewayBuilder {
        documents: Vec::new(),
        sections: Vec::new(),
        listeners: "listeners:\n  - address: 127.0.0.1:0\n".into(),
        access: "access:\n  grants:\n    - {callers: ['*'], agents: ['*']}\n".into(),
        keys: vec![("team-a".into(), Vec::new())],
        environment: Vec::new(),
        folder: TempDir::new().unwrap(),
    }
}

impl GatewayBuilder {
    pub fn agent(self, id: &str, agent: &Agent) -> Self {
        let document = agent.document(id);
        self.document(document)
    }

    pub fn document(mut self, document: Value) -> Self {
        self.documents.push(document);
        self
    }

    /// Adds a top-level section of the configuration.
    ///
    /// A section that begins with spaces continues `auth.api_keys` or `auth`.
    pub fn section(mut self, yaml: &str) -> Self {
        self.sections.push(yaml.to_owned());
        self
    }

    pub fn listeners(mut self, yaml: &str) -> Self {
        self.listeners = yaml.to_owned();
        self
    }

    pub fn access(mut self, yaml: &str) -> Self {
        self.access = yaml.to_owned();
        self
    }

    /// Adds a caller with a key; `args` are passed to `gatepost key new`.
    pub fn caller(mut self, name: &str, args: &[&str]) -> Self {
        self.keys.push((name.to_owned(), args.iter().map(ToString::to_string).collect()));
        self
    }

    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The folder of the configuration, for the files that it names.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Starts the binary and waits until it listens.
    pub async fn start(self) -> Gateway {
        let folder = self.folder.path().to_owned();
        std::fs::write(folder.join("agents.json"), serde_json::to_vec(&self.documents).unwrap()).unwrap();
        let (listeners, access) = (&self.listeners, &self.access);
        let mut config = format!("{listeners}{access}");
        if !self.sections.iter().any(|section| section.starts_with("admin:")) {
            config.push_str("admin:\n  address: 127.0.0.1:0\n");
        }
        if !self.sections.iter().any(|section| section.starts_with("access_log:")) {
            config.push_str("access_log:\n  output: access.log\n");
        }
        config.push_str("auth:\n  api_keys:\n    files: [keys.jsonl]\n");
        if !self.sections.iter().any(|section| section.starts_with("network:")) {
            config.push_str("network:\n  allowed_addresses: [127.0.0.0/8]\n  allowed_sockets: ['/*']\n");
        }
        if !self.sections.iter().any(|section| section.starts_with("agents:")) {
            config.push_str("agents:\n  sources: [agents.json]\n");
        }
        if !self.sections.iter().any(|section| section.starts_with("resolver:")) {
            config.push_str("resolver: {allowed_addresses: [127.0.0.0/8]}\n");
        }
        for section in &self.sections {
            let auth_end =
                if section.starts_with(' ') { config.find("network:\n").unwrap_or(config.len()) } else { config.len() };
            config.insert_str(auth_end, section);
        }
        std::fs::write(folder.join("gatepost.yaml"), &config).unwrap();
        let keys = self.keys.iter().map(|(name, args)| (name.clone(), new_key(&folder, name, args))).collect();
        tokio::task::spawn_blocking(move || Gateway::spawn(self.folder, keys, &self.environment, &[])).await.unwrap()
    }
}

/// Creates a key of `caller` with `gatepost key new`, and returns it.
pub fn new_key(folder: &Path, caller: &str, args: &[String]) -> String {
    let output = gatepost_command()
        .args(["key", "new", "--file"])
        .arg(folder.join("keys.jsonl"))
        .args(["--caller", caller])
        .args(args)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

pub fn gatepost_command() -> Command {
    Command::new(env!("CARGO_BIN_EXE_gatepost"))
}

/// A gateway process.
pub struct Gateway {
    pub addresses: Vec<SocketAddr>,
    pub admin_address: SocketAddr,
    pub keys: Vec<(String, String)>,
    pub child: Child,
    folder_path: PathBuf,
    /// The folder, unless it belongs to another gateway.
    folder: Option<TempDir>,
    client: reqwest::Client,
}

impl Gateway {
    /// Runs the binary in `folder`. Blocks until it has printed its addresses.
    pub fn spawn(
        folder: TempDir,
        keys: Vec<(String, String)>,
        environment: &[(String, String)],
        args: &[&str],
    ) -> Self {
        let mut gate = Self::run(folder.path(), keys, environment, args);
        gate.folder = Some(folder);
        gate
    }

    /// Starts a second process with the same configuration, which takes over the listeners of this process. The folder
    /// is removed with this process.
    pub async fn start_successor(&self) -> Self {
        self.start_successor_with_environment(Vec::new()).await
    }

    pub async fn start_successor_with_environment(&self, environment: Vec<(String, String)>) -> Self {
        let (folder, keys) = (self.folder(), self.keys.clone());
        tokio::task::spawn_blocking(move || Self::run(&folder, keys, &environment, &["--take-over"])).await.unwrap()
    }

    /// Kills the process, and starts another one with the same configuration.
    pub async fn restart(&mut self, environment: Vec<(String, String)>) {
        self.send_signal(rustix::process::Signal::KILL);
        self.wait_for_exit().await;
        let (folder, keys) = (self.folder(), self.keys.clone());
        let started = tokio::task::spawn_blocking(move || Self::run(&folder, keys, &environment, &[])).await.unwrap();
        let mut previous = std::mem::replace(self, started);
        self.folder = previous.folder.take();
    }

    fn run(folder: &Path, keys: Vec<(String, String)>, environment: &[(String, String)], args: &[&str]) -> Self {
        let mut child = gatepost_command()
            .args(["run", "-c"])
            .arg(folder.join("gatepost.yaml"))
            .args(args)
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdout(Stdio::piped())
            .stderr(OpenOptions::new().create(true).append(true).open(folder.join("stderr.log")).unwrap())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (sender, printed) = mpsc::channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let (mut addresses, mut admin) = (Vec::new(), None);
        while admin.is_none() {
            let Ok(line) = printed.recv_timeout(Duration::from_secs(20)) else {
                let _ = child.kill();
                let stderr = std::fs::read_to_string(folder.join("stderr.log")).unwrap_or_default();
                panic!("the gateway did not start; it ended with {:?}: {stderr}", child.wait());
            };
            let address_of = |url: &str| url.rsplit_once("//").and_then(|(_, address)| address.parse().ok());
            match line.split_once(" on ") {
                Some(("listening", url)) => addresses.extend(address_of(url)),
                Some(("admin", url)) => admin = address_of(url),
                _ => {}
            }
        }
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let folder_path = folder.to_owned();
        Self { addresses, admin_address: admin.unwrap(), keys, child, folder_path, folder: None, client }
    }

    pub fn address(&self) -> SocketAddr {
        self.addresses[0]
    }

    pub fn folder(&self) -> PathBuf {
        self.folder_path.clone()
    }

    pub fn key(&self, caller: &str) -> &str {
        &self.keys.iter().find(|(name, _)| name == caller).unwrap().1
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address())
    }

    /// A POST request with the key of `team-a`.
    pub fn post(&self, path: &str) -> reqwest::RequestBuilder {
        self.client.post(self.url(path)).header("x-api-key", self.key("team-a"))
    }

    pub fn request(&self, method: &str, path: &str) -> reqwest::RequestBuilder {
        self.client.request(method.parse().unwrap(), self.url(path))
    }

    /// Invokes an agent with the key of `team-a`.
    pub async fn invoke(&self, id: &str, input: &Value) -> GatewayResponse {
        send(self.post(&format!("/agents/{id}/invoke")).json(input)).await
    }

    /// Gets a page of the admin listener.
    pub async fn admin_page(&self, path: &str) -> GatewayResponse {
        send(self.client.get(format!("http://{}{path}", self.admin_address))).await
    }

    /// Waits until the access log has at least `count` entries, and returns them.
    pub async fn access_log(&self, count: usize) -> Vec<Value> {
        let path = self.folder().join("access.log");
        let mut lines = Vec::new();
        super::eventually("the access log contains the calls", async || {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            lines = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            lines.len() >= count
        })
        .await;
        lines
    }

    /// The standard error of the process so far.
    pub fn stderr(&self) -> String {
        std::fs::read_to_string(self.folder().join("stderr.log")).unwrap_or_default()
    }

    /// The value of a metric, by its name and some of its labels as on the page: the sum of all series with these
    /// labels. `None` if there is none.
    pub async fn metric(&self, name: &str) -> Option<f64> {
        sum_of_series(&self.admin_page("/metrics").await.text(), name)
    }

    /// Replaces a file in the folder of the configuration atomically.
    pub fn write_file(&self, name: &str, text: &str) {
        let folder = self.folder();
        std::fs::write(folder.join("replacement"), text).unwrap();
        std::fs::rename(folder.join("replacement"), folder.join(name)).unwrap();
    }

    pub fn read_file(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder().join(name)).unwrap()
    }

    /// The most memory that the process has held, in MiB.
    pub fn peak_memory(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() >> 10
    }

    /// Sends a signal to the process.
    pub fn send_signal(&self, signal: rustix::process::Signal) {
        let id = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(id, signal).unwrap();
    }

    /// Waits until the process ends by itself, and returns its exit status.
    pub async fn wait_for_exit(&mut self) -> std::process::ExitStatus {
        let mut status = None;
        super::eventually("the process ends", async || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        })
        .await;
        status.unwrap()
    }

    /// Returns the folder and the process, for a second process with the same configuration.
    pub fn into_folder_and_child(mut self) -> (TempDir, Child) {
        let folder = self.folder.take().unwrap();
        let child = std::mem::replace(&mut self.child, Command::new("true").spawn().unwrap());
        (folder, child)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() && self.folder.is_some() {
            eprintln!("{}", self.stderr());
        }
    }
}

/// The sum of the series on a page of metrics that have this name and these labels, among others.
pub fn sum_of_series(page: &str, name: &str) -> Option<f64> {
    let (family, labels) = name.split_once('{').unwrap_or((name, ""));
    let labels: Vec<&str> = labels.trim_end_matches('}').split(',').collect();
    let value = |line: &str| {
        let (series, value) = line.rsplit_once(' ')?;
        let (name, series_labels) = series.split_once('{').unwrap_or((series, ""));
        let has_labels = name == family && labels.iter().all(|label| series_labels.contains(label));
        value.parse::<f64>().ok().filter(|_| has_labels)
    };
    page.lines().filter_map(value).reduce(|sum, value| sum + value)
}

/// Sends a request and reads the whole response.
pub async fn send(request: reqwest::RequestBuilder) -> GatewayResponse {
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    let to_text = |(name, value): (&reqwest::header::HeaderName, &reqwest::header::HeaderValue)| {
        (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned())
    };
    let headers = response.headers().iter().map(to_text).collect();
    let body = response.bytes().await.map(|bytes| bytes.to_vec()).unwrap_or_default();
    GatewayResponse { status, headers, body }
}

/// The translator of the AIDIP draft as a document: its schema requires a text and two languages.
pub fn translator_document(agent: &Agent) -> Value {
    let languages = json!({"type": "string", "enum": ["en", "zh"]});
    let mut document = agent.document("agent-12345");
    document["operations"] = json!([{
        "name": "translateText",
        "inputs": {
            "type": "object",
            "properties": {"text": {"type": "string"}, "source_language": languages, "target_language": languages},
            "required": ["text", "source_language", "target_language"],
        },
        "outputs": {"type": "object", "properties": {"translated_text": {"type": "string"}}},
    }]);
    document
}
