//! The Python SDKs of A2A 0.2, 0.3 and 1.0, unchanged, read the cards of agents and of the gateway.

use super::support::python_packages::PythonPackages;
use crate::support::{
    agent::Agent,
    gateway::{Gateway, gateway},
};
use serde_json::{Value, json};

/// Reads the cards below these paths with one version of the SDK.
async fn read_cards(sdk: &'static str, gate: &Gateway, paths: &[&str], verifies: bool) -> Vec<Value> {
    let urls: Vec<String> = paths.iter().map(|path| gate.url(path)).collect();
    let key = gate.key("team-a").to_owned();
    let key_set = verifies.then(|| gate.url("/.well-known/jwks.json"));
    let output = tokio::task::spawn_blocking(move || {
        let packages = PythonPackages::install(sdk);
        let mut python = packages.python();
        python.arg(packages.source().join("../read_cards.py")).args(urls).env("API_KEY", key);
        python.envs(key_set.map(|url| ("KEY_SET", url))).output().unwrap()
    });
    let output = output.await.unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{sdk}: {stderr}");
    let lines = String::from_utf8(output.stdout).unwrap();
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn r58_r153_clients_of_a2a_0_2_0_3_and_1_0_read_cards_without_an_option() {
    let agent = Agent::echo().await;
    let mut other = agent.document("other");
    other["description"] = "Grüße, says the agent".into();
    other["operations"] = json!([{"name": "greet", "description": "Greets", "inputs": {"type": "object"}}]);
    let build = gateway().agent("echo", &agent).document(other);
    let pem = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap().serialize_pem();
    std::fs::write(build.folder().join("own.pem"), pem).unwrap();
    let section = "directory:\n  external_url: https://gateway.example\n  signing_key: file:own.pem\n";
    let gate = build.section(section).start().await;
    let paths = ["/agents/other", "/agents/echo", ""];
    // Of these, 1.0 verifies the gateway's signatures.
    for (sdk, verifies) in [("a2a/v0_2", false), ("a2a/v0_3", false), ("a2a/v1", true)] {
        let cards = read_cards(sdk, &gate, &paths, verifies).await;
        assert_eq!(cards.len(), paths.len(), "{sdk}");
        assert_eq!(cards[0]["description"], "Grüße, says the agent", "{sdk}");
        assert_eq!(cards[0]["skills"][0]["id"], "greet", "{sdk}");
        let addresses = [&cards[0]["url"], &cards[0]["supportedInterfaces"][0]["url"]];
        let address = addresses.into_iter().find_map(Value::as_str);
        assert_eq!(address, Some("https://gateway.example/agents/other/invoke"), "{sdk}");
        let skills = cards[2]["skills"].as_array().unwrap();
        assert_eq!(skills.len(), 2, "{sdk}: the gateway's own card lists its agents");
    }
}
