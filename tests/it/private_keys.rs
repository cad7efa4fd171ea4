//! Private keys in files with mistakes: no command and no log repeats them, wherever the configuration names the file.

use crate::support::{
    certs::CertificateAuthority,
    eventually,
    gateway::{gatepost_command, gateway},
};
use std::{fmt::Write as _, path::Path};
use tempfile::TempDir;

/// The settings that can name the file, each as a section of the configuration.
const SETTINGS: [&str; 30] = [
    "listeners: [{address: '127.0.0.1:0', tls: {certificate: good.pem, key: bad.key}}]",
    "listeners: [{address: '127.0.0.1:0', tls: {certificate: bad.key, key: good.key}}]",
    "listeners: [{address: '127.0.0.1:0', tls: {certificate: good.pem, key: good.key, client_ca: bad.key}}]",
    "listeners: [{address: '127.0.0.1:0', tls: {certificate: good.pem, key: good.key, client_ca: good.pem, client_crl: [bad.key]}}]",
    "agents: {sources: [agents.json], defaults: {tls: {ca: bad.key}}}",
    "agents: {sources: [agents.json], defaults: {tls: {certificate: good.pem, key: bad.key}}}",
    "agents: {sources: [agents.json], defaults: {tls: {certificate: bad.key, key: good.key}}}",
    "agents: {sources: [bad.key]}",
    "agents: {sources: [{kind: aidip, url: 'https://localhost:1/', credential: {mtls: {certificate: good.pem, key: bad.key}}}]}",
    "agents: {sources: [{kind: aidip, url: 'https://localhost:1/', credential: {mtls: {certificate: bad.key, key: good.key}}}]}",
    "agents: {sources: [{kind: aidip, url: 'https://localhost:1/', credential: {mtls: {certificate: good.pem, key: good.key, ca: bad.key}}}]}",
    "agents: {sources: [{kind: aidip, url: 'https://localhost:1/', credential: {bearer: 'file:bad.key'}}]}",
    "agents: {sources: [{kind: kubernetes, url: 'https://localhost:1/', kubernetes: {namespaces: [a], ca: bad.key}, credential: {bearer: 'file:good.key'}}]}",
    "agents: {sources: [{kind: kubernetes, url: 'https://localhost:1/', kubernetes: {namespaces: [a]}, credential: {bearer: 'file:bad.key'}}]}",
    "agents: {sources: [{kind: kubernetes, url: 'https://localhost:1/', kubernetes: {namespaces: [a]}, credential: {mtls: {certificate: good.pem, key: bad.key}}}]}",
    "agents: {sources: [{kind: kubernetes, url: 'https://localhost:1/', kubernetes: {namespaces: [a]}, credential: {mtls: {certificate: bad.key, key: good.key, ca: bad.key}}}]}",
    "agents: {sources: [{kind: agent_framework, url: 'https://localhost:1/', publisher_jwks: bad.key}]}",
    "agents: {sources: [agents.json], rules: [{agents: ['*'], api: {openapi: bad.key}}]}",
    "directory: {external_url: 'https://gate.example', signing_key: 'file:bad.key'}",
    "directory: {external_url: 'https://gate.example', search: {model: bad.key}}",
    "network: {ca: bad.key}",
    "auth: {api_keys: {files: [bad.key]}}",
    "auth: {api_keys: {files: [keys.jsonl], pepper: 'file:bad.key'}}",
    "resolver: {publisher_jwks: bad.key}",
    "tracing: {endpoint: 'https://localhost:1', ca_file: bad.key}",
    "tasks: {database: 'postgres://u@localhost:1/x', database_ca: bad.key}",
    "tasks: {database: 'file:bad.key'}",
    "state: {redis: {url: 'rediss://localhost:1', ca: bad.key}}",
    "state: {redis: {url: 'file:bad.key'}}",
    "mqtt_bridge: {brokers: [{url: 'mqtts://localhost:1', ca: bad.key, api_key: 'file:bad.key'}]}",
];

/// The spellings of a key file that do not parse, with what the problem of a listener's key says of each.
fn spellings(key: &str) -> Vec<(Vec<u8>, &'static str)> {
    vec![
        (key.replace('\n', "\\n").into(), "two characters"),
        (key.replace('\n', "").into(), "line breaks are missing"),
        (format!("\u{feff}{key}").into(), "byte-order mark"),
        (key.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY").into(), "encrypted"),
        (key.split("-----END").next().unwrap().into(), "is missing"),
    ]
}

/// Fails if `output` has sixteen bytes of the key in a row: as text, as decimal numbers, or in hexadecimal.
fn assert_no_key(output: &str, key: &str, place: &str) {
    let body: String = key.lines().filter(|line| !line.starts_with("-----")).collect();
    for window in body.as_bytes().windows(16).step_by(4) {
        let text = std::str::from_utf8(window).unwrap();
        let decimal = window.iter().map(u8::to_string).collect::<Vec<_>>().join(", ");
        let hex = window.iter().fold(String::new(), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        });
        for form in [text, &decimal, &decimal.replace(' ', ""), &hex] {
            assert!(!output.contains(form), "{place}: {form} in {output}");
        }
    }
}

fn run(folder: &Path, args: &[&str]) -> String {
    let output = gatepost_command().args(args).current_dir(folder).output().unwrap();
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

fn write_files(folder: &Path) -> String {
    let authority = CertificateAuthority::new("authority");
    let good = authority.server(&["localhost"]);
    std::fs::write(folder.join("good.pem"), &good.certificate).unwrap();
    std::fs::write(folder.join("good.key"), &good.key).unwrap();
    std::fs::write(folder.join("agents.json"), "[]").unwrap();
    std::fs::write(folder.join("keys.jsonl"), "").unwrap();
    good.key
}

fn config(setting: &str) -> String {
    let defaults = [
        ("listeners:", "listeners: [{address: '127.0.0.1:0'}]\n"),
        ("agents:", "agents: {sources: [agents.json]}\n"),
        ("auth:", "auth: {api_keys: {files: [keys.jsonl]}}\n"),
    ];
    let others = defaults.iter().filter(|(name, _)| !setting.starts_with(name)).map(|(_, section)| *section);
    others.collect::<String>() + setting + "\n"
}

#[test]
fn a_private_key_with_mistakes_is_printed_by_no_command_wherever_its_file_is_named() {
    let folder = TempDir::new().unwrap();
    let key = write_files(folder.path());
    for (at, setting) in SETTINGS.into_iter().enumerate() {
        std::fs::write(folder.path().join("gatepost.yaml"), config(setting)).unwrap();
        for (text, mistake) in spellings(&key) {
            std::fs::write(folder.path().join("bad.key"), &text).unwrap();
            let output = run(folder.path(), &["check", "-c", "gatepost.yaml"]);
            assert_no_key(&output, &key, setting);
            if at == 0 {
                assert!(output.contains("tls.key: ") && output.contains(mistake), "{mistake}: {output}");
            }
            if setting.contains("aidip") && setting.contains("certificate: good.pem, key: bad.key") {
                assert!(output.contains("mtls.key: ") && output.contains(mistake), "{mistake}: {output}");
            }
        }
        assert_no_key(&run(folder.path(), &["doctor", "--offline", "-c", "gatepost.yaml"]), &key, setting);
    }
    for (text, _) in spellings(&key) {
        std::fs::write(folder.path().join("bad.key"), &text).unwrap();
        assert_no_key(&run(folder.path(), &["check", "-c", "bad.key"]), &key, "the configuration itself");
        assert_no_key(&run(folder.path(), &["key", "list", "--file", "bad.key"]), &key, "key list");
    }
}

#[tokio::test]
async fn a_key_file_that_is_replaced_by_one_with_mistakes_is_not_in_the_log() {
    let build =
        gateway().listeners("listeners:\n  - address: 127.0.0.1:0\n    tls: {certificate: good.pem, key: good.key}\n");
    let key = write_files(build.folder());
    let gate = build.start().await;
    for (text, mistake) in spellings(&key) {
        std::fs::write(gate.folder().join("good.key"), text).unwrap();
        eventually(mistake, async || gate.stderr().contains(mistake)).await;
    }
    assert_no_key(&gate.stderr(), &key, "the log");
}
