//! The pages for callers at a running gateway: who sees what, HTTP Basic, errors as pages, header fields.

use crate::{
    callers::document_with,
    support::{
        agent::Agent,
        gateway::{Gateway, GatewayBuilder, gateway, send},
        gateway_response::GatewayResponse,
        issuer::TokenIssuer,
    },
};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::json;

const PAGES: &str = "directory: {caller_pages: true}\n";
const BROWSER: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
const ACCESS: &str = "access:\n  grants:\n    - {callers: ['key:team-a', 'oauth:app-1'], agents: ['*']}\n    - {callers: ['key:reader'], agents: [open]}\n";

fn basic(password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("anyone:{password}")))
}

async fn gateway_with_pages() -> (Gateway, Agent) {
    let echo = Agent::echo().await;
    let gate = gateway().section(PAGES).access(ACCESS).caller("reader", &[]);
    (gate.agent("open", &echo).agent("secret", &echo).start().await, echo)
}

async fn get(gate: &Gateway, path: &str, headers: &[(&str, &str)]) -> GatewayResponse {
    send(headers.iter().fold(gate.request("GET", path), |request, (name, value)| request.header(*name, *value))).await
}

fn challenges(response: &GatewayResponse) -> Vec<&str> {
    let fields = response.headers.iter().filter(|(name, _)| name == "www-authenticate");
    fields.map(|(_, value)| value.as_str()).collect()
}

#[tokio::test]
async fn without_the_setting_the_paths_of_the_pages_do_not_exist() {
    let echo = Agent::echo().await;
    let gate = gateway().agent("echo", &echo).start().await;
    let key = gate.key("team-a").to_owned();
    let unknown = get(&gate, "/nothing", &[]).await.expect_fault(404, "NotFound");
    for path in ["/docs", "/docs/", "/docs/echo", "/docs/assets/style.css", "/docs?login"] {
        for method in ["GET", "HEAD", "POST", "OPTIONS"] {
            let request = gate.request(method, path).header("accept", BROWSER).header("x-api-key", &key);
            let response = send(request).await;
            assert_eq!(response.status, 404, "{method} {path}");
            if method != "HEAD" {
                assert_eq!(response.expect_fault(404, "NotFound")["message"], unknown["message"], "{method} {path}");
            }
        }
    }
}

#[tokio::test]
async fn an_agent_without_a_grant_looks_like_one_that_does_not_exist() {
    let (gate, _echo) = gateway_with_pages().await;
    let key = gate.key("reader").to_owned();
    let list = get(&gate, "/docs", &[("x-api-key", &key)]).await;
    assert_eq!(list.status, 200);
    assert!(list.text().contains("/docs/open") && !list.text().contains("secret"), "{}", list.text());
    for accept in ["*/*", BROWSER] {
        let comparable = async |id: &str| {
            let response = get(&gate, &format!("/docs/{id}"), &[("x-api-key", &key), ("accept", accept)]).await;
            let request_id = response.header("x-request-id").unwrap().to_owned();
            let mut headers = response.headers.clone();
            headers.retain(|(name, _)| !["x-request-id", "date", "ratelimit"].contains(&name.as_str()));
            (response.status, headers, response.text().replace(&request_id, "").replace(id, ""))
        };
        let (secret, missing) = (comparable("secret").await, comparable("absent").await);
        assert_eq!(secret, missing);
        assert_eq!(secret.0, 404);
    }
    let found = get(&gate, "/docs?q=secret", &[("x-api-key", &key)]).await;
    assert!(!found.text().contains("/docs/secret"), "{}", found.text());
}

#[tokio::test]
async fn the_password_of_basic_is_a_credential_of_these_pages_only() {
    let (echo, issuer) = (Agent::echo().await, TokenIssuer::start().await);
    let gate = gateway().section(PAGES).section(&issuer.section()).access(ACCESS).caller("reader", &[]);
    let gate = gate.agent("open", &echo).agent("secret", &echo).start().await;
    let key = gate.key("team-a").to_owned();
    let token = issuer.token(&json!({}));
    for password in [&key, &token] {
        for path in ["/docs", "/docs/secret"] {
            let page = get(&gate, path, &[("authorization", &basic(password))]).await;
            assert_eq!(page.status, 200, "{path}: {}", page.text());
            assert!(page.text().contains("secret"), "{path}");
        }
    }
    let head = send(gate.request("HEAD", "/docs").header("authorization", basic(&key))).await;
    assert_eq!((head.status, head.body.len()), (200, 0));
    let post = send(gate.request("POST", "/docs").header("authorization", basic(&key))).await;
    post.expect_fault(405, "MethodNotAllowed");
    assert_eq!(post.header("allow"), Some("GET, HEAD"));
    for path in ["/agents", "/agents/open", "/agents/open/openapi.json", "/agents/open/invoke?a=1"] {
        let response = get(&gate, path, &[("authorization", &basic(&key))]).await;
        response.expect_fault(401, "Unauthorized");
        assert!(!challenges(&response).iter().any(|challenge| challenge.starts_with("Basic")), "{path}");
    }
    assert_eq!(echo.call_count(), 0, "no agent was called");
    let log = gate.access_log(8).await;
    assert!(log.iter().any(|entry| entry["caller"] == "key:team-a"), "{log:?}");
    let log = std::fs::read_to_string(gate.folder().join("access.log")).unwrap();
    let stderr = std::fs::read_to_string(gate.folder().join("stderr.log")).unwrap();
    for secret in [&key, &token, &STANDARD.encode(format!("anyone:{key}"))] {
        assert!(!log.contains(secret.as_str()) && !stderr.contains(secret.as_str()), "a credential is logged");
    }
}

#[tokio::test]
async fn a_basic_credential_that_is_wrong_malformed_or_not_alone_is_refused() {
    let (gate, _echo) = gateway_with_pages().await;
    let key = gate.key("team-a").to_owned();
    let wrong = format!("{}x", &key[..key.len() - 1]);
    let malformed = ["Basic", "Basic ", "Basic !!!", "Basic bm9jb2xvbg==", "Basic /////w=="].map(str::to_owned);
    let others = [basic(""), basic("gp_"), basic(&wrong), basic("garbage"), basic("a b"), basic("ä\n")];
    for credential in malformed.iter().chain(&others) {
        let response = get(&gate, "/docs/open", &[("authorization", credential)]).await;
        response.expect_fault(401, "Unauthorized");
        let challenges = challenges(&response);
        assert!(challenges.contains(&"Basic realm=\"gatepost\", charset=\"UTF-8\""), "{credential}: {challenges:?}");
        assert!(challenges.iter().any(|challenge| challenge.starts_with("ApiKey")), "{challenges:?}");
    }
    for (first, second) in [(&key, &key), (&wrong, &key), (&key, &wrong)] {
        let both = [("authorization", &*basic(first)), ("x-api-key", second)];
        get(&gate, "/docs", &both).await.expect_fault(400, "InvalidInput");
    }
    let basic = basic(&key);
    let twice = [("authorization", &*basic), ("authorization", &*basic)];
    get(&gate, "/docs", &twice).await.expect_fault(400, "InvalidInput");
    // The same wrong key gets the same answer in its own header.
    let own = get(&gate, "/docs", &[("x-api-key", &wrong)]).await.expect_fault(401, "Unauthorized");
    assert_eq!(own["message"], "The API key is not valid");
}

#[tokio::test]
async fn a_visitor_without_a_credential_sees_open_agents_or_is_asked_for_one() {
    let (gate, _echo) = gateway_with_pages().await;
    let asked = get(&gate, "/docs", &[]).await;
    asked.expect_fault(401, "Unauthorized");
    assert!(challenges(&asked).iter().any(|challenge| challenge.starts_with("Basic ")), "{asked:?}");
    let echo = Agent::echo().await;
    let open = |access: &str| -> GatewayBuilder {
        let gate = gateway().section(PAGES).access(access);
        gate.document(document_with(&echo, "free", &json!({"type": "none"}))).agent("closed", &echo)
    };
    let access = "access:\n  grants:\n    - {callers: ['*', anonymous], agents: ['*']}\n";
    let gate = open(access).start().await;
    let list = get(&gate, "/docs", &[("accept", BROWSER)]).await;
    assert_eq!(list.status, 200);
    assert!(list.text().contains("/docs/free") && !list.text().contains("closed"), "{}", list.text());
    assert!(list.text().contains("href=\"/docs?login\""), "{}", list.text());
    let page = get(&gate, "/docs/free", &[]).await;
    assert!(!page.text().contains("$KEY"), "an open agent needs no credential");
    get(&gate, "/docs/closed", &[]).await.expect_fault(401, "Unauthorized");
    get(&gate, "/docs?login", &[]).await.expect_fault(401, "Unauthorized");
    let key = gate.key("team-a").to_owned();
    let client = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    let login = send(client.get(gate.url("/docs?login")).header("authorization", basic(&key))).await;
    assert_eq!((login.status, login.header("location")), (303, Some("/docs")));
    // A grant to anonymous that covers no agent: nothing is to be seen without a credential.
    let access =
        "access:\n  grants:\n    - {callers: ['*'], agents: ['*']}\n    - {callers: [anonymous], agents: [absent]}\n";
    let gate = open(access).start().await;
    get(&gate, "/docs", &[]).await.expect_fault(401, "Unauthorized");
}

#[tokio::test]
async fn errors_are_pages_for_browsers_and_json_for_others() {
    let (gate, _echo) = gateway_with_pages().await;
    let key = gate.key("team-a").to_owned();
    for (method, path, key, status, code) in [
        ("GET", "/docs", "", 401, "Unauthorized"),
        ("GET", "/docs", "gp_x", 401, "Unauthorized"),
        ("GET", "/docs/absent", &*key, 404, "NotFound"),
        ("GET", "/docs?page=0", &*key, 400, "InvalidInput"),
        ("POST", "/docs", &*key, 405, "MethodNotAllowed"),
        ("GET", "/docs/a/b/c", &*key, 404, "NotFound"),
    ] {
        let request = |accept: &str| {
            let request = gate.request(method, path).header("accept", accept);
            if key.is_empty() { request } else { request.header("x-api-key", key) }
        };
        send(request("*/*")).await.expect_fault(status, code);
        send(request("application/json, text/html;q=0.9")).await.expect_fault(status, code);
        let page = send(request(BROWSER)).await;
        assert_eq!((page.status, page.header("content-type")), (status, Some("text/html; charset=utf-8")), "{path}");
        assert!(page.text().contains(code) && page.text().contains(page.header("x-request-id").unwrap()), "{path}");
        assert!(page.header("content-security-policy").unwrap().contains("default-src 'none'"), "{path}");
    }
    let elsewhere = get(&gate, "/agents/absent", &[("accept", BROWSER), ("x-api-key", &key)]).await;
    elsewhere.expect_fault(404, "NotFound");
}

#[tokio::test]
async fn pages_have_a_strict_policy_and_no_sandbox_and_limits_of_the_visitor() {
    let echo = Agent::echo().await;
    let limits = "limits: {per_caller: 50/min, per_caller_agent: 7/s burst 20, quota: {per_day: 1000}}\n";
    let gate = gateway().section(PAGES).section(limits).agent("echo", &echo).start().await;
    let key = gate.key("team-a").to_owned();
    let page = get(&gate, "/docs/echo", &[("x-api-key", &key)]).await;
    let policies: Vec<&str> =
        page.headers.iter().filter(|(name, _)| name == "content-security-policy").map(|(_, value)| &**value).collect();
    assert!(
        matches!(policies.as_slice(), [one] if one.starts_with("default-src 'none'; style-src 'self'")),
        "{policies:?}"
    );
    for (name, value) in
        [("x-frame-options", "DENY"), ("x-content-type-options", "nosniff"), ("cache-control", "no-store")]
    {
        assert_eq!(page.header(name), Some(value));
    }
    assert!(page.header("ratelimit").is_some(), "the page counts as a request of its caller");
    let text = page.text();
    for limit in ["50 per minute", "7 per second, 20 at once after a pause", "calls per day, UTC", "at most 5 min"] {
        assert!(text.contains(limit), "{limit}: {text}");
    }
    let style = text.split("href=\"").find(|part| part.starts_with("/docs/assets/")).unwrap();
    let style = get(&gate, style.split('"').next().unwrap(), &[]).await;
    assert_eq!((style.status, style.header("content-type")), (200, Some("text/css; charset=utf-8")));
    assert!(style.header("cache-control").unwrap().contains("immutable"));
}

#[tokio::test]
async fn the_input_of_the_lines_passes_the_contract_and_a_wrong_example_is_not_used() {
    let echo = Agent::echo().await;
    let mut document = echo.document("typed");
    document["inputs"] =
        json!({"type": "object", "properties": {"n": {"type": "integer", "minimum": 3}}, "required": ["n"]});
    document["examples"] = json!([{"input": {"n": 1}}, {"input": {"n": 41}}]);
    let mut without_example = echo.document("pattern");
    without_example["inputs"] = json!({"type": "string", "pattern": "^[0-9]{4}$"});
    let gate = gateway().section(PAGES).document(document).document(without_example).start().await;
    let key = gate.key("team-a").to_owned();
    let page = get(&gate, "/docs/typed", &[("x-api-key", &key)]).await.text();
    assert!(page.contains("--data-raw '{&quot;n&quot;: 41}'"), "{page}");
    let page = get(&gate, "/docs/pattern", &[("x-api-key", &key)]).await.text();
    assert!(
        page.contains("No input that matches the schema could be made") && page.contains("--data-raw '{}'"),
        "{page}"
    );
}
