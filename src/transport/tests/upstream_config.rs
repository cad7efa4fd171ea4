//! Upstream configuration, and the problems of agents that cannot be called as configured.

use super::*;
use std::io::Write;

fn problems(endpoint: &str, settings: &TransportConfig) -> Vec<String> {
    transport().compile_upstream_set(&agent(endpoint), settings).map(|_| Vec::new()).unwrap_or_else(|problems| problems)
}

#[tokio::test]
async fn r1_plain_http_beyond_this_machine_requires_allow_plaintext() {
    for endpoint in [
        "http://agent.example/",
        "http://10.0.0.7/",
        "http://[2001:db8::1]/",
        "http://localhost.example/",
        "http://127.evil.example/",
    ] {
        assert_eq!(problems(endpoint, &long_timeouts()).len(), 1, "{endpoint}");
        let allowed = TransportConfig { allow_plaintext: Some(true), ..long_timeouts() };
        assert!(problems(endpoint, &allowed).is_empty(), "{endpoint}");
    }
    for endpoint in [
        "http://localhost:1/",
        "http://127.0.0.1/",
        "http://[::1]:1/",
        "https://agent.example/",
        "agent+unix:///run/a.sock",
    ] {
        assert!(problems(endpoint, &long_timeouts()).is_empty(), "{endpoint}");
    }
}

#[tokio::test]
async fn a_credential_that_cannot_be_sent_is_a_problem_whose_text_hides_it() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"two\nlines").unwrap();
    let problems_of = |header: &str, value: &str| {
        let value = value.parse().unwrap();
        let destinations = CredentialDestinations::everywhere();
        let credential = Some(UpstreamCredential { header: header.to_owned(), scheme: None, value, destinations });
        problems("http://localhost/", &TransportConfig { credential, ..long_timeouts() })
    };
    let broken = problems_of("Authorization", &format!("file:{}", file.path().display()));
    assert!(
        broken.len() == 1 && broken[0].starts_with("credential.value: ") && !broken[0].contains("lines"),
        "{broken:?}"
    );
    assert!(problems_of("Authorization", "file:/nowhere/secret")[0].starts_with("credential.value: "));
    for header in ["a b", "", "Host", "content-length", "Transfer-Encoding", "X-Request-Timeout"] {
        assert!(problems_of(header, "file:/nowhere/secret")[0].starts_with("credential.header: "), "{header}");
    }
}

#[test]
fn values_that_a_rule_omits_come_from_the_defaults() {
    let parse = |text: &str| serde_json::from_str::<TransportConfig>(text).unwrap();
    let base = parse(
        r#"{"timeouts": {"connect": "1s", "idle": "2s"}, "tls": {"ca": "a.pem", "certificate": "c.pem", "key": "c.key"},
        "credential": {"value": "env:A"}, "h2c": true}"#,
    );
    let rule = parse(
        r#"{"timeouts": {"idle": "9s"}, "tls": {"certificate": "d.pem"}, "credential": {"header": "X-Key", "value": "env:B"}}"#,
    );
    let merged = rule.with_fallback(&base);
    assert_eq!(
        merged.timeouts,
        TimeoutConfig {
            connect: Some(ConfigDuration::from_secs(1)),
            idle: Some(ConfigDuration::from_secs(9)),
            ..TimeoutConfig::default()
        }
    );
    let tls = merged.tls;
    assert_eq!(
        (tls.ca, tls.certificate, tls.key),
        (Some("a.pem".into()), Some("d.pem".into()), None),
        "a key belongs to its certificate"
    );
    assert_eq!(merged.credential.unwrap().header, "X-Key");
    assert_eq!((merged.h2c, merged.idle_connection_timeout), (Some(true), None));
    assert_eq!(TransportConfig::default().with_fallback(&base), base);
    assert!(serde_json::from_str::<TransportConfig>(r#"{"timeout": {}}"#).is_err());
    assert!(
        serde_json::from_str::<TransportConfig>(r#"{"tls": {"verify": false}}"#).is_err(),
        "verification cannot be turned off"
    );
}

#[tokio::test]
async fn r51_an_agent_on_a_unix_socket_is_called() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.sock");
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    let seen = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let text = read_request(&mut stream).await.unwrap();
        stream.write_all(OK.as_bytes()).await.unwrap();
        text
    });
    let upstream = TestUpstream::new(&format!("agent+unix://{}#/run?x=1", path.display()), &long_timeouts());
    assert_eq!(read_body(upstream.post().await).await.unwrap(), "{}");
    let text = seen.await.unwrap();
    assert!(text.starts_with("POST /run?x=1 HTTP/1.1\r\nhost: localhost\r\n"), "{text}");
}

#[tokio::test]
async fn the_endpoints_path_is_used_unless_the_call_has_its_own() {
    let (address, _) = start_agent(|mut stream, _| async move {
        loop {
            let text = read_request(&mut stream).await?;
            let line = text.lines().next().unwrap_or_default();
            stream
                .write_all(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{line}", line.len()).as_bytes())
                .await?;
        }
    })
    .await;
    let upstream = TestUpstream::at(address);
    assert_eq!(read_body(upstream.get().await).await.unwrap(), "GET /run HTTP/1.1");
    let admitted = TestAdmission {
        upstream_set: upstream.upstream_set.clone(),
        deadline: Instant::now() + Duration::from_secs(1),
    };
    let header_mutations = HeaderMutations::default();
    let headers = HeaderMap::new();
    let request = UpstreamCall {
        id: "c",
        operation: "",
        method: Method::GET,
        path: Some("/run/translate?q=a".parse().unwrap()),
        query: None,
        headers: &headers,
        body: RequestBody::Empty,
        header_mutations,
        instruction: None,
        metrics: None,
        attempts: None,
        trace: None,
    };
    assert_eq!(
        read_body(upstream.client.call(&admitted, request).await).await.unwrap(),
        "GET /run/translate?q=a HTTP/1.1"
    );
}

#[tokio::test]
async fn r107_an_upstream_over_mqtt_is_compiled_without_connecting_to_its_broker() {
    let upstream = TestUpstream::new("mqtts://broker.example:8883/control/agents/a/input", &long_timeouts());
    assert_eq!(upstream.upstream_set.timeouts().total, TEST_TIMEOUT);
    assert_eq!(upstream.upstream_set.max_concurrency(), std::num::NonZeroU32::new(1));
}

#[tokio::test]
async fn r129_plain_mqtt_beyond_this_machine_requires_allow_plaintext() {
    let (agent, mut settings) = (agent("mqtt://broker.example/control/agents/a/input"), long_timeouts());
    let problems = transport().compile_upstream_set(&agent, &settings).unwrap_err();
    assert!(problems[0].contains("plain mqtt beyond this machine"), "{problems:?}");
    settings.allow_plaintext = Some(true);
    assert!(transport().compile_upstream_set(&agent, &settings).is_ok());
}

#[tokio::test]
async fn r130_unusable_mqtt_settings_are_problems_that_name_their_field() {
    let mut settings = long_timeouts();
    settings.mqtt.password = Some("env:GATEPOST_NO_SUCH_NAME".parse().unwrap());
    settings.mqtt.keep_alive = Some(ConfigDuration::from_millis(10));
    let problems = transport().config_problems(&settings);
    for begins in ["mqtt.password: needs", "mqtt.password: environment", "mqtt.keep_alive: "] {
        assert!(problems.iter().any(|problem| problem.starts_with(begins)), "{begins} {problems:?}");
    }
}
