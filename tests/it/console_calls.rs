//! The console's pages of calls, explanations, sources and the configuration, and what an operator without the role, a
//! forged form and hostile text can do: nothing.

use crate::support::{
    agent::{Agent, changeable_agent, http_response, json_response},
    browser::{Browser, operators},
    eventually,
    gateway::{Gateway, GatewayBuilder, gateway, send},
};
use rustix::process::Signal;
use serde_json::{Value, json};

const EVIL: &str = "<script>alert('x')</script>";

/// A gateway with an operator of each role.
fn with_operators() -> GatewayBuilder {
    let roles = [
        "{role: admin, callers: ['key:alice']}",
        "{role: operator, callers: ['key:bob']}",
        "{role: viewer, callers: ['key:carol']}",
    ];
    let keys = gateway().caller("alice", &[]).caller("bob", &[]).caller("carol", &[]);
    keys.section(&operators(&roles)).section("audit:\n  file: audit.log\n")
}

/// Waits until a page has a text, and returns the page.
async fn page_with(browser: &mut Browser, path: &str, text: &str) -> String {
    let mut page = String::new();
    eventually("the page has the text", async || {
        page = browser.page(path).await;
        page.contains(text)
    })
    .await;
    page
}

async fn call(gate: &Gateway, path: &str, headers: &[(&str, &str)]) -> u16 {
    let mut request = gate.post(path).json(&json!({"text": "hello"}));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    send(request).await.status
}

#[tokio::test]
async fn a_call_is_listed_filtered_and_explained_by_its_id() {
    let echo = Agent::echo().await;
    let gate = with_operators().agent("echo", &echo).start().await;
    assert_eq!(call(&gate, "/agents/echo/invoke", &[("x-request-id", "first")]).await, 200);
    assert_eq!(call(&gate, "/agents/none/invoke", &[("x-request-id", "second")]).await, 404);
    let mut browser = Browser::logged_in(&gate, "carol").await;
    let list = page_with(&mut browser, "/console/calls", "/console/call?id=second").await;
    assert!(list.find("/console/call?id=second") < list.find("/console/call?id=first"), "the newest is first: {list}");
    for text in ["200 ok", "404 NotFound", "key:team-a", "data-refresh=\"2\"", "?live=off", "last 2 calls, since"] {
        assert!(list.contains(text), "{text}: {list}");
    }
    assert!(!list.contains("http-equiv"), "{list}");
    let paused = browser.page("/console/calls?live=off").await;
    assert!(!paused.contains("data-refresh"), "{paused}");
    let refused = browser.page("/console/calls?code=NotFound&blame=caller&caller=team-a").await;
    assert!(refused.contains("?id=second") && !refused.contains("?id=first"), "{refused}");
    let none = browser.page("/console/calls?agent=echo&code=NotFound").await;
    assert!(none.contains("None of these calls matches"), "{none}");

    let page = browser.page("/console/call?id=second").await;
    for text in ["Entry of the access log", "agent_lookup", "agents.sources", "Explain a call like this one"] {
        assert!(page.contains(text), "{text}: {page}");
    }
    let page = browser.page("/console/call?id=first").await;
    assert!(page.contains("/console/agents/echo\"") && page.contains("No refused or failed call"), "{page}");
    let missing = browser.get("/console/call?id=third").await;
    assert_eq!(missing.status, 404);
    assert!(missing.text().contains("No call with this id"), "{}", missing.text());
    let explained = browser.page("/console/explain?request=second").await;
    assert!(explained.contains("agent_lookup") && explained.contains("needs the role operator"), "{explained}");
}

#[tokio::test]
async fn several_calls_may_have_one_id() {
    let echo = Agent::echo().await;
    let gate = gateway().agent("echo", &echo).start().await;
    for agent in ["echo", "none", "echo"] {
        call(&gate, &format!("/agents/{agent}/invoke"), &[("x-request-id", "same")]).await;
    }
    let page = page_with(&mut Browser::new(&gate), "/console/call?id=same", "3 calls have this id").await;
    assert!(page.contains("404") && page.contains("agent_lookup"), "{page}");
}

#[tokio::test]
async fn texts_of_callers_and_agents_are_shown_and_are_no_part_of_the_page() {
    let failing = Agent::with_steps(http_response(
        "500 Internal Server Error",
        "application/json",
        &json!({"error": {"message": EVIL}}).to_string(),
    ))
    .await;
    let gate = gateway().agent("bad", &failing).start().await;
    call(&gate, "/agents/bad/invoke", &[("user-agent", EVIL), ("x-request-id", "evil")]).await;
    call(&gate, &format!("/agents/{EVIL}/invoke"), &[("x-request-id", "path")]).await;
    let mut browser = Browser::new(&gate);
    page_with(&mut browser, "/console/calls", "call?id=path").await;
    let query = "%3Cscript%3Ealert('x')%3C/script%3E";
    for path in [
        "/console/calls".to_owned(),
        "/console/call?id=evil".to_owned(),
        "/console/call?id=path".to_owned(),
        format!("/console/calls?agent={query}&caller={query}&code={query}&live={query}"),
        format!("/console/explain?request={query}&path={query}&method={query}&as={query}"),
        format!("/console/configuration?q={query}&from={query}"),
        format!("/console/sources?done={query}"),
    ] {
        let page = browser.page(&path).await;
        assert!(!page.contains("<script>") && !page.contains("done=%3C"), "{path}: {page}");
    }
    let page = browser.page("/console/call?id=evil").await;
    assert!(page.contains("&lt;script&gt;"), "{page}");
    let missing = browser.get(&format!("/console/call?id={query}")).await;
    assert!(missing.status == 404 && !missing.text().contains("<script>"), "{}", missing.text());
}

#[tokio::test]
async fn pseudonyms_stay_pseudonyms() {
    let echo = Agent::echo().await;
    let section = "access_log:\n  output: access.log\n  callers: pseudonym\n";
    let gate = gateway().agent("echo", &echo).section(section).start().await;
    call(&gate, "/agents/none/invoke", &[("x-request-id", "refused")]).await;
    let logged = gate.access_log(1).await[0]["caller"].as_str().unwrap().to_owned();
    let mut browser = Browser::new(&gate);
    let list = page_with(&mut browser, "/console/calls", "call?id=refused").await;
    let page = browser.page("/console/call?id=refused").await;
    for page in [list, page] {
        assert!(page.contains(&logged) && !page.contains("team-a"), "{page}");
    }
}

#[tokio::test]
async fn without_an_access_log_the_page_names_the_setting() {
    let echo = Agent::echo().await;
    let gate = gateway().agent("echo", &echo).section("access_log:\n  output: \"off\"\n").start().await;
    assert_eq!(call(&gate, "/agents/echo/invoke", &[]).await, 200);
    let page = Browser::new(&gate).page("/console/calls").await;
    assert!(page.contains("access_log.output") && page.contains("No calls are kept"), "{page}");
}

#[tokio::test]
async fn a_dry_run_shows_its_steps_and_needs_the_role() {
    let echo = Agent::echo().await;
    let gate = with_operators().agent("echo", &echo).start().await;
    let mut browser = Browser::logged_in(&gate, "bob").await;
    browser.page("/console/explain").await;
    let run = [
        ("method", "POST"),
        ("path", "/agents/echo/invoke"),
        ("as", "key:team-a"),
        ("headers", "Accept: application/json\r\nX-Note: <script>"),
        ("body", "{}"),
    ];
    let explained = browser.post("/console/explain", &run).await;
    let page = explained.text();
    assert_eq!(explained.status, 200, "{page}");
    for text in ["would be admitted", "rate_limits", "passed", "Endpoint", "What would be sent", "&lt;script&gt;"] {
        assert!(page.contains(text), "{text}: {page}");
    }
    assert!(!page.contains("<script>"), "{page}");
    let unknown = [("method", "POST"), ("path", "/agents/none/invoke"), ("as", "anonymous")];
    let refused = browser.post("/console/explain", &unknown).await;
    assert!(refused.status == 200 && refused.text().contains("would be refused"), "{}", refused.text());

    let secret =
        [("method", "POST"), ("path", "/agents/echo/invoke"), ("headers", "Authorization Bearer abcdef1234567")];
    for (form, why) in [
        (&secret[..], "no colon"),
        (&[("method", "POST"), ("path", "nowhere")], "path: must begin"),
        (&[("method", "POST"), ("path", "/"), ("as", "key:nobody")], "there is no API key"),
    ] {
        let failed = browser.post("/console/explain", form).await;
        assert!(failed.status == 400 && failed.text().contains(why), "{why}: {} {}", failed.status, failed.text());
        assert!(!failed.text().contains("abcdef1234567"), "{}", failed.text());
    }
    let with_key = format!("X-API-Key: {}", gate.key("team-a"));
    let own = [("method", "POST"), ("path", "/agents/echo/invoke"), ("headers", &*with_key)];
    let page = browser.post("/console/explain", &own).await.text();
    assert!(page.contains("key:team-a") && !page.contains(gate.key("team-a")), "{page}");

    let mut viewer = Browser::logged_in(&gate, "carol").await;
    let page = viewer.page("/console/explain").await;
    assert!(!page.contains("name=\"body\"") && page.contains("needs the role operator"), "{page}");
    assert_eq!(viewer.post("/console/explain", &run).await.status, 403);
    assert_eq!(gate.access_log(0).await.len(), 0, "a dry run is no call");
}

#[tokio::test]
async fn sources_are_polled_and_losses_accepted_by_operators_and_the_audit_log_names_them() {
    let echo = Agent::echo().await;
    let documents = |count: usize| -> Vec<_> { (0..count).map(|at| echo.document(&format!("far-{at}"))).collect() };
    let (registry, response) = changeable_agent(json_response(&json!(documents(12)))).await;
    let agents = format!(
        "agents:\n  sources:\n    - agents.json\n    - {{kind: aidip, name: reg, url: '{}', poll_interval: 1h, endpoints: ['http://127.0.0.1:*']}}\n",
        registry.url()
    );
    let gate = with_operators().section(&agents).start().await;
    let mut browser = Browser::logged_in(&gate, "bob").await;
    let page = page_with(&mut browser, "/console/sources", "reg").await;
    assert!(page.contains("Poll now") && !page.contains("Accept the loss"), "{page}");
    let nothing = browser.get("/console/sources/confirm?source=reg").await;
    assert_eq!((nothing.status, nothing.header("location")), (303, Some("/console/sources?done=nothing")));

    *response.lock().unwrap() = json_response(&json!([]));
    let polled = browser.post("/console/sources/refresh", &[("source", "reg")]).await;
    assert_eq!((polled.status, polled.header("location")), (303, Some("/console/sources?done=refreshed")));
    assert!(browser.page("/console/sources?done=refreshed").await.contains("The poll has started"));
    let page = page_with(&mut browser, "/console/sources", "Accept the loss of 12 agents").await;
    assert!(page.contains("loss held back"), "{page}");

    let mut viewer = Browser::logged_in(&gate, "carol").await;
    let page = viewer.page("/console/sources").await;
    assert!(!page.contains("Poll now") && page.contains("loss held back"), "{page}");
    assert_eq!(viewer.get("/console/sources/confirm?source=reg").await.status, 403);
    let form = [("source", "reg"), ("agents", "12")];
    for path in ["/console/sources/refresh", "/console/sources/confirm"] {
        assert_eq!(viewer.post(path, &form).await.status, 403, "{path}");
        let without_token = send(browser.request("POST", path).form(&form)).await;
        assert_eq!(without_token.status, 403, "{path}");
        let elsewhere = browser.request("POST", path).header("origin", "https://evil.example").form(&form);
        assert_eq!(send(elsewhere).await.status, 403, "{path}");
        for forged in ["other", "", "../reg", EVIL] {
            let refused = browser.post(path, &[("source", forged), ("agents", "12")]).await;
            assert_eq!(refused.status, 404, "{path} {forged}");
            assert!(!refused.text().contains("<script>"), "{}", refused.text());
        }
    }
    assert_eq!(browser.get("/console/sources/confirm?source=other").await.status, 404);
    let confirm = browser.page("/console/sources/confirm?source=reg").await;
    assert!(confirm.contains("What will happen") && confirm.contains("no longer has 12"), "{confirm}");
    let other_number = browser.post("/console/sources/confirm", &[("source", "reg"), ("agents", "3")]).await;
    assert_eq!(other_number.header("location"), Some("/console/sources?done=changed"));
    assert!(gate.admin_page("/healthz").await.status == 200);
    let confirmed = browser.post("/console/sources/confirm", &form).await;
    assert_eq!((confirmed.status, confirmed.header("location")), (303, Some("/console/sources?done=confirmed")));
    page_with(&mut browser, "/console/sources", "reg").await;
    assert_eq!(call(&gate, "/agents/far-0/invoke", &[]).await, 404);
    let again = browser.post("/console/sources/confirm", &form).await;
    assert_eq!(again.header("location"), Some("/console/sources?done=nothing"));

    // Refusals are written with the next change, or a second later.
    eventually("the last refusal is recorded", async || {
        let last = gate.read_file("audit.log").lines().last().map(str::to_owned).unwrap();
        last.contains("source_loss_confirmed") && last.contains("refused")
    })
    .await;
    let log = gate.read_file("audit.log");
    let entries = |action: &str, outcome: &str| -> Vec<Value> {
        let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let is_entry =
            |line: &Value| line["action"] == action && line["outcome"] == outcome && line["subject"] == "reg";
        lines.filter(is_entry).collect()
    };
    for action in ["source_refreshed", "source_loss_confirmed"] {
        let done = entries(action, "done");
        assert_eq!(done.len(), 1, "{log}");
        assert_eq!((&done[0]["actor"], &done[0]["address"]), (&json!("key:bob"), &json!("127.0.0.1")), "{log}");
    }
    assert_eq!(entries("source_loss_confirmed", "refused").len(), 2, "{log}");
    assert!(!log.contains("key:carol\",\"action\":\"source"), "{log}");
}

#[tokio::test]
async fn the_configuration_page_says_what_is_in_force_and_why_a_change_is_not() {
    let echo = Agent::echo().await;
    let hash = "0123456789abcdef".repeat(4);
    let key = format!("    keys:\n      - {{prefix: 0123456789ab, hash: '{hash}', caller: team-b}}\n");
    let gate = gateway().agent("echo", &echo).section(&key).section("explain: {recent_decisions: 77}\n").start().await;
    let mut browser = Browser::new(&gate);
    let page = browser.page("/console/configuration").await;
    for text in ["gatepost.yaml", "explain.recent_decisions", "77", "1000", "team-b", "SHA-256", "nothing"] {
        assert!(page.contains(text), "{text}: {page}");
    }
    assert!(!page.contains(&hash), "{page}");
    let filtered = browser.page("/console/configuration?q=RECENT").await;
    assert!(filtered.contains("1 setting of") && !filtered.contains("listeners[0].address"), "{filtered}");
    let none = browser.page("/console/configuration?q=nowhere").await;
    assert!(none.contains("has this text in its path"), "{none}");

    let config = gate.read_file("gatepost.yaml");
    gate.write_file("gatepost.yaml", &format!("{config}surprise: 1\n"));
    gate.send_signal(Signal::HUP);
    let rejected = page_with(&mut browser, "/console/configuration", "surprise").await;
    assert!(rejected.contains("was rejected"), "{rejected}");
    gate.write_file("gatepost.yaml", &format!("{config}shutdown: {{drain_timeout: 3s}}\n"));
    gate.send_signal(Signal::HUP);
    let waiting = page_with(&mut browser, "/console/configuration", "at the next start: shutdown").await;
    assert!(waiting.contains("shutdown.drain_timeout") && !waiting.contains("was rejected"), "{waiting}");
}
