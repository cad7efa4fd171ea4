//! A real homeserver (matrix-synapse) on a free port of loopback, which can be killed and started again on what it has
//! stored, and users on it: agents that answer by a script.

use serde_json::{Value, json};
use std::{
    fs::File,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};
use tempfile::TempDir;
use tokio::{task::JoinHandle, time::Instant};

/// How long a homeserver may take to start: Python reads a lot first.
const START: Duration = Duration::from_secs(120);

/// A homeserver that runs until it is dropped.
pub struct Synapse {
    pub port: u16,
    folder: TempDir,
    process: Option<Child>,
    client: reqwest::Client,
}

impl Drop for Synapse {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Synapse {
    /// One that limits nobody.
    pub async fn start() -> Self {
        Self::limited("rc_message: {per_second: 10000, burst_count: 10000}\n").await
    }

    /// One with further lines of configuration.
    pub async fn limited(lines: &str) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let folder = TempDir::new().unwrap();
        std::fs::write(folder.path().join("homeserver.yaml"), configuration(folder.path(), port, lines)).unwrap();
        let mut server = Self { port, folder, process: None, client };
        tokio::task::spawn_blocking(install).await.unwrap();
        server.again().await;
        server
    }

    /// Starts it (again), with what it has stored.
    pub async fn again(&mut self) {
        self.kill();
        let mut command = python(&["-m", "synapse.app.homeserver", "-c"]);
        command.arg(self.folder.path().join("homeserver.yaml")).current_dir(self.folder.path());
        let log = File::create(self.folder.path().join("log")).unwrap();
        command.stdout(Stdio::null()).stderr(log);
        self.process = Some(command.spawn().unwrap());
        let until = Instant::now() + START;
        while self.client.get(format!("{}/_matrix/client/versions", self.url())).send().await.is_err() {
            let ended = self.process.as_mut().and_then(|process| process.try_wait().unwrap());
            let told = || std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            assert!(ended.is_none() && Instant::now() < until, "synapse does not start: {}", told());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            // It may have ended by itself, which is what is wanted.
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// A new user.
    pub async fn user(&self, name: &str) -> User {
        let body = json!({"username": name, "password": "pass", "auth": {"type": "m.login.dummy"}});
        let url = format!("{}/_matrix/client/v3/register", self.url());
        let made = self.client.post(url).json(&body).send().await.unwrap();
        let made: Value = made.json().await.unwrap();
        let text = |name: &str| made[name].as_str().unwrap_or_else(|| panic!("no user: {made}")).to_owned();
        User { base: self.url(), id: text("user_id"), token: text("access_token"), client: self.client.clone() }
    }
}

fn configuration(folder: &Path, port: u16, lines: &str) -> String {
    let folder = folder.display();
    let free = "{per_second: 10000, burst_count: 10000}";
    format!(
        "server_name: localhost\nreport_stats: false\nsuppress_key_server_warning: true\ntrusted_key_servers: []\n\
         listeners:\n  - {{port: {port}, bind_addresses: ['127.0.0.1'], type: http, tls: false, resources: [{{names: \
         [client]}}]}}\n\
         database: {{name: sqlite3, args: {{database: {folder}/homeserver.db}}}}\n\
         enable_registration: true\nenable_registration_without_verification: true\n\
         macaroon_secret_key: test\nform_secret: test\nsigning_key: ed25519 a_test BV7gNFx0pGcTmEVvCKzYuqhtcMBYFSbNJ4IRqFyVJFE\n\
         media_store_path: {folder}/media\npid_file: {folder}/pid\n\
         rc_registration: {free}\nrc_joins: {{local: {free}, remote: {free}}}\n\
         rc_invites: {{per_room: {free}, per_user: {free}}}\nrc_room_creation: {free}\n{lines}"
    )
}

fn packages() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("synapse")
}

fn python(args: &[&str]) -> Command {
    let mut command = Command::new("python3");
    command.env("PYTHONPATH", packages()).env("PYTHONDONTWRITEBYTECODE", "1").args(args);
    command
}

/// `pip install`, once even if several tests want it, and again where other versions are asked for.
fn install() {
    let wanted = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/synapse/requirements.txt");
    let (text, done) = (std::fs::read_to_string(&wanted).unwrap(), packages().join("installed"));
    let lock = File::create(Path::new(env!("CARGO_TARGET_TMPDIR")).join("synapse.lock")).unwrap();
    lock.lock().unwrap();
    if std::fs::read_to_string(&done).is_ok_and(|installed| installed == text) {
        return;
    }
    let _ = std::fs::remove_dir_all(packages());
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:"]);
    let pip = pip.arg("--target").arg(packages()).arg("--requirement").arg(wanted).output();
    let pip = pip.unwrap_or_else(|why| panic!("{MISSING} [{why}]"));
    assert!(pip.status.success(), "{MISSING}: {}", String::from_utf8_lossy(&pip.stderr));
    std::fs::write(done, text).unwrap();
}

const MISSING: &str = "matrix-synapse cannot be installed (python3 with pip does: sudo apt-get install python3-pip)";

/// A user of the homeserver.
#[derive(Clone)]
pub struct User {
    base: String,
    pub id: String,
    pub token: String,
    client: reqwest::Client,
}

impl User {
    /// A request below `/_matrix/client/v3`; its answer, which must be a success.
    pub async fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let (status, answer) = self.try_ask(method, path, body).await;
        assert_eq!(status, 200, "{method} {path}: {answer}");
        answer
    }

    async fn try_ask(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let url = format!("{}/_matrix/client/v3{path}", self.base);
        let request = self.client.request(method.parse().unwrap(), url).bearer_auth(&self.token);
        let request = if method == "GET" { request } else { request.json(body) };
        match request.send().await {
            Ok(answer) => (answer.status().as_u16(), answer.json().await.unwrap_or_default()),
            Err(_) => (0, Value::Null),
        }
    }

    /// A new room with these users invited.
    pub async fn room(&self, with: &[&User], more: &Value) -> String {
        let invited: Vec<&str> = with.iter().map(|user| user.id.as_str()).collect();
        let mut body = json!({"invite": invited, "preset": "private_chat"});
        body.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
        self.ask("POST", "/createRoom", &body).await["room_id"].as_str().unwrap().to_owned()
    }

    pub async fn join(&self, room: &str) {
        self.ask("POST", &format!("/join/{}", escaped(room)), &json!({})).await;
    }

    pub async fn send(&self, room: &str, content: &Value) {
        let path = format!("/rooms/{}/send/m.room.message/{}", escaped(room), uuid::Uuid::new_v4().simple());
        let until = Instant::now() + super::PATIENCE;
        while self.try_ask("PUT", &path, content).await.0 != 200 {
            assert!(Instant::now() < until, "the homeserver does not take a message");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Lets the user answer every call by `script`: contents of events, sent to the room of the call.
    pub fn answers(&self, script: impl Fn(&Value) -> Vec<Value> + Send + Sync + 'static) -> Bot {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let (user, seen) = (self.clone(), Arc::clone(&heard));
        let task = tokio::spawn(async move { user.follow(script, seen).await });
        Bot { heard, task }
    }

    async fn follow(&self, script: impl Fn(&Value) -> Vec<Value>, seen: Arc<Mutex<Vec<Value>>>) {
        let mut since = String::new();
        loop {
            // Without this, only the last ten of many calls at once are told.
            let all = escaped(r#"{"room":{"timeline":{"limit":100}}}"#);
            let path = format!("/sync?timeout=5000&filter={all}{since}");
            let (200, synced) = self.try_ask("GET", &path, &Value::Null).await else {
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            since = format!("&since={}", synced["next_batch"].as_str().unwrap());
            for (room, joined) in synced["rooms"]["join"].as_object().into_iter().flatten() {
                for event in joined["timeline"]["events"].as_array().into_iter().flatten() {
                    if event["content"]["gatepost.invocation"].is_null() {
                        continue;
                    }
                    seen.lock().unwrap().push(event.clone());
                    for content in script(event) {
                        self.send(room, &content).await;
                    }
                }
            }
        }
    }
}

/// A path segment.
fn escaped(text: &str) -> String {
    text.bytes().fold(String::new(), |text, byte| match byte {
        b if b.is_ascii_alphanumeric() || b"-_.".contains(&b) => text + &char::from(b).to_string(),
        b => text + &format!("%{b:02X}"),
    })
}

/// A user that answers, until it is dropped.
pub struct Bot {
    heard: Arc<Mutex<Vec<Value>>>,
    task: JoinHandle<()>,
}

impl Bot {
    /// The calls that it has heard.
    pub fn heard(&self) -> Vec<Value> {
        self.heard.lock().unwrap().clone()
    }
}

impl Drop for Bot {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// An answer to `event` with this content besides.
pub fn reply(event: &Value, content: Value) -> Value {
    let mut whole = json!({
        "msgtype": "m.notice",
        "body": "done",
        "m.relates_to": {"m.in_reply_to": {"event_id": event["event_id"]}},
    });
    whole.as_object_mut().unwrap().extend(content.as_object().cloned().unwrap());
    whole
}
