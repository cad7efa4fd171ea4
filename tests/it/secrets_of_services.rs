//! The walk of `secrets_walk.rs` for the secrets of the services that the gateway depends on: the pepper of API keys,
//! databases, Redis, MQTT brokers, a Matrix account and the provider of operators' logins. Each service repeats each
//! secret in eight spellings in its own protocol, and no place shows it (R131).

use crate::{
    secrets_walk::{FORMS, assert_secrets_absent, repeat, spell},
    support::{
        agent::{Agent, ReceivedRequest, Step, http_response},
        browser::Browser,
        eventually,
        gateway::{Gateway, gatepost_command, gateway, send},
        ports::ReservedPort,
    },
};
use serde_json::{Value, json};
use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

const DATABASE_PASSWORD: &str = "database-4e5f60718293a4b5";
const QUERY_PASSWORD: &str = "querypass-8b7c6d5e4f3a2b1c";

const SECRETS: [(&str, &str); 7] = [
    ("PEPPER", "pepper-7a6b5c4d3e2f10192837"),
    ("REDIS_PASSWORD", "redis-1f2e3d4c-5b6a79880716"),
    ("BROKER_PASSWORD", "broker-a9b8c7d6/e5f4031221"),
    ("MATRIX_TOKEN", "syt_matrix0token1a2b3c4d5e"),
    ("LOGIN_SECRET", "login-0d1c2b3a4958-67768594"),
    ("DATABASE_URL", DATABASE_PASSWORD),
    ("TASKS_URL", QUERY_PASSWORD),
];

fn environment(stores: SocketAddr) -> Vec<(&'static str, String)> {
    let mut variables: Vec<_> = SECRETS.iter().map(|(name, secret)| (*name, (*secret).to_owned())).collect();
    for (name, value) in &mut variables {
        match *name {
            "DATABASE_URL" => *value = format!("postgres://gate:{DATABASE_PASSWORD}@{stores}/registry"),
            // PostgreSQL also takes the password from the query.
            "TASKS_URL" => *value = format!("postgres://gate@{stores}/tasks?password={QUERY_PASSWORD}"),
            _ => {}
        }
    }
    variables
}

fn assert_absent(place: &str, text: &str) {
    assert_secrets_absent(&SECRETS, place, text);
}

/// What the services say now.
#[derive(Clone, Default)]
struct Services {
    said: Arc<Mutex<String>>,
    connections: Arc<AtomicUsize>,
}

impl Services {
    fn say(&self, text: &str) {
        text.clone_into(&mut self.said.lock().unwrap());
    }

    fn text(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    /// Starts a server that refuses every client of PostgreSQL, Redis and MQTT with what the services say.
    async fn listen(&self) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, services) = (listener.local_addr().unwrap(), self.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                services.connections.fetch_add(1, Relaxed);
                tokio::spawn(services.clone().refuse(stream));
            }
        });
        address
    }

    async fn refuse(self, mut stream: TcpStream) {
        let mut request = [0; 4096];
        while let Ok(length) = stream.read(&mut request).await
            && length > 0
        {
            let text: String = self.text().chars().filter(|character| !character.is_control()).collect();
            let answer = match request[..length] {
                // A request for TLS of PostgreSQL.
                [0, 0, 0, 8, ..] => b"N".to_vec(),
                [0, 0, ..] => {
                    let fields = format!("SFATAL\0VFATAL\0C28P01\0M{text}\0D{text}\0\0");
                    let length = u32::try_from(fields.len() + 4).unwrap().to_be_bytes();
                    [&b"E"[..], &length, fields.as_bytes()].concat()
                }
                // CONNECT: the reason string of CONNACK.
                [0x10, ..] => {
                    let text = text.get(..text.floor_char_boundary(90)).unwrap();
                    let length = u8::try_from(text.len()).unwrap();
                    [&[0x20, length + 6, 0, 0x87, length + 3, 0x1f, 0, length][..], text.as_bytes()].concat()
                }
                _ => format!("-ERR {text}\r\n").into_bytes(),
            };
            if stream.write_all(&answer).await.is_err() {
                return;
            }
        }
    }

    /// The homeserver and the provider of logins.
    fn answer(&self, request: &ReceivedRequest) -> Vec<Step> {
        let path = request.head.split_whitespace().nth(1).unwrap_or_default();
        let issuer = format!("http://{}/issuer", request.header("host").unwrap_or_default());
        let text = self.text();
        match path {
            "/issuer/.well-known/openid-configuration" => http_response(
                "200 OK",
                "application/json",
                &json!({
                    "issuer": issuer, "jwks_uri": format!("{issuer}/keys"), "token_endpoint": format!("{issuer}/token"),
                    "authorization_endpoint": format!("{issuer}/authorize"), "response_types_supported": ["code"],
                    "code_challenge_methods_supported": ["S256"],
                })
                .to_string(),
            ),
            "/issuer/keys" => http_response("200 OK", "application/json", "{\"keys\": []}"),
            "/issuer/token" => http_response(
                "400 Bad Request",
                "application/json",
                &json!({"error": "invalid_client", "error_description": text}).to_string(),
            ),
            _ if text.len().is_multiple_of(2) => http_response(
                "401 Unauthorized",
                "application/json",
                &json!({"errcode": "M_UNKNOWN_TOKEN", "error": text}).to_string(),
            ),
            _ => repeat("text", &text),
        }
    }
}

async fn start(services: &Services, stores: SocketAddr, web: &Agent, echo: &Agent) -> Gateway {
    let port = ReservedPort::new();
    let (url, issuer) = (format!("http://127.0.0.1:{}", port.number()), format!("http://{}/issuer", web.address));
    let bearer =
        format!("  bearer:\n    issuers:\n      - {{issuer: '{issuer}', audience: [gatepost], algorithms: [ES256]}}\n");
    let admin = format!(
        "admin:\n  address: 127.0.0.1:{}\n  access:\n    url: {url}\n    login: {{issuer: '{issuer}', client_id: console, client_secret: 'env:LOGIN_SECRET'}}\n    roles:\n      - {{role: admin, callers: ['key:team-a']}}\n",
        port.number()
    );
    let agents = format!(
        "agents:\n  sources:\n    - agents.json\n    - {{kind: mqtt, name: broker, url: 'mqtt://{stores}', required: false, mqtt: {{username: env:BROKER_USER, password: env:BROKER_PASSWORD}}}}\n  defaults:\n    matrix: {{homeserver: 'http://{}', access_token: env:MATRIX_TOKEN, destinations: {{sources: [files]}}}}\n",
        web.address
    );
    let room = json!({"id": "room", "name": "room", "endpoint": "agent+matrix://@agent:example.org/!room:example.org"});
    let build = environment(stores).iter().fold(gateway(), |build, (name, value)| build.env(name, value));
    services.say("not ready");
    let mut gate = build
        .env("BROKER_USER", "robot")
        .document(room)
        .agent("echo", echo)
        .section("    pepper: env:PEPPER\n")
        .section(&bearer)
        .section(&admin)
        .section(&agents)
        .section("audit: {file: audit.log}\n")
        .section("registry: {database: env:DATABASE_URL}\n")
        .section("tasks: {database: env:TASKS_URL}\n")
        .section(&format!("state: {{redis: {{url: 'redis://gate@{stores}', password: env:REDIS_PASSWORD}}}}\n"))
        .start()
        .await;
    // The key of the support was created without the pepper.
    let key = run(&gate, stores, &["key", "new", "--caller", "team-a"]).await;
    let key = key.lines().find(|line| line.starts_with("gp_")).unwrap_or_else(|| panic!("{key}")).to_owned();
    gate.keys = vec![("team-a".to_owned(), key)];
    gate
}

async fn run(gate: &Gateway, stores: SocketAddr, args: &[&str]) -> String {
    let mut command = gatepost_command();
    command.current_dir(gate.folder()).args(args).envs(environment(stores)).env("BROKER_USER", "robot");
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

/// Begins a login at the provider, and returns the page after the provider refused the gateway's request for a token.
async fn failed_login(gate: &Gateway) -> String {
    let mut browser = Browser::new(gate);
    let started = browser.get("/console/login/provider").await;
    let location = started.header("location").unwrap_or_default();
    let state = location.split_once("state=").map_or("", |(_, rest)| rest.split('&').next().unwrap());
    let callback = browser.get(&format!("/console/login/callback?code=abc&state={state}")).await;
    format!("{} {location} {:?} {}", started.text(), callback.headers, callback.text())
}

#[tokio::test]
async fn r131_no_place_shows_a_secret_of_a_service_in_any_spelling() {
    let services = Services::default();
    let stores = services.listen().await;
    let answering = services.clone();
    let web = Agent::scripted(move |request: &ReceivedRequest| answering.answer(request)).await;
    let echo = Agent::echo().await;
    let gate = start(&services, stores, &web, &echo).await;
    eventually("the key is accepted", async || gate.invoke("echo", &json!({})).await.status == 200).await;
    let mut browser = Browser::logged_in(&gate, "team-a").await;
    let url = format!("http://{}", gate.admin_address);
    for (at, (name, secret)) in SECRETS.into_iter().enumerate() {
        for (number, form) in FORMS.into_iter().enumerate() {
            services.say(&spell(secret, form).0);
            let place = |what: &str| format!("{what} of {name} as {form}");
            for id in ["room", "echo"] {
                let key = format!("{name}-{form}");
                let call = gate.post(&format!("/agents/{id}/invoke")).header("idempotency-key", key);
                let answer = send(call.header("x-request-timeout", "1").json(&json!({}))).await;
                assert_absent(&place(id), &format!("{:?} {}", answer.headers, answer.text()));
            }
            let task = gate.post("/agents/echo/invoke").header("prefer", "respond-async").json(&json!({}));
            let published: Value = json!({"id": "mine", "name": "mine", "endpoint": "https://a.example"});
            for (what, call) in [("task", task), ("publishing", gate.post("/agents").json(&published))] {
                let answer = send(call).await;
                assert_absent(&place(what), &format!("{:?} {}", answer.headers, answer.text()));
            }
            assert_absent(&place("a login"), &failed_login(&gate).await);
            for path in ["/console", "/console/sources", "/console/tasks", "/console/configuration", "/readyz"] {
                assert_absent(&place(path), &browser.get(path).await.text());
            }
            // Both commands connect to each service; a command takes a while.
            if (at + number) % 4 == 0 {
                for args in [&["check"][..], &["doctor", "--json", "--timeout", "2"]] {
                    assert_absent(&place(args[0]), &run(&gate, stores, args).await);
                }
            }
        }
    }
    assert!(services.connections.load(Relaxed) > 20, "the services were not asked");
    for path in ["/console/audit", "/console/calls", "/console/callers"] {
        assert_absent(path, &browser.get(path).await.text());
    }
    let export = run(&gate, stores, &["registry", "export", "--url", &url]).await;
    assert_absent("registry export", &export);
    for file in std::fs::read_dir(gate.folder()).unwrap() {
        let path = file.unwrap().path();
        if path.is_file() {
            let bytes = std::fs::read(&path).unwrap();
            assert_absent(&path.display().to_string(), &String::from_utf8_lossy(&bytes));
        }
    }
    assert_absent("the log", &gate.stderr());
}
