//! Misconfigurations that somebody chose who had not seen the code (docs/doctor.md): doctor names the line that was
//! changed, and the fix mends it; `check` agrees with doctor.

use crate::{
    doctor::{
        ACCESS, AGENTS, LISTENERS, Report, add_agent, broker, config, diagnose, folder, issuer_config, tls_listener,
    },
    support::{
        agent::{Agent, http_response, json_response},
        certs::CertificateAuthority,
        closed_port::ClosedPort,
        gateway::{gatepost_command, new_key},
        issuer::TokenIssuer,
        servers::{EchoServer, RawAgent, server_tls_config},
    },
};
use serde_json::{Value, json};
use std::{fs, path::Path};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const KEYS: &str = "auth: {api_keys: {files: [keys.jsonl]}}\n";

/// What `gatepost check` prints, and whether it succeeds.
fn check(folder: &Path, yaml: &str, variables: &[(&str, &str)]) -> (bool, String) {
    fs::write(folder.join("gatepost.yaml"), yaml).unwrap();
    let mut command = gatepost_command();
    let output = command.current_dir(folder).arg("check").envs(variables.iter().copied()).output().unwrap();
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    (output.status.success(), text)
}

/// Doctor's text with these environment variables.
async fn diagnose_with(folder: &Path, yaml: &str, variables: &[(&str, &str)]) -> String {
    fs::write(folder.join("gatepost.yaml"), yaml).unwrap();
    let mut command = gatepost_command();
    command.current_dir(folder).arg("doctor").envs(variables.iter().copied());
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A server that answers a TLS handshake in plain text, as web servers do.
async fn plain_server() -> RawAgent {
    RawAgent::start(|mut stream, _| async move {
        let _ = stream.read(&mut [0; 512]).await;
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n").await;
    })
    .await
}

/// A configuration with rules of access, each in a line of its own, and an agent "one" with a tag.
async fn access(folder: &Path, auth: &str, rules: &str) -> (Agent, String) {
    let agent = Agent::echo().await;
    let mut document = agent.document("one");
    document["tags"] = json!(["public"]);
    add_agent(folder, &document);
    (agent, format!("{LISTENERS}{AGENTS}{auth}access:\n{rules}"))
}

/// Doctor's report about rules of access beside a grant that is right.
async fn diagnose_rules(folder: &Path, rules: &str) -> Report {
    let grant = "  grants:\n    - {callers: ['key:team-a'], agents: ['*']}\n";
    let (_agent, yaml) = access(folder, KEYS, &format!("{grant}{rules}")).await;
    diagnose(folder, &yaml, &[]).await
}

fn problem(finding: &Value) -> &str {
    finding["problem"].as_str().unwrap()
}

fn fix(finding: &Value) -> &str {
    finding["fix"].as_str().unwrap()
}

#[tokio::test]
async fn a_jwks_url_that_serves_a_page_is_named() {
    let folder = folder();
    let page = Agent::with_steps(http_response("200 OK", "text/html", "<!doctype html><html>Sign in</html>")).await;
    let settings = format!("        jwks_url: http://{}/jwks\n        audience: [gatepost]\n", page.address);
    let report = diagnose(folder.path(), &issuer_config("https://issuer.example.com", &settings), &[]).await;
    report.expect("GP0302", "gatepost.yaml", "jwks_url:");
}

#[tokio::test]
async fn an_algorithm_that_no_key_of_the_issuer_has_is_named_at_the_algorithms() {
    let folder = folder();
    let issuer = TokenIssuer::start().await;
    let settings = format!("        jwks_url: {}/jwks\n        audience: [gatepost]\n", issuer.url());
    let yaml = issuer_config(&issuer.url(), &settings).replace("[ES256]", "[RS256]");
    let finding = diagnose(folder.path(), &yaml, &[]).await.expect("GP0304", "gatepost.yaml", "algorithms: [RS256]");
    assert!(problem(&finding).contains("the issuer has 1 key, and none"), "{finding:#}");
}

#[tokio::test]
async fn a_caller_without_its_kind_is_named_and_the_fix_has_the_right_form() {
    let folder = folder();
    let (_agent, yaml) = access(folder.path(), KEYS, "  grants:\n    - {callers: ['team-a'], agents: ['*']}\n").await;
    let finding = diagnose(folder.path(), &yaml, &[]).await.expect("GP0101", "gatepost.yaml", "callers: ['team-a']");
    assert!(fix(&finding).starts_with("write the kind: key:team-a"), "{finding:#}");
    assert!(!problem(&finding).contains("write the kind"), "{finding:#}");
}

#[tokio::test]
async fn an_unknown_agent_in_a_grant_is_named_beside_sources_that_were_read_and_doubted_beside_others() {
    let folder = folder();
    let remote = Agent::echo().await;
    let document = remote.document("two");
    let list = Agent::scripted(move |_| json_response(&json!([document]))).await;
    let rules =
        "  grants:\n    - callers: ['key:team-a']\n      agents:\n        - one\n        - two\n        - ecko\n";
    let (_agent, yaml) = access(folder.path(), KEYS, rules).await;
    let with_source = |address: std::net::SocketAddr| {
        let source = format!(
            "agents:\n  sources:\n    - agents\n    - kind: aidip\n      url: http://{address}/agents\n      endpoints: ['http://127.0.0.1:*']\n"
        );
        yaml.replace(AGENTS, &source)
    };
    let finding = diagnose(folder.path(), &with_source(list.address), &[]).await;
    finding.expect("GP0122", "gatepost.yaml", "- ecko");
    // The same source, while it cannot be read: the gap is said.
    let port = ClosedPort::new();
    let report = diagnose(folder.path(), &with_source(port.address), &[]).await;
    let mut codes = report.codes();
    codes.sort_unstable();
    assert_eq!(codes, ["GP0138", "GP0600"], "{}", report.text);
    let doubt = report.findings.iter().find(|finding| finding["code"] == "GP0138").unwrap();
    assert!(problem(doubt).contains("was not read") && problem(doubt).contains("ecko"), "{doubt:#}");
    let report = diagnose(folder.path(), &yaml.replace("\n        - ecko", ""), &[]).await;
    assert_eq!(report.codes(), ["GP0122"], "two is in no file: {}", report.text);
}

#[tokio::test]
async fn a_tier_that_limits_do_not_have_is_named_in_the_file_of_keys() {
    let folder = folder();
    new_key(folder.path(), "team-b", &["--tier".to_owned(), "platinum".to_owned()]);
    let limits = "limits: {tiers: {gold: {per_caller: 10/s}}}\n";
    let report = diagnose(folder.path(), &config(limits), &[]).await;
    let finding = report.expect("GP0132", "keys.jsonl", "platinum");
    assert!(problem(&finding).contains("key:team-b") && problem(&finding).contains("gold"), "{finding:#}");
    let (is_valid, text) = check(folder.path(), &config(limits), &[]);
    assert!(is_valid && text.contains("warning: keys.jsonl:2: ") && text.contains("[GP0132]"), "{text}");
}

#[tokio::test]
async fn an_agent_whose_method_no_caller_can_use_is_named() {
    let folder = folder();
    let agent = Agent::echo().await;
    let mut document = agent.document("one");
    document["authentication"] = json!({"type": "mtls"});
    add_agent(folder.path(), &document);
    diagnose(folder.path(), &config(""), &[]).await.expect("GP0708", "agents/one.json", "authentication");
}

#[tokio::test]
async fn an_endpoint_that_is_the_gateway_itself_is_said_to_be_its_own_listener() {
    let folder = folder();
    add_agent(
        folder.path(),
        &json!({"id": "loop", "name": "Loop", "endpoint": "http://127.0.0.1:38081/agents/loop/invoke",
            "authentication": {"type": "api_key"}}),
    );
    let yaml = format!(
        "listeners:\n  - address: 127.0.0.1:38081\nnetwork: {{allowed_addresses: [127.0.0.0/8]}}\n{AGENTS}{ACCESS}"
    );
    let finding = diagnose(folder.path(), &yaml, &[]).await.expect("GP0801", "agents/loop.json", "endpoint");
    assert!(problem(&finding).contains("the gateway's own listener at listeners[0].address"), "{finding:#}");
    assert!(!finding.to_string().contains("list the address"), "no list helps: {finding:#}");
    assert_eq!(finding["related"][0]["line"], 2, "{finding:#}");
}

#[tokio::test]
async fn https_at_a_plain_port_is_named_in_plain_words() {
    let folder = folder();
    let plain = plain_server().await;
    let mut document = Agent::echo().await.document("one");
    document["endpoint"] = json!(format!("https://{}/x", plain.address));
    add_agent(folder.path(), &document);
    let finding = diagnose(folder.path(), &config(""), &[]).await.expect("GP0806", "agents/one.json", "endpoint");
    assert!(problem(&finding).contains("does not speak TLS at this port"), "{finding:#}");
    assert!(!problem(&finding).contains("InvalidContentType"), "{finding:#}");
}

#[tokio::test]
async fn trusted_proxies_without_client_address_are_named_with_the_setting_to_write() {
    let folder = folder();
    let yaml = config("").replace(
        "listeners: [{address: '127.0.0.1:0'}]",
        "listeners:\n  - address: 127.0.0.1:0\n    trusted_proxies: [10.0.0.0/8]",
    );
    let finding = diagnose(folder.path(), &yaml, &[]).await.expect("GP0101", "gatepost.yaml", "address: 127.0.0.1:0");
    assert!(fix(&finding).starts_with("write proxy_protocol, forwarded or x_forwarded_for"), "{finding:#}");
}

#[tokio::test]
async fn a_denial_that_cancels_a_grant_is_named() {
    let folder = folder();
    let rules = "  denials:\n    - {callers: ['key:team-a'], agents: [one]}\n";
    let grant = "  grants:\n    - {callers: ['key:team-a'], agents: [one]}\n";
    let (_agent, yaml) = access(folder.path(), KEYS, &format!("{grant}{rules}")).await;
    let finding = diagnose(folder.path(), &yaml, &[]).await.expect("GP0133", "gatepost.yaml", "key:team-a");
    assert_eq!((&finding["line"], &finding["related"][0]["line"]), (&json!(9), &json!(7)), "{finding:#}");
    let (is_valid, text) = check(folder.path(), &yaml, &[]);
    assert!(is_valid && text.contains("[GP0133]"), "{text}");
    // A grant of more than the denial refuses is not cancelled.
    let report = diagnose_rules(folder.path(), rules).await;
    assert!(report.findings.is_empty(), "{}", report.text);
}

#[tokio::test]
async fn check_and_doctor_agree_about_an_expired_certificate() {
    let folder = folder();
    let (now, day) = (time::OffsetDateTime::now_utc(), time::Duration::days(1));
    let authority = CertificateAuthority::new("old");
    authority.server_between(&["a.example.com"], now - day * 9, now - day).write(folder.path(), "old");
    let yaml = tls_listener("old.pem", "old.key");
    diagnose(folder.path(), &yaml, &[]).await.expect("GP0203", "gatepost.yaml", "certificate: old.pem");
    let (is_valid, text) = check(folder.path(), &yaml, &[]);
    assert!(is_valid, "a restart with an expired certificate does not end the service: {text}");
    assert!(text.contains("error: line 4: ") && text.contains("[GP0203]"), "{text}");
}

#[tokio::test]
async fn a_misspelt_environment_variable_is_named() {
    let folder = folder();
    let section = [("GATEPOST__LIMIT__PER_CALLER", "5/s")];
    let (is_valid, text) = check(folder.path(), &config(""), &section);
    assert!(!is_valid && text.contains("GATEPOST__LIMIT__PER_CALLER") && !text.contains("line 1"), "{text}");
    let text = diagnose_with(folder.path(), &config(""), &section).await;
    assert!(text.contains("GP0101") && text.contains("GATEPOST__LIMIT__PER_CALLER"), "{text}");
    assert!(text.contains("fix: correct the name or the value of the environment variable GATEPOST__LIMIT"), "{text}");
    assert!(!text.contains("gatepost.yaml:1:"), "{text}");
    let underscore = [("GATEPOST_LIMITS__PER_CALLER", "5/s"), ("GATEPOST_LOG", "warn")];
    let (is_valid, text) = check(folder.path(), &config(""), &underscore);
    assert!(is_valid && text.contains("write GATEPOST__LIMITS__PER_CALLER") && text.contains("[GP0137]"), "{text}");
    let text = diagnose_with(folder.path(), &config(""), &underscore).await;
    assert!(text.contains("GP0137") && text.matches("GP0137").count() == 1, "{text}");
    // A variable that the configuration refers to is not meant as an override.
    let secret = "directory: {external_url: 'https://a.example.com', signing_key: 'env:GATEPOST_CARD__KEY'}\n";
    let (_, text) = check(folder.path(), &config(secret), &[("GATEPOST_CARD__KEY", "no key")]);
    assert!(!text.contains("GP0137"), "{text}");
}

#[tokio::test]
async fn the_audience_of_another_service_is_shown_beside_that_of_the_token() {
    let folder = folder();
    let issuer = TokenIssuer::start().await;
    let settings = format!("        jwks_url: {}/jwks\n        audience: [billing]\n", issuer.url());
    let yaml = issuer_config(&issuer.url(), &settings);
    let token = async |claims: Value, yaml: &str, words: &str| {
        fs::write(folder.path().join("token"), issuer.token(&claims)).unwrap();
        diagnose(folder.path(), yaml, &["--token", "file:token"]).await.expect("GP0307", "gatepost.yaml", words)
    };
    let finding = token(json!({}), &yaml, "audience: [billing]").await;
    assert!(problem(&finding).contains("aud is gatepost, and audience expects billing"), "{finding:#}");
    let yaml = yaml.replace("[billing]", "[gatepost]");
    let finding = token(json!({"iss": "https://other.example.com"}), &yaml, "issuer: http").await;
    assert!(problem(&finding).contains("iss is https://other.example.com"), "{finding:#}");
    let claims = format!("{settings}        claims: {{caller: [employee]}}\n").replace("[billing]", "[gatepost]");
    let finding = token(json!({}), &issuer_config(&issuer.url(), &claims), "employee").await;
    assert!(problem(&finding).contains("looked for employee"), "{finding:#}");
    let other = TokenIssuer::start().await;
    let forged = other.token(&json!({"iss": issuer.url(), "aud": "gatepost"}));
    // The same key id with another key: the signature is wrong. Another id is said to be unknown.
    let (header, rest) = forged.split_once('.').unwrap();
    let engine = base64::engine::general_purpose::URL_SAFE_NO_PAD;
    let decoded = String::from_utf8(base64::Engine::decode(&engine, header).unwrap()).unwrap();
    let header = base64::Engine::encode(&engine, decoded.replace("\"one\"", "\"rotated\""));
    fs::write(folder.path().join("token"), format!("{header}.{rest}")).unwrap();
    let report = diagnose(folder.path(), &yaml, &["--token", "file:token"]).await;
    let finding = report.expect("GP0307", "gatepost.yaml", "issuer: http");
    assert!(problem(&finding).contains("no key with the id \"rotated\""), "{finding:#}");
    assert!(!finding.to_string().contains(rest), "{finding:#}");
}

#[tokio::test]
async fn denials_with_names_that_nobody_has_are_named_because_they_leave_access_open() {
    let folder = folder();
    for (rule, code, words) in [
        ("{callers: ['key:taem-a'], agents: [one]}", "GP0121", "taem-a"),
        ("{callers: ['key:team-a'], agents: [onn]}", "GP0122", "onn"),
        ("{callers: ['key:team-a'], tags: [pubic]}", "GP0128", "pubic"),
        ("{callers: ['key:team-a'], capabilities: [maths]}", "GP0128", "maths"),
        ("{groups: [admin], agents: [one]}", "GP0129", "admin"),
        ("{callers: ['cert:dns:a.example'], agents: [one]}", "GP0130", "cert:dns:"),
        ("{callers: ['oauth:acme/*'], agents: [one]}", "GP0130", "acme"),
    ] {
        let rules = format!("  denials:\n    - {rule}\n");
        diagnose_rules(folder.path(), &rules).await.expect(code, "gatepost.yaml", words);
        let (is_valid, text) =
            check(folder.path(), &fs::read_to_string(folder.path().join("gatepost.yaml")).unwrap(), &[]);
        assert!(is_valid && text.contains(&format!("[{code}]")), "{rule}: {text}");
    }
    let right = "  denials:\n    - {callers: ['key:team-a'], tags: [public, '*-internal']}\n";
    let report = diagnose_rules(folder.path(), &right.replace("[public, '*-internal']", "['*-internal']")).await;
    assert!(report.findings.is_empty(), "a pattern may match later: {}", report.text);
}

#[tokio::test]
async fn callers_of_an_issuer_that_does_not_exist_are_named() {
    let folder = folder();
    let issuer = TokenIssuer::start().await;
    let settings =
        |label: &str| format!("        jwks_url: {}/jwks\n        audience: [gatepost]\n{label}", issuer.url());
    let yaml = |label: &str, caller: &str| {
        issuer_config(&issuer.url(), &settings(label)).replace("'oauth:*'", &format!("'{caller}'"))
    };
    let label = "        label: fresh\n";
    for caller in ["oauth:acme/bot", "oauth:acme/*", "oauth:bot"] {
        let finding = diagnose(folder.path(), &yaml(label, caller), &[]).await;
        let finding = finding.expect("GP0130", "gatepost.yaml", caller);
        assert!(problem(&finding).contains("fresh"), "{finding:#}");
    }
    for (label, caller) in [(label, "oauth:fresh/bot"), (label, "oauth:*"), ("", "oauth:acme/bot"), (label, "*")] {
        let report = diagnose(folder.path(), &yaml(label, caller), &[]).await;
        assert!(report.serious().is_empty(), "{caller}: {}", report.text);
    }
    // Tokens may claim any group.
    let group = yaml(label, "oauth:*").replace("callers: ['oauth:*']", "callers: ['oauth:*'], groups: [admin]");
    let report = diagnose(folder.path(), &group, &[]).await;
    assert!(report.serious().is_empty(), "{}", report.text);
}

#[tokio::test]
async fn publishers_without_a_key_and_anonymous_grants_of_agents_that_require_one_are_named() {
    let folder = folder();
    let publishers = "registry:\n  sqlite_file: gatepost.db\n  publishers:\n    - callers: ['key:team-z']\n";
    diagnose(folder.path(), &config(publishers), &[]).await.expect("GP0121", "gatepost.yaml", "key:team-z");
    let rules = "  grants:\n    - callers: ['key:team-a', anonymous]\n      agents: [one]\n";
    let (agent, yaml) = access(folder.path(), KEYS, rules).await;
    diagnose(folder.path(), &yaml, &[]).await.expect("GP0131", "gatepost.yaml", "anonymous");
    let mut document = agent.document("open");
    document["authentication"] = json!({"type": "none"});
    add_agent(folder.path(), &document);
    let report = diagnose(folder.path(), &yaml.replace("[one]", "[one, open]"), &[]).await;
    assert!(report.findings.is_empty(), "one of the agents accepts them: {}", report.text);
}

#[tokio::test]
async fn a_key_of_a_bridge_that_the_gateway_does_not_have_is_named() {
    let folder = folder();
    let accepting = broker(|_| vec![0x20, 3, 0, 0, 0]).await;
    let bridge = |key: &str| {
        config(&format!(
            "mqtt_bridge:\n  - url: mqtt://{}\n    api_key: file:{key}\n    agents: ['*']\n    state_folder: null\n",
            accepting.address
        ))
    };
    diagnose(folder.path(), &bridge("secret"), &[]).await.expect("GP0134", "gatepost.yaml", "api_key: file:secret");
    let report = diagnose(folder.path(), &bridge("key"), &[]).await;
    assert!(report.serious().is_empty(), "{}", report.text);
    // A secret that begins like a key of the gateway is not that key.
    let key = fs::read_to_string(folder.path().join("key")).unwrap();
    fs::write(folder.path().join("secret"), format!("{}x", key.trim())).unwrap();
    diagnose(folder.path(), &bridge("secret"), &[]).await.expect("GP0134", "gatepost.yaml", "api_key: file:secret");
}

#[tokio::test]
async fn a_credential_that_no_agent_receives_and_timeouts_without_effect_are_named() {
    let folder = folder();
    let agent = Agent::echo().await;
    add_agent(folder.path(), &agent.document("one"));
    let with = |settings: &str| {
        let rule = format!("agents:\n  sources: [agents]\n  rules:\n    - agents: [one]\n      settings:\n{settings}");
        format!("{LISTENERS}{rule}{ACCESS}")
    };
    let credential = |origin: &str| {
        with(&format!(
            "        credential:\n          value: file:secret\n          destinations: {{origins: ['{origin}']}}\n"
        ))
    };
    let report = diagnose(folder.path(), &credential("http://127.0.0.1"), &[]).await;
    report.expect("GP0135", "gatepost.yaml", "destinations:");
    let report = diagnose(folder.path(), &credential(&format!("http://{}", agent.address)), &[]).await;
    assert!(report.findings.is_empty(), "{}", report.text);
    let timeouts = |text: &str| with(&format!("        timeouts:\n{text}"));
    let longer = timeouts("          first_byte: 10m\n          total: 5m\n");
    diagnose(folder.path(), &longer, &[]).await.expect("GP0136", "gatepost.yaml", "first_byte: 10m");
    let report = diagnose(folder.path(), &timeouts("          total: 10s\n"), &[]).await;
    assert!(report.findings.is_empty(), "the default of first_byte is no mistake: {}", report.text);
}

#[tokio::test]
async fn a_client_ca_that_is_no_authority_is_named() {
    let folder = folder();
    let authority = CertificateAuthority::new("clients");
    let leaf = authority.client("robot").certificate;
    fs::write(folder.path().join("clients.pem"), &leaf).unwrap();
    let yaml = tls_listener("server.pem", "server.key\n      client_ca: clients.pem");
    let finding = diagnose(folder.path(), &yaml, &[]).await;
    let finding = finding.expect("GP0208", "gatepost.yaml", "client_ca: clients.pem");
    assert!(fix(&finding).contains("name the certificate of its issuer, CN=clients"), "{finding:#}");
    // A leaf beside its authority does no harm.
    fs::write(folder.path().join("clients.pem"), format!("{leaf}{}", authority.pem())).unwrap();
    let report = diagnose(folder.path(), &yaml, &[]).await;
    assert!(report.serious().is_empty(), "{}", report.text);
    // A file that is not there is not mended by its form.
    let missing = tls_listener("server.pem", "server.key\n      client_ca: none.pem");
    let finding = diagnose(folder.path(), &missing, &[]).await;
    let finding = finding.expect("GP0208", "gatepost.yaml", "client_ca: none.pem");
    assert!(fix(&finding).starts_with("correct the path"), "{finding:#}");
}

#[tokio::test]
async fn a_mistake_in_a_schema_is_named_at_its_own_line() {
    let folder = folder();
    let agent = Agent::echo().await;
    for (member, pointer) in [
        ("{\"type\": \"strng\"}", "/properties/a/type"),
        ("{\"minimum\": \"3\"}", "/properties/a/minimum"),
        ("{\"pattern\": \"(?=x\"}", "/properties/a/pattern"),
        ("{\"$ref\": \"#/$defs/none\"}", "/properties/a/$ref"),
        ("{\"$ref\": \"https://schemas.example.com/int.json\"}", "/properties/a/$ref"),
    ] {
        let document = format!(
            "{{\"id\": \"one\", \"name\": \"One\", \"endpoint\": \"{}\",\n\"authentication\": {{\"type\": \"api_key\"}},\n\"operations\": [{{\n\"name\": \"add\",\n\"inputs\": {{\n\"properties\": {{\n\"a\":\n{member}\n}}\n}}\n}}]}}\n",
            agent.url()
        );
        fs::write(folder.path().join("agents/one.json"), document).unwrap();
        let report = diagnose(folder.path(), &config(""), &[]).await;
        let finding = report.expect("GP0703", "agents/one.json", member);
        assert!(problem(&finding).contains(&format!("at {pointer}: ")), "{finding:#}");
    }
}

#[tokio::test]
async fn check_fails_where_two_listeners_share_an_address() {
    let folder = folder();
    let yaml = config("").replace(
        "listeners: [{address: '127.0.0.1:0'}]",
        "listeners:\n  - address: 127.0.0.1:38082\n  - address: 127.0.0.1:38082",
    );
    let (is_valid, text) = check(folder.path(), &yaml, &[]);
    assert!(!is_valid && text.contains("line 3: ") && text.contains("[GP0124]"), "{text}");
    let finding = diagnose(folder.path(), &yaml, &[]).await.expect("GP0124", "gatepost.yaml", "38082");
    assert_eq!((&finding["line"], &finding["related"][0]["line"]), (&json!(3), &json!(2)), "{finding:#}");
    assert_eq!(fix(&finding), "give each listener a port of its own");
}

#[tokio::test]
async fn a_line_that_is_no_key_is_named_once_with_its_file() {
    let folder = folder();
    let file = folder.path().join("keys.jsonl");
    let keys = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("# our keys\n{keys}")).unwrap();
    let (is_valid, text) = check(folder.path(), &config(""), &[]);
    assert!(is_valid && text.contains("warning: keys.jsonl:1: the line is not a key"), "{text}");
    assert!(!text.contains("WARN") && text.matches("keys.jsonl").count() == 1, "{text}");
    let finding = diagnose(folder.path(), &config(""), &[]).await.expect("GP0126", "keys.jsonl", "# our keys");
    assert!(!finding.to_string().contains("our keys"), "a line may have a whole key: {finding:#}");
    // The gateway ignores lines of the right form with wrong values, too.
    fs::write(&file, format!("{keys}{}", keys.replacen("\"prefix\":\"", "\"prefix\":\"-", 1))).unwrap();
    let finding = diagnose(folder.path(), &config(""), &[]).await.expect("GP0126", "keys.jsonl", "prefix");
    assert!(problem(&finding).contains("prefix: must be 12 letters or digits"), "{finding:#}");
}

#[tokio::test]
async fn an_additional_endpoint_that_is_down_is_named_at_its_rule() {
    let folder = folder();
    let agent = Agent::echo().await;
    add_agent(folder.path(), &agent.document("one"));
    let (port, other) = (ClosedPort::new(), Agent::echo().await);
    let rule = format!(
        "agents:\n  sources: [agents]\n  rules:\n    - agents: [one]\n      settings:\n        additional_endpoints:\n          - {}\n          - http://{}/x\n",
        other.url(),
        port.address
    );
    let report = diagnose(folder.path(), &format!("{LISTENERS}{rule}{ACCESS}"), &[]).await;
    report.expect("GP0802", "gatepost.yaml", &port.address.to_string());
}

#[tokio::test]
async fn a_socket_that_is_not_listed_gets_the_setting_of_sockets() {
    let folder = folder();
    let document = json!({"id": "one", "name": "One", "endpoint": "agent+unix:///run/none.sock#/invoke",
        "authentication": {"type": "api_key"}});
    add_agent(folder.path(), &document);
    let finding = diagnose(folder.path(), &config(""), &[]).await.expect("GP0801", "agents/one.json", "endpoint");
    assert_eq!(problem(&finding), "agent+unix:///run/none.sock: the socket /run/none.sock may not be reached");
    assert!(fix(&finding).contains("network.allowed_sockets"), "{finding:#}");
    assert!(!finding.to_string().contains("allowed_addresses"), "{finding:#}");
}

#[tokio::test]
async fn a_broker_whose_password_cannot_be_loaded_is_not_said_to_be_down() {
    let folder = folder();
    let port = ClosedPort::new();
    let source = format!(
        "agents:\n  sources:\n    - agents\n    - kind: mqtt\n      url: mqtt://{}\n      mqtt: {{username: file:secret, password: 'env:GATEPOST_TEST_UNSET'}}\n",
        port.address
    );
    let report = diagnose(folder.path(), &format!("{LISTENERS}{ACCESS}{source}"), &[]).await;
    report.expect("GP0103", "gatepost.yaml", "GATEPOST_TEST_UNSET");
    let tls = source.replace("mqtt://", "mqtts://").replace("'env:GATEPOST_TEST_UNSET'", "file:secret");
    let plain = plain_server().await;
    let tls = tls.replace(&port.address.to_string(), &plain.address.to_string());
    let report = diagnose(folder.path(), &format!("{LISTENERS}{ACCESS}{tls}"), &[]).await;
    let finding = report.expect("GP0500", "gatepost.yaml", "url: mqtts://");
    assert!(problem(&finding).contains("does not speak TLS at this port"), "{finding:#}");
}

#[tokio::test]
async fn errors_of_connections_are_in_plain_words() {
    let folder = folder();
    let port = ClosedPort::new();
    let settings = format!("        jwks_url: http://{}/jwks\n        audience: [gatepost]\n", port.address);
    let report = diagnose(folder.path(), &issuer_config("https://issuer.example.com", &settings), &[]).await;
    let finding = report.expect("GP0302", "gatepost.yaml", "jwks_url:");
    assert!(problem(&finding).ends_with("/jwks: Connection refused"), "{finding:#}");
}

#[tokio::test]
async fn inactive_agents_are_counted_and_named_if_they_are_asked_for() {
    let folder = folder();
    let agent = Agent::echo().await;
    add_agent(folder.path(), &agent.document("one"));
    let mut asleep = agent.document("asleep");
    asleep["status"] = json!("inactive");
    add_agent(folder.path(), &asleep);
    let report = diagnose(folder.path(), &config(""), &[]).await;
    assert!(report.findings.is_empty() && report.text.contains("\"agents_inactive\": 1"), "{}", report.text);
    let report = diagnose(folder.path(), &config(""), &["--agent", "asleep"]).await;
    let finding = report.expect("GP0004", "agents/asleep.json", "status");
    assert!(problem(&finding).contains("inactive"), "{finding:#}");
}

#[tokio::test]
async fn hints_are_the_fix_where_a_setting_cannot_be_used() {
    let folder = folder();
    let mtls = "auth: {mtls: {callers: {'cert:dns:a.example': {groups: [x]}}}}\n";
    let source = "agents: {sources: [agents, {kind: mqtt, url: 'mqtt://127.0.0.1:9', mqtt: {username: robot}}]}\n";
    for (yaml, code, expected, hint) in [
        (config("limits: {per_caller: 0/s}\n"), "GP0101", "is at least 1", "write a rate such as 1/s"),
        (
            format!("{LISTENERS}{AGENTS}{mtls}"),
            "GP0101",
            "'cert:dns:a.example' matches no",
            "leave out cert: and write dns:a.example",
        ),
        (config("limits: {quota_state_file: none/quota.json}\n"), "GP0102", "cannot be written", "correct the path"),
        (format!("{LISTENERS}{source}{ACCESS}"), "GP0101", "not the name itself", "write env:NAME or file:PATH"),
    ] {
        let report = diagnose(folder.path(), &yaml, &[]).await;
        let finding = report.findings.iter().find(|finding| finding["code"] == code);
        let finding = finding.unwrap_or_else(|| panic!("{}", report.text));
        assert!(problem(finding).contains(expected) && fix(finding).starts_with(hint), "{finding:#}");
    }
    let misspelt = "{\"id\": \"one\", \"name\": \"One\",\n\"endpont\": \"http://127.0.0.1:9/x\"}";
    fs::write(folder.path().join("agents/one.json"), misspelt).unwrap();
    let report = diagnose(folder.path(), &config(""), &[]).await;
    let finding = report.expect("GP0700", "agents/one.json", "one");
    assert!(problem(&finding).contains("write endpoint instead of \"endpont\""), "{finding:#}");
}

#[test]
fn every_misconfiguration_of_the_documentation_has_its_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("docs/doctor.md")).unwrap();
    let (_, section) = page.split_once("## Tried by somebody who had not seen the code").unwrap();
    let tests = ["doctor.rs", "doctor_misconfigurations.rs"]
        .map(|file| fs::read_to_string(root.join("tests/it").join(file)).unwrap());
    let rows: Vec<Vec<&str>> = section
        .lines()
        .filter(|line| line.starts_with("| ") && line.contains("GP0"))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    assert_eq!(rows.len(), 15);
    for row in rows {
        let [_, code, _, test] = row.as_slice() else { panic!("{row:?}") };
        let name = test.trim_matches('`');
        assert!(tests.iter().any(|file| file.contains(&format!("fn {name}("))), "no test {name}");
        let is_code = gatepost::doctor::FindingCode::ALL.iter().any(|known| known.row().code == *code);
        assert!(is_code, "{code}");
    }
}

#[tokio::test]
async fn a_self_signed_authority_of_an_agent_is_trusted_although_it_is_a_leaf() {
    let folder = folder();
    let pair = rcgen::KeyPair::generate().unwrap();
    let own = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().self_signed(&pair).unwrap();
    fs::write(folder.path().join("own.pem"), own.pem()).unwrap();
    let certificate = crate::support::certs::IssuedCertificate { certificate: own.pem(), key: pair.serialize_pem() };
    let server = EchoServer::start(Some(server_tls_config(&certificate, None, &[b"http/1.1"]))).await;
    add_agent(folder.path(), &server.document("tls", "https"));
    let agents = "agents:\n  sources: [agents]\n  defaults:\n    tls:\n      ca: own.pem\n";
    let report = diagnose(folder.path(), &format!("{LISTENERS}{agents}{ACCESS}"), &[]).await;
    assert!(!report.codes().contains(&"GP0208"), "{}", report.text);
}
