//! Pages in a browser: those that are configured may read what they ask for and be paired, all others are told nothing
//! and reach no agent of this machine.

use crate::support::{
    agent::Agent,
    gateway::{Gate, gateway, send},
    reply::Answer,
};
use serde_json::{Value, json};

const PAGE: &str = "https://app.example.org";
const CORS: &str = "cors:\n  origins: ['https://app.example.org', 'http://localhost:5173']\n  headers: [X-Custom]\n  \
                    pairing: {lifetime: 1h}\n";

async fn ask(gate: &Gate, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
    let request =
        headers.iter().fold(gate.request(method, path), |request, (name, value)| request.header(*name, *value));
    send(request).await
}

/// No field of CORS is in the answer.
#[track_caller]
fn is_silent(answer: &Answer) {
    let told: Vec<_> = answer.headers.iter().filter(|(name, _)| name.starts_with("access-control-")).collect();
    assert!(told.is_empty(), "{told:?}");
}

#[tokio::test]
async fn r88_a_page_of_a_configured_origin_may_ask_and_read() {
    let echo = Agent::doing(crate::support::agent::answer(
        "200 OK\r\nAccess-Control-Allow-Origin: *\r\nAccess-Control-Allow-Credentials: true\r\nVary: Accept",
        "application/json",
        "{}",
    ))
    .await;
    let gate = gateway().agent("echo", &echo).section(CORS).start().await;
    let wants = [
        ("origin", PAGE),
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "x-api-key, content-type"),
    ];
    let allowed = ask(&gate, "OPTIONS", "/agents/echo/invoke", &wants).await;
    assert_eq!((allowed.status, allowed.body.len()), (204, 0), "{}", allowed.text());
    assert_eq!(allowed.header("access-control-allow-origin"), Some(PAGE));
    assert_eq!(allowed.header("access-control-max-age"), Some("600"));
    assert_eq!(allowed.header("vary"), Some("Origin"));
    let fields = allowed.header("access-control-allow-headers").unwrap();
    assert!(fields.contains("X-API-Key") && fields.contains("Content-Type") && fields.contains("X-Custom"), "{fields}");
    assert!(allowed.header("access-control-allow-methods").unwrap().contains("POST"));
    assert!(allowed.header("access-control-allow-credentials").is_none());
    assert_eq!(echo.calls(), 0, "a preflight never reaches an agent");

    let answer = send(gate.post("/agents/echo/invoke").header("origin", PAGE).json(&json!({}))).await;
    answer.is_ok();
    assert_eq!(answer.header("access-control-allow-origin"), Some(PAGE), "and not what the agent says");
    assert!(answer.header("access-control-expose-headers").unwrap().contains("X-Request-ID"));
    assert!(answer.header("access-control-allow-credentials").is_none());
    let vary: Vec<_> = answer.headers.iter().filter(|(name, _)| name == "vary").map(|(_, value)| &**value).collect();
    assert_eq!(vary, ["Accept", "Origin"]);
    // Refusals can be read, too.
    for (path, status) in [("/agents/echo/invoke", 401), ("/nothing", 404)] {
        let refused = ask(&gate, "POST", path, &[("origin", PAGE)]).await;
        assert_eq!((refused.status, refused.header("access-control-allow-origin")), (status, Some(PAGE)), "{path}");
    }
    let listed =
        send(gate.request("GET", "/agents").header("x-api-key", gate.key("team-a")).header("origin", PAGE)).await;
    assert_eq!(listed.header("access-control-allow-origin"), Some(PAGE));
}

#[tokio::test]
async fn r88_any_other_page_is_told_nothing() {
    let echo = Agent::echo().await;
    let gate = gateway().agent("echo", &echo).section(CORS).start().await;
    for origin in [
        "https://evil.example",
        "null",
        "https://app.example.org.evil.example",
        "http://app.example.org",
        "https://app.example.org/",
        "*",
        "HTTPS://APP.EXAMPLE.ORG",
    ] {
        let wants = [("origin", origin), ("access-control-request-method", "POST")];
        let refused = ask(&gate, "OPTIONS", "/agents/echo/invoke", &wants).await;
        assert_eq!(refused.status, 405, "{origin}");
        is_silent(&refused);
        let answer = send(gate.post("/agents/echo/invoke").header("origin", origin).json(&json!({}))).await;
        answer.is_ok();
        is_silent(&answer);
        assert_eq!(answer.header("vary"), Some("Origin"), "a cache must not keep it for other pages");
    }
    let twice = [("origin", PAGE), ("origin", "https://evil.example"), ("access-control-request-method", "POST")];
    let two = ask(&gate, "OPTIONS", "/agents/echo/invoke", &twice).await;
    assert!(two.status >= 400, "{}", two.status);
    is_silent(&two);
    // What is no preflight, what is nowhere, and what takes another method.
    assert_eq!(ask(&gate, "OPTIONS", "/agents/echo/invoke", &[("origin", PAGE)]).await.status, 405);
    let wants = |method| [("origin", PAGE), ("access-control-request-method", method)];
    assert_eq!(ask(&gate, "OPTIONS", "/nothing", &wants("POST")).await.status, 404);
    assert_eq!(ask(&gate, "OPTIONS", "/agents/echo/invoke", &wants("DELETE")).await.status, 405);
    assert_eq!(ask(&gate, "OPTIONS", "/agents/echo/invoke", &wants("no method")).await.status, 405);
}

#[tokio::test]
async fn r88_without_the_section_everything_is_as_it_was() {
    let echo = Agent::echo().await;
    let gate = gateway().agent("echo", &echo).start().await;
    let wants = [("origin", PAGE), ("access-control-request-method", "POST")];
    ask(&gate, "OPTIONS", "/agents/echo/invoke", &wants).await.is_fault(405, "MethodNotAllowed");
    let answer = send(gate.post("/agents/echo/invoke").header("origin", PAGE).json(&json!({}))).await;
    answer.is_ok();
    is_silent(&answer);
    assert_eq!(answer.header("vary"), None);
    ask(&gate, "POST", "/pair", &[("origin", PAGE)]).await.is_fault(404, "NotFound");
    assert_eq!(code(&gate).await.status, 404);
}

/// An agent behind a socket, whose gateway has these sections.
async fn beside(section: &str) -> (Gate, tokio::task::JoinHandle<()>) {
    let build = gateway();
    let path = build.folder().join("agent.sock");
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    let task = tokio::spawn(async move {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut got = [0; 8192];
            let _ = stream.read(&mut got).await;
            let answer =
                "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    let endpoint = format!("agent+unix://{}#/", path.display());
    let document = json!({"id": "near", "name": "near", "endpoint": endpoint, "authentication": {"type": "api_key"}});
    let build = build.document(document);
    let build = if section.is_empty() { build } else { build.section(section) };
    (build.start().await, task)
}

async fn near(gate: &Gate, headers: &[(&str, &str)]) -> Answer {
    let request = gate.post("/agents/near/invoke").json(&json!({}));
    send(headers.iter().fold(request, |request, (name, value)| request.header(*name, *value))).await
}

#[tokio::test]
async fn r88_pages_reach_agents_of_this_machine_only_where_they_are_named() {
    let (gate, _agent) = beside(CORS).await;
    near(&gate, &[]).await.is_ok();
    near(&gate, &[("origin", PAGE)]).await.is_ok();
    for origin in ["https://evil.example", "null", ""] {
        assert_eq!(near(&gate, &[("origin", origin)]).await.status, 403, "{origin}");
    }
    // DNS rebinding: the page's own name, turned to this machine.
    for (host, status) in [
        ("evil.example", 403),
        ("evil.example:80", 403),
        ("localhost:1", 200),
        ("127.0.0.1", 200),
        ("[::1]:80", 200),
        ("localhost.evil.example", 403),
    ] {
        assert_eq!(near(&gate, &[("host", host)]).await.status, status, "{host}");
    }
    let (gate, _agent) = beside("cors:\n  origins: ['https://app.example.org']\n  hosts: [agents.example.org]\n").await;
    near(&gate, &[("host", "agents.example.org")]).await.is_ok();
    let (gate, _agent) = beside("").await;
    near(&gate, &[("origin", "https://evil.example")]).await.is_ok();
}

async fn code(gate: &Gate) -> Answer {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    send(client.post(format!("http://{}/pairing", gate.admin))).await
}

async fn pair(gate: &Gate, origin: &str, body: &Value) -> Answer {
    send(gate.request("POST", "/pair").header("origin", origin).json(body)).await
}

#[tokio::test]
async fn r88_a_page_gets_a_key_for_a_code_once_and_it_is_nobody_elses() {
    let echo = Agent::echo().await;
    let access = "access:\n  grants:\n    - {callers: ['browser:https://app.example.org'], agents: [echo]}\n    - \
                  {callers: ['key:*'], agents: [other]}\n";
    let gate = gateway().agent("echo", &echo).agent("other", &echo).access(access).section(CORS).start().await;
    let offered = code(&gate).await;
    assert_eq!((offered.status, offered.json()["expires_in"].clone()), (200, json!(120)));
    let text = offered.json()["code"].as_str().unwrap().to_owned();
    assert_eq!(text.len(), 9, "{text}");
    // Only for configured pages, and a page elsewhere does not use the code up.
    assert_eq!(pair(&gate, "https://evil.example", &json!({"code": text})).await.status, 403);
    assert_eq!(send(gate.request("POST", "/pair").json(&json!({"code": text}))).await.status, 403);
    assert_eq!(pair(&gate, PAGE, &json!({"code": "AAAA-AAAA"})).await.status, 403);
    let paired = pair(&gate, PAGE, &json!({"code": text.to_lowercase()})).await;
    assert_eq!(paired.header("cache-control"), Some("no-store"));
    assert_eq!(paired.header("access-control-allow-origin"), Some(PAGE));
    let paired = paired.is_ok();
    assert_eq!((&paired["origin"], &paired["expires_in"]), (&json!(PAGE), &json!(3600)));
    let key = paired["key"].as_str().unwrap();
    assert_eq!(pair(&gate, PAGE, &json!({"code": text})).await.status, 403, "once");

    let call = async |id: &str, origin: Option<&str>, key: &str| {
        let request = gate.request("POST", &format!("/agents/{id}/invoke")).header("x-api-key", key).json(&json!({}));
        send(match origin {
            Some(origin) => request.header("origin", origin),
            None => request,
        })
        .await
    };
    call("echo", Some(PAGE), key).await.is_ok();
    assert_eq!(call("other", Some(PAGE), key).await.status, 404, "it has no grant for that");
    for origin in [None, Some("http://localhost:5173"), Some("https://evil.example")] {
        assert_eq!(call("echo", origin, key).await.status, 401, "{origin:?}");
    }
    assert_eq!(call("echo", Some(PAGE), &format!("{key}0")).await.status, 401);
    assert_eq!(call("echo", Some(PAGE), "gpb_").await.status, 401);
    let log = gate.log(6).await;
    let caller = log.iter().find(|line| line.to_string().contains("browser:https://app.example.org"));
    assert!(caller.is_some() && !format!("{log:?}{}", gate.stderr()).contains(key), "{log:?}");
}

#[tokio::test]
async fn r88_a_code_cannot_be_guessed_and_is_replaced_by_the_next() {
    let gate = gateway().section(CORS).start().await;
    let code_of = async || code(&gate).await.json()["code"].as_str().unwrap().to_owned();
    let (first, second) = (code_of().await, code_of().await);
    assert_ne!(first, second);
    assert_eq!(pair(&gate, PAGE, &json!({"code": first})).await.status, 403, "the one before counts no more");
    for _ in 0..4 {
        assert_eq!(pair(&gate, PAGE, &json!({"code": "WRNG-WRNG"})).await.status, 403);
    }
    assert_eq!(pair(&gate, PAGE, &json!({"code": second})).await.status, 403, "five misses end it");
    for body in [json!({}), json!({"code": 1}), json!([]), json!({"code": "A", "more": 1})] {
        assert_eq!(pair(&gate, PAGE, &body).await.status, 400, "{body}");
    }
    assert_eq!(pair(&gate, PAGE, &json!({"code": "x".repeat(2000)})).await.status, 413);
    assert_eq!(ask(&gate, "GET", "/pair", &[]).await.status, 405);
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let page = client.post(format!("http://{}/pairing", gate.admin)).header("origin", PAGE);
    assert_eq!(send(page).await.status, 403, "no page makes itself a code");
}

#[tokio::test]
async fn r88_origins_that_are_none_are_refused_with_their_place() {
    let told = |section: &str| {
        let folder = tempfile::TempDir::new().unwrap();
        let text = format!("listen:\n  - address: 127.0.0.1:0\nagents:\n  from: [agents.json]\ncors: {section}\n");
        std::fs::write(folder.path().join("agents.json"), "[]").unwrap();
        std::fs::write(folder.path().join("gatepost.yaml"), text).unwrap();
        let mut command = crate::support::gateway::command();
        let output = command.arg("check").arg("-c").arg(folder.path().join("gatepost.yaml")).output().unwrap();
        assert!(!output.status.success(), "{section}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    for (section, words) in [
        ("{origins: []}", "origins"),
        ("{origins: ['*']}", "cors.origins[0]"),
        ("{origins: ['https://a.example', 'null']}", "cors.origins[1]"),
        ("{origins: ['https://a.example/']}", "cors.origins[0]"),
        ("{origins: ['https://A.example']}", "cors.origins[0]"),
        ("{origins: ['https://a.example:443']}", "cors.origins[0]"),
        ("{origins: ['https://u@a.example']}", "cors.origins[0]"),
        ("{origins: ['https://a.example'], headers: ['a b']}", "cors.headers[0]"),
        ("{origins: ['https://a.example'], max_age: 48h}", "cors.max_age"),
        ("{origins: ['https://a.example'], pairing: {lifetime: 1s}}", "cors.pairing.lifetime"),
        ("{origins: ['https://a.example'], credentials: true}", "credentials"),
    ] {
        let why = told(section);
        assert!(why.contains(words), "{section}: {why}");
    }
}
