//! `gatepost doctor`: each prepared mistake is named by its code, at the line to change; a configuration without mistakes
//! has no finding; and the examination itself does no harm.

use crate::support::{
    agent::{Agent, Step, http_response, json_response},
    certs::CertificateAuthority,
    closed_port::ClosedPort,
    gateway::{gatepost_command, new_key},
    issuer::TokenIssuer,
    servers::{EchoServer, RawAgent, server_tls_config},
};
use serde_json::{Value, json};
use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    time::{Duration, Instant},
};
use tempfile::TempDir;
use time::OffsetDateTime;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

pub const LISTENERS: &str = "listeners: [{address: '127.0.0.1:0'}]\nnetwork: {allowed_addresses: [127.0.0.0/8]}\n";
pub const AGENTS: &str = "agents: {sources: [agents]}\n";
pub const ACCESS: &str =
    "auth: {api_keys: {files: [keys.jsonl]}}\naccess: {grants: [{callers: ['key:team-a'], agents: ['*']}]}\n";

/// What doctor said of a folder.
pub struct Report {
    folder: std::path::PathBuf,
    pub exit_code: i32,
    pub findings: Vec<Value>,
    pub text: String,
}

/// A folder with the files that configurations of these tests name.
pub fn folder() -> TempDir {
    let folder = TempDir::new().unwrap();
    let root = folder.path();
    set_mode(root, 0o700);
    fs::create_dir(root.join("agents")).unwrap();
    fs::write(root.join("key"), new_key(root, "team-a", &[])).unwrap();
    let authority = CertificateAuthority::new("doctor");
    fs::write(root.join("ca.pem"), authority.pem()).unwrap();
    authority.server(&["agents.example.com"]).write(root, "server");
    authority.server(&["other.example.com"]).write(root, "other");
    fs::write(root.join("secret"), "a secret of some length").unwrap();
    folder
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

pub fn add_agent(folder: &Path, document: &Value) {
    let id = document["id"].as_str().unwrap();
    fs::write(folder.join(format!("agents/{id}.json")), format!("{document:#}")).unwrap();
}

pub async fn diagnose(folder: &Path, yaml: &str, args: &[&str]) -> Report {
    fs::write(folder.join("gatepost.yaml"), yaml).unwrap();
    let mut command = gatepost_command();
    command.current_dir(folder).args(["doctor", "--json"]).args(args);
    // The peers of a test run on the same thread.
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let report: Value = serde_json::from_str(&text)
        .unwrap_or_else(|why| panic!("{why}: {text}{}", String::from_utf8_lossy(&output.stderr)));
    let findings = report["findings"].as_array().unwrap().clone();
    Report { folder: folder.to_owned(), exit_code: output.status.code().unwrap(), findings, text }
}

impl Report {
    pub fn codes(&self) -> Vec<&str> {
        self.findings.iter().map(|finding| finding["code"].as_str().unwrap()).collect()
    }

    pub fn serious(&self) -> Vec<&Value> {
        self.findings.iter().filter(|finding| finding["severity"] != "info").collect()
    }

    /// Requires a finding with this code in a line of `file` that contains `words`, and none that is serious besides it.
    pub fn expect(&self, code: &str, file: &str, words: &str) -> Value {
        let found: Vec<&Value> = self.findings.iter().filter(|finding| finding["code"] == code).collect();
        let [finding] = found.as_slice() else { panic!("not one {code}: {}", self.text) };
        let others: Vec<_> = self.serious().into_iter().filter(|other| other["code"] != code).collect();
        assert!(others.is_empty(), "{code} is not alone: {others:#?}");
        assert_eq!(finding["file"], file, "{finding:#}");
        let text = fs::read_to_string(self.folder.join(file)).unwrap();
        let line = finding["line"].as_u64().unwrap_or_else(|| panic!("no line: {finding:#}"));
        let line = text.lines().nth(line as usize - 1).unwrap_or_else(|| panic!("{file} is shorter: {finding:#}"));
        assert!(line.contains(words), "the line is {line:?}: {finding:#}");
        assert!(!finding["problem"].as_str().unwrap().is_empty() && !finding["fix"].as_str().unwrap().is_empty());
        let threshold = i32::from(finding["severity"] == "error");
        assert_eq!(self.exit_code, threshold, "{}", self.text);
        (*finding).clone()
    }
}

pub fn config(sections: &str) -> String {
    format!("{LISTENERS}{AGENTS}{ACCESS}{sections}")
}

pub fn tls_listener(certificate: &str, key: &str) -> String {
    format!(
        "listeners:\n  - address: 127.0.0.1:0\n    tls:\n      certificate: {certificate}\n      key: {key}\n{AGENTS}{ACCESS}"
    )
}

pub fn issuer_config(url: &str, settings: &str) -> String {
    let issuers = format!("  bearer:\n    issuers:\n      - issuer: {url}\n        algorithms: [ES256]\n{settings}");
    let access = "access: {grants: [{callers: ['oauth:*'], agents: ['*']}]}\n";
    format!("{LISTENERS}{AGENTS}auth:\n{issuers}{access}")
}

#[tokio::test]
async fn doctor_names_an_expired_certificate() {
    let folder = folder();
    let (now, day) = (OffsetDateTime::now_utc(), time::Duration::days(1));
    let authority = CertificateAuthority::new("old");
    authority.server_between(&["a.example.com"], now - day * 9, now - day).write(folder.path(), "old");
    diagnose(folder.path(), &tls_listener("old.pem", "old.key"), &[]).await.expect(
        "GP0203",
        "gatepost.yaml",
        "certificate: old.pem",
    );
    authority.server_between(&["a.example.com"], now + day, now + day * 9).write(folder.path(), "new");
    diagnose(folder.path(), &tls_listener("new.pem", "new.key"), &[]).await.expect(
        "GP0204",
        "gatepost.yaml",
        "certificate: new.pem",
    );
    authority.server_between(&["a.example.com"], now - day, now + day * 3).write(folder.path(), "soon");
    diagnose(folder.path(), &tls_listener("soon.pem", "soon.key"), &[]).await.expect(
        "GP0205",
        "gatepost.yaml",
        "certificate: soon.pem",
    );
}

#[tokio::test]
async fn doctor_names_authorities_that_have_expired_and_a_revocation_list_that_is_too_old() {
    let folder = folder();
    let (now, day) = (OffsetDateTime::now_utc(), time::Duration::days(1));
    let old = CertificateAuthority::new("old").server_between(&["a.example.com"], now - day * 9, now - day);
    fs::write(folder.path().join("clients.pem"), &old.certificate).unwrap();
    let listener = |settings: &str| tls_listener("server.pem", &format!("server.key\n{settings}"));
    let report = diagnose(folder.path(), &listener("      client_ca: clients.pem"), &[]).await;
    report.expect("GP0209", "gatepost.yaml", "client_ca: clients.pem");
    // One valid authority is enough: an old one may stay beside its successor.
    let both = format!("{}{}", old.certificate, fs::read_to_string(folder.path().join("ca.pem")).unwrap());
    fs::write(folder.path().join("clients.pem"), both).unwrap();
    let report = diagnose(folder.path(), &listener("      client_ca: clients.pem"), &[]).await;
    assert!(report.serious().is_empty(), "{}", report.text);
    fs::write(folder.path().join("old.crl"), CertificateAuthority::new("lists").revocation_list(now - day)).unwrap();
    let lists = "      client_ca: ca.pem\n      client_crl:\n        - old.crl";
    diagnose(folder.path(), &listener(lists), &[]).await.expect("GP0210", "gatepost.yaml", "old.crl");
}

#[tokio::test]
async fn doctor_names_a_key_that_does_not_match_its_certificate() {
    let folder = folder();
    let report = diagnose(folder.path(), &tls_listener("server.pem", "other.key"), &[]).await;
    report.expect("GP0202", "gatepost.yaml", "certificate: server.pem");
    fs::write(folder.path().join("broken.key"), "no key").unwrap();
    let report = diagnose(folder.path(), &tls_listener("server.pem", "broken.key"), &[]).await;
    report.expect("GP0201", "gatepost.yaml", "key: broken.key");
    let report = diagnose(folder.path(), &tls_listener("missing.pem", "server.key"), &[]).await;
    report.expect("GP0200", "gatepost.yaml", "certificate: missing.pem");
}

#[tokio::test]
async fn doctor_names_a_certificate_for_another_host_and_a_chain_in_the_wrong_order() {
    let folder = folder();
    let url = "directory:\n  external_url: https://agents.example.com\n";
    let report = diagnose(folder.path(), &format!("{}{url}", tls_listener("other.pem", "other.key")), &[]).await;
    report.expect("GP0207", "gatepost.yaml", "certificate: other.pem");
    let chain = ["server.pem", "other.pem"].map(|file| fs::read_to_string(folder.path().join(file)).unwrap()).concat();
    fs::write(folder.path().join("chain.pem"), chain).unwrap();
    let report = diagnose(folder.path(), &format!("{}{url}", tls_listener("chain.pem", "server.key")), &[]).await;
    report.expect("GP0206", "gatepost.yaml", "certificate: chain.pem");
}

#[tokio::test]
async fn doctor_names_an_audience_that_is_not_the_gateways() {
    let folder = folder();
    let issuer = TokenIssuer::start().await;
    let jwks = format!("        jwks_url: {}/jwks\n", issuer.url());
    let own = "directory: {external_url: 'https://agents.example.com'}\n";
    let audience =
        |audience: &str| issuer_config(&issuer.url(), &format!("{jwks}        audience: [{audience}]\n")) + own;
    let report = diagnose(folder.path(), &audience("'https://other.example.com'"), &[]).await;
    report.expect("GP0301", "gatepost.yaml", "audience: ['https://other.example.com']");
    let report = diagnose(folder.path(), &audience(&format!("'{}'", issuer.url())), &[]).await;
    report.expect("GP0301", "gatepost.yaml", "audience:");
    let report = diagnose(folder.path(), &audience("'https://agents.example.com'"), &[]).await;
    assert!(report.serious().is_empty(), "{}", report.text);
    let report = diagnose(folder.path(), &audience(""), &[]).await;
    report.expect("GP0300", "gatepost.yaml", "audience: []");
}

#[tokio::test]
async fn doctor_verifies_a_callers_token_and_names_the_claim_that_refuses_it() {
    let folder = folder();
    let issuer = TokenIssuer::start().await;
    let settings = format!("        jwks_url: {}/jwks\n        audience: [gatepost]\n", issuer.url());
    let yaml = issuer_config(&issuer.url(), &settings);
    fs::write(folder.path().join("token"), issuer.token(&json!({}))).unwrap();
    let report = diagnose(folder.path(), &yaml, &["--token", "file:token"]).await;
    assert!(report.serious().is_empty(), "{}", report.text);
    fs::write(folder.path().join("token"), issuer.token(&json!({"aud": "billing"}))).unwrap();
    let report = diagnose(folder.path(), &yaml, &["--token", "file:token"]).await;
    let finding = report.expect("GP0307", "gatepost.yaml", "audience: [gatepost]");
    assert!(finding["problem"].as_str().unwrap().contains("audience"), "{finding:#}");
}

#[tokio::test]
async fn doctor_names_an_issuer_that_cannot_be_used() {
    let folder = folder();
    let audience = "        audience: [gatepost]\n";
    let port = ClosedPort::new();
    let url = format!("http://{}", port.address);
    let report = diagnose(folder.path(), &issuer_config(&url, audience), &[]).await;
    report.expect("GP0302", "gatepost.yaml", "issuer: http");
    let jwks = format!("        jwks_url: {url}/jwks\n");
    let report =
        diagnose(folder.path(), &issuer_config("https://issuer.example.com", &format!("{jwks}{audience}")), &[]).await;
    report.expect("GP0302", "gatepost.yaml", "jwks_url:");
    let other = Agent::scripted(|_| {
        json_response(&json!({"issuer": "https://other.example.com", "jwks_uri": "https://other.example.com/jwks"}))
    })
    .await;
    let report = diagnose(folder.path(), &issuer_config(&format!("http://{}", other.address), audience), &[]).await;
    report.expect("GP0303", "gatepost.yaml", "issuer: http");
    let without_keys = Agent::scripted(|_| json_response(&json!({"keys": []}))).await;
    let jwks = format!("        jwks_url: http://{}/jwks\n", without_keys.address);
    let report =
        diagnose(folder.path(), &issuer_config("https://issuer.example.com", &format!("{jwks}{audience}")), &[]).await;
    report.expect("GP0304", "gatepost.yaml", "jwks_url:");
}

#[tokio::test]
async fn doctor_names_an_introspection_endpoint_that_refuses_the_gateway() {
    let folder = folder();
    let endpoint = Agent::with_steps(http_response("401 Unauthorized", "application/json", "{}")).await;
    let introspection = |address| {
        let section = format!(
            "  bearer:\n    introspection:\n      endpoint: http://{address}/introspect\n      client_id: gatepost\n      client_secret: file:secret\n"
        );
        format!("{LISTENERS}{AGENTS}auth:\n{section}access: {{grants: [{{callers: ['oauth:*'], agents: ['*']}}]}}\n")
    };
    let report = diagnose(folder.path(), &introspection(endpoint.address), &[]).await;
    report.expect("GP0306", "gatepost.yaml", "client_id: gatepost");
    let port = ClosedPort::new();
    let report = diagnose(folder.path(), &introspection(port.address), &[]).await;
    report.expect("GP0305", "gatepost.yaml", "endpoint: http");
}

#[tokio::test]
async fn doctor_names_a_broker_that_is_down() {
    let folder = folder();
    let port = ClosedPort::new();
    let bridge = format!(
        "mqtt_bridge:\n  - url: mqtt://{}\n    api_key: file:key\n    agents: ['*']\n    state_folder: null\n",
        port.address
    );
    diagnose(folder.path(), &config(&bridge), &[]).await.expect("GP0500", "gatepost.yaml", "url: mqtt://");
    let source = format!("agents:\n  sources:\n    - agents\n    - kind: mqtt\n      url: mqtt://{}\n", port.address);
    let report = diagnose(folder.path(), &format!("{LISTENERS}{ACCESS}{source}"), &[]).await;
    report.expect("GP0500", "gatepost.yaml", "url: mqtt://");
}

#[tokio::test]
async fn doctor_and_check_name_an_example_that_its_own_schema_refuses() {
    let folder = folder();
    let agent = Agent::echo().await;
    let mut document = agent.document("adder");
    document["operations"] = json!([{"name": "add", "inputs": {"type": "object", "required": ["a"]},
        "outputs": {}, "examples": [{"input": {"b": 1}}]}]);
    add_agent(folder.path(), &document);
    let report = diagnose(folder.path(), &config(""), &[]).await;
    let finding = report.expect("GP0704", "agents/adder.json", "\"input\"");
    assert_eq!(finding["subject"], json!({"kind": "agent", "name": "adder"}));
    let output = gatepost_command().current_dir(folder.path()).arg("check").output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(stdout.contains("[GP0704]") && stdout.contains("adder.json"), "{stdout}");
}

#[tokio::test]
async fn doctor_names_documents_that_are_not_served() {
    let folder = folder();
    let agent = Agent::echo().await;
    add_agent(folder.path(), &agent.document("one"));
    let refused = async |document: &str, code: &str, words: &str| {
        fs::write(folder.path().join("agents/two.json"), document).unwrap();
        diagnose(folder.path(), &config(""), &[]).await.expect(code, "agents/two.json", words);
    };
    let with = |members: &str| {
        format!("{{\n  \"id\": \"two\",\n  \"name\": \"Two\",\n  \"endpoint\": \"{}\",\n  {members}\n}}\n", agent.url())
    };
    refused(&with("\"inputs\": {\"type\": \"nothing\"}"), "GP0703", "inputs").await;
    refused(&with("\"version\": 3"), "GP0700", "version").await;
    let plain = with("\"version\": \"1\"").replace(&agent.url(), "http://10.255.0.7/invoke");
    refused(&plain, "GP0709", "endpoint").await;
    refused("{\n  \"id\": \"two\",\n  oops\n}\n", "GP0604", "oops").await;
    let mut duplicate = agent.document("one");
    duplicate["name"] = json!("another");
    fs::write(folder.path().join("agents/two.json"), format!("{duplicate:#}")).unwrap();
    let report = diagnose(folder.path(), &config(""), &[]).await;
    assert_eq!(report.codes(), ["GP0702", "GP0702"], "{}", report.text);
}

#[tokio::test]
async fn doctor_and_check_name_a_card_that_the_gateway_does_not_call_without_calling_it_a_mistake() {
    let folder = folder();
    let agent = Agent::echo().await;
    add_agent(folder.path(), &agent.document("one"));
    let card = json!({"name": "Two", "protocolVersion": "0.3.0", "url": "https://two.example/", "preferredTransport": "GRPC", "skills": []});
    fs::write(folder.path().join("agents/two.json"), format!("{card:#}")).unwrap();
    let report = diagnose(folder.path(), &config(""), &[]).await;
    assert!(report.serious().is_empty() && report.exit_code == 0, "{}", report.text);
    let finding = report.findings.iter().find(|finding| finding["code"] == "GP0710").unwrap();
    assert!(finding["problem"].as_str().unwrap().contains("'GRPC' only"), "{finding}");
    assert_eq!(finding["file"], "agents/two.json");
    let mut command = gatepost_command();
    command.current_dir(folder.path()).args(["check", "-c", "gatepost.yaml"]);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && stdout.contains("[GP0710]") && stdout.contains("'GRPC' only"), "{stdout}");
}

#[tokio::test]
async fn doctor_names_an_agent_at_an_address_that_may_not_be_reached() {
    let folder = folder();
    let document = |endpoint: &str| json!({"id": "private", "name": "Private", "endpoint": endpoint, "authentication": {"type": "api_key"}});
    add_agent(folder.path(), &document("https://10.255.0.7/invoke"));
    let closed = "listeners: [{address: '127.0.0.1:0'}]\nnetwork:\n  allow_private_addresses: false\n";
    let report = diagnose(folder.path(), &format!("{closed}{AGENTS}{ACCESS}"), &[]).await;
    let finding = report.expect("GP0801", "agents/private.json", "endpoint");
    assert_eq!(finding["related"][0]["path"], "network.allow_private_addresses", "{finding:#}");
    let private = diagnose(folder.path(), &config(""), &["--agent", "private", "--offline"]).await;
    assert!(private.findings.is_empty(), "no machine is contacted: {}", private.text);
    // Loopback, and the metadata service, are refused without an entry.
    for endpoint in ["http://127.0.0.1:9/invoke", "https://169.254.169.254/latest"] {
        add_agent(folder.path(), &document(endpoint));
        let report =
            diagnose(folder.path(), &format!("listeners: [{{address: '127.0.0.1:0'}}]\n{AGENTS}{ACCESS}"), &[]).await;
        report.expect("GP0801", "agents/private.json", "endpoint");
    }
}

#[tokio::test]
async fn doctor_names_an_agent_whose_name_does_not_resolve_and_one_that_is_down() {
    let folder = folder();
    add_agent(
        folder.path(),
        &json!({"id": "lost", "name": "Lost", "endpoint": "https://agent.invalid/invoke", "authentication": {"type": "api_key"}}),
    );
    diagnose(folder.path(), &config(""), &[]).await.expect("GP0800", "agents/lost.json", "agent.invalid");
    let port = ClosedPort::new();
    add_agent(
        folder.path(),
        &json!({"id": "lost", "name": "Lost", "endpoint": format!("http://{}/x", port.address), "authentication": {"type": "api_key"}}),
    );
    diagnose(folder.path(), &config(""), &[]).await.expect("GP0802", "agents/lost.json", "endpoint");
    let silent = Agent::with_steps(vec![Step::Close]).await;
    add_agent(folder.path(), &silent.document("lost"));
    diagnose(folder.path(), &config(""), &[]).await.expect("GP0808", "agents/lost.json", "endpoint");
}

#[tokio::test]
async fn doctor_names_what_is_wrong_with_an_agents_certificate() {
    let folder = folder();
    let authority = CertificateAuthority::new("agents");
    fs::write(folder.path().join("agents.pem"), authority.pem()).unwrap();
    let trusting = "agents:\n  sources: [agents]\n  defaults:\n    tls:\n      ca: agents.pem\n";
    let trusting = format!("{LISTENERS}{trusting}{ACCESS}");
    let (now, day) = (OffsetDateTime::now_utc(), time::Duration::days(1));
    let cases = [
        (authority.server(&["127.0.0.1"]), None),
        (
            CertificateAuthority::new("foreign").server(&["127.0.0.1"]),
            Some(("GP0803", "gatepost.yaml", "ca: agents.pem")),
        ),
        (
            authority.server_between(&["127.0.0.1"], now - day * 9, now - day),
            Some(("GP0804", "agents/tls.json", "endpoint")),
        ),
        (authority.server(&["other.example.com"]), Some(("GP0805", "agents/tls.json", "endpoint"))),
        (
            authority.server_between(&["127.0.0.1"], now - day, now + day * 2),
            Some(("GP0807", "agents/tls.json", "endpoint")),
        ),
    ];
    for (certificate, expected) in cases {
        let server = EchoServer::start(Some(server_tls_config(&certificate, None, &[b"http/1.1"]))).await;
        add_agent(folder.path(), &server.document("tls", "https"));
        let report = diagnose(folder.path(), &trusting, &[]).await;
        match expected {
            Some((code, file, words)) => drop(report.expect(code, file, words)),
            None => assert!(report.serious().is_empty(), "{}", report.text),
        }
    }
    let plain = Agent::echo().await;
    let mut document = plain.document("tls");
    document["endpoint"] = json!(format!("https://{}/x", plain.address));
    add_agent(folder.path(), &document);
    diagnose(folder.path(), &trusting, &[]).await.expect("GP0806", "agents/tls.json", "endpoint");
}

#[tokio::test]
async fn doctor_names_an_agent_that_refuses_the_gateways_credential() {
    let folder = folder();
    let agent = Agent::scripted(|request| match request.header("authorization") {
        Some("Bearer the right one") => json_response(&json!({})),
        _ => http_response("401 Unauthorized", "application/json", "{}"),
    })
    .await;
    add_agent(folder.path(), &agent.document("strict"));
    let with_credential = |destinations: &str| {
        let credential = format!("    credential:\n      value: file:secret\n      destinations: {destinations}\n");
        format!("{LISTENERS}agents:\n  sources: [agents]\n  defaults:\n{credential}{ACCESS}")
    };
    let everywhere = with_credential("{sources: [files]}");
    let report = diagnose(folder.path(), &everywhere, &[]).await;
    report.expect("GP0809", "gatepost.yaml", "value: file:secret");
    fs::write(folder.path().join("secret"), "the right one").unwrap();
    let report = diagnose(folder.path(), &everywhere, &[]).await;
    assert!(report.findings.is_empty(), "{}", report.text);
    // The credential goes where calls send it, and nowhere else.
    let seen = agent.call_count();
    let report = diagnose(folder.path(), &with_credential("{origins: ['https://other.example.com']}"), &[]).await;
    report.expect("GP0809", "gatepost.yaml", "destinations:");
    let requests = agent.requests();
    assert!(requests[seen..].iter().all(|request| request.header("authorization").is_none()), "{requests:?}");
    let report = diagnose(folder.path(), &config(""), &[]).await;
    report.expect("GP0809", "agents/strict.json", "endpoint");
}

#[tokio::test]
async fn doctor_names_a_document_that_differs_from_the_agents_own_card() {
    let folder = folder();
    let card = std::sync::Arc::new(std::sync::Mutex::new(json!({})));
    let published = std::sync::Arc::clone(&card);
    let agent = Agent::scripted(move |request| {
        if request.head.contains("/.well-known/agent-card.json") {
            json_response(&published.lock().unwrap())
        } else {
            json_response(&json!({}))
        }
    })
    .await;
    let mut document = agent.document("skilled");
    document["version"] = json!("1.0.0");
    document["operations"] = json!([{"name": "translate"}]);
    add_agent(folder.path(), &document);
    let publish = |version: &str, skill: &str| {
        *card.lock().unwrap() = json!({"name": "skilled", "description": "d", "version": version, "url": agent.url(),
            "protocolVersion": "0.3.0", "capabilities": {}, "defaultInputModes": ["text"], "defaultOutputModes": ["text"],
            "skills": [{"id": skill, "name": skill, "description": "d", "tags": []}]});
    };
    publish("1.0.0", "translate");
    let report = diagnose(folder.path(), &config(""), &[]).await;
    assert!(report.serious().is_empty(), "{}", report.text);
    publish("2.0.0", "translate");
    diagnose(folder.path(), &config(""), &[]).await.expect("GP0811", "agents/skilled.json", "\"version\"");
    publish("1.0.0", "summarise");
    let report = diagnose(folder.path(), &config(""), &[]).await;
    let finding = report.expect("GP0811", "agents/skilled.json", "\"operations\"");
    assert!(finding["problem"].as_str().unwrap().contains("summarise"), "{finding:#}");
}

#[tokio::test]
async fn doctor_names_a_store_that_cannot_be_used() {
    let folder = folder();
    let port = ClosedPort::new();
    let database = format!("registry:\n  database: postgres://gatepost@{}/gatepost\n", port.address);
    diagnose(folder.path(), &config(&database), &[]).await.expect("GP0401", "gatepost.yaml", "database:");
    fs::write(folder.path().join("text.db"), "this is no database").unwrap();
    let file = "registry:\n  sqlite_file: text.db\n";
    let report = diagnose(folder.path(), &config(file), &[]).await;
    report.expect("GP0400", "gatepost.yaml", "sqlite_file: text.db");
    let missing = "tasks:\n  sqlite_file: nowhere/tasks.db\n";
    let report = diagnose(folder.path(), &config(missing), &[]).await;
    assert!(report.codes().contains(&"GP0400"), "{}", report.text);
}

#[tokio::test]
async fn doctor_names_secrets_that_others_read_and_listeners_without_tls() {
    let folder = folder();
    let exposed = "directory: {external_url: 'https://a.example.com', signing_key: 'file:cards.pem'}\n";
    let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    fs::write(folder.path().join("cards.pem"), pair.serialize_pem()).unwrap();
    set_mode(&folder.path().join("cards.pem"), 0o644);
    // Others may enter the folder, or its files' modes would not matter; the other files are closed.
    for entry in fs::read_dir(folder.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() && !path.ends_with("cards.pem") {
            set_mode(&path, 0o600);
        }
    }
    set_mode(folder.path(), 0o711);
    diagnose(folder.path(), &config(exposed), &[]).await.expect("GP0106", "gatepost.yaml", "signing_key");
    let rest = format!("network: {{allowed_addresses: [127.0.0.0/8]}}\n{AGENTS}{ACCESS}");
    let report = diagnose(folder.path(), &format!("listeners:\n  - address: 0.0.0.0:8080\n{rest}"), &[]).await;
    report.expect("GP0109", "gatepost.yaml", "address: 0.0.0.0:8080");
    let own = "directory: {external_url: 'https://a.example.com'}\n";
    let plain = format!("listeners:\n  - address: 0.0.0.0:8080\n    allow_plaintext: true\n{own}{rest}");
    diagnose(folder.path(), &plain, &[]).await.expect("GP0110", "gatepost.yaml", "allow_plaintext: true");
}

#[tokio::test]
async fn doctor_names_what_is_wrong_with_a_source() {
    let folder = folder();
    let source = |address, settings: &str| {
        let source = format!("    - kind: aidip\n      url: http://{address}/agents\n{settings}");
        format!("{LISTENERS}{ACCESS}agents:\n  sources:\n    - agents\n{source}")
    };
    let html =
        Agent::with_steps(http_response("200 OK", "text/html", "<!doctype html><html><body>Sign in</body></html>"))
            .await;
    diagnose(folder.path(), &source(html.address, ""), &[]).await.expect("GP0601", "gatepost.yaml", "url: http");
    let refusing = Agent::with_steps(http_response("401 Unauthorized", "application/json", "{}")).await;
    let bearer = "      credential:\n        bearer: file:secret\n";
    let report = diagnose(folder.path(), &source(refusing.address, bearer), &[]).await;
    report.expect("GP0602", "gatepost.yaml", "bearer: file:secret");
    let port = ClosedPort::new();
    diagnose(folder.path(), &source(port.address, ""), &[]).await.expect("GP0600", "gatepost.yaml", "url: http");
    let empty = Agent::scripted(|_| json_response(&json!([]))).await;
    diagnose(folder.path(), &source(empty.address, ""), &[]).await.expect("GP0603", "gatepost.yaml", "url: http");
    let jwk = json!({"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"});
    fs::write(folder.path().join("keys.jwks"), json!({"keys": [jwk]}).to_string()).unwrap();
    let agent = Agent::echo().await;
    let unsigned = agent.document("unsigned");
    let list = Agent::scripted(move |_| json_response(&json!([unsigned]))).await;
    let signed = "      publisher_jwks: keys.jwks\n      require_signature: true\n      endpoints: ['*']\n";
    let report = diagnose(folder.path(), &source(list.address, signed), &["--threshold", "error"]).await;
    let finding =
        report.findings.iter().find(|finding| finding["code"] == "GP0701").unwrap_or_else(|| panic!("{}", report.text));
    let yaml = fs::read_to_string(folder.path().join("gatepost.yaml")).unwrap();
    let line = yaml.lines().nth(finding["line"].as_u64().unwrap() as usize - 1).unwrap();
    assert!(line.contains("require_signature: true"), "{finding:#}");
}

#[tokio::test]
async fn doctor_names_grants_that_can_never_apply() {
    let folder = folder();
    let agent = Agent::echo().await;
    add_agent(folder.path(), &agent.document("one"));
    let access = |auth: &str, grants: &str| format!("{LISTENERS}{AGENTS}{auth}access:\n  grants:\n{grants}");
    let keys = "auth: {api_keys: {files: [keys.jsonl]}}\n";
    let report =
        diagnose(folder.path(), &access(keys, "    - callers: ['key:team-b']\n      agents: ['*']\n"), &[]).await;
    report.expect("GP0121", "gatepost.yaml", "key:team-b");
    let report =
        diagnose(folder.path(), &access(keys, "    - callers: ['key:team-a']\n      agents: [onn]\n"), &[]).await;
    report.expect("GP0122", "gatepost.yaml", "onn");
    let report = diagnose(folder.path(), &format!("{LISTENERS}{AGENTS}{keys}"), &[]).await;
    assert_eq!(report.codes(), ["GP0123"], "{}", report.text);
    let report =
        diagnose(folder.path(), &access("", "    - callers: ['key:team-a']\n      agents: ['*']\n"), &[]).await;
    assert_eq!(report.codes(), ["GP0708", "GP0120"], "{}", report.text);
}

#[tokio::test]
async fn doctor_names_keys_that_are_no_longer_valid() {
    let folder = folder();
    let file = folder.path().join("keys.jsonl");
    let key = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("{key}not a key\n")).unwrap();
    let report = diagnose(folder.path(), &config(""), &[]).await;
    let finding = &report.findings[0];
    assert_eq!((&finding["code"], &finding["line"]), (&json!("GP0126"), &json!(2)), "{}", report.text);
    let mut expired: Value = serde_json::from_str(key.trim()).unwrap();
    expired["expires"] = json!("2020-01-01T00:00:00Z");
    fs::write(&file, format!("{expired}\n")).unwrap();
    diagnose(folder.path(), &config(""), &[]).await.expect("GP0127", "gatepost.yaml", "key:team-a");
}

#[tokio::test]
async fn doctor_names_two_listeners_at_one_address_and_a_receiver_of_traces_that_is_down() {
    let folder = folder();
    let rest = format!("network: {{allowed_addresses: [127.0.0.0/8]}}\n{AGENTS}{ACCESS}");
    let twice = format!("listeners:\n  - address: 127.0.0.1:9901\nadmin:\n  address: 127.0.0.1:9901\n{rest}");
    diagnose(folder.path(), &twice, &[]).await.expect("GP0124", "gatepost.yaml", "address: 127.0.0.1:9901");
    let port = ClosedPort::new();
    let tracing = format!("tracing:\n  endpoint: http://{}\n", port.address);
    diagnose(folder.path(), &config(&tracing), &[]).await.expect("GP0125", "gatepost.yaml", "endpoint:");
}

/// A configuration with one rule of agents.
fn config_with_rule(rule: &str) -> String {
    format!("{LISTENERS}{ACCESS}agents:\n  sources: [agents]\n  rules:\n{rule}")
}

#[tokio::test]
async fn doctor_names_an_openapi_document_that_cannot_be_fetched_and_operations_that_cannot_be_checked() {
    let folder = folder();
    let agent = Agent::echo().await;
    add_agent(folder.path(), &agent.document("one"));
    let get = |schema: Value| {
        let parameter = json!({"name": "id", "in": "path", "required": true, "schema": schema});
        json!({"get": {"parameters": [parameter], "responses": {}}})
    };
    let paths = |schema: Value| {
        json!({"openapi": "3.1.0", "info": {}, "paths": {"/items/{id}": get(schema), "/other": {"get": {}}}})
            .to_string()
    };
    let page = |status: &str, body: &str| http_response(status, "application/json", body);
    for (steps, code, problem) in [
        (page("200 OK", &paths(json!({"type": "string"}))), "", ""),
        (page("200 OK", &paths(json!({"pattern": "(?=x"}))), "GP0712", "/items/{id}"),
        (page("404 Not Found", ""), "GP0711", "404"),
        (page("200 OK", "no document"), "GP0711", ""),
        (page("200 OK", "{\"openapi\": \"2.0\"}"), "GP0711", ""),
        (vec![Step::Reset], "GP0711", ""),
    ] {
        let server = Agent::with_steps(steps).await;
        let rule = format!(
            "    - agents: [one]\n      api:\n        base: {}\n        openapi: http://{}/openapi.json\n",
            agent.url(),
            server.address
        );
        let report = diagnose(folder.path(), &config_with_rule(&rule), &[]).await;
        if code.is_empty() {
            assert!(report.findings.is_empty() && report.exit_code == 0, "{}", report.text);
            continue;
        }
        let finding = report.expect(code, "gatepost.yaml", "openapi:");
        assert!(finding["problem"].as_str().unwrap().contains(problem), "{finding}");
    }
}

#[tokio::test]
async fn doctor_names_a_model_that_its_server_does_not_list_and_a_key_that_it_refuses() {
    let folder = folder();
    fs::write(folder.path().join("model-key"), "sk-secret").unwrap();
    let models = json!({"object": "list", "data": [{"id": "qwen3:latest"}, {"id": "llama"}]}).to_string();
    let page = |status: &str, body: &str| http_response(status, "application/json", body);
    for (steps, model, code, words, problem) in [
        (page("200 OK", &models), "qwen3", "", "", ""),
        (page("200 OK", &models), "gpt", "GP0814", "model: gpt", "it has qwen3:latest, llama"),
        (page("401 Unauthorized", "{}"), "qwen3", "GP0809", "value: file:model-key", "401"),
        (page("500 Oh", "{}"), "qwen3", "GP0813", "", "500"),
        // Servers without a list say nothing about their models.
        (page("404 Not Found", "{}"), "gpt", "", "", ""),
        (page("200 OK", "<html>"), "gpt", "", "", ""),
        (page("200 OK", "{\"data\": []}"), "gpt", "", "", ""),
    ] {
        let server = Agent::with_steps(steps).await;
        let document = json!({"id": "one", "name": "one", "endpoint": format!("{}/v1", server.url()), "authentication": {"type": "api_key"}});
        add_agent(folder.path(), &document);
        let rule = format!(
            "    - agents: [one]\n      endpoint:\n        kind: openai\n        model: {model}\n      settings:\n        credential:\n\
             \x20         header: Authorization\n          value: file:model-key\n          destinations: {{origins: ['http://127.0.0.1:*']}}\n"
        );
        let report = diagnose(folder.path(), &config_with_rule(&rule), &[]).await;
        let asked: Vec<String> = server.requests().iter().map(|request| request.head.clone()).collect();
        assert_eq!(asked.len(), 1, "{asked:?}");
        assert!(asked[0].starts_with("GET /") && asked[0].contains("/v1/models HTTP/1.1"), "{asked:?}");
        assert!(!report.text.contains("sk-secret"), "{}", report.text);
        if code.is_empty() {
            assert!(report.serious().is_empty(), "{}", report.text);
            continue;
        }
        let file = if words.is_empty() { "agents/one.json" } else { "gatepost.yaml" };
        let finding = report.expect(code, file, words);
        assert!(finding["problem"].as_str().unwrap().contains(problem), "{finding}");
    }
}

#[tokio::test]
async fn doctor_names_agents_that_are_slow_and_agents_that_fail() {
    let folder = folder();
    let mut steps = vec![Step::Sleep(Duration::from_millis(2_300))];
    steps.extend(json_response(&json!({})));
    let slow = Agent::with_steps(steps).await;
    add_agent(folder.path(), &slow.document("slow"));
    diagnose(folder.path(), &config(""), &[]).await.expect("GP0810", "agents/slow.json", "endpoint");
    let failing = Agent::with_steps(http_response("500 Internal Server Error", "application/json", "{}")).await;
    add_agent(folder.path(), &failing.document("slow"));
    diagnose(folder.path(), &config(""), &[]).await.expect("GP0813", "agents/slow.json", "endpoint");
}

#[tokio::test]
async fn doctor_refuses_agents_at_the_gateways_own_listener() {
    let folder = folder();
    let document = json!({"id": "loop", "name": "Loop", "endpoint": "http://127.0.0.1:38080/agents/loop/invoke",
        "authentication": {"type": "api_key"}});
    add_agent(folder.path(), &document);
    let yaml = format!(
        "listeners: [{{address: '127.0.0.1:38080'}}]\nnetwork: {{allowed_addresses: [127.0.0.0/8]}}\n{AGENTS}{ACCESS}"
    );
    diagnose(folder.path(), &yaml, &[]).await.expect("GP0801", "agents/loop.json", "endpoint");
}

#[tokio::test]
async fn doctor_names_a_broker_that_refuses_the_login_and_one_without_mqtt_5() {
    let folder = folder();
    let bridge = |address: std::net::SocketAddr| {
        config(&format!(
            "mqtt_bridge:\n  - url: mqtt://{address}\n    api_key: file:key\n    agents: ['*']\n    state_folder: null\n    mqtt:\n      username: file:secret\n      password: file:secret\n"
        ))
    };
    // CONNACK of MQTT 5: bad user name or password.
    let refusing = broker(|_| vec![0x20, 3, 0, 0x86, 0]).await;
    diagnose(folder.path(), &bridge(refusing.address), &[]).await.expect("GP0501", "gatepost.yaml", "username:");
    // The level of the protocol is the byte after its name.
    let old =
        broker(|connect| if connect.contains(&5) && connect.get(8) == Some(&5) { vec![] } else { vec![0x20, 2, 0, 0] })
            .await;
    let report = diagnose(folder.path(), &bridge(old.address), &[]).await;
    assert!(report.codes().contains(&"GP0502") && report.serious().is_empty(), "{}", report.text);
}

/// A broker that answers the first packet of a connection with these bytes, and closes the connection if there are none.
pub async fn broker(connack: impl Fn(&[u8]) -> Vec<u8> + Copy + Send + Sync + 'static) -> RawAgent {
    RawAgent::start(move |mut stream, _| async move {
        let mut packet = [0; 512];
        let length = stream.read(&mut packet).await.unwrap_or_default();
        let answer = connack(&packet[..length]);
        if !answer.is_empty() && stream.write_all(&answer).await.is_ok() {
            let _ = stream.read(&mut packet).await;
        }
    })
    .await
}

#[tokio::test]
async fn doctor_examines_agents_although_other_settings_cannot_be_used() {
    let folder = folder();
    let port = ClosedPort::new();
    let mut document = Agent::echo().await.document("down");
    document["endpoint"] = json!(format!("http://{}/x", port.address));
    add_agent(folder.path(), &document);
    let yaml = format!(
        "listeners:\n  - address: 0.0.0.0:8080\nnetwork: {{allowed_addresses: [127.0.0.0/8]}}\nagents: {{sources: [agents, none.json]}}\n{ACCESS}"
    );
    let report = diagnose(folder.path(), &yaml, &[]).await;
    let mut codes = report.codes();
    codes.sort_unstable();
    assert_eq!(codes, ["GP0102", "GP0109", "GP0802"], "{}", report.text);
}

#[tokio::test]
async fn doctor_names_settings_that_cannot_be_used() {
    let folder = folder();
    for (sections, code, words) in [
        ("limits:\n  per_caler: 5/s\n", "GP0101", "per_caler"),
        ("limits:\n  per_caller: five\n", "GP0101", "per_caller"),
        (
            "directory:\n  external_url: https://a.example.com\n  signing_key: env:GATEPOST_TEST_UNSET\n",
            "GP0103",
            "signing_key",
        ),
        ("limits: {\n", "GP0100", ""),
    ] {
        let report = diagnose(folder.path(), &config(sections), &[]).await;
        report.expect(code, "gatepost.yaml", words);
    }
    let output = gatepost_command().current_dir(folder.path()).args(["doctor", "-c", "none.yaml"]).output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.code() == Some(1) && stdout.contains("none.yaml: error GP0100"), "{stdout}");
}

#[tokio::test]
async fn doctor_asks_agents_for_no_work_unless_the_operator_wants_their_examples_called() {
    let folder = folder();
    let agent = Agent::scripted(|request| {
        if request.head.starts_with("POST") {
            http_response("500 Internal Server Error", "application/json", "{}")
        } else {
            json_response(&json!({}))
        }
    })
    .await;
    let mut document = agent.document("worker");
    document["operations"] = json!([{"name": "work", "inputs": {}, "outputs": {}, "examples": [{"input": {"a": 1}}]}]);
    add_agent(folder.path(), &document);
    let report = diagnose(folder.path(), &config(""), &[]).await;
    assert!(report.findings.is_empty(), "{}", report.text);
    let methods: Vec<String> =
        agent.requests().iter().map(|request| request.head.split(' ').next().unwrap().to_owned()).collect();
    assert!(
        !methods.is_empty() && methods.iter().all(|method| ["OPTIONS", "HEAD", "GET"].contains(&&**method)),
        "{methods:?}"
    );
    let report = diagnose(folder.path(), &config(""), &["--call-examples"]).await;
    report.expect("GP0812", "agents/worker.json", "{");
    let post = agent.requests().into_iter().find(|request| request.head.starts_with("POST")).unwrap();
    assert_eq!(post.json(), json!({"a": 1}));
}

#[tokio::test]
async fn doctor_ends_in_time_although_agents_never_answer() {
    let folder = folder();
    let silent = Agent::with_steps(vec![Step::Hang]).await;
    for number in 0..40 {
        add_agent(folder.path(), &silent.document(&format!("silent-{number}")));
    }
    let began = Instant::now();
    let report = diagnose(folder.path(), &config(""), &["--timeout", "3"]).await;
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    assert_eq!(report.findings.len(), 40, "{}", report.text);
    assert!(report.codes().iter().all(|code| *code == "GP0001"), "{}", report.text);
    let report = diagnose(folder.path(), &config(""), &["--timeout", "20", "--agent", "silent-7"]).await;
    assert_eq!((report.codes(), &report.findings[0]["subject"]["name"]), (vec!["GP0808"], &json!("silent-7")));
    let report = diagnose(folder.path(), &config(""), &["--agent", "nobody"]).await;
    assert_eq!(report.codes(), ["GP0003"], "{}", report.text);
}

#[tokio::test]
async fn doctor_finds_nothing_in_a_healthy_gateway_and_writes_nothing() {
    let folder = folder();
    let agent = Agent::echo().await;
    add_agent(folder.path(), &agent.document("one"));
    let remote = agent.document("two");
    let list = Agent::scripted(move |_| json_response(&json!([remote]))).await;
    let yaml = format!(
        "{LISTENERS}{ACCESS}registry: {{sqlite_file: gatepost.db}}\ntasks: {{}}\nagents:\n  sources:\n    - agents\n    - kind: aidip\n      url: http://{}/agents\n      endpoints: ['http://127.0.0.1:*']\n",
        list.address
    );
    let before = fs::read_dir(folder.path()).unwrap().count() + 1;
    let report = diagnose(folder.path(), &yaml, &["--threshold", "info"]).await;
    assert_eq!((report.exit_code, report.findings.len()), (0, 0), "{}", report.text);
    assert!(report.text.contains("\"agents_examined\": 2"), "{}", report.text);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), before, "doctor wrote a file");
}

#[tokio::test]
async fn doctor_reads_published_agents_from_a_store_with_the_gateways_schema() {
    let folder = folder();
    let agent = Agent::echo().await;
    let port = ClosedPort::new();
    let published = TempDir::new().unwrap();
    let mut lost = agent.document("lost");
    lost["endpoint"] = json!(format!("http://{}/x", port.address));
    fs::write(published.path().join("lost.json"), lost.to_string()).unwrap();
    let yaml = format!(
        "{LISTENERS}{ACCESS}registry:\n  sqlite_file: gatepost.db\n  publishers: [{{callers: ['key:team-a'], endpoints: ['http://127.0.0.1:*']}}]\n"
    );
    fs::write(folder.path().join("gatepost.yaml"), &yaml).unwrap();
    let import = gatepost_command()
        .current_dir(folder.path())
        .args(["registry", "import", "--owner", "key:team-a"])
        .arg(published.path())
        .output()
        .unwrap();
    assert!(import.status.success(), "{}", String::from_utf8_lossy(&import.stderr));
    diagnose(folder.path(), &yaml, &[]).await.expect("GP0802", "gatepost.yaml", "");
}

#[tokio::test]
async fn a_servers_text_reaches_the_terminal_without_control_characters() {
    let folder = folder();
    let hostile = Agent::scripted(|_| json_response(&json!([{"id": "\u{1b}[31mred\nline", "name": 5}]))).await;
    let yaml = format!(
        "{LISTENERS}{ACCESS}agents:\n  sources:\n    - agents\n    - kind: aidip\n      url: http://{}/agents\n",
        hostile.address
    );
    fs::write(folder.path().join("gatepost.yaml"), &yaml).unwrap();
    let mut command = gatepost_command();
    command.current_dir(folder.path()).arg("doctor");
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(!stdout.contains('\u{1b}') && stdout.contains("GP07"), "{stdout}");
}

#[test]
fn doctor_has_exit_codes_for_findings_and_for_usage() {
    let folder = folder();
    fs::write(
        folder.path().join("gatepost.yaml"),
        format!("{LISTENERS}{AGENTS}auth: {{api_keys: {{files: [keys.jsonl]}}}}\n"),
    )
    .unwrap();
    let exit_code = |args: &[&str]| {
        gatepost_command().current_dir(folder.path()).arg("doctor").args(args).output().unwrap().status.code().unwrap()
    };
    assert_eq!(exit_code(&["--offline"]), 0, "a warning is below the threshold");
    assert_eq!(exit_code(&["--offline", "--threshold", "warning"]), 1);
    assert_eq!(exit_code(&["--threshold", "fatal"]), 2);
    assert_eq!(exit_code(&["--timeout", "0"]), 2);
    assert_eq!(exit_code(&["--token", "eyJhbGciOi"]), 2, "a token is not an argument");
    assert_eq!(exit_code(&["--offline", "--call-examples"]), 2);
}

#[test]
fn the_page_of_codes_lists_every_code_as_the_command_does() {
    let output = gatepost_command().args(["doctor", "--list"]).output().unwrap();
    let listed = String::from_utf8(output.stdout).unwrap();
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/doctor.md")).unwrap();
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| GP")).collect();
    let row = |code: &gatepost::doctor::FindingCode| {
        let row = code.row();
        format!("| {} | {} | {} | {} |", row.code, row.severity, row.meaning, row.fix)
    };
    let expected: Vec<String> = gatepost::doctor::FindingCode::ALL.iter().map(row).collect();
    assert_eq!(rows, expected, "docs/doctor.md and the table differ");
    for code in gatepost::doctor::FindingCode::ALL {
        assert!(listed.contains(&format!("{} ", code.row().code)), "{listed}");
    }
}
