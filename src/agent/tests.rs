//! Tests of the parser of metadata documents: accepted forms, and refused documents with every problem.

use super::*;
use serde_json::{Value, json};

fn parse(document: &Value) -> Result<Agent, Vec<String>> {
    Agent::from_document(document, [0; 32])
}

fn document_with(field: &str, value: Value) -> Value {
    let mut document = json!({"id": "a", "name": "A", "endpoint": "https://agent.example/invoke"});
    document[field] = value;
    document
}

#[test]
fn r10_r12_a_minimal_document_has_one_implied_operation_and_requires_no_credential() {
    let agent = parse(&document_with("extra", json!({"pricing": 1}))).unwrap();
    assert_eq!(agent.operations.len(), 1);
    assert_eq!(agent.authentication.method, AuthenticationMethod::Anonymous);
    assert_eq!(agent.status, AgentStatus::Active);
}

#[test]
fn r13_r14_both_styles_of_operations_are_accepted() {
    let listed =
        parse(&document_with("operations", json!([{"name": "t", "inputs": {"type": "object"}}, {"name": "u"}])))
            .unwrap();
    assert_eq!(listed.operations.len(), 2);
    assert!(listed.operation("t").unwrap().1.inputs.is_some());
    let implied = parse(&document_with("inputs", json!({"type": "object"}))).unwrap();
    assert!(implied.operations[0].inputs.is_some());
}

#[test]
fn r10_all_problems_of_a_document_are_reported_at_once() {
    let problems = parse(&json!({"id": "a b", "endpoint": "ftp://x", "tags": "t", "status": "asleep"})).unwrap_err();
    for field in ["id:", "name:", "endpoint:", "tags:", "status:"] {
        assert!(problems.iter().any(|problem| problem.starts_with(field)), "{field} {problems:?}");
    }
}

#[test]
fn r12_an_unknown_authentication_type_is_refused() {
    for invalid in [
        json!({"type": "basic"}),
        json!({}),
        json!("none"),
        json!({"type": "api_key", "scopes": "x"}),
        json!({"type": "api_key", "scopes": ["x"]}),
    ] {
        assert!(parse(&document_with("authentication", invalid.clone())).is_err(), "{invalid}");
    }
}

#[test]
fn r74_a_numeric_version_is_refused_with_the_quoted_form_to_write() {
    assert!(parse(&document_with("version", json!(3.1))).unwrap_err()[0].contains("\"3.1\""));
}

#[test]
fn r157_a_template_that_is_longer_than_a_name_may_be_is_ignored_by_name() {
    let document = |len: usize| {
        let operations = json!([{"name": "one"}, {"name": "two", "uriTemplate": "x".repeat(len)}]);
        json!({"id": "a", "name": "A", "endpoint": "https://a.example/", "operations": operations})
    };
    let ignored = |len| Agent::from_document(&document(len), [0; 32]).unwrap().ignored_members;
    assert_eq!(ignored(MAX_URI_LEN), Vec::<String>::new());
    assert_eq!(ignored(MAX_URI_LEN + 1), ["operations[1].uriTemplate: is longer than 8192 bytes, and may be ignored"]);
}

#[test]
fn r15_rate_limits_are_parsed_in_the_common_forms_and_never_ignored() {
    for form in [
        json!("60/min"),
        json!(["60/min", "5/s"]),
        json!({"max_calls_per_minute": 60}),
        json!({"requests_per_second": 5}),
    ] {
        assert!(!parse(&document_with("rate_limits", form.clone())).unwrap().rate_limits.is_empty(), "{form}");
    }
    for form in [
        json!("fast"),
        json!({"burst": 60}),
        json!({"calls_per_minute": 0}),
        json!({"calls_per_minute": -1}),
        json!(60),
    ] {
        assert!(parse(&document_with("rate_limits", form.clone())).is_err(), "{form}");
    }
}

#[test]
fn ids_are_path_safe() {
    for id in ["a", "A.b-c_9", "..."] {
        assert!(id.parse::<AgentId>().is_ok(), "{id}");
    }
    for id in ["", ".", "..", "a/b", "a b", "ä", "a%2f", &"x".repeat(129)] {
        assert!(id.parse::<AgentId>().is_err(), "{id}");
    }
}

#[test]
fn endpoints_with_userinfo_unsupported_schemes_or_no_host_are_refused() {
    for url in [
        "https://a.example/x",
        "http://127.0.0.1:8080",
        "agent+https://a.example",
        "agent+unix:///run/a.sock#/invoke",
        "http://[::1]:80/",
        "mqtts://broker.example/control/agents/a/input",
        "mqtt://127.0.0.1:1883/control/agents/a/input",
    ] {
        assert!(url.parse::<AgentEndpoint>().is_ok(), "{url}");
    }
    for url in [
        "",
        "/agents/x",
        "ftp://x",
        "https://u:p@a.example/",
        "https://",
        "http://a:0/",
        "http://a:/",
        "agent+unix://run/a",
        "agent+unix:///../x",
        "file:///etc/passwd",
        "https://a b/",
        "mqtts://broker.example",
        "mqtts://broker.example//",
        "mqtts:///control/agents/a/input",
        "mqtts://u:p@broker.example/x",
        "mqtts://broker.example:0/x",
        "mqtts://broker.example/control/+/x",
        "mqtts://broker.example/control/#",
        "mqtts://broker.example/x?y",
    ] {
        assert!(url.parse::<AgentEndpoint>().is_err(), "{url}");
    }
}

#[test]
fn r107_an_mqtt_endpoint_keeps_its_topic() {
    let text = "mqtts://broker.example:8883/control/agents/a/input";
    let endpoint = text.parse::<AgentEndpoint>().unwrap();
    assert_eq!((endpoint.to_string().as_str(), endpoint.is_encrypted_or_local()), (text, true));
    assert!(!"mqtt://broker.example/x".parse::<AgentEndpoint>().unwrap().is_encrypted_or_local());
}

#[test]
fn reserved_duplicate_and_malformed_operation_names_are_refused() {
    for invalid in [
        json!([{"name": "invoke"}]),
        json!([{"name": "a"}, {"name": "a"}]),
        json!([{"name": "a/b"}]),
        json!([1]),
        json!([{}]),
        json!({}),
    ] {
        assert!(parse(&document_with("operations", invalid.clone())).is_err(), "{invalid}");
    }
}

#[test]
fn r51_matrix_endpoints_name_a_user_and_a_room() {
    for (text, homeserver, room) in [
        ("agent+matrix://@bot:example.org", None, None),
        ("agent+matrix://@bot:example.org/!abc:example.org", None, Some("!abc:example.org")),
        ("agent+matrix://@bot:example.org/#work:example.org", None, Some("#work:example.org")),
        ("agent+matrix://@bot:example.org/!31hneApxJ_1o-63Dm", None, Some("!31hneApxJ_1o-63Dm")),
        (
            "agent+matrix://hs.example.org:8448/!r:example.org/@bot:example.org",
            Some("hs.example.org:8448"),
            Some("!r:example.org"),
        ),
    ] {
        let endpoint = text.parse::<AgentEndpoint>().unwrap();
        assert_eq!((endpoint.to_string().as_str(), endpoint.is_encrypted_or_local()), (text, true));
        let AgentEndpoint::Matrix(address) = endpoint else { panic!("{text}") };
        assert_eq!((address.homeserver(), address.room(), address.user()), (homeserver, room, "@bot:example.org"));
    }
    let encoded = "agent+matrix://%40bot:example.org/%23work:example.org".parse::<AgentEndpoint>().unwrap();
    assert_eq!(encoded.to_string(), "agent+matrix://@bot:example.org/#work:example.org");
    for text in [
        "agent+matrix://",
        "agent+matrix://@bot",
        "agent+matrix://@:example.org",
        "agent+matrix://@bot:",
        "agent+matrix://@bot:example.org:0",
        "agent+matrix://@bot:exa mple",
        "agent+matrix://@bot:example.org/",
        "agent+matrix://@bot:example.org/!",
        "agent+matrix://@bot:example.org/#work",
        "agent+matrix://@bot:example.org/room",
        "agent+matrix://@bot:example.org/!a:b/!c:d",
        "agent+matrix://@bot:example.org/@eve:example.org",
        "agent+matrix://@bot:example.org/!a%2fb?x=1",
        "agent+matrix://@bot:example.org/!a%0a",
        "agent+matrix://@bot:example.org/!a%2",
        "agent+matrix://hs.example.org/!r:example.org",
        "agent+matrix://user:pass@hs.example.org/!r:example.org/@bot:example.org",
    ] {
        let result = text.parse::<AgentEndpoint>();
        assert!(result.is_err(), "{result:?}");
    }
}

#[test]
fn r51_local_endpoints_are_plain_names() {
    let endpoint = "agent+local://worker-1".parse::<AgentEndpoint>().unwrap();
    assert_eq!(endpoint.to_string(), "agent+local://worker-1");
    for text in ["agent+local://", "agent+local://a/b", "agent+local://..", "agent+local://a b", "agent+local:worker"] {
        assert!(text.parse::<AgentEndpoint>().is_err(), "{text}");
    }
}

#[test]
fn r12_the_methods_of_the_schema_are_those_of_the_table() {
    let types = AuthenticationMethod::ALL.map(AuthenticationMethod::document_type);
    assert_eq!(metadata_schema()["properties"]["authentication"]["properties"]["type"]["enum"], json!(types));
    for (index, method) in AuthenticationMethod::ALL.into_iter().enumerate() {
        assert_eq!(method as usize, index, "the order of the table");
        assert_eq!(AuthenticationMethod::from_document_type(method.document_type()), Some(method));
        let has_scheme = method.security_scheme().is_some();
        assert_eq!(has_scheme, method != AuthenticationMethod::Anonymous, "{}", method.phrase());
    }
    let labels = AuthenticationMethod::ALL.map(AuthenticationMethod::label);
    assert_eq!(labels, ["key", "bearer", "certificate", "anonymous"], "operators' dashboards select these labels");
}
