//! Web pages in a browser: pages of allowed origins may read responses and be paired. All other pages get no CORS
//! headers and cannot reach agents on this machine.

use crate::support::{
    agent::Agent,
    gateway::{Gateway, gateway, send},
    gateway_response::GatewayResponse,
};
use serde_json::{Value, json};

const PAGE: &str = "https://app.example.org";
const CORS: &str = "cors:\n  allowed_origins: ['https://app.example.org', 'http://localhost:5173']\n  \
                    allowed_headers: [X-Custom]\n  pairing: {ttl: 1h}\n";

async fn send_request(gate: &Gateway, method: &str, path: &str, headers: &[(&str, &str)]) -> GatewayResponse {
    let request =
        headers.iter().fold(gate.request(method, path), |request, (name, value)| request.header(*name, *value));
    send(request).await
}

/// Asserts that the response has no CORS headers.
#[track_caller]
fn assert_no_cors_headers(response: &GatewayResponse) {
    let headers: Vec<_> = response.headers.iter().filter(|(name, _)| name.starts_with("access-control-")).collect();
    assert!(headers.is_empty(), "{headers:?}");
}

#[tokio::test]
async fn r88_a_page_of_an_allowed_origin_may_call_and_read_the_response() {
    let echo = Agent::with_steps(crate::support::agent::http_response(
        "200 OK\r\nAccess-Control-Allow-Origin: *\r\nAccess-Control-Allow-Credentials: true\r\nVary: Accept",
        "application/json",
        "{}",
    ))
    .await;
    let gate = gateway().agent("echo", &echo).section(CORS).start().await;
    let preflight = [
        ("origin", PAGE),
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "x-api-key, content-type"),
    ];
    let allowed = send_request(&gate, "OPTIONS", "/agents/echo/invoke", &preflight).await;
    assert_eq!((allowed.status, allowed.body.len()), (204, 0), "{}", allowed.text());
    assert_eq!(allowed.header("access-control-allow-origin"), Some(PAGE));
    assert_eq!(allowed.header("access-control-max-age"), Some("600"));
    assert_eq!(allowed.header("vary"), Some("Origin"));
    let headers = allowed.header("access-control-allow-headers").unwrap();
    for header in ["X-API-Key", "Content-Type", "X-Callback-Url", "Last-Event-ID", "X-Custom"] {
        assert!(headers.split(", ").any(|allowed| allowed == header), "{header}: {headers}");
    }
    assert!(allowed.header("access-control-allow-methods").unwrap().contains("POST"));
    assert!(allowed.header("access-control-allow-credentials").is_none());
    assert_eq!(echo.call_count(), 0, "a preflight does not reach the agent");

    let response = send(gate.post("/agents/echo/invoke").header("origin", PAGE).json(&json!({}))).await;
    response.expect_ok();
    assert_eq!(response.header("access-control-allow-origin"), Some(PAGE), "the agent's CORS headers are replaced");
    assert!(response.header("access-control-expose-headers").unwrap().contains("X-Request-ID"));
    assert!(response.header("access-control-allow-credentials").is_none());
    let vary: Vec<_> = response.headers.iter().filter(|(name, _)| name == "vary").map(|(_, value)| &**value).collect();
    assert_eq!(vary, ["Accept", "Origin"]);
    // A page may read error responses as well.
    for (path, status) in [("/agents/echo/invoke", 401), ("/nothing", 404)] {
        let refused = send_request(&gate, "POST", path, &[("origin", PAGE)]).await;
        assert_eq!((refused.status, refused.header("access-control-allow-origin")), (status, Some(PAGE)), "{path}");
    }
    let listed =
        send(gate.request("GET", "/agents").header("x-api-key", gate.key("team-a")).header("origin", PAGE)).await;
    assert_eq!(listed.header("access-control-allow-origin"), Some(PAGE));
}

#[tokio::test]
async fn r88_a_page_of_another_origin_gets_no_cors_headers() {
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
        let preflight = [("origin", origin), ("access-control-request-method", "POST")];
        let refused = send_request(&gate, "OPTIONS", "/agents/echo/invoke", &preflight).await;
        assert_eq!(refused.status, 405, "{origin}");
        assert_no_cors_headers(&refused);
        let response = send(gate.post("/agents/echo/invoke").header("origin", origin).json(&json!({}))).await;
        response.expect_ok();
        assert_no_cors_headers(&response);
        assert_eq!(response.header("vary"), Some("Origin"), "a cache must not reuse it for other pages");
    }
    let two_origins = [("origin", PAGE), ("origin", "https://evil.example"), ("access-control-request-method", "POST")];
    let refused = send_request(&gate, "OPTIONS", "/agents/echo/invoke", &two_origins).await;
    assert!(refused.status >= 400, "{}", refused.status);
    assert_no_cors_headers(&refused);
    // Not a preflight, a path that does not exist, and methods that the path does not allow.
    assert_eq!(send_request(&gate, "OPTIONS", "/agents/echo/invoke", &[("origin", PAGE)]).await.status, 405);
    let preflight = |method| [("origin", PAGE), ("access-control-request-method", method)];
    assert_eq!(send_request(&gate, "OPTIONS", "/nothing", &preflight("POST")).await.status, 404);
    assert_eq!(send_request(&gate, "OPTIONS", "/agents/echo/invoke", &preflight("DELETE")).await.status, 405);
    assert_eq!(send_request(&gate, "OPTIONS", "/agents/echo/invoke", &preflight("no method")).await.status, 405);
}

#[tokio::test]
async fn r88_without_the_section_there_are_no_cors_headers_and_no_pairing() {
    let echo = Agent::echo().await;
    let gate = gateway().agent("echo", &echo).start().await;
    let preflight = [("origin", PAGE), ("access-control-request-method", "POST")];
    send_request(&gate, "OPTIONS", "/agents/echo/invoke", &preflight).await.expect_fault(405, "MethodNotAllowed");
    let response = send(gate.post("/agents/echo/invoke").header("origin", PAGE).json(&json!({}))).await;
    response.expect_ok();
    assert_no_cors_headers(&response);
    assert_eq!(response.header("vary"), None);
    send_request(&gate, "POST", "/pair", &[("origin", PAGE)]).await.expect_fault(404, "NotFound");
    assert_eq!(request_pairing_code(&gate).await.status, 404);
}

/// A gateway with this section and an agent behind a unix socket.
async fn with_unix_agent(section: &str) -> (Gateway, tokio::task::JoinHandle<()>) {
    let build = gateway();
    let path = build.folder().join("agent.sock");
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    let task = tokio::spawn(async move {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 8192];
            let _ = stream.read(&mut request).await;
            let response =
                "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";
            let _ = stream.write_all(response.as_bytes()).await;
        }
    });
    let endpoint = format!("agent+unix://{}#/", path.display());
    let document = json!({"id": "local", "name": "local", "endpoint": endpoint, "authentication": {"type": "api_key"}});
    let build = build.document(document);
    let build = if section.is_empty() { build } else { build.section(section) };
    (build.start().await, task)
}

async fn call_unix_agent(gate: &Gateway, headers: &[(&str, &str)]) -> GatewayResponse {
    let request = gate.post("/agents/local/invoke").json(&json!({}));
    send(headers.iter().fold(request, |request, (name, value)| request.header(*name, *value))).await
}

#[tokio::test]
async fn r88_only_pages_of_allowed_origins_reach_agents_on_this_machine() {
    let (gate, _agent) = with_unix_agent(CORS).await;
    call_unix_agent(&gate, &[]).await.expect_ok();
    call_unix_agent(&gate, &[("origin", PAGE)]).await.expect_ok();
    for origin in ["https://evil.example", "null", ""] {
        assert_eq!(call_unix_agent(&gate, &[("origin", origin)]).await.status, 403, "{origin}");
    }
    // Requests for images and links have no Origin, but Sec-Fetch-Site names their site.
    for (site, status) in [("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)] {
        assert_eq!(call_unix_agent(&gate, &[("sec-fetch-site", site)]).await.status, status, "{site}");
    }
    call_unix_agent(&gate, &[("origin", PAGE), ("sec-fetch-site", "cross-site")]).await.expect_ok();
    // DNS rebinding: the name of the page's host resolves to this machine.
    for (host, status) in [
        ("evil.example", 403),
        ("evil.example:80", 403),
        ("localhost:1", 200),
        ("127.0.0.1", 200),
        ("[::1]:80", 200),
        ("localhost.evil.example", 403),
    ] {
        assert_eq!(call_unix_agent(&gate, &[("host", host)]).await.status, status, "{host}");
    }
    let cors = "cors:\n  allowed_origins: ['https://app.example.org']\n  allowed_hosts: [agents.example.org]\n";
    let (gate, _agent) = with_unix_agent(cors).await;
    call_unix_agent(&gate, &[("host", "agents.example.org")]).await.expect_ok();
    // Without the section no page is allowed, and no other name.
    let (gate, _agent) = with_unix_agent("").await;
    call_unix_agent(&gate, &[]).await.expect_ok();
    call_unix_agent(&gate, &[("host", "evil.example")]).await.expect_fault(403, "PermissionDenied");
    for page in [("origin", "https://evil.example"), ("sec-fetch-site", "cross-site")] {
        call_unix_agent(&gate, &[page]).await.expect_fault(403, "PermissionDenied");
    }
}

#[tokio::test]
async fn r88_dns_rebinding_is_detected_over_http2_and_before_additional_endpoints() {
    let (gate, _agent) = with_unix_agent(CORS).await;
    for (name, status) in [("evil.example", 403), ("localhost", 200)] {
        let client = reqwest::Client::builder().no_proxy().http2_prior_knowledge().resolve(name, gate.address());
        let url = format!("http://{name}:{}/agents/local/invoke", gate.address().port());
        let call = client.build().unwrap().post(url).header("x-api-key", gate.key("team-a")).json(&json!({}));
        assert_eq!(send(call).await.status, status, "{name}");
    }
    let echo = Agent::echo().await;
    let agents = "agents:\n  sources: [agents.json]\n  rules:\n    - agents: [echo]\n      settings: \
                  {additional_endpoints: ['agent+unix:///run/none.sock#/']}\n";
    let gate = gateway().agent("echo", &echo).section(CORS).section(agents).start().await;
    let call = gate.post("/agents/echo/invoke").header("origin", "https://evil.example").json(&json!({}));
    send(call).await.expect_fault(403, "PermissionDenied");
    assert_eq!(echo.call_count(), 0);
}

async fn request_pairing_code(gate: &Gateway) -> GatewayResponse {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    send(client.post(format!("http://{}/pairing", gate.admin_address))).await
}

async fn pair(gate: &Gateway, origin: &str, body: &Value) -> GatewayResponse {
    send(gate.request("POST", "/pair").header("origin", origin).json(body)).await
}

#[tokio::test]
async fn r88_a_page_exchanges_a_code_for_a_key_once_and_only_that_page_may_use_the_key() {
    let echo = Agent::echo().await;
    let access = "access:\n  grants:\n    - {callers: ['browser:https://app.example.org'], agents: [echo]}\n    - \
                  {callers: ['key:*'], agents: [other]}\n";
    let gate = gateway().agent("echo", &echo).agent("other", &echo).access(access).section(CORS).start().await;
    let response = request_pairing_code(&gate).await;
    assert_eq!((response.status, response.json()["expires_in"].clone()), (200, json!(120)));
    let code = response.json()["code"].as_str().unwrap().to_owned();
    assert_eq!(code.len(), 9, "{code}");
    // Only allowed origins may use the code, and an attempt of another origin does not use it up.
    assert_eq!(pair(&gate, "https://evil.example", &json!({"code": code})).await.status, 403);
    assert_eq!(send(gate.request("POST", "/pair").json(&json!({"code": code}))).await.status, 403);
    assert_eq!(pair(&gate, PAGE, &json!({"code": "AAAA-AAAA"})).await.status, 403);
    let paired = pair(&gate, PAGE, &json!({"code": code.to_lowercase()})).await;
    assert_eq!(paired.header("cache-control"), Some("no-store"));
    assert_eq!(paired.header("access-control-allow-origin"), Some(PAGE));
    let paired = paired.expect_ok();
    assert_eq!((&paired["origin"], &paired["expires_in"]), (&json!(PAGE), &json!(3600)));
    let key = paired["key"].as_str().unwrap();
    assert_eq!(pair(&gate, PAGE, &json!({"code": code})).await.status, 403, "a code is valid once");

    let call = async |id: &str, origin: Option<&str>, key: &str| {
        let request = gate.request("POST", &format!("/agents/{id}/invoke")).header("x-api-key", key).json(&json!({}));
        send(match origin {
            Some(origin) => request.header("origin", origin),
            None => request,
        })
        .await
    };
    call("echo", Some(PAGE), key).await.expect_ok();
    assert_eq!(call("other", Some(PAGE), key).await.status, 404, "the page has no grant for this agent");
    for origin in [None, Some("http://localhost:5173"), Some("https://evil.example")] {
        assert_eq!(call("echo", origin, key).await.status, 401, "{origin:?}");
    }
    assert_eq!(call("echo", Some(PAGE), &format!("{key}0")).await.status, 401);
    assert_eq!(call("echo", Some(PAGE), "gpb_").await.status, 401);
    let log = gate.access_log(6).await;
    let entry = log.iter().find(|entry| entry.to_string().contains("browser:https://app.example.org"));
    assert!(entry.is_some() && !format!("{log:?}{}", gate.stderr()).contains(key), "{log:?}");
}

#[tokio::test]
async fn r88_a_code_ends_with_five_wrong_guesses_or_the_next_code() {
    let gate = gateway().section(CORS).start().await;
    let new_code = async || request_pairing_code(&gate).await.json()["code"].as_str().unwrap().to_owned();
    let (first, second) = (new_code().await, new_code().await);
    assert_ne!(first, second);
    assert_eq!(pair(&gate, PAGE, &json!({"code": first})).await.status, 403, "a new code replaces the previous one");
    for _ in 0..4 {
        assert_eq!(pair(&gate, PAGE, &json!({"code": "WRNG-WRNG"})).await.status, 403);
    }
    assert_eq!(pair(&gate, PAGE, &json!({"code": second})).await.status, 403, "five wrong codes end it");
    for body in [json!({}), json!({"code": 1}), json!([]), json!({"code": "A", "more": 1})] {
        assert_eq!(pair(&gate, PAGE, &body).await.status, 400, "{body}");
    }
    assert_eq!(pair(&gate, PAGE, &json!({"code": "x".repeat(2000)})).await.status, 413);
    assert_eq!(send_request(&gate, "GET", "/pair", &[]).await.status, 405);
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let page = client.post(format!("http://{}/pairing", gate.admin_address)).header("origin", PAGE);
    assert_eq!(send(page).await.status, 403, "a page cannot request a code");
}

#[tokio::test]
async fn r88_invalid_settings_are_reported_with_their_key() {
    let check = |section: &str| {
        let folder = tempfile::TempDir::new().unwrap();
        let text =
            format!("listeners:\n  - address: 127.0.0.1:0\nagents:\n  sources: [agents.json]\ncors: {section}\n");
        std::fs::write(folder.path().join("agents.json"), "[]").unwrap();
        std::fs::write(folder.path().join("gatepost.yaml"), text).unwrap();
        let mut command = crate::support::gateway::gatepost_command();
        let output = command.arg("check").arg("-c").arg(folder.path().join("gatepost.yaml")).output().unwrap();
        assert!(!output.status.success(), "{section}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    for (section, problem) in [
        ("{allowed_origins: []}", "cors.allowed_origins"),
        ("{allowed_origins: ['*']}", "cors.allowed_origins[0]"),
        ("{allowed_origins: ['https://a.example', 'null']}", "cors.allowed_origins[1]"),
        ("{allowed_origins: ['https://a.example/']}", "cors.allowed_origins[0]"),
        ("{allowed_origins: ['https://A.example']}", "cors.allowed_origins[0]"),
        ("{allowed_origins: ['https://a.example:443']}", "cors.allowed_origins[0]"),
        ("{allowed_origins: ['https://u@a.example']}", "cors.allowed_origins[0]"),
        ("{allowed_origins: ['https://a.example'], allowed_headers: ['a b']}", "cors.allowed_headers[0]"),
        ("{allowed_origins: ['https://a.example'], max_age: 48h}", "cors.max_age"),
        ("{allowed_origins: ['https://a.example'], pairing: {ttl: 1s}}", "cors.pairing.ttl"),
        ("{allowed_origins: ['https://a.example'], credentials: true}", "credentials"),
    ] {
        let stderr = check(section);
        assert!(stderr.contains(problem), "{section}: {stderr}");
    }
}
