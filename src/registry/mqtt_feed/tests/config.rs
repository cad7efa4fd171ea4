//! Settings: invalid ones are reported by their path.

use super::*;
use crate::values::ConfigDuration;
use std::io::Write;

fn problems(url: &str, settings: Value) -> Vec<String> {
    serde_json::from_value::<MqttSourceConfig>(settings).unwrap().problems(url)
}

#[test]
fn r130_an_address_has_its_protocol_and_port() {
    for (url, base) in [
        ("mqtts://broker.example", "mqtts://broker.example:8883"),
        ("mqtts://Broker.Example:1/", "mqtts://broker.example:1"),
        ("mqtt://127.0.0.1", "mqtt://127.0.0.1:1883"),
        ("mqtt://[::1]:1884", "mqtt://[::1]:1884"),
        ("mqtt://localhost", "mqtt://localhost:1883"),
    ] {
        assert_eq!(BrokerAddress::parse(url).unwrap().base_url(), base, "{url}");
        assert!(problems(url, json!({})).is_empty(), "{url}");
    }
    for url in [
        "",
        "broker.example:1883",
        "tcp://broker.example:1883",
        "https://broker.example",
        "mqtts://",
        "mqtts://broker.example:0",
        "mqtts://broker.example:70000",
        "mqtts://broker.example/control",
        "mqtts://broker.example?x",
        "mqtts://broker.example/#",
        "mqtts://user@broker.example",
        "mqtts://user:secret@broker.example",
    ] {
        let problems = problems(url, json!({}));
        assert!(problems.len() == 1 && problems[0].starts_with("url: "), "{url}: {problems:?}");
        assert!(!problems[0].contains("secret"), "{url}: {problems:?}");
        assert!(MqttFeed::new(url, MqttSourceConfig::default(), Duration::from_secs(1), 1).is_err());
    }
}

#[test]
fn r129_plain_text_beyond_this_machine_needs_allow_plaintext() {
    for url in ["mqtt://broker.example", "mqtt://10.0.0.1", "mqtt://127.0.0.1.example", "mqtt://[2001:db8::1]"] {
        assert!(problems(url, json!({}))[0].contains("mqtt.allow_plaintext: true"), "{url}");
        assert!(problems(url, json!({"allow_plaintext": true})).is_empty(), "{url}");
    }
}

#[test]
fn r130_r131_secrets_are_references_and_never_printed() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"hunter2\n").unwrap();
    let reference = format!("file:{}", file.path().display());
    let settings_with_secrets = json!({"username": reference, "password": reference});
    assert!(problems("mqtts://broker.example", settings_with_secrets.clone()).is_empty());
    let settings: MqttSourceConfig = serde_json::from_value(settings_with_secrets).unwrap();
    let feed = MqttFeed::new("mqtts://broker.example", settings, Duration::from_secs(1), 1).unwrap();
    assert!(!format!("{feed:?}").contains("hunter2"));
    assert!(serde_json::from_value::<MqttSourceConfig>(json!({"password": "hunter2"})).is_err());
    let reported =
        problems("mqtts://broker.example", json!({"username": "env:NO_SUCH_NAME", "password": "file:/nowhere"}));
    assert!(reported[0].starts_with("mqtt.username: ") && reported[1].starts_with("mqtt.password: "), "{reported:?}");
    assert_eq!(
        problems("mqtts://broker.example", json!({"password": reference})),
        ["mqtt.password: needs mqtt.username"]
    );
}

#[test]
fn every_invalid_value_is_reported_at_once() {
    let reported = problems("tcp://x", json!({"keep_alive": "500ms", "resync_timeout": "2h", "ca": "/nowhere.pem"}));
    for field in ["url: ", "mqtt.keep_alive: ", "mqtt.resync_timeout: ", "mqtt.ca: "] {
        assert!(reported.iter().any(|problem| problem.starts_with(field)), "{field} {reported:?}");
    }
    let mut empty = tempfile::NamedTempFile::new().unwrap();
    empty.write_all(b"no certificate").unwrap();
    assert!(problems("mqtts://x", json!({"ca": empty.path()}))[0].contains("cannot be read as certificates"));
    assert!(serde_json::from_value::<MqttSourceConfig>(json!({"keepalive": "5s"})).is_err());
    assert_eq!(MqttSourceConfig::default().resync_timeout, ConfigDuration::from_secs(30));
}

#[test]
fn an_mqtt_source_has_its_own_settings() {
    let problems = |source: Value| {
        let sources = vec![serde_json::from_value(source).unwrap()];
        crate::registry::AgentSourcesConfig { sources, ..Default::default() }.problems()
    };
    let url = "mqtts://broker.example";
    assert!(problems(json!({"kind": "mqtt", "url": url})).is_empty());
    assert!(problems(json!({"kind": "mqtt", "url": url, "mqtt": {"resync_timeout": "5s"}})).is_empty());
    for (source, reason) in [
        (json!({"kind": "mqtt", "url": "https://broker.example"}), "sources[0].url: must begin with mqtts://"),
        (json!({"kind": "mqtt", "url": "mqtt://broker.example"}), "sources[0].url: is plain text"),
        (json!({"kind": "mqtt", "url": url, "mqtt": {"resync_timeout": "1ms"}}), "sources[0].mqtt.resync_timeout: "),
        (
            json!({"kind": "mqtt", "url": url, "credential": {"bearer": "env:X"}}),
            "sources[0].credential: is not for kind mqtt",
        ),
        (json!({"kind": "mqtt", "url": url, "publisher_jwks": "keys.json"}), "sources[0].publisher_jwks: "),
        (json!({"kind": "aidip", "url": "https://x.example", "mqtt": {}}), "sources[0].mqtt: is only for kind mqtt"),
    ] {
        let reported = problems(source.clone());
        assert!(reported.len() == 1 && reported[0].starts_with(reason), "{source}: {reported:?}");
    }
}
