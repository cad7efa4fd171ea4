//! The console's pages of callers and keys: what each role may do, what a page says of a change that is not possible, and
//! that nothing but the response to a form has a new key.

use crate::support::{
    agent::Agent,
    eventually,
    gateway::{Gateway, GatewayBuilder, gateway, send},
    gateway_response::GatewayResponse,
};
use serde_json::{Value, json};

const ROLES: &str = r#"[{"role": "viewer", "callers": ["key:vera"]}, {"role": "operator", "callers": ["key:olga"]},
    {"role": "admin", "callers": ["key:ada"]}]"#;

/// A gateway whose console has an admin, an operator and a viewer.
pub fn console() -> GatewayBuilder {
    gateway()
        .env("GATEPOST__ADMIN__ACCESS__ROLES", ROLES)
        .section("audit: {file: audit.log}\n")
        .section("limits: {tiers: {gold: {per_caller: 100/s}}}\n")
        .caller("ada", &[])
        .caller("olga", &[])
        .caller("vera", &[])
}

/// Sends a request to a page with the key of an operator.
pub async fn page_as(gate: &Gateway, operator: &str, path: &str) -> GatewayResponse {
    send(request(gate, "GET", path).header("x-api-key", gate.key(operator))).await
}

/// Sends a form with the key of an operator.
pub async fn send_form(gate: &Gateway, operator: &str, path: &str, fields: &[(&str, &str)]) -> GatewayResponse {
    send(request(gate, "POST", path).header("x-api-key", gate.key(operator)).form(fields)).await
}

fn request(gate: &Gateway, method: &str, path: &str) -> reqwest::RequestBuilder {
    let client = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    client.request(method.parse().unwrap(), format!("http://{}{path}", gate.admin_address))
}

fn prefix(key: &str) -> &str {
    key.split('_').nth(1).unwrap()
}

/// The new key in a page.
fn key_in(page: &str) -> String {
    let from = page.find("gp_").unwrap_or_else(|| panic!("no key in {page}"));
    page[from..].chars().take_while(|letter| letter.is_ascii_alphanumeric() || *letter == '_').collect()
}

fn audit_entries(gate: &Gateway, action: &str) -> Vec<Value> {
    let log = gate.read_file("audit.log");
    let entries = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    entries.filter(|entry| entry["action"] == action).collect()
}

async fn is_accepted(gate: &Gateway, key: &str) -> bool {
    let call = gate.request("POST", "/agents/echo/invoke").header("x-api-key", key).json(&json!({}));
    send(call).await.status == 200
}

const NEW_KEY: &[(&str, &str)] =
    &[("caller", "team-b"), ("groups", "one\n two\n\n"), ("tier", "gold"), ("expires_in", "30d")];

#[tokio::test]
async fn an_admin_creates_rotates_and_disables_a_key_whose_secret_is_in_one_response_only() {
    let echo = Agent::echo().await;
    let gate = console().agent("echo", &echo).start().await;
    let created = send_form(&gate, "ada", "/console/keys/new", NEW_KEY).await;
    assert_eq!((created.status, created.header("cache-control")), (200, Some("no-store")), "{}", created.text());
    let key = key_in(&created.text());
    eventually("the key is accepted", async || is_accepted(&gate, &key).await).await;
    let list = page_as(&gate, "vera", "/console/callers?q=TEAM-B").await.text();
    assert!(list.contains(prefix(&key)) && list.contains("one, two") && list.contains("gold"), "{list}");
    assert!(!list.contains("/rotate"), "a viewer has no links to changes: {list}");
    let caller = page_as(&gate, "vera", "/console/callers/key%3Ateam-b").await.text();
    assert!(caller.contains("1 agent:") && caller.contains("/console/agents/echo"), "{caller}");
    assert!(caller.contains("limits.per_caller"), "the tier has a rate: {caller}");

    let path = format!("/console/keys/{}/rotate", prefix(&key));
    let rotated = send_form(&gate, "ada", &path, &[("overlap", "0s"), ("expires_in", "never")]).await;
    let second = key_in(&rotated.text());
    assert!(rotated.status == 200 && second != key, "{}", rotated.text());
    eventually("the second key replaces the first", async || {
        is_accepted(&gate, &second).await && !is_accepted(&gate, &key).await
    })
    .await;

    let path = format!("/console/keys/{}/disable", prefix(&second));
    let question = page_as(&gate, "ada", &path).await.text();
    assert!(question.contains(prefix(&second)) && question.contains("key:team-b"), "{question}");
    let done = send_form(&gate, "ada", &path, &[]).await;
    assert_eq!((done.status, done.header("location")), (303, Some("/console/callers?done=disabled")));
    assert_eq!(send_form(&gate, "ada", &path, &[]).await.header("location"), Some("/console/callers?done=already"));
    eventually("the key is refused", async || !is_accepted(&gate, &second).await).await;

    for action in ["key_created", "key_rotated", "key_disabled"] {
        let entries = audit_entries(&gate, action);
        assert_eq!(entries.len(), 1, "{action}: {entries:?}");
        assert_eq!((&entries[0]["actor"], &entries[0]["caller"]), (&json!("key:ada"), &json!("key:team-b")));
        assert_eq!(entries[0]["address"], "127.0.0.1");
    }
    let everywhere = [gate.read_file("audit.log"), gate.stderr(), gate.read_file("keys.jsonl"), list, caller];
    for secret in [&key, &second] {
        assert!(everywhere.iter().all(|text| !text.contains(&**secret)), "the key is elsewhere too");
    }
}

#[tokio::test]
async fn viewers_operators_and_strangers_change_no_key() {
    let gate = console().start().await;
    let keys = gate.read_file("keys.jsonl");
    let of_vera = prefix(gate.key("vera")).to_owned();
    let paths = ["rotate", "disable"].map(|change| format!("/console/keys/{of_vera}/{change}"));
    for operator in ["vera", "olga"] {
        for path in paths.iter().map(String::as_str).chain(["/console/keys/new"]) {
            assert_eq!(page_as(&gate, operator, path).await.status, 403, "{operator} {path}");
            let sent = send_form(&gate, operator, path, NEW_KEY).await;
            assert_eq!(sent.status, 403, "{operator} {path}");
            assert!(sent.text().contains("the role admin"), "{}", sent.text());
        }
    }
    // A caller without a role, and nobody.
    assert_eq!(send_form(&gate, "team-a", "/console/keys/new", NEW_KEY).await.status, 403);
    assert_eq!(send(request(&gate, "POST", "/console/keys/new").form(NEW_KEY)).await.status, 401);
    assert_eq!(send(request(&gate, "GET", "/console/callers")).await.status, 303, "the login");
    // A session whose form has no token.
    let login = send(request(&gate, "POST", "/console/login").form(&[("key", gate.key("ada"))])).await;
    let cookie = login.header("set-cookie").and_then(|cookie| cookie.split(';').next()).unwrap().to_owned();
    let form = request(&gate, "POST", "/console/keys/new").header("cookie", &cookie);
    let refused = send(form.form(NEW_KEY)).await;
    assert_eq!(refused.status, 403, "{}", refused.text());
    assert!(refused.text().contains("token"), "{}", refused.text());
    assert_eq!(gate.read_file("keys.jsonl"), keys);
}

#[tokio::test]
async fn a_form_that_is_not_valid_is_shown_again_with_the_problem_beside_the_field() {
    let gate = console().start().await;
    let keys = gate.read_file("keys.jsonl");
    let long = "x".repeat(257);
    for (fields, id, problem) in [
        ([("caller", ""), ("expires_in", "30d")], "problem-caller", "1 to 256 characters"),
        ([("caller", long.as_str()), ("expires_in", "30d")], "problem-caller", "1 to 256 characters"),
        ([("caller", "a\u{7}b"), ("expires_in", "30d")], "problem-caller", "1 to 256 characters"),
        ([("caller", "key:a"), ("expires_in", "30d")], "problem-caller", "without key:"),
        ([("caller", "a"), ("expires_in", "soon")], "problem-expires_in", "is not a duration"),
        ([("caller", "a"), ("expires_in", "0s")], "problem-expires_in", "at least 1s"),
    ] {
        let page = send_form(&gate, "ada", "/console/keys/new", &fields).await;
        assert_eq!(page.status, 422, "{fields:?}");
        assert!(page.text().contains(id) && page.text().contains(problem), "{fields:?}: {}", page.text());
    }
    let tier = send_form(&gate, "ada", "/console/keys/new", &[("caller", "a"), ("tier", "tin"), ("expires_in", "1d")]);
    assert!(tier.await.text().contains("problem-tier"));
    assert_eq!(gate.read_file("keys.jsonl"), keys);
    // A name with HTML is a name like others.
    let name = "<script>alert(1)</script>";
    let created = send_form(&gate, "ada", "/console/keys/new", &[("caller", name), ("expires_in", "1d")]).await;
    assert_eq!(created.status, 200, "{}", created.text());
    let path = "/console/callers/key%3A%3Cscript%3Ealert(1)%3C%2Fscript%3E";
    for page in [created, page_as(&gate, "ada", "/console/callers").await, page_as(&gate, "ada", path).await] {
        assert!(!page.text().contains(name) && page.text().contains("&lt;script&gt;"), "{}", page.text());
    }
    for absent in ["/console/keys/absent000000/rotate", "/console/keys/%00/disable"] {
        assert_eq!(page_as(&gate, "ada", absent).await.status, 404, "{absent}");
        assert_eq!(send_form(&gate, "ada", absent, &[]).await.status, 404, "{absent}");
    }
}

#[tokio::test]
async fn an_admin_does_not_disable_the_key_of_the_session_by_accident() {
    let gate = console().start().await;
    let path = format!("/console/keys/{}/disable", prefix(gate.key("ada")));
    assert!(page_as(&gate, "ada", &path).await.text().contains("your session ends"));
    let refused = send_form(&gate, "ada", &path, &[]).await;
    assert_eq!(refused.status, 409, "{}", refused.text());
    assert_eq!(page_as(&gate, "ada", "/console/callers").await.status, 200);
    assert_eq!(send_form(&gate, "ada", &path, &[("own", "yes")]).await.status, 303);
    eventually("the session has ended", async || page_as(&gate, "ada", "/console/callers").await.status == 303).await;
}

#[tokio::test]
async fn a_key_that_cannot_be_stored_or_recorded_is_not_created_and_one_is_disabled_all_the_same() {
    let gate = console().start().await;
    let folder = gate.folder();
    let move_aside = |name: &str| {
        std::fs::rename(folder.join(name), folder.join("aside")).unwrap();
        // A folder takes the place of the file: nobody can write it, not even the superuser.
        std::fs::create_dir(folder.join(name)).unwrap();
    };
    let put_back = |name: &str| {
        std::fs::remove_dir(folder.join(name)).unwrap();
        std::fs::rename(folder.join("aside"), folder.join(name)).unwrap();
    };
    move_aside("keys.jsonl");
    let refused = send_form(&gate, "ada", "/console/keys/new", NEW_KEY).await;
    assert_eq!(refused.status, 409, "{}", refused.text());
    assert!(refused.text().contains("The key file keys.jsonl cannot be written"), "{}", refused.text());
    assert!(!refused.text().contains(&*folder.to_string_lossy()) && !refused.text().contains("os error"));
    assert!(refused.text().contains("value=\"team-b\""), "the form has what was written: {}", refused.text());
    put_back("keys.jsonl");

    move_aside("audit.log");
    let keys = gate.read_file("keys.jsonl");
    let refused = send_form(&gate, "ada", "/console/keys/new", NEW_KEY).await;
    assert_eq!(refused.status, 409, "{}", refused.text());
    assert!(refused.text().contains("audit log cannot be written"), "{}", refused.text());
    assert_eq!(gate.read_file("keys.jsonl"), keys);
    let path = format!("/console/keys/{}/disable", prefix(gate.key("vera")));
    let done = send_form(&gate, "ada", &path, &[]).await;
    assert_eq!(done.header("location"), Some("/console/callers?done=unrecorded"), "{}", done.text());
    put_back("audit.log");
    eventually("the entry is written", async || audit_entries(&gate, "key_disabled").len() == 1).await;
}
