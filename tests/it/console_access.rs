//! Who may use the console and the admin listener: operators with roles, their sessions, and what a page of another site,
//! a rebound host name, a stolen cookie and an operator without the role can do: nothing.

use crate::support::{
    agent::{Agent, Step, http_response, write},
    browser::{Browser, operators},
    closed_port::ClosedPort,
    eventually,
    gateway::{Gateway, GatewayBuilder, gatepost_command, gateway, send},
    issuer::TokenIssuer,
};
use serde_json::json;

/// A gateway with an operator of each role, and `dora`, who has none.
fn with_operators() -> GatewayBuilder {
    let roles = [
        "{role: admin, callers: ['key:alice']}",
        "{role: operator, groups: [sre]}",
        "{role: viewer, callers: ['key:carol']}",
    ];
    let keys = gateway().caller("alice", &[]).caller("bob", &["--group", "sre"]).caller("carol", &[]);
    keys.caller("dora", &[]).section(&operators(&roles)).section("audit:\n  file: audit.log\n")
}

async fn started() -> Gateway {
    with_operators().agent("echo", &Agent::echo().await).start().await
}

fn input() -> [(&'static str, &'static str); 1] {
    [("json", r#"{"text": "hello"}"#)]
}

#[tokio::test]
async fn on_loopback_the_console_is_open_and_read_only() {
    let gate = gateway().agent("echo", &Agent::echo().await).start().await;
    let mut browser = Browser::new(&gate);
    let page = browser.page("/console").await;
    assert!(page.contains("Role: viewer") && !page.contains("Log out"), "{page}");
    browser.page("/console/agents/echo/try").await;
    let refused = browser.post("/console/agents/echo/try", &input()).await;
    assert_eq!(refused.status, 403);
    assert!(refused.text().contains("needs the role operator"), "{}", refused.text());
    assert_eq!(browser.get("/").await.header("location"), Some("/console"));
}

#[tokio::test]
async fn the_console_can_be_turned_off_and_its_role_on_loopback_be_set() {
    let off = "admin:\n  address: 127.0.0.1:0\n  console: {enabled: false}\n";
    let gate = gateway().section(off).section("agents: {sources: [agents.json]}\n").start().await;
    assert_eq!(gate.admin_page("/console").await.status, 404);
    let echo = Agent::echo().await;
    let own = "admin:\n  address: 127.0.0.1:0\n  console: {role_on_loopback: operator}\n";
    let open = "access:\n  grants:\n    - {callers: ['*', anonymous], agents: ['*']}\n";
    let mut document = echo.document("echo");
    document["authentication"] = json!({"type": "none"});
    let gate = gateway().document(document).access(open).section(own).start().await;
    let mut browser = Browser::new(&gate);
    browser.page("/console/agents/echo/try").await;
    let answer = browser.post("/console/agents/echo/try", &input()).await;
    assert!(answer.text().contains("hello"), "{}", answer.text());
    assert_eq!(gate.access_log(1).await[0]["credential"], "anonymous");
}

#[tokio::test]
async fn with_operators_pages_lead_to_the_login_and_the_interface_requires_a_credential() {
    let gate = started().await;
    let mut browser = Browser::new(&gate);
    let redirected = browser.get("/console/agents?q=a").await;
    assert_eq!(redirected.status, 303);
    assert_eq!(redirected.header("location"), Some("/console/login?next=%2Fconsole%2Fagents%3Fq%3Da"));
    for path in ["/agents", "/sources", "/explain/x"] {
        let refused = gate.admin_page(path).await;
        assert_eq!(refused.status, 401, "{path}");
        assert!(refused.header("www-authenticate").is_some(), "{path}: {:?}", refused.headers);
    }
    for path in ["/metrics", "/healthz", "/readyz"] {
        assert_eq!(gate.admin_page(path).await.status, 200, "{path}");
    }
    let with_key = |caller: &str, method: &str, path: &str| {
        send(Browser::new(&gate).request(method, path).header("x-api-key", gate.key(caller)))
    };
    for (caller, method, path, status) in [
        ("carol", "GET", "/agents", 200),
        ("carol", "POST", "/sources/agents.json/refresh", 403),
        // The role suffices; a file is no source that can be refreshed.
        ("bob", "POST", "/sources/agents.json/refresh", 404),
        ("dora", "GET", "/agents", 403),
        ("team-a", "GET", "/sources", 403),
    ] {
        assert_eq!(with_key(caller, method, path).await.status, status, "{caller} {method} {path}");
    }
    eventually("the refusal is recorded", async || {
        gate.read_file("audit.log").contains(r#""actor":"key:bob","action":"source_refreshed""#)
    })
    .await;
}

#[tokio::test]
async fn gatepost_explain_asks_with_the_key_of_an_operator() {
    let gate = started().await;
    let explain = async |caller: &str, key: Option<&str>| {
        let mut command = gatepost_command();
        command.args(["explain", "--as", "key:team-a", "POST", "/agents/echo/invoke", "-d", "{}"]);
        command.args(["--url", &format!("http://{}", gate.admin_address)]).env("OPERATOR_KEY", gate.key(caller));
        command.args(key.iter().flat_map(|key| ["--operator-key", key]));
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        (output.status.code(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    };
    let (status, text) = explain("bob", Some("env:OPERATOR_KEY")).await;
    assert!(status == Some(0) && text.contains("admitted"), "{status:?} {text}");
    for (caller, key, reason) in [
        ("bob", None, "status 401"),
        ("carol", Some("env:OPERATOR_KEY"), "needs the role operator"),
        ("bob", Some("env:NO_SUCH_VARIABLE"), "NO_SUCH_VARIABLE is not set"),
    ] {
        let (status, text) = explain(caller, key).await;
        assert!(status == Some(2) && text.contains(reason) && !text.contains("gp_"), "{status:?} {text}");
    }
}

#[tokio::test]
async fn a_login_needs_the_key_of_an_operator() {
    let gate = started().await;
    let mut browser = Browser::new(&gate);
    for (key, status, text) in
        [("gp_nothing", 401, "not valid"), ("", 401, "not valid"), (gate.key("dora"), 403, "has no role")]
    {
        let refused = browser.log_in(key).await;
        assert_eq!(refused.status, status, "{}", refused.text());
        assert!(refused.text().contains(text) && !refused.text().contains("gp_"), "{}", refused.text());
        assert!(refused.header("set-cookie").is_none());
    }
    assert_eq!(browser.log_in(gate.key("alice")).await.status, 303);
    assert!(browser.page("/console").await.contains("key:alice"));
    eventually("logins are in the audit log", async || {
        let log = gate.read_file("audit.log");
        let refused = log.lines().filter(|line| line.contains("operator_logged_in") && line.contains("refused"));
        refused.count() == 3 && log.contains(r#""actor":"key:alice","action":"operator_logged_in""#)
    })
    .await;
    assert!(!gate.read_file("audit.log").contains("gp_") && !gate.stderr().contains("gp_"));
}

#[tokio::test]
async fn a_login_leads_back_to_pages_of_the_console_only() {
    let gate = started().await;
    for (next, location) in [
        ("/console/agents?q=a", "/console/agents?q=a"),
        ("/console/../agents", "/console"),
        ("https://evil.example/console/", "/console"),
        ("//evil.example/console/", "/console"),
        ("/consoles", "/console"),
        ("/console\r\nx: y", "/console"),
    ] {
        let form = [("key", gate.key("alice")), ("next", next)];
        let response = send(Browser::new(&gate).request("POST", "/console/login").form(&form)).await;
        assert_eq!(response.header("location"), Some(location), "{next:?}");
    }
}

#[tokio::test]
async fn a_session_is_a_cookie_that_scripts_and_other_sites_do_not_get() {
    let gate = started().await;
    let mut browser = Browser::new(&gate);
    let response = browser.log_in(gate.key("alice")).await;
    let cookie = response.header("set-cookie").unwrap();
    assert!(cookie.contains("; HttpOnly") && cookie.contains("; SameSite=Strict") && cookie.contains("; Path=/"));
    let tls = operators(&["{role: admin, callers: ['key:alice']}"]) + "    url: https://admin.example\n";
    let tls = tls + "  allowed_hosts: [admin.example]\n";
    let gate = gateway().caller("alice", &[]).section(&tls).section("agents: {sources: [agents.json]}\n").start().await;
    let response = Browser::new(&gate).log_in(gate.key("alice")).await;
    let cookie = response.header("set-cookie").unwrap();
    assert!(cookie.starts_with("__Host-") && cookie.contains("; Secure"), "{cookie}");
}

#[tokio::test]
async fn a_page_of_another_site_can_do_nothing() {
    let gate = started().await;
    let mut alice = Browser::logged_in(&gate, "alice").await;
    alice.page("/console/agents/echo/try").await;
    let form = [("json", "{}"), ("csrf", alice.token())];
    for (name, value) in [
        ("origin", "https://evil.example"),
        ("origin", "null"),
        ("origin", "http://127.0.0.1"),
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
    ] {
        let request = alice.request("POST", "/console/agents/echo/try").header(name, value).form(&form);
        assert_eq!(send(request).await.status, 403, "{name}: {value}");
        let logout = alice.request("POST", "/console/logout").header(name, value).form(&form);
        assert_eq!(send(logout).await.status, 403, "{name}: {value}");
        let login = Browser::new(&gate).request("POST", "/console/login").header(name, value);
        assert_eq!(send(login.form(&[("key", gate.key("alice"))])).await.status, 403, "{name}: {value}");
    }
    let page = alice.get("/console").await;
    assert_eq!(page.status, 200, "the session goes on");
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.contains("frame-ancestors 'none'") && policy.contains("default-src 'none'"), "{policy}");
    assert_eq!(page.header("cross-origin-resource-policy"), Some("same-origin"));
    assert!(page.headers.iter().all(|(name, _)| !name.starts_with("access-control")), "{:?}", page.headers);
    let refresh = alice.request("POST", "/sources/agents.json/refresh").header("origin", "https://evil.example");
    assert_eq!(send(refresh).await.status, 403);
}

#[tokio::test]
async fn a_form_without_the_token_of_its_session_does_nothing() {
    let gate = started().await;
    let mut alice = Browser::logged_in(&gate, "alice").await;
    let mut bob = Browser::logged_in(&gate, "bob").await;
    alice.page("/console").await;
    bob.page("/console").await;
    assert_ne!(alice.token(), bob.token());
    for token in ["", "x", bob.token()] {
        let form = [("json", "{}"), ("csrf", token)];
        let refused = send(alice.request("POST", "/console/agents/echo/try").form(&form)).await;
        assert_eq!(refused.status, 403, "{token}");
        assert!(refused.text().contains("no valid token"), "{}", refused.text());
    }
    let as_json = alice.request("POST", "/console/agents/echo/try").header("content-type", "text/plain");
    assert_eq!(send(as_json.body(format!("csrf={}", alice.token()))).await.status, 403);
}

#[tokio::test]
async fn a_rebound_host_name_reads_nothing() {
    let gate = started().await;
    let alice = Browser::logged_in(&gate, "alice").await;
    for path in ["/console", "/console/login", "/console/assets/x", "/agents", "/"] {
        let rebound = alice.request("GET", path).header("host", "evil.example");
        let response = send(rebound).await;
        assert_eq!(response.status, 403, "{path}");
        assert!(!response.text().contains("alice"), "{path}");
    }
}

#[tokio::test]
async fn a_stolen_cookie_ends_the_session() {
    for (user_agent, from) in [("Other/1.0", None), ("Test/1.0", Some("127.0.0.2".parse().unwrap()))] {
        let gate = started().await;
        let mut alice = Browser::logged_in(&gate, "alice").await;
        let mut thief = Browser::with_identity(&gate, user_agent, from);
        thief.set_cookie(&alice.cookie());
        assert_eq!(thief.get("/console").await.status, 303, "{user_agent} {from:?}");
        assert_eq!(alice.get("/console").await.status, 303, "the session ended for everybody");
        eventually("the theft is in the audit log", async || {
            let log = gate.read_file("audit.log");
            log.lines()
                .any(|line| line.contains("session_ended") && line.contains("key:alice") && line.contains("refused"))
        })
        .await;
    }
}

#[tokio::test]
async fn a_session_ends_with_its_key_its_role_or_the_logout() {
    let gate = started().await;
    let mut alice = Browser::logged_in(&gate, "alice").await;
    let mut bob = Browser::logged_in(&gate, "bob").await;
    let mut carol = Browser::logged_in(&gate, "carol").await;
    carol.page("/console").await;
    assert_eq!(carol.post("/console/logout", &[]).await.header("location"), Some("/console/login"));
    assert_eq!(carol.get("/console").await.status, 303);
    let keys = gate.read_file("keys.jsonl");
    let without_alice: String =
        keys.lines().filter(|line| !line.contains("alice")).map(|line| format!("{line}\n")).collect();
    gate.write_file("keys.jsonl", &without_alice);
    eventually("the session of a removed key ends", async || alice.get("/console").await.status == 303).await;
    let config = gate.read_file("gatepost.yaml").replace("groups: [sre]", "groups: [nobody]");
    gate.write_file("gatepost.yaml", &config);
    eventually("an operator without a role is refused", async || bob.get("/console").await.status == 403).await;
}

#[tokio::test]
async fn a_secret_of_the_login_that_cannot_be_loaded_keeps_the_configuration() {
    let gate = started().await;
    let broken = gate.read_file("gatepost.yaml").replace(
        "  access:\n    roles:\n",
        "  access:\n    url: http://127.0.0.1:1\n    login: {issuer: 'http://127.0.0.1:1', client_id: x, client_secret: 'env:GATEPOST_NO_SUCH_SECRET'}\n    roles:\n",
    );
    gate.write_file("gatepost.yaml", &broken);
    eventually("the configuration is refused", async || gate.admin_page("/readyz").await.text().contains("rejected"))
        .await;
    let mut alice = Browser::logged_in(&gate, "alice").await;
    alice.page("/console").await;
    assert!(alice.get("/readyz").await.text().contains("admin.access.login"));
}

#[tokio::test]
async fn readyz_shows_codes_to_those_without_a_role_and_details_to_operators() {
    let source = ClosedPort::new();
    let url = format!("http://{}/internal-registry", source.address);
    let sources = format!("agents:\n  sources:\n    - agents.json\n    - {{kind: aidip, url: '{url}', name: hr}}\n");
    let gate = with_operators().section(&sources).start().await;
    gate.write_file("agents.json", r#"[{"id": "bad id"}]"#);
    let config = gate.read_file("gatepost.yaml");
    gate.write_file("gatepost.yaml", &format!("{config}limits: {{per_caller: hunter2}}\n"));
    let with_key = async |key: &str| {
        let request = Browser::new(&gate).request("GET", "/readyz").header("x-api-key", key);
        send(request).await
    };
    eventually("the configuration is refused", async || {
        let text = with_key(gate.key("carol")).await.text();
        text.contains("hunter2") && text.contains("internal-registry") && text.contains("\"rejected\":1")
    })
    .await;
    let codes = json!({
        "ready": false,
        "reasons": ["sources_not_read"],
        "warnings": ["config_rejected", "documents_rejected"],
    });
    let anonymous = gate.admin_page("/readyz").await;
    assert_eq!((anonymous.status, anonymous.json()), (503, codes.clone()));
    let mut with_ended_session = Browser::new(&gate);
    with_ended_session.set_cookie("gatepost_console=ended");
    assert_eq!(with_ended_session.get("/readyz").await.json(), codes);
    for key in [gate.key("dora"), gate.key("team-a"), "gp_nothing", ""] {
        let response = with_key(key).await;
        assert_eq!((response.status, response.json()), (503, codes.clone()), "{key}");
    }
    let mut bob = Browser::logged_in(&gate, "bob").await;
    assert!(bob.get("/readyz").await.text().contains("source hr was not read yet"));
}

#[tokio::test]
async fn refused_logins_without_end_take_neither_threads_nor_the_disk_of_the_audit_log() {
    let gate = started().await;
    let status_of_process = || std::fs::read_to_string(format!("/proc/{}/status", gate.child.id())).unwrap();
    let threads = || {
        let status = status_of_process();
        let line = status.lines().find_map(|line| line.strip_prefix("Threads:")).unwrap();
        line.trim().parse::<usize>().unwrap()
    };
    let (threads_before, memory_before) = (threads(), gate.peak_memory());
    let lines_before = gate.read_file("audit.log").lines().count();
    // Nobody can write the log meanwhile: what waits for it would stay.
    let head = std::fs::File::open(gate.folder().join("audit.log.head")).unwrap();
    head.lock_shared().unwrap();
    let clients = (0..20).map(|_| {
        let browser = Browser::new(&gate);
        async move {
            for _ in 0..100 {
                let request = browser.request("POST", "/console/login").form(&[("key", "gp_nothing")]);
                assert_eq!(send(request).await.status, 401);
            }
        }
    });
    futures_util::future::join_all(clients).await;
    let (threads_after, memory_after) = (threads(), gate.peak_memory());
    assert!(threads_after < threads_before + 20, "{threads_before} threads before, {threads_after} after");
    assert!(memory_after < memory_before + 50, "{memory_before} MiB before, {memory_after} MiB after");
    drop(head);
    eventually("refusals are recorded", async || gate.read_file("audit.log").lines().count() > lines_before).await;
    let omitted = gate.metric("gatepost_audit_entries_total{result=\"omitted\"}").await.unwrap();
    assert!(omitted > 1_500.0, "{omitted}");
    let text = gate.read_file("audit.log");
    assert!(text.lines().count() < lines_before + 500 && text.len() < 200 << 10, "{} bytes", text.len());
    Browser::logged_in(&gate, "alice").await;
    eventually("a login is recorded", async || gate.read_file("audit.log").contains(r#""actor":"key:alice""#)).await;
}

#[tokio::test]
async fn an_operator_calls_an_agent_as_itself() {
    let echo = Agent::echo().await;
    let grants = "access:\n  grants:\n    - {callers: ['key:alice', 'key:carol'], agents: [echo]}\n";
    let gate = with_operators().agent("echo", &echo).access(grants).start().await;
    let mut alice = Browser::logged_in(&gate, "alice").await;
    alice.page("/console/agents/echo/try").await;
    let answer = alice.post("/console/agents/echo/try", &input()).await;
    assert!(answer.text().contains("hello") && answer.text().contains("Complete after"), "{}", answer.text());
    let entry = &gate.access_log(1).await[0];
    assert_eq!(
        (&entry["caller"], &entry["agent"], &entry["status"]),
        (&json!("key:alice"), &json!("echo"), &json!(200))
    );
    assert!(echo.requests()[0].header("x-api-key").is_none(), "the operator's key stays at the gateway");
    // No grant of their own: the role of an operator is not a grant.
    let mut bob = Browser::logged_in(&gate, "bob").await;
    bob.page("/console/agents/echo/try").await;
    let refused = bob.post("/console/agents/echo/try", &input()).await;
    assert!(refused.text().contains("404 <strong>") || refused.text().contains("NotFound"), "{}", refused.text());
    let mut carol = Browser::logged_in(&gate, "carol").await;
    carol.page("/console/agents/echo/try").await;
    assert_eq!(carol.post("/console/agents/echo/try", &input()).await.status, 403);
    assert_eq!(echo.call_count(), 1);
    assert_eq!(alice.get("/console/agents/no-such/try").await.status, 404);
}

#[tokio::test]
async fn what_an_agent_answers_is_text_on_the_page() {
    let hostile =
        Agent::with_steps(http_response("200 OK", "text/event-stream", "data: </pre><script>alert(1)</script>\n\n"));
    let hostile = hostile.await;
    let gate = with_operators().agent("echo", &hostile).start().await;
    let mut alice = Browser::logged_in(&gate, "alice").await;
    alice.page("/console/agents/echo/try").await;
    let page = alice.post("/console/agents/echo/try", &input()).await.text();
    assert!(page.contains("&lt;/pre&gt;&lt;script&gt;alert(1)") && !page.contains("<script>alert"), "{page}");
}

#[tokio::test]
async fn an_input_that_is_no_json_stays_in_the_form() {
    let echo = Agent::echo().await;
    let gate = with_operators().agent("echo", &echo).start().await;
    let mut alice = Browser::logged_in(&gate, "alice").await;
    alice.page("/console/agents/echo/try").await;
    let page = alice.post("/console/agents/echo/try", &[("json", "{\"a\": </textarea>")]).await.text();
    assert!(page.contains("The input is not JSON") && page.contains("{&quot;a&quot;: &lt;/textarea&gt;"), "{page}");
    let too_long = "9".repeat(5 << 20);
    assert_eq!(alice.post("/console/agents/echo/try", &[("json", &too_long)]).await.status, 413);
    assert_eq!(echo.call_count(), 0);
}

#[tokio::test]
async fn a_browser_that_leaves_ends_its_call() {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: one\n\n";
    let agents = [Agent::with_steps(vec![write(head), Step::Hang]).await, Agent::with_steps(vec![Step::Hang]).await];
    let gate = with_operators().agent("streams", &agents[0]).agent("waits", &agents[1]).start().await;
    let mut alice = Browser::logged_in(&gate, "alice").await;
    for (agent, server) in ["streams", "waits"].iter().zip(&agents) {
        let path = format!("/console/agents/{agent}/try");
        alice.page(&path).await;
        let form = [("json", "{}"), ("csrf", alice.token())];
        let visit = tokio::spawn(alice.request("POST", &path).form(&form).send());
        eventually("the agent is called", async || server.call_count() == 1).await;
        visit.abort();
        drop(visit.await);
        eventually("the call ends", async || gate.metric("gatepost_calls_in_flight").await == Some(0.0)).await;
    }
    let log = gate.access_log(2).await;
    assert!(log.iter().all(|entry| entry["code"] == "aborted" && entry["blame"] != "agent"), "{log:?}");
}

#[tokio::test]
async fn an_answer_that_would_be_huge_with_line_breaks_is_shown_as_it_is() {
    let nested = format!("{}{}1{}", "[".repeat(100), "1,".repeat(100_000), "]".repeat(100));
    let deep = Agent::with_steps(http_response("200 OK", "application/json", &nested)).await;
    let gate = with_operators().agent("echo", &deep).start().await;
    let mut alice = Browser::logged_in(&gate, "alice").await;
    alice.page("/console/agents/echo/try").await;
    let page = alice.post("/console/agents/echo/try", &input()).await.text();
    assert!(page.contains("Complete after") && page.len() < 400_000, "{} bytes", page.len());
}

#[tokio::test]
async fn an_issuer_that_is_down_ends_no_session() {
    let issuer = TokenIssuer::start().await;
    let roles = operators(&["{role: admin, callers: ['oauth:app-1*']}"]);
    let gate = gateway().section(&issuer.section()).section(&roles).start().await;
    let token = format!("Bearer {}", issuer.token(&json!({})));
    let page = |path: &str| send(Browser::new(&gate).request("GET", path).header("authorization", token.clone()));
    assert_eq!(page("/console").await.status, 200);
    let unreachable = TokenIssuer::unreachable();
    let gate = gateway().section(&unreachable.section()).section(&roles).start().await;
    let token = format!("Bearer {}", unreachable.token(&json!({})));
    let page = send(Browser::new(&gate).request("GET", "/console").header("authorization", token)).await;
    assert_eq!(page.status, 503, "neither the login nor a refusal: {}", page.text());
}
