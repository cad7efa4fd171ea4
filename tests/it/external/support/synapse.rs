//! A real Matrix homeserver (matrix-synapse) on a free port of loopback, which can be killed and restarted with its
//! data, and its users: clients, and agents that answer by a script.

use super::python_packages::PythonPackages;
use crate::support::{TEST_TIMEOUT, ports::ReservedPort};
use serde_json::{Value, json};
use std::{
    fs::File,
    path::Path,
    process::{Child, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};
use tempfile::TempDir;
use tokio::{task::JoinHandle, time::Instant};

/// How long a homeserver may take to start, imports of Python modules included.
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// A homeserver that runs until it is dropped.
pub struct Synapse {
    pub port: u16,
    _reservation: ReservedPort,
    folder: TempDir,
    packages: PythonPackages,
    process: Option<Child>,
    client: reqwest::Client,
}

impl Drop for Synapse {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Synapse {
    /// Starts a homeserver without rate limits.
    pub async fn start() -> Self {
        Self::start_with_config("rc_message: {per_second: 10000, burst_count: 10000}\n").await
    }

    /// Starts a homeserver with additional configuration lines.
    pub async fn start_with_config(config_lines: &str) -> Self {
        let reservation = ReservedPort::new();
        let port = reservation.number();
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let folder = TempDir::new().unwrap();
        let config = homeserver_config(folder.path(), port, config_lines);
        std::fs::write(folder.path().join("homeserver.yaml"), config).unwrap();
        let packages = tokio::task::spawn_blocking(|| PythonPackages::install("synapse")).await.unwrap();
        let mut server = Self { port, _reservation: reservation, folder, packages, process: None, client };
        server.restart().await;
        server
    }

    /// Starts or restarts the homeserver, with its data.
    pub async fn restart(&mut self) {
        self.kill();
        let mut command = self.packages.python();
        command
            .args(["-m", "synapse.app.homeserver", "-c"])
            .arg(self.folder.path().join("homeserver.yaml"))
            .current_dir(self.folder.path());
        let log = File::create(self.folder.path().join("log")).unwrap();
        command.stdout(Stdio::null()).stderr(log);
        self.process = Some(command.spawn().unwrap());
        let deadline = Instant::now() + START_TIMEOUT;
        while self.client.get(format!("{}/_matrix/client/versions", self.url())).send().await.is_err() {
            let exit_status = self.process.as_mut().and_then(|process| process.try_wait().unwrap());
            let log = || std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            assert!(exit_status.is_none() && Instant::now() < deadline, "synapse does not start: {}", log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            // An error means that the process has ended already.
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Registers a user.
    pub async fn register_user(&self, name: &str) -> MatrixUser {
        let body = json!({"username": name, "password": "pass", "auth": {"type": "m.login.dummy"}});
        let url = format!("{}/_matrix/client/v3/register", self.url());
        let response = self.client.post(url).json(&body).send().await.unwrap();
        let user: Value = response.json().await.unwrap();
        let member = |name: &str| user[name].as_str().unwrap_or_else(|| panic!("no user: {user}")).to_owned();
        MatrixUser {
            base_url: self.url(),
            id: member("user_id"),
            token: member("access_token"),
            client: self.client.clone(),
        }
    }
}

fn homeserver_config(folder: &Path, port: u16, config_lines: &str) -> String {
    let folder = folder.display();
    let unlimited = "{per_second: 10000, burst_count: 10000}";
    format!(
        "server_name: localhost\nreport_stats: false\nsuppress_key_server_warning: true\ntrusted_key_servers: []\n\
         listeners:\n  - {{port: {port}, bind_addresses: ['127.0.0.1'], type: http, tls: false, resources: [{{names: \
         [client]}}]}}\n\
         database: {{name: sqlite3, args: {{database: {folder}/homeserver.db}}}}\n\
         enable_registration: true\nenable_registration_without_verification: true\n\
         macaroon_secret_key: test\nform_secret: test\nsigning_key: ed25519 a_test BV7gNFx0pGcTmEVvCKzYuqhtcMBYFSbNJ4IRqFyVJFE\n\
         media_store_path: {folder}/media\npid_file: {folder}/pid\n\
         rc_registration: {unlimited}\nrc_joins: {{local: {unlimited}, remote: {unlimited}}}\n\
         rc_invites: {{per_room: {unlimited}, per_user: {unlimited}}}\nrc_room_creation: {unlimited}\n{config_lines}"
    )
}

/// A user of the homeserver.
#[derive(Clone)]
pub struct MatrixUser {
    base_url: String,
    pub id: String,
    pub token: String,
    client: reqwest::Client,
}

impl MatrixUser {
    /// Sends a request below `/_matrix/client/v3`, and returns the response, which must be a success.
    pub async fn request(&self, method: &str, path: &str, body: &Value) -> Value {
        let (status, response) = self.try_request(method, path, body).await;
        assert_eq!(status, 200, "{method} {path}: {response}");
        response
    }

    async fn try_request(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let url = format!("{}/_matrix/client/v3{path}", self.base_url);
        let request = self.client.request(method.parse().unwrap(), url).bearer_auth(&self.token);
        let request = if method == "GET" { request } else { request.json(body) };
        match request.send().await {
            Ok(response) => (response.status().as_u16(), response.json().await.unwrap_or_default()),
            Err(_) => (0, Value::Null),
        }
    }

    /// Creates a room and invites these users.
    pub async fn create_room(&self, with: &[&MatrixUser], more: &Value) -> String {
        let invited: Vec<&str> = with.iter().map(|user| user.id.as_str()).collect();
        let mut body = json!({"invite": invited, "preset": "private_chat"});
        body.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
        self.request("POST", "/createRoom", &body).await["room_id"].as_str().unwrap().to_owned()
    }

    pub async fn join(&self, room: &str) {
        self.request("POST", &format!("/join/{}", percent_encode(room)), &json!({})).await;
    }

    pub async fn send(&self, room: &str, content: &Value) {
        let path = format!("/rooms/{}/send/m.room.message/{}", percent_encode(room), uuid::Uuid::new_v4().simple());
        let deadline = Instant::now() + TEST_TIMEOUT;
        while self.try_request("PUT", &path, content).await.0 != 200 {
            assert!(Instant::now() < deadline, "the homeserver does not accept a message");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Makes the user an agent: `script` returns the contents of the events that answer an invocation in its room.
    pub fn answer_with(&self, script: impl Fn(&Value) -> Vec<Value> + Send + Sync + 'static) -> MatrixAgent {
        let invocations = Arc::new(Mutex::new(Vec::new()));
        let (user, received) = (self.clone(), Arc::clone(&invocations));
        let task = tokio::spawn(async move { user.answer_invocations(script, received).await });
        MatrixAgent { invocations, task }
    }

    async fn answer_invocations(&self, script: impl Fn(&Value) -> Vec<Value>, received: Arc<Mutex<Vec<Value>>>) {
        let mut since = String::new();
        loop {
            // The default limit of a sync is the last ten events of a room.
            let filter = percent_encode(r#"{"room":{"timeline":{"limit":100}}}"#);
            let path = format!("/sync?timeout=5000&filter={filter}{since}");
            let (200, synced) = self.try_request("GET", &path, &Value::Null).await else {
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            since = format!("&since={}", synced["next_batch"].as_str().unwrap());
            for (room, joined) in synced["rooms"]["join"].as_object().into_iter().flatten() {
                for event in joined["timeline"]["events"].as_array().into_iter().flatten() {
                    if event["content"]["gatepost.invocation"].is_null() {
                        continue;
                    }
                    received.lock().unwrap().push(event.clone());
                    for content in script(event) {
                        self.send(room, &content).await;
                    }
                }
            }
        }
    }
}

fn percent_encode(text: &str) -> String {
    text.bytes().fold(String::new(), |text, byte| match byte {
        b if b.is_ascii_alphanumeric() || b"-_.".contains(&b) => text + &char::from(b).to_string(),
        b => text + &format!("%{b:02X}"),
    })
}

/// A user that answers invocations until it is dropped.
pub struct MatrixAgent {
    invocations: Arc<Mutex<Vec<Value>>>,
    task: JoinHandle<()>,
}

impl MatrixAgent {
    /// The invocations received so far.
    pub fn invocations(&self) -> Vec<Value> {
        self.invocations.lock().unwrap().clone()
    }
}

impl Drop for MatrixAgent {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The content of a reply to `event`, with these members added.
pub fn reply_content(event: &Value, content: Value) -> Value {
    let mut reply = json!({
        "msgtype": "m.notice",
        "body": "done",
        "m.relates_to": {"m.in_reply_to": {"event_id": event["event_id"]}},
    });
    reply.as_object_mut().unwrap().extend(content.as_object().cloned().unwrap());
    reply
}
