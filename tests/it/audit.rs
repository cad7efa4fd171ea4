//! The audit log of a running gateway and of its commands: every kind of change writes one entry, the chain is valid over
//! processes, and what happens while the log cannot be written.

use crate::{
    directory::{publish, send_as},
    support::{
        agent::{Agent, changeable_agent, json_response},
        certs::CertificateAuthority,
        eventually,
        gateway::{Gateway, GatewayBuilder, gatepost_command, gateway, send},
    },
};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::{os::unix::fs::PermissionsExt as _, path::Path, process::Output, time::Duration};

const AUDIT: &str = "audit: {file: audit.log}\n";
const PUBLISHERS: &str = "registry:\n  publishers:\n    - callers: ['key:team-a']\n";

fn audited() -> GatewayBuilder {
    gateway().section(AUDIT).section(PUBLISHERS)
}

fn entries(folder: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(folder.join("audit.log")).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn entries_of(folder: &Path, action: &str) -> Vec<Value> {
    entries(folder).into_iter().filter(|entry| entry["action"] == action).collect()
}

/// Waits until there are as many entries of an action, and returns the last one.
async fn expect_entry(gate: &Gateway, action: &str, count: usize) -> Value {
    let folder = gate.folder();
    eventually(&format!("{count} entries {action}"), async || entries_of(&folder, action).len() >= count).await;
    let mut found = entries_of(&folder, action);
    assert_eq!(found.len(), count, "{found:?}");
    found.pop().unwrap()
}

fn gatepost(folder: &Path, args: &[&str]) -> Output {
    gatepost_command().current_dir(folder).args(args).output().unwrap()
}

pub fn run(folder: &Path, args: &[&str]) -> String {
    let output = gatepost(folder, args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

fn fail(folder: &Path, args: &[&str]) -> String {
    let output = gatepost(folder, args);
    assert_eq!(output.status.code(), Some(1), "{args:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn sha256_of(path: &Path) -> String {
    gatepost::values::encode_hex(&gatepost::values::sha256(&std::fs::read(path).unwrap()))
}

/// Requests a path of the admin listener.
async fn admin(gate: &Gateway, method: &str, path: &str, body: Option<Value>) -> u16 {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let request = client.request(method.parse().unwrap(), format!("http://{}{path}", gate.admin_address));
    let request = request.header("x-request-id", "operator-7");
    send(match body {
        Some(body) => request.json(&body),
        None => request,
    })
    .await
    .status
}

#[tokio::test]
async fn r8_r101_each_change_of_a_document_has_one_entry_with_its_publisher_and_digests() {
    let echo = Agent::echo().await;
    let gate = audited().caller("reader", &[]).start().await;
    let created = publish(&gate, "team-a", &echo.document("echo")).await;
    assert_eq!(created.status, 201);
    let entry = expect_entry(&gate, "document_published", 1).await;
    for (member, value) in [("actor", "key:team-a"), ("subject", "echo"), ("outcome", "done"), ("address", "127.0.0.1")]
    {
        assert_eq!(entry[member], value, "{entry}");
    }
    assert_eq!(entry["request_id"], created.header("x-request-id").unwrap(), "{entry}");
    assert_eq!(entry.get("before"), None);
    let digest = |text: &str| gatepost::values::encode_hex(&gatepost::values::sha256(text.as_bytes()));
    assert_eq!(entry["after"], digest(&created.text()));

    let patched = send_as(&gate, "team-a", ("PATCH", "/agents/echo"), Some(&json!({"name": "Echo 2"}))).await;
    let entry = expect_entry(&gate, "document_patched", 1).await;
    assert_eq!((&entry["before"], &entry["after"]), (&digest(&created.text()).into(), &digest(&patched.text()).into()));
    let put = send_as(&gate, "team-a", ("PUT", "/agents/echo"), Some(&echo.document("echo"))).await;
    let entry = expect_entry(&gate, "document_published", 2).await;
    assert_eq!((&entry["before"], &entry["after"]), (&digest(&patched.text()).into(), &digest(&put.text()).into()));
    let refused = send_as(&gate, "team-a", ("PUT", "/agents/echo"), Some(&json!({"name": 7}))).await;
    assert_eq!(refused.status, 400);
    let entry = expect_entry(&gate, "document_published", 3).await;
    assert_eq!((&entry["outcome"], entry.get("after")), (&"refused".into(), None), "{entry}");
    assert!(entry["detail"].as_str().unwrap().starts_with("InvalidInput: "), "{entry}");
    assert_eq!(send_as(&gate, "team-a", ("DELETE", "/agents/echo"), None).await.status, 204);
    let entry = expect_entry(&gate, "document_removed", 1).await;
    assert_eq!((&entry["before"], entry.get("after")), (&digest(&put.text()).into(), None));
    // A caller that may not publish cannot fill the log, and neither can a call.
    let count = entries(&gate.folder()).len();
    assert_eq!(publish(&gate, "reader", &echo.document("other")).await.status, 403);
    gate.invoke("echo", &json!({})).await.expect_fault(404, "NotFound");
    assert_eq!(entries(&gate.folder()).len(), count);
    run(&gate.folder(), &["audit", "verify"]);
}

#[tokio::test]
async fn r8_r102_commands_for_keys_and_edited_key_files_have_entries() {
    let gate = audited().start().await;
    let folder = gate.folder();
    let key = run(&folder, &["key", "new", "--caller", "alice"]);
    let prefix = key.split('_').nth(1).unwrap();
    let keys = folder.join("keys.jsonl");
    let entry = expect_entry(&gate, "key_created", 1).await;
    assert_eq!((&entry["subject"], &entry["caller"]), (&prefix.into(), &"key:alice".into()));
    assert!(entry["actor"].as_str().unwrap().starts_with("os:"), "{entry}");
    assert_eq!(entry["after"], sha256_of(&keys));
    assert!(!std::fs::read_to_string(folder.join("audit.log")).unwrap().contains(&key), "the log has no key");
    // The gateway says when the file is in force, and its digest is that of the command.
    let loaded = expect_entry(&gate, "key_file_loaded", 1).await;
    assert_eq!((&loaded["before"], &loaded["after"]), (&entry["before"], &entry["after"]));
    assert_eq!((&loaded["actor"], &loaded["detail"]), (&"gateway".into(), &format!("added: {prefix}").into()));

    let rotated = run(&folder, &["key", "rotate", prefix]);
    let entry = expect_entry(&gate, "key_rotated", 1).await;
    let next = rotated.split('_').nth(1).unwrap();
    assert_eq!((&entry["subject"], &entry["caller"]), (&next.into(), &"key:alice".into()));
    assert!(entry["detail"].as_str().unwrap().starts_with(&format!("replaces {prefix} in ")), "{entry}");
    expect_entry(&gate, "key_file_loaded", 2).await;
    run(&folder, &["key", "disable", "--caller", "alice"]);
    expect_entry(&gate, "key_disabled", 2).await;
    let subjects: Vec<Value> =
        entries_of(&folder, "key_disabled").iter().map(|entry| entry["subject"].clone()).collect();
    assert_eq!(subjects, [prefix, next]);
    let loaded = expect_entry(&gate, "key_file_loaded", 3).await;
    assert!(loaded["detail"].as_str().unwrap().starts_with("changed: "), "{loaded}");

    // An edit by hand.
    let text = std::fs::read_to_string(&keys).unwrap();
    let kept: String = text.lines().filter(|line| !line.contains(next)).map(|line| format!("{line}\n")).collect();
    gate.write_file("keys.jsonl", &kept);
    let loaded = expect_entry(&gate, "key_file_loaded", 4).await;
    assert_eq!(loaded["detail"], format!("removed: {next}"));
    gate.write_file("keys.jsonl", "no key\n");
    let refused = expect_entry(&gate, "key_file_loaded", 5).await;
    assert_eq!((&refused["outcome"], &refused["before"]), (&"refused".into(), &loaded["after"]));
    assert_eq!(refused["after"], sha256_of(&keys));
    // Commands that change nothing have no entry.
    let count = entries(&folder).len();
    fail(&folder, &["key", "disable", "unknownkey00"]);
    fail(&folder, &["key", "rotate", "unknownkey00"]);
    run(&folder, &["key", "list"]);
    assert_eq!(entries(&folder).len(), count);
    run(&folder, &["audit", "verify"]);
}

#[tokio::test]
async fn r8_a_configuration_in_force_or_refused_and_each_start_and_stop_have_entries() {
    let mut gate = audited().start().await;
    let path = gate.folder().join("gatepost.yaml");
    let first = sha256_of(&path);
    let started = expect_entry(&gate, "gateway_started", 1).await;
    assert_eq!((&started["after"], started.get("before")), (&first.clone().into(), None));
    let config = gate.read_file("gatepost.yaml");
    gate.write_file("gatepost.yaml", &format!("{config}limits: {{per_caller: 50/s}}\n"));
    let second = sha256_of(&path);
    let loaded = expect_entry(&gate, "config_loaded", 1).await;
    assert_eq!((&loaded["before"], &loaded["after"]), (&first.into(), &second.clone().into()));
    assert_eq!((&loaded["actor"], &loaded["outcome"]), (&"gateway".into(), &"done".into()));
    gate.write_file("gatepost.yaml", &format!("{config}limits: {{per_caller: fast}}\n"));
    let refused = expect_entry(&gate, "config_loaded", 2).await;
    assert_eq!((&refused["before"], &refused["outcome"]), (&second.clone().into(), &"refused".into()));
    assert_eq!(refused["after"], sha256_of(&path));
    assert!(refused["detail"].as_str().unwrap().contains("limits.per_caller"), "{refused}");
    gate.send_signal(Signal::TERM);
    gate.wait_for_exit().await;
    let stopped = expect_entry(&gate, "gateway_stopped", 1).await;
    assert_eq!((&stopped["before"], &stopped["detail"]), (&second.into(), &"a signal".into()));
    // The broken file is not needed for a verification that names the log.
    run(&gate.folder(), &["audit", "verify", "audit.log"]);
}

#[tokio::test]
async fn r8_what_operators_do_with_sources_runtimes_and_pages_has_entries() {
    let (remote, _) = changeable_agent(json_response(&json!([]))).await;
    let runtimes = tempfile::tempdir().unwrap();
    std::fs::set_permissions(runtimes.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    let sockets = ["one.sock", "two.sock"].map(|name| runtimes.path().join(name));
    let _listeners = sockets.each_ref().map(|path| {
        let listener = std::os::unix::net::UnixListener::bind(path).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700)).unwrap();
        listener
    });
    let url = remote.url();
    let gate = audited()
        .section(&format!("agents:\n  sources:\n    - agents.json\n    - {{kind: aidip, url: '{url}', name: reg, endpoints: ['http://127.0.0.1:*']}}\n"))
        .section(&format!("local_runtimes:\n  folder: {}\n", runtimes.path().display()))
        .section("cors:\n  allowed_origins: ['https://app.example']\n  pairing: {ttl: 1h}\n")
        .start()
        .await;
    assert_eq!(admin(&gate, "POST", "/sources/reg/refresh", None).await, 202);
    let entry = expect_entry(&gate, "source_refreshed", 1).await;
    for (member, value) in [
        ("actor", "admin"),
        ("subject", "reg"),
        ("address", "127.0.0.1"),
        ("request_id", "operator-7"),
        ("outcome", "done"),
    ] {
        assert_eq!(entry[member], value, "{entry}");
    }
    assert_eq!(admin(&gate, "POST", "/sources/unknown/refresh", None).await, 404);
    assert_eq!(expect_entry(&gate, "source_refreshed", 2).await["detail"], "status 404");
    assert_eq!(admin(&gate, "POST", "/sources/reg/confirm", None).await, 200);
    assert_eq!(expect_entry(&gate, "source_loss_confirmed", 1).await["subject"], "reg");

    let lease = |at: usize| Some(json!({"socket": sockets[at], "ttl": "30s"}));
    assert_eq!(admin(&gate, "PUT", "/local/worker", lease(0)).await, 201);
    assert_eq!(expect_entry(&gate, "runtime_registered", 1).await["subject"], "worker");
    // A renewal changes nothing; another address does.
    assert_eq!(admin(&gate, "PUT", "/local/worker", lease(0)).await, 200);
    assert_eq!(admin(&gate, "PUT", "/local/worker", lease(1)).await, 200);
    expect_entry(&gate, "runtime_registered", 2).await;
    assert_eq!(admin(&gate, "DELETE", "/local/worker", None).await, 204);
    expect_entry(&gate, "runtime_removed", 1).await;

    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let code = send(client.post(format!("http://{}/pairing", gate.admin_address))).await.expect_ok();
    expect_entry(&gate, "pairing_code_created", 1).await;
    let pair =
        gate.request("POST", "/pair").header("origin", "https://app.example").json(&json!({"code": code["code"]}));
    let key = send(pair).await.expect_ok();
    assert_eq!(expect_entry(&gate, "page_paired", 1).await["actor"], "browser:https://app.example");
    let log = gate.read_file("audit.log");
    assert!(!log.contains(code["code"].as_str().unwrap()) && !log.contains(key["key"].as_str().unwrap()));
    // A web page changes nothing, and leaves no entry.
    let count = entries(&gate.folder()).len();
    let page =
        client.post(format!("http://{}/sources/reg/refresh", gate.admin_address)).header("origin", "https://a.example");
    assert_eq!(send(page).await.status, 403);
    assert_eq!(entries(&gate.folder()).len(), count);
    run(&gate.folder(), &["audit", "verify"]);
}

#[tokio::test]
async fn r8_reloaded_and_refused_certificates_have_entries() {
    let authority = CertificateAuthority::new("gateway");
    let build = audited()
        .listeners("listeners:\n  - address: 127.0.0.1:0\n    tls: {certificate: server.pem, key: server.key}\n");
    authority.server(&["localhost"]).write(build.folder(), "server");
    let gate = build.start().await;
    let next = authority.server(&["localhost"]);
    gate.write_file("server.key", &next.key);
    gate.write_file("server.pem", &next.certificate);
    let folder = gate.folder();
    eventually("the certificate is in use", async || {
        entries_of(&folder, "certificate_loaded").last().is_some_and(|entry| entry["outcome"] == "done")
    })
    .await;
    let loaded = entries_of(&folder, "certificate_loaded").pop().unwrap();
    assert_eq!(loaded["subject"], "127.0.0.1:0");
    assert_ne!(loaded["before"], loaded["after"]);
    gate.write_file("server.key", "not a key");
    eventually("the key is refused", async || {
        let last = entries_of(&folder, "certificate_loaded").pop().unwrap();
        last["outcome"] == "refused" && last["after"] == loaded["after"]
    })
    .await;
    run(&folder, &["audit", "verify"]);
}

#[tokio::test]
async fn r8_an_import_has_an_entry() {
    let echo = Agent::echo().await;
    let gate = audited().start().await;
    assert_eq!(publish(&gate, "team-a", &echo.document("echo")).await.status, 201);
    let folder = gate.folder();
    run(&folder, &["registry", "export", "exported"]);
    run(&folder, &["registry", "import", "exported"]);
    let entry = expect_entry(&gate, "documents_imported", 1).await;
    assert_eq!((&entry["subject"], &entry["detail"]), (&"exported".into(), &"1 document imported, 0 rejected".into()));
    assert!(entry["actor"].as_str().unwrap().starts_with("os:"), "{entry}");
}

#[tokio::test]
async fn r8_the_chain_is_one_over_a_listener_handover_and_commands_meanwhile() {
    let gate = audited().section("shutdown: {handover_socket: handover.sock, drain_timeout: 5s}\n").start().await;
    let folder = gate.folder();
    let commands = tokio::task::spawn_blocking({
        let folder = folder.clone();
        move || (0..6).for_each(|at| drop(run(&folder, &["key", "new", "--caller", &format!("caller-{at}")])))
    });
    let successor = gate.start_successor().await;
    commands.await.unwrap();
    expect_entry(&successor, "gateway_stopped", 1).await;
    assert_eq!(entries_of(&folder, "gateway_stopped")[0]["detail"], "another process took the listeners over");
    expect_entry(&successor, "gateway_started", 2).await;
    expect_entry(&successor, "key_created", 6).await;
    let echo = Agent::echo().await;
    assert_eq!(publish(&successor, "team-a", &echo.document("echo")).await.status, 201);
    run(&folder, &["audit", "verify"]);
}

#[tokio::test]
async fn r8_checkpoints_are_signed_and_verify_names_the_first_broken_line() {
    let build = audited().section("directory: {external_url: 'https://gw.example', signing_key: 'file:sign.pem'}\n");
    let pem = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap().serialize_pem();
    std::fs::write(build.folder().join("sign.pem"), pem).unwrap();
    let gate = build.start().await;
    let folder = gate.folder();
    expect_entry(&gate, "checkpoint", 1).await;
    let printed = run(&folder, &["audit", "verify"]);
    assert!(
        printed.contains("valid: 2 lines in 1 file, 1 to 2") && printed.contains("signed: up to line 1"),
        "{printed}"
    );
    let known = printed.lines().find_map(|line| line.strip_prefix("last line: ")).unwrap().to_owned();
    run(&folder, &["audit", "verify", "--known-line", &known]);
    // With the published key, and without one.
    let jwks = send(gate.request("GET", "/.well-known/jwks.json")).await.text();
    std::fs::write(folder.join("keys.json"), jwks).unwrap();
    let printed = run(&folder, &["audit", "verify", "--jwks", "keys.json", "audit.log"]);
    assert!(printed.contains("signed: up to line 1"), "{printed}");
    let printed = run(&folder, &["audit", "verify", "audit.log"]);
    assert!(printed.contains("signatures not verified"), "{printed}");
    assert!(printed.contains("the end is not proven"), "{printed}");
    let head = gate.read_file("audit.log.head");
    std::fs::remove_file(folder.join("audit.log.head")).unwrap();
    let problem = fail(&folder, &["audit", "verify"]);
    assert!(problem.contains("audit.log.head: the head of the log is missing"), "{problem}");
    gate.write_file("audit.log.head", &head);
    let text = gate.read_file("audit.log").replace("gateway_started", "gateway_stopped");
    gate.write_file("audit.log", &text);
    let problem = fail(&folder, &["audit", "verify"]);
    assert!(problem.contains("audit.log:1: line 1 was changed"), "{problem}");
    assert!(fail(&folder, &["audit", "verify", "nowhere.log"]).contains("nowhere.log: cannot be read"));
    std::fs::write(folder.join("plain.yaml"), "listeners: [{address: '127.0.0.1:0'}]\n").unwrap();
    assert!(fail(&folder, &["audit", "verify", "-c", "plain.yaml"]).contains("no section 'audit'"));
}

#[tokio::test]
async fn r8_a_log_that_was_cut_back_with_its_head_is_found_by_the_anchor_and_after_a_restart() {
    let anchors = tempfile::tempdir().unwrap();
    let anchor = anchors.path().join("audit.anchor");
    let section = format!("audit: {{file: audit.log, anchor_file: {}}}\n", anchor.display());
    let mut gate = gateway().section(&section).section(PUBLISHERS).start().await;
    let folder = gate.folder();
    run(&folder, &["key", "new", "--caller", "alice"]);
    expect_entry(&gate, "key_file_loaded", 1).await;
    gate.send_signal(Signal::TERM);
    gate.wait_for_exit().await;
    let printed = run(&folder, &["audit", "verify"]);
    assert!(printed.contains("in the anchor: up to line 4") && !printed.contains("the end is not proven"), "{printed}");

    // The line of the key and those after it.
    let first: String = gate.read_file("audit.log").split_inclusive('\n').take(1).collect();
    gate.write_file("audit.log", &first);
    let hash = gatepost::values::encode_hex(&gatepost::values::sha256(first.trim_end().as_bytes()));
    gate.write_file("audit.log.head", &json!({"sequence": 1, "hash": hash}).to_string());
    run(&folder, &["audit", "verify", "audit.log"]);
    let expected = "lines 2 to 4 are missing at the end: the anchor knows line 4";
    assert!(fail(&folder, &["audit", "verify"]).contains(expected));
    let named = ["audit", "verify", "--anchor", anchor.to_str().unwrap(), "audit.log"];
    assert!(fail(&folder, &named).contains(expected));
    // A command that appends does not hide it.
    run(&folder, &["key", "new", "--caller", "bob"]);
    assert!(fail(&folder, &["audit", "verify"]).contains("lines 2 to 4 are missing before line 5"));
    std::fs::remove_file(&anchor).unwrap();
    assert!(fail(&folder, &["audit", "verify"]).contains("audit.anchor: the anchor cannot be read"));
    let config = gate.read_file("gatepost.yaml").replace(&anchor.display().to_string(), "near.anchor");
    gate.write_file("near.yaml", &config);
    assert!(fail(&folder, &["check", "-c", "near.yaml"]).contains("anchor_file: must be in another folder"));
}

#[tokio::test]
async fn r8_while_the_log_cannot_be_written_changes_that_add_are_refused_and_those_that_withdraw_pass() {
    let echo = Agent::echo().await;
    let gate = audited().start().await;
    assert_eq!(publish(&gate, "team-a", &echo.document("echo")).await.status, 201);
    let folder = gate.folder();
    let key = run(&folder, &["key", "new", "--caller", "alice"]);
    expect_entry(&gate, "key_file_loaded", 1).await;
    // A folder takes the place of the file: nobody can write it, not even the superuser.
    std::fs::rename(folder.join("audit.log"), folder.join("aside")).unwrap();
    std::fs::create_dir(folder.join("audit.log")).unwrap();
    let config = gate.read_file("gatepost.yaml");
    gate.write_file("gatepost.yaml", &format!("{config}limits: {{per_caller: 50/s}}\n"));
    eventually("an entry waits", async || gate.metric("gatepost_audit_entries_waiting").await == Some(1.0)).await;
    assert_eq!(gate.metric("gatepost_config_last_reload_successful").await, Some(1.0), "the configuration is in force");
    eventually("the log says so", async || gate.stderr().contains("audit log cannot be written")).await;
    let refused = publish(&gate, "team-a", &echo.document("other")).await;
    refused.expect_fault(503, "Overloaded");
    assert!(refused.text().contains("cannot be recorded"), "{}", refused.text());
    gate.invoke("other", &json!({})).await.expect_fault(404, "NotFound");
    gate.invoke("echo", &json!({})).await.expect_ok();
    assert_eq!(send_as(&gate, "team-a", ("DELETE", "/agents/echo"), None).await.status, 204);
    let keys = gate.read_file("keys.jsonl");
    assert!(fail(&folder, &["key", "new", "--caller", "bob"]).contains("audit.file: "));
    assert_eq!(gate.read_file("keys.jsonl"), keys, "a key that cannot be recorded is not created");
    let problem = fail(&folder, &["key", "disable", key.split('_').nth(1).unwrap()]);
    assert!(problem.contains("the keys are disabled, which is not recorded"), "{problem}");
    assert!(gate.read_file("keys.jsonl").contains("\"disabled\":true"));

    std::fs::remove_dir(folder.join("audit.log")).unwrap();
    std::fs::rename(folder.join("aside"), folder.join("audit.log")).unwrap();
    eventually("the entries are written", async || gate.metric("gatepost_audit_entries_waiting").await == Some(0.0))
        .await;
    expect_entry(&gate, "document_removed", 1).await;
    expect_entry(&gate, "config_loaded", 1).await;
    assert_eq!(publish(&gate, "team-a", &echo.document("other")).await.status, 201);
    run(&folder, &["audit", "verify"]);
}

#[tokio::test]
async fn r8_a_lock_that_another_process_holds_delays_no_key_file() {
    let gate = audited().start().await;
    let folder = gate.folder();
    let key = run(&folder, &["key", "new", "--caller", "alice"]);
    expect_entry(&gate, "key_file_loaded", 1).await;
    let with_key = gate.read_file("keys.jsonl");
    let without_key: String =
        with_key.lines().filter(|line| !line.contains("alice")).map(|line| format!("{line}\n")).collect();
    // Who may read the log may lock it.
    let head = std::fs::File::open(folder.join("audit.log.head")).unwrap();
    head.lock_shared().unwrap();
    let changes = async {
        for (keys, is_refused) in [(&without_key, true), (&with_key, false)].repeat(3) {
            gate.write_file("keys.jsonl", keys);
            eventually("the keys are in force", async || {
                let response = send(gate.request("GET", "/agents").header("x-api-key", &key)).await;
                (response.status == 401) == is_refused
            })
            .await;
        }
    };
    // An entry waits five seconds for the lock.
    tokio::time::timeout(Duration::from_secs(20), changes).await.expect("the audit log delays keys");
    drop(head);
    eventually("a change is recorded", async || entries_of(&folder, "key_file_loaded").len() > 1).await;
    run(&folder, &["audit", "verify"]);
}

#[tokio::test]
async fn r8_without_the_section_no_file_is_written_and_check_creates_none() {
    let gate = gateway().section(PUBLISHERS).start().await;
    let folder = gate.folder();
    run(&folder, &["key", "new", "--caller", "alice"]);
    let echo = Agent::echo().await;
    assert_eq!(publish(&gate, "team-a", &echo.document("echo")).await.status, 201);
    assert!(!folder.join("audit.log").exists());
    let config = gate.read_file("gatepost.yaml");
    std::fs::write(folder.join("with.yaml"), format!("{config}{AUDIT}")).unwrap();
    run(&folder, &["check", "-c", "with.yaml"]);
    assert!(!folder.join("audit.log").exists() && !folder.join("audit.log.head").exists());
    std::fs::write(folder.join("broken.yaml"), format!("{config}audit: {{file: no/folder.log, retention: 1h}}\n"))
        .unwrap();
    let problems = fail(&folder, &["check", "-c", "broken.yaml"]);
    assert!(
        problems.contains("audit.file: ") && problems.contains("audit.retention: must be at least 1d"),
        "{problems}"
    );
}
