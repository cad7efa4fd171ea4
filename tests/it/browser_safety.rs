//! What a page in a visitor's browser can do with what the browser brings by itself, and what a document of an agent can
//! do in the gateway's origin.

use crate::callers::document_with;
use crate::support::{
    agent::{Agent, http_response},
    certs::CertificateAuthority,
    gateway::{Gateway, GatewayBuilder, gateway, send},
    gateway_response::GatewayResponse,
    servers::{tls_client, tls_listener_section},
    websocket::connect_with_headers,
};
use serde_json::json;
use tokio_tungstenite::tungstenite;

const OPEN: &str = "access:\n  grants:\n    - {callers: ['*', anonymous], agents: ['*']}\n";
const CORS: &str = "cors: {allowed_origins: ['https://app.example.org']}\n";

async fn send_with(request: reqwest::RequestBuilder, headers: &[(&str, &str)]) -> GatewayResponse {
    send(headers.iter().fold(request, |request, (name, value)| request.header(*name, *value))).await
}

/// Headers of requests that pages of other origins make: fetch, form, image or link, and an older browser's link.
const FOREIGN: [&[(&str, &str)]; 7] = [
    &[("sec-fetch-site", "cross-site"), ("origin", "https://evil.example")],
    &[("sec-fetch-site", "cross-site")],
    &[("sec-fetch-site", "same-site")],
    &[("sec-fetch-site", "cross-site"), ("origin", "null")],
    &[("origin", "https://evil.example")],
    &[("origin", "null")],
    &[("referer", "https://evil.example/page")],
];

/// Headers of requests of programs, of the visitor, of the gateway's own pages, and of an allowed page.
const ALLOWED: [&[(&str, &str)]; 5] = [
    &[],
    &[("sec-fetch-site", "none")],
    &[("sec-fetch-site", "same-origin")],
    &[("sec-fetch-site", "cross-site"), ("origin", "https://app.example.org")],
    &[("referer", "https://app.example.org/page")],
];

#[tokio::test]
async fn r88_a_page_whose_name_resolves_to_this_machine_reaches_no_open_agent() {
    let agent = Agent::echo().await;
    let open = document_with(&agent, "open", &json!({"type": "none"}));
    let section = "agents:\n  sources: [agents.json]\n  rules:\n    - {agents: [open], api: {routes: [{methods: [GET, POST], path: /**}]}}\n";
    let gate = gateway().document(open).access(OPEN).section(section).section("tasks: {}\n").start().await;
    let requests = [
        ("POST", "/agents/open/invoke"),
        ("POST", "/agents/open/api/x"),
        ("GET", "/agents/open/api/x"),
        ("POST", "/pipelines/invoke"),
        ("GET", "/agents"),
        ("GET", "/agents/open/.well-known/agent-card.json"),
        ("GET", "/openai/v1/models"),
        ("POST", "/openai/v1/chat/completions"),
    ];
    let client = reqwest::Client::new();
    let body = json!({"model": "open", "messages": [{"role": "user", "content": "hello"}]});
    for (method, path) in requests {
        let request = async |host: &str, fields: &[(&str, &str)]| {
            let request = client.request(method.parse().unwrap(), gate.url(path)).json(&body).header("host", host);
            send_with(request, fields).await
        };
        for fields in [
            &[("origin", "http://evil.example:8080")][..],
            &[("referer", "http://evil.example:8080/")],
            &[("user-agent", "Mozilla/5.0")],
        ] {
            let refused = request("evil.example:8080", fields).await;
            assert_eq!(refused.status, 403, "{method} {path} {fields:?}: {}", refused.text());
        }
        let own = format!("localhost:{}", gate.address().port());
        let origin = format!("http://{own}");
        let own_page = request(&own, &[("origin", &origin), ("user-agent", "Mozilla/5.0")]).await;
        assert_ne!(own_page.status, 403, "{method} {path}: {}", own_page.text());
    }
    for path in ["/agents/open/invoke", "/agents/open/api/x"] {
        let (foreign, own) = ("evil.example:8080".to_owned(), format!("localhost:{}", gate.address().port()));
        for (host, is_own) in [(foreign, false), (own, true)] {
            let headers = [("host", &*host), ("origin", &*format!("http://{host}"))];
            let status = match connect_with_headers(&gate, path, &headers).await {
                Err(tungstenite::Error::Http(response)) => response.status().as_u16(),
                other => {
                    other.unwrap();
                    101
                }
            };
            assert_eq!(status == 403, !is_own, "{path} {host}: {status}");
        }
        // A page sends its key in a subprotocol.
        let protocols = format!("gatepost, gatepost.key.{}", gate.key("team-a"));
        let keyed = [
            ("host", "evil.example:8080"),
            ("origin", "http://evil.example:8080"),
            ("sec-websocket-protocol", &protocols),
        ];
        let opened = connect_with_headers(&gate, path, &keyed).await;
        let is_forbidden = |response: &http::Response<Option<Vec<u8>>>| response.status() == 403;
        assert!(!matches!(&opened, Err(tungstenite::Error::Http(response)) if is_forbidden(response)), "{opened:?}");
    }
    let calls = agent.call_count();
    let keyed = client.post(gate.url("/agents/open/invoke")).json(&json!({})).header("host", "evil.example:8080");
    let keyed = keyed.header("x-api-key", gate.key("team-a"));
    let answer = send_with(keyed, &[("origin", "http://evil.example:8080")]).await;
    assert_eq!((answer.status, agent.call_count()), (200, calls + 1), "a page that sends a key needs no name");
}

#[tokio::test]
async fn r88_pages_of_other_origins_may_not_use_what_a_browser_brings_by_itself() {
    let agent = Agent::echo().await;
    let authority = CertificateAuthority::new("authority");
    let mut certified = agent.document("certified");
    certified["authentication"] = json!({"type": "mtls"});
    let build = gateway().section("  mtls: {}\n").document(certified).document(document_with(
        &agent,
        "open",
        &json!({"type": "none"}),
    ));
    let build = build.access(OPEN).section(CORS).section("tasks: {}\n");
    std::fs::write(build.folder().join("ca.pem"), authority.pem()).unwrap();
    let section = tls_listener_section(&build, &authority, Some("ca.pem"));
    let gate = build.listeners(&section).start().await;
    let issued = authority.client("visitor.example");
    let browser = tls_client(&authority, Some(&issued)).build().unwrap();
    let url = |path: &str| format!("https://localhost:{}{path}", gate.address().port());
    for id in ["certified", "open"] {
        let path = url(&format!("/agents/{id}/invoke"));
        for headers in FOREIGN {
            // A form can send text without a preflight.
            send_with(browser.post(&path).body("{}"), headers).await.expect_fault(403, "PermissionDenied");
            send_with(browser.get(&path), headers).await.expect_fault(403, "PermissionDenied");
        }
        for headers in ALLOWED {
            assert_eq!(send_with(browser.post(&path).json(&json!({})), headers).await.status, 200, "{headers:?}");
            assert_eq!(send_with(browser.get(&path), headers).await.status, 200, "{headers:?}");
        }
    }
    assert_eq!(agent.call_count(), 4 * ALLOWED.len());
    let pipeline = browser.post(url("/pipelines/invoke")).json(&json!({"steps": [{"agent": "open"}], "input": {}}));
    send_with(pipeline, FOREIGN[0]).await.expect_fault(403, "PermissionDenied");
    send_with(browser.delete(url("/tasks/unknown")), FOREIGN[0]).await.expect_fault(403, "PermissionDenied");
    // A page cannot read responses, so a link to a list is no attack.
    assert_eq!(send_with(browser.get(url("/agents")), FOREIGN[1]).await.status, 200);
    assert_eq!(agent.call_count(), 4 * ALLOWED.len());
}

#[tokio::test]
async fn r88_a_key_that_the_page_itself_sends_needs_no_check() {
    let agent = Agent::echo().await;
    let gate = gateway().agent("a", &agent).start().await;
    for headers in FOREIGN {
        let request = gate.post("/agents/a/invoke").json(&json!({}));
        assert_eq!(send_with(request, headers).await.status, 200, "{headers:?}");
    }
}

fn replying_with(agent: &Agent) -> GatewayBuilder {
    gateway().agent("a", agent).document(document_with(agent, "open", &json!({"type": "none"}))).access(OPEN)
}

#[tokio::test]
async fn r88_documents_of_agents_have_no_rights_over_the_gateways_origin() {
    let fields = "200 OK\r\nService-Worker-Allowed: /\r\nSet-Cookie: a=b\r\nClear-Site-Data: \"*\"\r\nOrigin-Trial: x\r\n\
                  Strict-Transport-Security: max-age=1\r\nSec-Session-Registration: x\r\nPermissions-Policy: camera=*\r\n\
                  Attribution-Reporting-Register-Source: {}\r\nX-Content-Type-Options: off\r\nCache-Control: public, max-age=60\r\n\
                  Content-Security-Policy: sandbox allow-scripts allow-same-origin";
    for (media, is_sandboxed) in
        [("text/html", true), ("image/svg+xml", true), ("application/xml", true), ("text/plain", false)]
    {
        let agent = Agent::with_steps(http_response(fields, media, "<html></html>")).await;
        let gate = replying_with(&agent).start().await;
        let response = gate.invoke("a", &json!({})).await;
        assert_eq!(response.status, 200);
        let of = |name: &str| -> Vec<String> {
            response.headers.iter().filter(|(field, _)| field == name).map(|(_, value)| value.clone()).collect()
        };
        assert_eq!(of("x-content-type-options"), ["nosniff"], "{media}");
        assert_eq!(of("content-security-policy").contains(&"sandbox".to_owned()), is_sandboxed, "{media}");
        assert_eq!(of("cache-control"), ["private, max-age=60"], "{media}");
        for name in [
            "service-worker-allowed",
            "set-cookie",
            "clear-site-data",
            "origin-trial",
            "strict-transport-security",
            "sec-session-registration",
            "permissions-policy",
            "attribution-reporting-register-source",
        ] {
            assert!(of(name).is_empty(), "{name}");
        }
        // Without a credential the answer belongs to no caller.
        let anonymous = send(gate.request("POST", "/agents/open/invoke").json(&json!({}))).await;
        assert_eq!(anonymous.header("cache-control"), Some("public, max-age=60"));
        assert_eq!(anonymous.header("x-content-type-options"), Some("nosniff"));
    }
}

#[tokio::test]
async fn r88_documents_pipelines_and_replayed_answers_are_not_guessed_and_not_shared() {
    let agent = Agent::with_steps(http_response("200 OK", "text/html", "<p>")).await;
    let gate = replying_with(&agent).start().await;
    for _ in 0..2 {
        let response = send(gate.post("/agents/a/invoke").header("idempotency-key", "k").json(&json!({}))).await;
        assert_eq!(response.header("content-security-policy"), Some("sandbox"));
        assert_eq!(response.header("cache-control"), Some("private"));
    }
    let pipeline = json!({"steps": [{"agent": "a"}], "input": {}});
    let response = send(gate.post("/pipelines/invoke").json(&pipeline)).await;
    assert_eq!((response.status, response.header("content-security-policy")), (200, Some("sandbox")));
    assert_eq!(response.header("cache-control"), Some("private"));
    for path in ["/agents", "/agents/a/agent.json"] {
        let response = send(gate.request("GET", path).header("x-api-key", gate.key("team-a"))).await;
        assert_eq!(response.header("x-content-type-options"), Some("nosniff"), "{path}");
    }
}

#[tokio::test]
async fn r49_get_is_turned_off_by_a_rule_and_an_agent_without_a_grant_stays_unknown() {
    let agent = Agent::echo().await;
    let agents = "agents:\n  sources: [agents.json]\n  rules:\n    - {agents: ['*'], get: false}\n    - {agents: [open], get: true}\n";
    let access = "access:\n  grants:\n    - {callers: ['key:team-a'], agents: [a]}\n    - {callers: [anonymous], agents: [open]}\n";
    let gate = gateway()
        .agent("a", &agent)
        .agent("b", &agent)
        .document(document_with(&agent, "open", &json!({"type": "none"})))
        .access(access)
        .section(agents);
    let gate = gate.start().await;
    let get = async |gate: &Gateway, id: &str| {
        send(gate.request("GET", &format!("/agents/{id}/invoke?x=1")).header("x-api-key", gate.key("team-a"))).await
    };
    let refused = get(&gate, "a").await;
    refused.expect_fault(405, "MethodNotAllowed");
    assert_eq!(refused.header("allow"), Some("POST"));
    get(&gate, "b").await.expect_fault(404, "NotFound");
    assert_eq!(agent.call_count(), 0);
    gate.invoke("a", &json!({})).await.expect_ok();
    assert_eq!(send(gate.request("GET", "/agents/open/invoke?x=1")).await.status, 200, "the later rule counts");
}

#[tokio::test]
async fn r88_requests_to_agents_on_this_machine_need_a_host_of_the_gateway_wherever_the_client_is() {
    let document = json!({
        "id": "local", "name": "local", "endpoint": "agent+unix:///run/none.sock#/", "authentication": {"type": "api_key"},
    });
    let proxied =
        "listeners:\n  - {address: 127.0.0.1:0, trusted_proxies: [127.0.0.1], client_address: x_forwarded_for}\n";
    let build = gateway().listeners(proxied).document(document);
    let gate = build.section("directory: {external_url: 'https://agents.example.com'}\n").start().await;
    for (headers, is_refused) in [
        (&[("host", "evil.example"), ("x-forwarded-for", "192.0.2.1")][..], true),
        (&[("host", "evil.example"), ("x-forwarded-for", "127.0.0.1")], true),
        (&[("host", "evil.example")], true),
        (&[("host", "evil.example"), ("x-forwarded-for", "192.0.2.1"), ("x-forwarded-proto", "http")], true),
        (&[("host", "agents.example.com"), ("x-forwarded-for", "192.0.2.1")], false),
        (&[("host", "10.0.0.7:8080"), ("x-forwarded-for", "192.0.2.1")], false),
        // The browser has compared the name with the certificate of the proxy.
        (&[("host", "any.example"), ("x-forwarded-for", "192.0.2.1"), ("x-forwarded-proto", "https")], false),
    ] {
        let response = send_with(gate.post("/agents/local/invoke").json(&json!({})), headers).await;
        assert_eq!(response.status == 403, is_refused, "{headers:?}: {}", response.text());
    }
}
