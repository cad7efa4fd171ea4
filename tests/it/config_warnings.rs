//! Warnings of `gatepost check`: settings that are valid, and dangerous. Each has its line and what to do.

use crate::support::{
    certs::CertificateAuthority,
    eventually,
    gateway::{gatepost_command, gateway},
};
use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, process::Output};
use tempfile::TempDir;
use time::{Duration, OffsetDateTime};

const LISTENERS: &str = "listeners: [{address: '127.0.0.1:0'}]\n";
const AGENTS: &str = "agents: {sources: [agents.json]}\n";
const EXTERNAL_URL: &str = "directory: {external_url: 'https://localhost'}\n";

fn folder() -> TempDir {
    let folder = TempDir::new().unwrap();
    set_mode(folder.path(), 0o700);
    fs::write(folder.path().join("agents.json"), "[]").unwrap();
    fs::write(folder.path().join("secret"), "a secret of some length").unwrap();
    let authority = CertificateAuthority::new("warnings");
    fs::write(folder.path().join("ca.pem"), authority.pem()).unwrap();
    authority.server(&["localhost"]).write(folder.path(), "server");
    folder
}

fn check(folder: &Path, yaml: &str, args: &[&str]) -> Output {
    fs::write(folder.join("gatepost.yaml"), yaml).unwrap();
    gatepost_command().current_dir(folder).arg("check").args(args).output().unwrap()
}

/// The warnings that `check` prints for this configuration, which is valid.
fn warnings(folder: &Path, yaml: &str) -> Vec<String> {
    let output = check(folder, yaml, &[]);
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && stdout.contains("valid, 0 agents"), "{yaml}: {stdout}{stderr}");
    stdout
        .lines()
        .filter_map(|line| line.strip_prefix("warning: ").or_else(|| line.strip_prefix("error: ")))
        .map(without_code)
        .collect()
}

/// A warning without its code, which stands at its end.
fn without_code(warning: &str) -> String {
    let (text, code) = warning.rsplit_once(" [GP").unwrap_or_else(|| panic!("no code: {warning}"));
    assert!(code.len() == 5 && code.ends_with(']'), "{warning}");
    text.to_owned()
}

/// Requires exactly one warning, at this line and with these words, and that `--strict` fails on it.
fn expect_warning(folder: &Path, yaml: &str, place: &str, words: &str) {
    let found = warnings(folder, yaml);
    let [warning] = found.as_slice() else { panic!("{yaml}: not one warning: {found:?}") };
    assert!(warning.starts_with(place) && warning.contains(words), "{warning}");
    assert!(warning.ends_with(')') && warning.contains(" ("), "it does not say what to do: {warning}");
    let strict = check(folder, yaml, &["--strict"]);
    let stderr = String::from_utf8_lossy(&strict.stderr);
    assert_eq!(strict.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("1 warning (listed above; --strict allows none)"), "{stderr}");
}

#[test]
fn check_warns_of_open_patterns_beside_restricted_paths() {
    let folder = folder();
    let config = |routes: &str| {
        format!(
            "{LISTENERS}agents:\n  sources: [agents.json]\n  rules:\n    - agents: [a]\n      api:\n        routes:\n{routes}"
        )
    };
    let restricted = "          - {methods: [GET], path: /admin/keys, callers: ['key:admin']}\n";
    let open = |methods: &str, path: &str| format!("          - {{methods: [{methods}], path: '{path}'}}\n");
    for (pattern, words) in [
        ("/**", "/** is open, and lets spellings of /admin/keys pass"),
        ("/admin/**", "which routes[0] restricts"),
        ("/admin/{name}", "list the paths that are open"),
        ("/{area}/keys", "/{area}/keys is open"),
    ] {
        let yaml = config(&format!("{restricted}{}", open("GET, POST", pattern)));
        expect_warning(folder.path(), &yaml, "line 9: agents.rules[0].api.routes[1].path: ", words);
    }
    let first = config(&format!("{}{restricted}", open("GET", "/**")));
    expect_warning(folder.path(), &first, "line 8: agents.rules[0].api.routes[0].path: ", "decides first");
    for harmless in [open("POST", "/**"), open("GET", "/public/**"), open("GET", "/admin/list")] {
        assert_eq!(warnings(folder.path(), &config(&format!("{restricted}{harmless}"))), [""; 0]);
    }
    let preset = |pattern: &str| {
        let route = format!("          - {{methods: [GET], path: {pattern}, callers: ['key:admin']}}\n");
        config(&route).replace("        routes:", "        preset: openai\n        routes:")
    };
    let beside_preset = "/files/** is open, and lets spellings of /files/keys pass";
    expect_warning(folder.path(), &preset("/files/keys"), "line 7: agents.rules[0].api.preset: ", beside_preset);
    assert_eq!(warnings(folder.path(), &preset("/admin/keys")), [""; 0]);
    let both_restricted = "          - {methods: [GET], path: /**, groups: [staff]}\n";
    assert_eq!(warnings(folder.path(), &config(&format!("{restricted}{both_restricted}"))), [""; 0]);
}

#[test]
fn check_warns_of_dangerous_settings_with_the_line_and_what_to_do() {
    let folder = folder();
    let tls = "tls: {certificate: server.pem, key: server.key, client_ca: ca.pem}";
    let other_writers = "registry: {publishers: [{callers: ['key:a']}]}\n";
    let credential =
        |destinations: &str| format!("credential: {{value: 'file:secret', destinations: {{{destinations}}}}}");
    let defaults = |settings: &str| {
        format!("{LISTENERS}{other_writers}agents:\n  sources: [agents.json]\n  defaults:\n    {settings}\n")
    };
    let cases = [
        (
            format!("{LISTENERS}{AGENTS}admin: {{address: '0.0.0.0:9901'}}\n"),
            "line 3: admin.address: ",
            "no authentication",
        ),
        (
            format!("{LISTENERS}{AGENTS}admin: {{address: '[::]:9901'}}\n"),
            "line 3: admin.address: ",
            "no authentication",
        ),
        (
            format!("{AGENTS}listeners:\n  - address: 0.0.0.0:8080\n    allow_plaintext: true\n{EXTERNAL_URL}"),
            "line 4: listeners[0].allow_plaintext: ",
            "in plain text",
        ),
        (
            format!(
                "{AGENTS}listeners:\n  - {{address: '0.0.0.0:0', {tls}}}\naccess: {{grants: [{{callers: [anonymous], agents: ['*']}}]}}\n{EXTERNAL_URL}"
            ),
            "line 4: access.grants[0]: ",
            "without a credential",
        ),
        (
            format!(
                "{AGENTS}listeners:\n  - {{address: '0.0.0.0:0', {tls}}}\naccess: {{grants: [{{callers: [anonymous], agents: ['**']}}]}}\n{EXTERNAL_URL}"
            ),
            "line 4: access.grants[0]: ",
            "without a credential",
        ),
        (
            format!(
                "{AGENTS}listeners:\n  - {{address: '0.0.0.0:0', {tls}}}\naccess: {{grants: [{{callers: [anonymous], capabilities: ['*']}}]}}\n{EXTERNAL_URL}"
            ),
            "line 4: access.grants[0]: ",
            "without a credential",
        ),
        (
            format!(
                "{AGENTS}listeners:\n  - {{address: '127.0.0.1:0', trusted_proxies: ['10.0.0.0/8'], client_address: forwarded}}\naccess: {{grants: [{{callers: [anonymous], agents: ['*']}}]}}\n{EXTERNAL_URL}"
            ),
            "line 4: access.grants[0]: ",
            "without a credential",
        ),
        (
            format!(
                "{AGENTS}listeners:\n  - {{address: '127.0.0.1:0', {tls}}}\nwebsocket: {{allowed_origins: ['*']}}\n"
            ),
            "line 4: websocket.allowed_origins[0]: ",
            "every web page can call as the visitor",
        ),
        (
            format!("{LISTENERS}{AGENTS}network: {{allowed_addresses: ['127.0.0.1', '0.0.0.0/0']}}\n"),
            "line 3: network.allowed_addresses[1]: ",
            "metadata service",
        ),
        (
            format!("{LISTENERS}{AGENTS}network: {{allowed_addresses: ['::/0']}}\n"),
            "line 3: network.allowed_addresses[0]: ",
            "metadata service",
        ),
        (
            format!(
                "{LISTENERS}{AGENTS}tasks:\n  callbacks:\n    secret: file:secret\n    allowed_addresses: [10.0.0.0/8]\n"
            ),
            "line 6: tasks.callbacks.allowed_addresses[0]: ",
            "callers choose the webhooks",
        ),
        (
            format!("{LISTENERS}{AGENTS}resolver: {{allowed_addresses: ['10.0.0.0/8']}}\n"),
            "line 3: resolver.allowed_addresses[0]: ",
            "callers choose the names",
        ),
        (
            format!("{LISTENERS}registry: {{publishers: [{{callers: ['key:a'], endpoints: ['*']}}]}}\n"),
            "line 2: registry.publishers[0].endpoints: ",
            "every server",
        ),
        (
            format!("{LISTENERS}registry: {{publishers: [{{callers: ['*'], any_owner: true}}]}}\n"),
            "line 2: registry.publishers[0].any_owner: ",
            "may replace every published agent",
        ),
        (
            defaults(&credential("origins: ['*']")),
            "line 6: agents.defaults.credential.destinations: ",
            "every server that a publisher",
        ),
        (
            defaults(&format!("allow_plaintext: true\n    {}", credential("sources: [files]"))),
            "line 6: agents.defaults.allow_plaintext: ",
            "in plain text to agents",
        ),
        (
            format!(
                "{LISTENERS}{AGENTS}network: {{allow_plaintext: true}}\nauth: {{bearer: {{issuers: [{{issuer: 'http://login.example.com', audience: [a], algorithms: [ES256]}}]}}}}\n"
            ),
            "line 3: network.allow_plaintext: ",
            "can forge callers",
        ),
        (
            format!("{LISTENERS}{AGENTS}shutdown: {{drain_timeout: 30s}}\n"),
            "line 3: shutdown.drain_timeout: ",
            "shorter than the longest timeouts.total (300s)",
        ),
    ];
    for (yaml, place, words) in cases {
        expect_warning(folder.path(), &yaml, place, words);
    }
}

#[test]
fn check_warns_of_a_listener_beyond_loopback_of_a_gateway_without_a_name() {
    let folder = folder();
    for address in ["10.1.2.3:8080", "[fd00::1]:8080"] {
        let listeners = "listeners:\n  - address: 127.0.0.1:0\n";
        let yaml = format!("{AGENTS}{listeners}  - address: '{address}'\n    allow_plaintext: true\n");
        expect_warning(folder.path(), &yaml, "line 4: listeners[1].address: ", "lead to the host that a request names");
        let output = check(folder.path(), &yaml, &[]);
        assert!(String::from_utf8_lossy(&output.stdout).contains("[GP0140]"), "{output:?}");
        assert_eq!(warnings(folder.path(), &format!("{yaml}{EXTERNAL_URL}")), [""; 0]);
    }
}

#[test]
fn settings_that_are_near_the_dangerous_ones_give_no_warning() {
    let folder = folder();
    let https = "credential: {value: 'file:secret', destinations: {origins: ['https://*.example.com']}}";
    for yaml in [
        format!("{LISTENERS}{AGENTS}admin: {{address: '10.1.2.3:9901'}}\n"),
        format!("{AGENTS}{EXTERNAL_URL}listeners: [{{address: '10.1.2.3:8080', allow_plaintext: true}}]\n"),
        format!(
            "{AGENTS}listeners: [{{address: '10.1.2.3:8080', allow_plaintext: true}}]\ncors: {{allowed_hosts: [gate.example]}}\n"
        ),
        format!("{LISTENERS}{AGENTS}access: {{grants: [{{callers: [anonymous], agents: ['*']}}]}}\n"),
        format!("{LISTENERS}{AGENTS}websocket: {{allowed_origins: ['*']}}\n"),
        format!("{LISTENERS}{AGENTS}network: {{allowed_addresses: ['127.0.0.0/8', '10.0.0.0/8']}}\n"),
        format!("{LISTENERS}{AGENTS}resolver: {{allowed_addresses: ['10.0.0.7', '10.0.0.0/8:443']}}\n"),
        format!("{LISTENERS}agents: {{sources: [agents.json], defaults: {{allow_plaintext: true, {https}}}}}\n"),
        format!("{LISTENERS}{AGENTS}network: {{allow_plaintext: true}}\n"),
        format!(
            "{LISTENERS}agents: {{sources: [agents.json], defaults: {{timeouts: {{total: 20s}}}}}}\nshutdown: {{drain_timeout: 20s}}\n"
        ),
    ] {
        assert_eq!(warnings(folder.path(), &yaml), [""; 0], "{yaml}");
        assert!(check(folder.path(), &yaml, &["--strict"]).status.success(), "{yaml}");
    }
}

#[test]
fn the_longest_timeout_of_a_rule_counts_for_the_drain() {
    let folder = folder();
    let yaml = format!(
        "{LISTENERS}agents:\n  sources: [agents.json]\n  rules: [{{agents: [slow], settings: {{timeouts: {{total: 1h}}}}}}]\nshutdown: {{drain_timeout: 10m}}\n"
    );
    expect_warning(
        folder.path(),
        &yaml,
        "line 5: shutdown.drain_timeout: ",
        "10m is shorter than the longest timeouts.total (3600s)",
    );
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn check_warns_of_secrets_keys_and_files_that_other_users_can_read_or_write() {
    let folder = folder();
    let root = folder.path();
    set_mode(root, 0o755);
    for name in ["secret", "server.key"] {
        set_mode(&root.join(name), 0o600);
    }
    let tls = "tls: {certificate: server.pem, key: server.key}";
    let yaml = format!(
        "{AGENTS}listeners:\n  - address: 127.0.0.1:0\n    {tls}\nauth: {{api_keys: {{pepper: 'file:secret'}}}}\n"
    );
    assert_eq!(warnings(root, &yaml), [""; 0]);
    for (file, place) in
        [("secret", "line 5: auth.api_keys.pepper: "), ("server.key", "line 4: listeners[0].tls.key: ")]
    {
        set_mode(&root.join(file), 0o644);
        expect_warning(root, &yaml, place, "every user of this machine can read");
        set_mode(&root.join(file), 0o640);
        assert_eq!(warnings(root, &yaml), [""; 0], "the group may read it");
    }
    set_mode(&root.join("agents.json"), 0o666);
    expect_warning(root, &yaml, "line 1: agents.sources[0]: ", "can change");
    set_mode(&root.join("agents.json"), 0o644);
    set_mode(&root.join("gatepost.yaml"), 0o646);
    let found = warnings(root, &yaml);
    assert!(found.len() == 1 && found[0].contains("gatepost.yaml, and with it what the gateway does"), "{found:?}");
    set_mode(root, 0o700);
    assert_eq!(warnings(root, &yaml), [""; 0], "other users cannot enter the folder");
}

#[test]
fn check_warns_of_a_certificate_that_is_not_valid_now() {
    let folder = folder();
    let now = OffsetDateTime::now_utc();
    let authority = CertificateAuthority::new("warnings");
    let yaml = format!(
        "{AGENTS}listeners:\n  - address: 127.0.0.1:0\n    tls: {{certificate: server.pem, key: server.key}}\n"
    );
    for (from, to, words) in [(-2, -1, "the certificate expired at"), (1, 2, "the certificate is not valid before")] {
        let issued = authority.server_between(&["localhost"], now + Duration::days(from), now + Duration::days(to));
        issued.write(folder.path(), "server");
        expect_warning(folder.path(), &yaml, "line 4: listeners[0].tls.certificate: ", words);
    }
}

#[test]
fn strict_also_fails_on_documents_that_are_not_served() {
    let folder = folder();
    fs::write(folder.path().join("agents.json"), r#"[{"id": "no spaces"}]"#).unwrap();
    let yaml = format!("{LISTENERS}{AGENTS}");
    assert!(check(folder.path(), &yaml, &[]).status.success());
    let strict = check(folder.path(), &yaml, &["--strict"]);
    assert!(
        !strict.status.success() && String::from_utf8_lossy(&strict.stdout).contains("note: not served"),
        "{strict:?}"
    );
}

#[tokio::test]
async fn run_logs_the_warnings_at_the_start_and_at_a_reload() {
    let gate = gateway().section("shutdown: {drain_timeout: 30s}\n").start().await;
    assert!(gate.stderr().contains("shutdown.drain_timeout: 30s is shorter"), "{}", gate.stderr());
    let config = gate.read_file("gatepost.yaml");
    gate.write_file(
        "gatepost.yaml",
        &config.replace("resolver: {allowed_addresses: [127.0.0.0/8]}", "resolver: {allowed_addresses: [10.0.0.0/8]}"),
    );
    gate.send_signal(rustix::process::Signal::HUP);
    eventually("the warning is logged", async || gate.stderr().contains("every server in 10.0.0.0/8")).await;
}
