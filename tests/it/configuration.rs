//! The configuration, end to end: everything that is wrong is told at once, and a change takes effect without anybody
//! noticing.

use crate::support::{
    agent::Agent,
    eventually,
    gateway::{Gate, command, gateway, send},
    reply::read_answer,
};
use gatepost::contract::CompiledSchema;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::{
    path::Path,
    process::Output,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
};
use tokio::{io::AsyncWriteExt, net::TcpStream};

const GOOD: &str = "listen:\n  - address: 127.0.0.1:0\nagents:\n  from: [agents.json]\n";

fn check(folder: &Path, yaml: &str, variables: &[(&str, &str)]) -> Output {
    std::fs::write(folder.join("gatepost.yaml"), yaml).unwrap();
    command().args(["check", "-c"]).arg(folder.join("gatepost.yaml")).envs(variables.iter().copied()).output().unwrap()
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("agents.json"), "[]").unwrap();
    folder
}

/// `check` fails, and says all of this.
fn tells(output: &Output, words: &[&str]) {
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    for word in words {
        assert!(told.contains(word), "'{word}' is not in: {told}");
    }
}

#[test]
fn a_good_file_is_good_and_nothing_is_written_by_checking_it() {
    let folder = folder();
    let yaml = format!("{GOOD}access_log: {{to: calls.log}}\nlimits: {{state: quotas.json}}\n");
    let output = check(folder.path(), &yaml, &[]);
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("good"));
    assert!(!folder.path().join("calls.log").exists());
    assert!(!folder.path().join("quotas.json").exists(), "checking is not running");
}

#[test]
fn every_problem_of_form_is_told_at_once_with_its_line() {
    let folder = folder();
    let yaml = "listen:\n  - address: nonsense\n    tsl: {}\nagents:\n  from: [agents.json]\n  poll: 5 seconds\n  rules: [{agents: [a], rate: 0/s}]\nauth:\n  api_keys: {pepper: hunter2}\nlimits:\n  per_caler: 1/s\n  per_caller: 10\n";
    let output = check(folder.path(), yaml, &[]);
    tells(
        &output,
        &[
            "7 problems",
            "line 2: listen[0].address:",
            "line 3: listen[0].tsl:",
            "line 6: agents.poll: '5 seconds'",
            "line 7: agents.rules[0].rate:",
            "line 9: auth.api_keys.pepper: must be a reference to a secret, not the secret itself",
            "line 11: limits.per_caler:",
            "line 12: limits.per_caller:",
        ],
    );
    assert!(!String::from_utf8_lossy(&output.stderr).contains("hunter2"));
}

#[test]
fn every_problem_of_meaning_is_told_at_once_with_its_line() {
    let folder = folder();
    let yaml = "listen:\n  - address: 0.0.0.0:0\n  - address: 127.0.0.1:0\n    tls: {certificate: no.pem, key: no.key, client_ca: no.ca}\nagents:\n  from: [nowhere.json]\n  defaults:\n    credential: {value: env:GATEPOST_TEST_NOT_SET}\nauth:\n  realm: 'a\"b'\n  api_keys: {files: [no.keys], header: Host}\n  bearer: {issuers: [{issuer: 'http://10.0.0.1', audience: [], algorithms: []}]}\naccess:\n  grants:\n    - {callers: [team-a], agents: ['*']}\n    - {callers: ['*']}\nconnections: {max_headers: 1000}\ncontract: {batch: {concurrency: 0}}\n";
    tells(
        &check(folder.path(), yaml, &[]),
        &[
            "line 2: listen[0].address: plain HTTP",
            "line 4: listen[1].tls.certificate",
            "line 4: listen[1].tls.key",
            "line 4: listen[1].tls.client_ca",
            "agents.from",
            "nowhere.json",
            "line 8: agents.defaults.credential",
            "GATEPOST_TEST_NOT_SET",
            "line 10: auth.realm",
            "line 11: auth.api_keys.files[0]",
            "line 11: auth.api_keys.header",
            "line 12: auth.bearer.issuers[0].audience",
            "line 12: auth.bearer.issuers[0].algorithms",
            "line 15: access.grants[0].callers: 'team-a' matches no caller",
            "line 16: access.grants[1]: names no agent",
            "line 17: connections.max_headers",
            "line 18: contract.batch.concurrency",
        ],
    );
}

#[test]
fn what_is_no_yaml_or_no_file_is_told() {
    let folder = folder();
    tells(&check(folder.path(), "listen: [\n", &[]), &["line ", "not YAML"]);
    tells(&check(folder.path(), &format!("{GOOD}agents: {{}}\n"), &[]), &["line 5", "duplicate", "agents"]);
    tells(&check(folder.path(), "", &[]), &["'listen' is missing"]);
    let missing = command().args(["check", "-c", "nowhere.yaml"]).output().unwrap();
    tells(&missing, &["nowhere.yaml", "cannot be read"]);
    let run = command().args(["run", "-c", "nowhere.yaml"]).output().unwrap();
    tells(&run, &["nowhere.yaml", "cannot be read"]);
}

#[test]
fn the_environment_overrides_and_a_bad_override_is_named() {
    let folder = folder();
    let good = [("GATEPOST__LISTEN__0__ADDRESS", "127.0.0.1:1"), ("GATEPOST__LIMITS__PER_CALLER", "5/s")];
    let yaml = GOOD.replace("127.0.0.1:0", "nonsense");
    assert!(check(folder.path(), &yaml, &good).status.success(), "the override replaces what is wrong");
    let bad = [("GATEPOST__LIMITS__PER_CALLER", "lots"), ("GATEPOST__LISTEN__0__ADDRES", "x")];
    tells(
        &check(folder.path(), GOOD, &bad),
        &[
            "limits.per_caller: 'lots'",
            "GATEPOST__LIMITS__PER_CALLER",
            "listen[0].addres",
            "GATEPOST__LISTEN__0__ADDRES)",
        ],
    );
}

#[cfg(unix)]
#[test]
fn a_variable_of_somebody_else_that_is_no_text_does_not_matter() {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt};
    let folder = folder();
    std::fs::write(folder.path().join("gatepost.yaml"), GOOD).unwrap();
    let mut command = command();
    command.args(["check", "-c"]).arg(folder.path().join("gatepost.yaml"));
    assert!(command.env("STRANGE", OsStr::from_bytes(b"\xff\xfe")).status().unwrap().success());
}

#[test]
fn the_schema_is_one_and_accepts_every_example() {
    let output = command().arg("schema").output().unwrap();
    let schema: Value = serde_json::from_slice(&output.stdout).unwrap();
    let check = CompiledSchema::compile(&schema).unwrap();
    let mut texts = vec![GOOD.to_owned()];
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("config");
    let files = std::fs::read_dir(examples).into_iter().flatten().map(|entry| entry.unwrap().path());
    let files = files.filter(|path| path.extension().is_some_and(|end| end == "yaml"));
    texts.extend(files.map(|path| std::fs::read_to_string(path).unwrap()));
    for text in texts {
        let value: Value = serde_saphyr::from_str(&text).unwrap();
        // An example may be a document of an agent and not a configuration.
        if value.get("listen").is_some() {
            assert_eq!(check.validate_up_to(&value, 20), [], "{text}");
        }
    }
    assert_ne!(check.validate_up_to(&json!({"listen": [], "agents": {"from": ["a"]}}), 20), []);
}

/// One connection that stays.
struct Kept(TcpStream, String);

impl Kept {
    async fn open(gate: &Gate) -> Self {
        let key = gate.key("team-a");
        let call = format!(
            "POST /agents/echo/invoke HTTP/1.1\r\nHost: a\r\nX-API-Key: {key}\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{{}}"
        );
        Self(TcpStream::connect(gate.address()).await.unwrap(), call)
    }

    async fn call(&mut self) -> u16 {
        self.0.write_all(self.1.as_bytes()).await.unwrap();
        read_answer(&mut self.0).await.expect("the connection stays open").status
    }
}

#[tokio::test]
async fn a_change_takes_effect_and_connections_stay() {
    let echo = Agent::echo().await;
    let gate = gateway().agent("echo", &echo).start().await;
    let mut kept = Kept::open(&gate).await;
    assert_eq!(kept.call().await, 200);
    let config = gate.read("gatepost.yaml");
    gate.write("gatepost.yaml", &config.replace("agents: ['*']", "agents: ['other']"));
    eventually("the changed grants are in force", async || kept.call().await == 404).await;
    assert_eq!(gate.metric("gatepost_config_last_reload_successful").await, Some(1.0));
    gate.write("gatepost.yaml", &config);
    gate.signal(Signal::HUP);
    eventually("the first grants are in force again", async || kept.call().await == 200).await;
}

#[tokio::test]
async fn a_bad_file_is_refused_the_last_good_one_stays_and_operators_are_told() {
    let echo = Agent::echo().await;
    let gate = gateway().agent("echo", &echo).start().await;
    let mut kept = Kept::open(&gate).await;
    let config = gate.read("gatepost.yaml");
    let broken = [
        config.replace("access:", "acess:"),
        "listen: [".to_owned(),
        String::new(),
        config.replace("keys.jsonl", "no.keys"),
        config.replace("agents.json", "nowhere.json"),
        format!("{config}limits: {{per_caller: 0/s}}\n"),
    ];
    for (at, text) in broken.iter().enumerate() {
        gate.write("gatepost.yaml", text);
        gate.signal(Signal::HUP);
        eventually("the bad file is refused", async || gate.stderr().matches("is refused").count() == at + 1).await;
        assert_eq!(kept.call().await, 200, "{text}");
        assert_eq!(gate.metric("gatepost_config_last_reload_successful").await, Some(0.0));
        let ready = gate.admin("/readyz").await;
        assert_eq!(ready.status, 200, "the last good one serves");
        assert!(ready.json()["config"].as_str().unwrap().starts_with("rejected: "), "{}", ready.text());
    }
    gate.write("gatepost.yaml", &config);
    eventually("the good file counts again", async || {
        gate.metric("gatepost_config_last_reload_successful").await == Some(1.0)
    })
    .await;
    assert_eq!(gate.admin("/readyz").await.json()["config"], "ok");
    assert_eq!(kept.call().await, 200);
}

#[tokio::test]
async fn a_change_of_a_listener_is_said_to_need_a_start() {
    let echo = Agent::echo().await;
    let gate = gateway().agent("echo", &echo).start().await;
    gate.write("gatepost.yaml", &gate.read("gatepost.yaml").replace("admin:", "shutdown: {drain: 1s}\nadmin:"));
    eventually("it is said", async || gate.stderr().contains("'shutdown' changed: takes effect at the next start"))
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_valid_call_is_denied_while_the_configuration_is_read_again() {
    let echo = Agent::echo().await;
    let gate = Arc::new(gateway().agent("echo", &echo).agent("second", &echo).start().await);
    let (done, calls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let hammers: Vec<_> = (0..4)
        .map(|at| {
            let (gate, done, calls) = (Arc::clone(&gate), Arc::clone(&done), Arc::clone(&calls));
            tokio::spawn(async move {
                while !done.load(Relaxed) {
                    let answer = gate.invoke(["echo", "second"][at % 2], &json!({})).await;
                    assert_eq!(answer.status, 200, "{}", answer.text());
                    calls.fetch_add(1, Relaxed);
                }
            })
        })
        .collect();
    let config = gate.read("gatepost.yaml");
    for round in 1..=4 {
        // Other grants in another order: their numbers mean others each time.
        let grants = "    - {callers: ['key:nobody'], agents: ['*']}\n".repeat(round);
        gate.write("gatepost.yaml", &config.replace("  grants:\n", &format!("  grants:\n{grants}")));
        gate.signal(Signal::HUP);
        let before = calls.load(Relaxed);
        eventually("the change is in force", async || gate.stderr().matches("is in force").count() >= round).await;
        eventually("calls go on", async || calls.load(Relaxed) > before + 20).await;
    }
    done.store(true, Relaxed);
    for hammer in hammers {
        hammer.await.unwrap();
    }
    // A grant that is gone is gone for the next call.
    gate.write("gatepost.yaml", &config.replace("callers: ['*']", "callers: ['key:nobody']"));
    gate.signal(Signal::HUP);
    eventually("the grant is gone", async || {
        send(gate.post("/agents/echo/invoke").json(&json!({}))).await.status == 404
    })
    .await;
}
