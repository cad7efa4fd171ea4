//! The configuration, end to end: all problems are reported at once, and a change takes effect without disturbing
//! calls.

use crate::support::{
    agent::Agent,
    eventually,
    gateway::{Gateway, gatepost_command, gateway, send},
    gateway_response::read_response,
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
use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, TcpStream},
};

const VALID_CONFIG: &str = "listeners:\n  - address: 127.0.0.1:0\nagents:\n  sources: [agents.json]\n";

fn check(folder: &Path, yaml: &str, variables: &[(&str, &str)]) -> Output {
    std::fs::write(folder.join("gatepost.yaml"), yaml).unwrap();
    gatepost_command()
        .args(["check", "-c"])
        .arg(folder.join("gatepost.yaml"))
        .envs(variables.iter().copied())
        .output()
        .unwrap()
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("agents.json"), "[]").unwrap();
    folder
}

/// Asserts that a command failed with exit code 1 and reported each of these problems.
fn expect_problems(output: &Output, problems: &[&str]) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    for problem in problems {
        assert!(stderr.contains(problem), "'{problem}' is not in: {stderr}");
    }
}

#[test]
fn check_accepts_a_valid_file_and_writes_no_files() {
    let folder = folder();
    let yaml = format!("{VALID_CONFIG}access_log: {{output: calls.log}}\nlimits: {{quota_state_file: quotas.json}}\n");
    let output = check(folder.path(), &yaml, &[]);
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("valid, 0 agents"));
    assert!(!folder.path().join("calls.log").exists());
    assert!(!folder.path().join("quotas.json").exists());
}

#[test]
fn all_syntax_problems_are_reported_at_once_with_their_lines() {
    let folder = folder();
    let yaml = "listeners:\n  - address: nonsense\n    tsl: {}\nagents:\n  sources: [agents.json]\n  poll_interval: 5 seconds\n  rules: [{agents: [a], rate_limit: 0/s}]\nauth:\n  api_keys: {pepper: hunter2}\nlimits:\n  per_caler: 1/s\n  per_caller: 10\n";
    let output = check(folder.path(), yaml, &[]);
    expect_problems(
        &output,
        &[
            "7 problems",
            "line 2: listeners[0].address:",
            "line 3: listeners[0].tsl:",
            "line 6: agents.poll_interval: '5 seconds'",
            "line 7: agents.rules[0].rate_limit:",
            "line 9: auth.api_keys.pepper: must be a reference to a secret, not the secret itself",
            "line 11: limits.per_caler:",
            "line 12: limits.per_caller:",
        ],
    );
    assert!(!String::from_utf8_lossy(&output.stderr).contains("hunter2"));
}

#[test]
fn all_semantic_problems_are_reported_at_once_with_their_lines() {
    let folder = folder();
    let yaml = "listeners:\n  - address: 0.0.0.0:0\n  - address: 127.0.0.1:0\n    tls: {certificate: no.pem, key: no.key, client_ca: no.ca}\nagents:\n  sources: [nowhere.json]\n  defaults:\n    credential: {value: env:GATEPOST_TEST_NOT_SET}\nauth:\n  realm: 'a\"b'\n  api_keys: {files: [no.keys], header: Host}\n  bearer: {issuers: [{issuer: 'http://10.0.0.1', audience: [], algorithms: []}]}\naccess:\n  grants:\n    - {callers: [team-a], agents: ['*']}\n    - {callers: ['*']}\nconnections: {max_headers: 1000}\ncontract: {batch: {max_concurrency: 0}}\n";
    expect_problems(
        &check(folder.path(), yaml, &[]),
        &[
            "line 2: listeners[0].address: plain HTTP",
            "line 4: listeners[1].tls.certificate",
            "line 4: listeners[1].tls.key",
            "line 4: listeners[1].tls.client_ca",
            "line 6: agents.sources[0]",
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
            "line 18: contract.batch.max_concurrency",
        ],
    );
}

#[test]
fn r2_patterns_for_certificates_without_the_kind_of_the_name_are_problems_in_every_section() {
    let folder = folder();
    let yaml = format!(
        "{VALID_CONFIG}registry:\n  publishers: [{{callers: ['cert:robot.example']}}]\ndelegation:\n  actors: {{planner: ['cert:*.example']}}\n  required_for: ['key:a', 'cert:planner']\n  trusted_issuers: [{{issuer: 'https://b.example', jwks: b.json, callers: ['cert:branch-*']}}]\n"
    );
    let kinds = "does not name the kind of the certificate's name";
    let expected = [
        format!("registry.publishers[0].callers: 'cert:robot.example' {kinds}"),
        format!("delegation.actors.planner: 'cert:*.example' {kinds}"),
        format!("delegation.required_for: 'cert:planner' {kinds}"),
        format!("delegation.trusted_issuers[0].callers: 'cert:branch-*' {kinds}"),
    ];
    expect_problems(&check(folder.path(), &yaml, &[]), &expected.each_ref().map(String::as_str));
}

#[test]
fn r5_tiers_of_tokens_without_limits_of_their_own_are_a_problem() {
    let folder = folder();
    let configuration = |claims: &str, tiers: &str| {
        format!(
            "{VALID_CONFIG}auth:\n  bearer:\n    issuers:\n      - {{issuer: 'https://login.example', label: acme, audience: [a], algorithms: [ES256], claims: {claims}}}\nlimits:\n  tiers: {tiers}\n"
        )
    };
    for tiers in ["{free: {per_caller: 1/s}}", "{acmefree: {per_caller: 1/s}, other/free: {per_caller: 1/s}}"] {
        let output = check(folder.path(), &configuration("{tier: plan}", tiers), &[]);
        expect_problems(&output, &["auth.bearer.issuers[0].claims.tier: limits.tiers names no tier", "acme/TIER"]);
    }
    for (claims, tiers) in [
        ("{tier: plan}", "{acme/free: {per_caller: 1/s}}"),
        ("{tier: plan, allowed_tiers: [free]}", "{free: {per_caller: 1/s}}"),
        ("{tier: plan}", "{}"),
        ("{}", "{free: {per_caller: 1/s}}"),
    ] {
        assert!(check(folder.path(), &configuration(claims, tiers), &[]).status.success(), "{claims} {tiers}");
    }
}

#[test]
fn invalid_yaml_and_missing_files_are_reported() {
    let folder = folder();
    expect_problems(&check(folder.path(), "listeners: [\n", &[]), &["line ", "not YAML"]);
    let duplicate = format!("{VALID_CONFIG}agents: {{}}\n");
    expect_problems(&check(folder.path(), &duplicate, &[]), &["line 5", "duplicate", "agents"]);
    expect_problems(&check(folder.path(), "", &[]), &["'listeners' is missing"]);
    let missing = gatepost_command().args(["check", "-c", "nowhere.yaml"]).output().unwrap();
    expect_problems(&missing, &["nowhere.yaml", "cannot be read"]);
    let run = gatepost_command().args(["run", "-c", "nowhere.yaml"]).output().unwrap();
    expect_problems(&run, &["nowhere.yaml", "cannot be read"]);
}

#[test]
fn r4_a_credential_without_destinations_is_refused_with_what_to_write() {
    let folder = folder();
    let token = [("TOKEN", "s3cret")];
    let with = |settings: &str| format!("{VALID_CONFIG}  defaults: {settings}\n");
    for (settings, path) in [
        ("{credential: {value: 'env:TOKEN'}}", "agents.defaults.credential.destinations"),
        ("{credential: {value: 'env:TOKEN', destinations: {}}}", "agents.defaults.credential.destinations"),
        ("{credential: {value: 'env:TOKEN', destinations: {origins: []}}}", "agents.defaults.credential.destinations"),
        ("{mqtt: {username: 'env:TOKEN', password: 'env:TOKEN'}}", "agents.defaults.mqtt.destinations"),
        (
            "{matrix: {homeserver: 'https://a.example', access_token: 'env:TOKEN'}}",
            "agents.defaults.matrix.destinations",
        ),
    ] {
        let output = check(folder.path(), &with(settings), &token);
        expect_problems(&output, &[path, "origins", "sources: [files]"]);
    }
    for (destinations, problem) in [
        ("{origins: ['example.com']}", "'example.com' is not an origin"),
        ("{origins: ['https://example.com/path']}", "without a path"),
        ("{origin: ['*']}", "origin"),
    ] {
        let settings = format!("{{credential: {{value: 'env:TOKEN', destinations: {destinations}}}}}");
        expect_problems(&check(folder.path(), &with(&settings), &token), &[problem]);
    }
    for destinations in ["{sources: [files]}", "{origins: ['https://*.example.com:*']}", "{origins: ['*']}"] {
        let settings = format!("{{credential: {{value: 'env:TOKEN', destinations: {destinations}}}}}");
        let output = check(folder.path(), &with(&settings), &token);
        assert!(output.status.success(), "{destinations}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn the_environment_overrides_the_file_and_an_invalid_variable_is_named() {
    let folder = folder();
    let valid = [("GATEPOST__LISTENERS__0__ADDRESS", "127.0.0.1:1"), ("GATEPOST__LIMITS__PER_CALLER", "5/s")];
    let yaml = VALID_CONFIG.replace("127.0.0.1:0", "nonsense");
    assert!(check(folder.path(), &yaml, &valid).status.success(), "the variable replaces the invalid value");
    let invalid = [("GATEPOST__LIMITS__PER_CALLER", "lots"), ("GATEPOST__LISTENERS__0__ADDRES", "x")];
    expect_problems(
        &check(folder.path(), VALID_CONFIG, &invalid),
        &[
            "limits.per_caller: 'lots'",
            "GATEPOST__LIMITS__PER_CALLER",
            "listeners[0].addres",
            "GATEPOST__LISTENERS__0__ADDRES)",
        ],
    );
}

#[cfg(unix)]
#[test]
fn an_unrelated_variable_that_is_not_utf8_is_ignored() {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt};
    let folder = folder();
    std::fs::write(folder.path().join("gatepost.yaml"), VALID_CONFIG).unwrap();
    let mut command = gatepost_command();
    command.args(["check", "-c"]).arg(folder.path().join("gatepost.yaml"));
    assert!(command.env("UNRELATED", OsStr::from_bytes(b"\xff\xfe")).status().unwrap().success());
}

#[test]
fn the_schema_is_valid_and_accepts_every_example() {
    let output = gatepost_command().arg("schema").output().unwrap();
    let schema: Value = serde_json::from_slice(&output.stdout).unwrap();
    let schema_check = CompiledSchema::compile(&schema).unwrap();
    let mut texts = vec![VALID_CONFIG.to_owned()];
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("config");
    let files = std::fs::read_dir(examples).into_iter().flatten().map(|entry| entry.unwrap().path());
    let files = files.filter(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    texts.extend(files.map(|path| std::fs::read_to_string(path).unwrap()));
    for text in texts {
        let value: Value = serde_saphyr::from_str(&text).unwrap();
        // Documents of agents are not configurations.
        if value.get("listeners").is_some() {
            assert_eq!(schema_check.validate_up_to(&value, 20), [], "{text}");
        }
    }
    assert_ne!(schema_check.validate_up_to(&json!({"listeners": [], "agents": {"sources": ["a"]}}), 20), []);
}

/// A keep-alive connection, and the call that is sent on it.
struct KeepAliveConnection(TcpStream, String);

impl KeepAliveConnection {
    async fn open(gate: &Gateway) -> Self {
        let key = gate.key("team-a");
        let call = format!(
            "POST /agents/echo/invoke HTTP/1.1\r\nHost: a\r\nX-API-Key: {key}\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{{}}"
        );
        Self(TcpStream::connect(gate.address()).await.unwrap(), call)
    }

    async fn call(&mut self) -> u16 {
        self.0.write_all(self.1.as_bytes()).await.unwrap();
        read_response(&mut self.0).await.expect("the connection is open").status
    }
}

#[tokio::test]
async fn a_change_takes_effect_and_connections_stay_open() {
    let echo = Agent::echo().await;
    let gate = gateway().agent("echo", &echo).start().await;
    let mut connection = KeepAliveConnection::open(&gate).await;
    assert_eq!(connection.call().await, 200);
    let config = gate.read_file("gatepost.yaml");
    gate.write_file("gatepost.yaml", &config.replace("agents: ['*']", "agents: ['other']"));
    eventually("the changed grants are in force", async || connection.call().await == 404).await;
    assert_eq!(gate.metric("gatepost_config_last_reload_successful").await, Some(1.0));
    gate.write_file("gatepost.yaml", &config);
    gate.send_signal(Signal::HUP);
    eventually("the previous grants are in force again", async || connection.call().await == 200).await;
}

#[tokio::test]
async fn an_invalid_file_is_rejected_and_reported_and_the_last_valid_one_stays_in_force() {
    let echo = Agent::echo().await;
    let gate = gateway().agent("echo", &echo).start().await;
    let mut connection = KeepAliveConnection::open(&gate).await;
    let config = gate.read_file("gatepost.yaml");
    let broken = [
        config.replace("access:", "acess:"),
        "listeners: [".to_owned(),
        String::new(),
        config.replace("keys.jsonl", "no.keys"),
        config.replace("agents.json", "nowhere.json"),
        format!("{config}limits: {{per_caller: 0/s}}\n"),
    ];
    for text in &broken {
        let rejections = || gate.stderr().matches("configuration reload failed").count();
        let before = rejections();
        gate.write_file("gatepost.yaml", text);
        gate.send_signal(Signal::HUP);
        // The gateway watches the file too, so that it may reject the file twice.
        eventually("the invalid file is rejected", async || rejections() > before).await;
        assert_eq!(connection.call().await, 200, "{text}");
        assert_eq!(gate.metric("gatepost_config_last_reload_successful").await, Some(0.0));
        let ready = gate.admin_page("/readyz").await;
        assert_eq!(ready.status, 200, "the last valid configuration is in force");
        assert!(ready.json()["config"].as_str().unwrap().starts_with("rejected: "), "{}", ready.text());
    }
    gate.write_file("gatepost.yaml", &config);
    eventually("the valid file is loaded", async || {
        gate.metric("gatepost_config_last_reload_successful").await == Some(1.0)
    })
    .await;
    assert_eq!(gate.admin_page("/readyz").await.json()["config"], "ok");
    assert_eq!(connection.call().await, 200);
}

#[tokio::test]
async fn a_change_that_needs_a_restart_is_reported() {
    let echo = Agent::echo().await;
    let gate = gateway().agent("echo", &echo).start().await;
    gate.write_file(
        "gatepost.yaml",
        &gate.read_file("gatepost.yaml").replace("admin:", "shutdown: {drain_timeout: 1s}\nadmin:"),
    );
    let warning = "'shutdown' changed: takes effect at the next start";
    eventually("the warning is logged", async || gate.stderr().contains(warning)).await;
}

#[tokio::test]
async fn a_change_during_the_start_is_loaded_after_the_start() {
    let source = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", source.local_addr().unwrap());
    let section = format!("agents:\n  sources:\n    - {{kind: aidip, url: '{url}', required: false}}\n");
    let builder = gateway().section(&section);
    let file = builder.folder().join("gatepost.yaml");
    let change = async {
        // The configuration was read, and the start waits for the source.
        let (poll, _) = source.accept().await.unwrap();
        let changed =
            std::fs::read_to_string(&file).unwrap().replace("admin:", "shutdown: {drain_timeout: 1s}\nadmin:");
        std::fs::write(&file, changed).unwrap();
        drop((poll, source));
    };
    let (gate, ()) = tokio::join!(builder.start(), change);
    let warning = "'shutdown' changed: takes effect at the next start";
    eventually("the changed file is loaded", async || gate.stderr().contains(warning)).await;
}

#[tokio::test]
async fn r41_a_reload_that_adds_publishers_beside_an_on_demand_source_without_a_list_is_refused_as_a_start_is() {
    let source = "agents:\n  sources:\n    - {kind: aidip, url: 'https://far.example', on_demand: true}\n";
    let gate = gateway().section(source).start().await;
    let config = gate.read_file("gatepost.yaml");
    gate.write_file("gatepost.yaml", &format!("{config}registry: {{sqlite_file: agents.db}}\n"));
    let problem = "agents.sources[0].endpoints: is required where on_demand is true";
    eventually("the reload is refused", async || {
        gate.stderr().lines().any(|line| line.contains("configuration reload failed") && line.contains(problem))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_valid_call_is_denied_during_configuration_reloads() {
    let echo = Agent::echo().await;
    let gate = Arc::new(gateway().agent("echo", &echo).agent("second", &echo).start().await);
    let (done, calls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let callers: Vec<_> = (0..4)
        .map(|at| {
            let (gate, done, calls) = (Arc::clone(&gate), Arc::clone(&done), Arc::clone(&calls));
            tokio::spawn(async move {
                while !done.load(Relaxed) {
                    let response = gate.invoke(["echo", "second"][at % 2], &json!({})).await;
                    assert_eq!(response.status, 200, "{}", response.text());
                    calls.fetch_add(1, Relaxed);
                }
            })
        })
        .collect();
    let config = gate.read_file("gatepost.yaml");
    for round in 1..=4 {
        // More grants come before the others, so that the index of each grant changes.
        let grants = "    - {callers: ['key:unused'], agents: ['*']}\n".repeat(round);
        gate.write_file("gatepost.yaml", &config.replace("  grants:\n", &format!("  grants:\n{grants}")));
        gate.send_signal(Signal::HUP);
        let before = calls.load(Relaxed);
        let reloads = || gate.stderr().matches("configuration reloaded").count();
        eventually("the configuration is reloaded", async || reloads() >= round).await;
        eventually("calls continue", async || calls.load(Relaxed) > before + 20).await;
    }
    done.store(true, Relaxed);
    for caller in callers {
        caller.await.unwrap();
    }
    // A removed grant is removed for the next call.
    gate.write_file("gatepost.yaml", &config.replace("callers: ['*']", "callers: ['key:unused']"));
    gate.send_signal(Signal::HUP);
    eventually("the grant is removed", async || {
        send(gate.post("/agents/echo/invoke").json(&json!({}))).await.status == 404
    })
    .await;
}
