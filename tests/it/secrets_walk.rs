//! A walk over every place that prints, logs, answers or stores text: an agent and a registry repeat each secret of the
//! configuration in eight spellings, and no place shows it (R131).

use crate::support::{
    agent::{Agent, ReceivedRequest, Step, http_response, write},
    eventually,
    gateway::{Gateway, gatepost_command, gateway, send},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use std::{
    fmt::Write as _,
    sync::{Arc, Mutex},
};

/// The secrets that the configuration refers to, by their variables.
const SECRETS: [(&str, &str); 8] = [
    ("AGENT_CREDENTIAL", "agent-71c3/9f\"20&ab+4d5e6f70 8192"),
    ("SOURCE_BEARER", "bearer-52e1-8d7c-6b5a-4f3e2d1c0b9a"),
    ("SOURCE_HEADER", "header-13f0=7e6d/5c4b&3a29181706f5"),
    ("SOURCE_CLIENT", "client-90ab\\cdef/0123%4567-89abcdef"),
    ("INTROSPECTION", "introspect-3b2a1908-f7e6d5c4b3a2"),
    ("WEBHOOK", "webhook-6d5c4b3a-29180706f5e4d3c2"),
    ("PSEUDONYMS", "pseudonym-0f1e2d3c-4b5a69788796a5b4"),
    ("OTLP_TOKEN", "otlp-c4d5e6f7-08192a3b4c5d6e7f"),
];

pub const FORMS: [&str; 8] = ["plain", "decimal", "base64", "url", "json", "half", "query", "library"];

/// Returns a secret in a spelling, and what must not be found of it.
pub fn spell(secret: &str, form: &str) -> (String, Vec<String>) {
    let percent = secret.bytes().fold(String::new(), |mut text, byte| {
        let _ = if byte.is_ascii_alphanumeric() {
            write!(text, "{}", char::from(byte))
        } else {
            write!(text, "%{byte:02X}")
        };
        text
    });
    let decimal = secret.bytes().map(|byte| byte.to_string()).collect::<Vec<_>>().join(", ");
    let json = serde_json::to_string(secret).unwrap().trim_matches('"').to_owned();
    let text = match form {
        "plain" => secret.to_owned(),
        "decimal" => format!("[{decimal}]"),
        "base64" => STANDARD.encode(format!("user:{secret}")),
        "url" => percent.clone(),
        "json" => json.clone(),
        "half" => secret[..secret.len() / 2].to_owned(),
        "query" => format!("https://svc.example/poll?x=1&sig={percent}"),
        _ => format!("invalid value: string {secret:?}, expected a key at line 1 column 2"),
    };
    let half = secret[..secret.len() / 2].to_owned();
    let encoded = STANDARD.encode(format!("user:{secret}"));
    (
        text,
        vec![
            secret.to_owned(),
            half,
            decimal.clone(),
            decimal.replace(' ', ""),
            json,
            percent,
            encoded[8..28].to_owned(),
        ],
    )
}

#[track_caller]
fn assert_absent(place: &str, text: &str) {
    assert_secrets_absent(&SECRETS, place, text);
}

/// Checks that a text has none of these secrets in any spelling.
#[track_caller]
pub fn assert_secrets_absent(secrets: &[(&str, &str)], place: &str, text: &str) {
    for (name, secret) in secrets {
        for form in FORMS {
            let (_, forbidden) = spell(secret, form);
            for part in forbidden {
                assert!(!text.contains(&part), "{place}: {name} as {part:?}: {text}");
                // As a member of JSON.
                let quoted = serde_json::to_string(&part).unwrap();
                assert!(!text.contains(quoted.trim_matches('"')), "{place}: {name} as {quoted}: {text}");
            }
        }
    }
}

/// The answers that repeat `text`, by the member `how` of the input.
pub fn repeat(how: &str, text: &str) -> Vec<Step> {
    let body = |value: Value| http_response("500 Internal Server Error", "application/json", &value.to_string());
    let bad = |value: Value| http_response("400 Bad Request", "application/json", &value.to_string());
    let stream = |media: &str, parts: &[String]| {
        let mut steps = vec![write(format!("HTTP/1.1 200 OK\r\nContent-Type: {media}\r\nConnection: close\r\n\r\n"))];
        for part in parts {
            // In two writes, so that the secret is cut.
            let middle = part.floor_char_boundary(part.len() / 2);
            steps.extend([
                write(&part[..middle]),
                Step::Sleep(std::time::Duration::from_millis(5)),
                write(&part[middle..]),
            ]);
        }
        steps.push(Step::Close);
        steps
    };
    let line: String = text.chars().filter(|c| !c.is_control()).collect();
    match how {
        "error" => body(json!({"error": {"code": "X", "message": format!("refused {text}")}})),
        "message" => bad(json!({"error": {"code": "InvalidInput", "message": format!("The key {text} is not known")}})),
        "text" => http_response("400 Bad Request", "text/plain", &format!("The key {line} is not known")),
        "problem" => http_response(
            "403 Forbidden",
            "application/problem+json",
            &json!({"title": "no", "detail": text}).to_string(),
        ),
        "embedded" => {
            http_response("200 OK", "application/json", &json!({"success": false, "message": text}).to_string())
        }
        "rpc" => http_response(
            "200 OK",
            "application/json",
            &json!({"jsonrpc": "2.0", "id": 1, "error": {"code": -32000, "message": text}}).to_string(),
        ),
        "event" => stream(
            "text/event-stream",
            &["data: 1\n\n".to_owned(), format!("event: error\ndata: {}\n\n", json!({"error": {"message": text}}))],
        ),
        "line" => stream(
            "application/x-ndjson",
            &["{\"n\":1}\n".to_owned(), format!("{}\n", json!({"error": {"message": text}}))],
        ),
        "field" => {
            let head = format!(
                "HTTP/1.1 400 Bad\r\nX-Rejected: {line}\r\nWWW-Authenticate: Bearer error=\"{}\"\r\n",
                line.replace('"', "'")
            );
            vec![write(format!("{head}Content-Length: 0\r\n\r\n"))]
        }
        "broken" => vec![write(format!("HTTP/1.1 200 OK\r\nBad {line}\r\n\r\n")), Step::Close],
        _ => vec![write(format!(
            "HTTP/1.1 302 Found\r\nLocation: https://elsewhere.example/?key={}\r\nContent-Length: 0\r\n\r\n",
            line.replace(' ', "+")
        ))],
    }
}

const ANSWERS: [&str; 11] =
    ["error", "message", "text", "problem", "embedded", "rpc", "event", "line", "field", "broken", "redirect"];

fn answer_of_agent(request: &ReceivedRequest) -> Vec<Step> {
    let input: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    let input = if input["params"].is_object() { &input["params"] } else { &input };
    let [how, name, form] = ["how", "name", "form"].map(|member| input[member].as_str().unwrap_or_default().to_owned());
    let secret = SECRETS.iter().find(|(other, _)| *other == name).map_or("", |(_, secret)| secret);
    repeat(&how, &spell(secret, &form).0)
}

async fn start(agent: &Agent, registry: &Agent) -> Gateway {
    let address = registry.address;
    let source = |name: &str, credential: &str| {
        format!(
            "    - {{name: {name}, kind: aidip, url: 'http://{address}/{name}', poll_interval: 1s, max_backoff: 1s, required: false, credential: {credential}}}\n"
        )
    };
    let sources = [
        source("bearer", "{bearer: 'env:SOURCE_BEARER'}"),
        source("header", "{header: {name: X-Key, value: 'env:SOURCE_HEADER'}}"),
        source(
            "oauth",
            &format!(
                "{{client_credentials: {{token_url: 'http://{address}/token', client_id: gate, client_secret: 'env:SOURCE_CLIENT'}}}}"
            ),
        ),
    ];
    let agents = format!(
        "agents:\n  sources:\n    - agents.json\n{}  defaults:\n    credential: {{header: X-Agent-Key, value: 'env:AGENT_CREDENTIAL', destinations: {{origins: ['*']}}}}\n  rules:\n    - {{agents: [all], error_details: all}}\n",
        sources.concat()
    );
    let build = SECRETS.iter().fold(gateway(), |build, (name, secret)| build.env(name, secret));
    let introspection = format!(
        "  bearer:\n    introspection: {{endpoint: 'http://{address}/check', client_id: gate, client_secret: 'env:INTROSPECTION'}}\n"
    );
    build
        .agent("plain", agent)
        .agent("all", agent)
        .section(&introspection)
        .section(&agents)
        .section("errors: {log_agent_bodies: true}\n")
        .section("access_log: {output: access.log, callers: pseudonym, pseudonym_key: 'env:PSEUDONYMS'}\n")
        .section("audit: {file: audit.log}\n")
        .section("tasks: {callbacks: {secret: 'env:WEBHOOK'}}\n")
        .section(&format!("tracing: {{endpoint: 'http://{address}/v1/traces', headers: {{authorization: 'env:OTLP_TOKEN'}}, sample_ratio: 1}}\n"))
        .start()
        .await
}

async fn run(gate: &Gateway, args: &[&str]) -> String {
    let mut command = gatepost_command();
    command.current_dir(gate.folder()).args(args).envs(SECRETS);
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

#[tokio::test]
async fn r131_no_place_shows_a_secret_in_any_spelling() {
    let agent = Agent::scripted(answer_of_agent).await;
    // What the registry says next, in each kind of its answers.
    let said: Arc<Mutex<(String, usize)>> = Arc::default();
    let shared = Arc::clone(&said);
    let registry = Agent::scripted(move |_: &ReceivedRequest| {
        let (text, at) = shared.lock().unwrap().clone();
        let document = json!([{"id": "listed", "name": text, "description": text, "endpoint": text, "tags": [text]}]);
        match at % 3 {
            0 => repeat("text", &text),
            1 => http_response("200 OK", "application/json", &document.to_string()),
            _ => repeat("redirect", &text),
        }
    })
    .await;
    let gate = start(&agent, &registry).await;
    let mut requests = Vec::new();
    for (at, (name, secret)) in SECRETS.into_iter().enumerate() {
        for (number, form) in FORMS.into_iter().enumerate() {
            *said.lock().unwrap() = (spell(secret, form).0, at + number);
            for how in ANSWERS {
                let input = json!({"how": how, "name": name, "form": form});
                let place = format!("{how} of {name} as {form}");
                // Every second spelling with everything that a rule lets callers read.
                let id = if number % 2 == 0 { "plain" } else { "all" };
                let call = gate.post(&format!("/agents/{id}/invoke")).json(&input);
                let is_keyed = (at + number) % 2 == 0;
                let call = if is_keyed { call.header("idempotency-key", place.replace(' ', "-")) } else { call };
                let answer = send(call).await;
                assert_absent(&place, &format!("{:?} {}", answer.headers, answer.text()));
                requests.extend(answer.header("x-request-id").map(str::to_owned));
                if (at + number) % 3 == 0 {
                    let task = gate.post("/agents/plain/invoke").header("prefer", "respond-async, wait=5").json(&input);
                    let task = send(task).await;
                    assert_absent(&place, &format!("{:?} {}", task.headers, task.text()));
                }
            }
            let token = spell(secret, form).0.replace(|c: char| !c.is_ascii_alphanumeric(), "");
            let refused = send(gate.request("POST", "/agents/plain/invoke").bearer_auth(token).json(&json!({}))).await;
            assert_absent("introspection", &format!("{:?} {}", refused.headers, refused.text()));
            for path in
                ["/agents", "/sources", "/readyz", "/healthz", "/console/sources", "/console/rejected-documents"]
            {
                assert_absent(path, &gate.admin_page(path).await.text());
            }
        }
    }
    eventually("every source was polled", async || registry.call_count() > 30).await;
    for path in [
        "/metrics",
        "/console",
        "/console/agents",
        "/console/calls",
        "/console/configuration",
        "/console/tasks",
        "/console/audit",
        "/console/callers",
    ] {
        assert_absent(path, &gate.admin_page(path).await.text());
    }
    for id in requests.iter().rev().step_by(37) {
        assert_absent("explain", &gate.admin_page(&format!("/explain/{id}")).await.text());
        assert_absent("the calls of the console", &gate.admin_page(&format!("/console/calls/{id}")).await.text());
    }
    let url = format!("http://{}", gate.admin_address);
    for args in [
        &["check"][..],
        &["doctor", "--json", "--timeout", "2"],
        &["explain", "--url", &url, "--as", "key:team-a", "POST", "/agents/plain/invoke", "-d", "{}"],
        &["key", "list"],
    ] {
        assert_absent(&args.join(" "), &run(&gate, args).await);
    }
    assert!(gate.read_file("access.log").contains("[redacted]"), "the agents' texts are in no log");
    for file in std::fs::read_dir(gate.folder()).unwrap() {
        let path = file.unwrap().path();
        if path.is_file() {
            let bytes = std::fs::read(&path).unwrap();
            assert_absent(&path.display().to_string(), &String::from_utf8_lossy(&bytes));
        }
    }
}
