//! Tests of the parser of `agent://` names: examples of the draft, refused names, and properties of random texts.

use super::*;
use proptest::prelude::*;
use serde_json::{Value, json};

fn parse(text: &str) -> AgentUri {
    AgentUri::parse(text).unwrap_or_else(|why| panic!("{text}: {why}"))
}

#[test]
fn r47_the_draft_examples_parse_into_their_parts() {
    let cases = [
        (
            "agent://example.com/planning/gen-iti?city=Paris",
            None,
            "example.com",
            "/planning/gen-iti",
            Some("city=Paris"),
        ),
        ("agent://planner.example.com/claude?text=Hello", None, "planner.example.com", "/claude", Some("text=Hello")),
        (
            "agent+https://example.com/assistants/chatgpt?query=hello",
            Some("https"),
            "example.com",
            "/assistants/chatgpt",
            Some("query=hello"),
        ),
        ("agent+local://examplelocalagent", Some("local"), "examplelocalagent", "", None),
        ("agent+unix:///run/a.sock#/invoke", Some("unix"), "", "/run/a.sock", None),
        ("agent+matrix://@bot:example.org/room", Some("matrix"), "@bot:example.org", "/room", None),
        ("agent://[2001:db8::1]:8443/x", None, "[2001:db8::1]:8443", "/x", None),
        ("agent://192.0.2.7/x", None, "192.0.2.7", "/x", None),
        ("agent://localhost", None, "localhost", "", None),
        ("agent://a/?", None, "a", "/", Some("")),
    ];
    for (text, protocol, authority, path, query) in cases {
        let uri = parse(text);
        assert_eq!(uri.transport(), protocol, "{text}");
        assert_eq!(uri.authority().to_string(), authority, "{text}");
        assert_eq!((uri.path(), uri.query()), (path, query), "{text}");
        assert_eq!(uri.to_string(), text);
    }
}

#[test]
fn r48_a_did_is_an_authority_and_a_host_named_did_stays_a_host() {
    let uri = parse("agent://did:web:example.com:agent:researcher/get-article?doi=10.1");
    assert_eq!(uri.authority(), &AgentUriAuthority::Did("did:web:example.com:agent:researcher".into()));
    assert_eq!(uri.path(), "/get-article");
    assert_eq!(
        parse("agent://did:443/x").authority(),
        &AgentUriAuthority::Host { host: "did".into(), port: Some(443) }
    );
    assert_eq!(parse("agent://did:web:a.example%3A8443").authority().to_string(), "did:web:a.example%3A8443");
}

#[test]
fn scheme_transport_and_host_are_case_insensitive_and_all_other_parts_are_not() {
    let uri = parse("AGENT+HTTPS://Example.COM/Path?Q=V#F");
    assert_eq!(uri.to_string(), "agent+https://example.com/Path?Q=V#F");
    assert_eq!(uri, parse("agent+https://example.com/Path?Q=V#F"));
    assert_ne!(uri, parse("agent+https://example.com/path?Q=V#F"));
}

#[test]
fn ambiguous_names_are_refused_with_the_position() {
    let cases = [
        ("", 0),
        ("agent", 0),
        ("agent:x", 0),
        ("http://a", 0),
        ("agent+://a", 6),
        ("agent+a_b://a", 7),
        ("agent://", 8),
        ("agent:///x", 8),
        ("agent://:80", 8),
        ("agent://a:", 10),
        ("agent://a:0", 10),
        ("agent://a:080", 10),
        ("agent://a:65536", 10),
        ("agent://a:8x", 10),
        ("agent://a:1:2", 10),
        ("agent://a b", 9),
        ("agent://ä", 8),
        ("agent://a/\u{0}", 10),
        ("agent://a\\b", 9),
        ("agent://a%2eb", 9),
        ("agent://user@a/", 12),
        ("agent://user:pass@a/", 17),
        ("agent://a..b", 10),
        ("agent://a.", 10),
        ("agent://127.1/", 8),
        ("agent://0x7f000001/", 8),
        ("agent://2130706433/", 8),
        ("agent://127.0.0.01/", 8),
        ("agent://[::1", 8),
        ("agent://[::1]x", 13),
        ("agent://[fe80::1%25eth0]/", 9),
        ("agent://[v1.x]/", 9),
        ("agent://a/../b", 10),
        ("agent://a/%2e%2E/b", 10),
        ("agent://a/.;x/b", 10),
        ("agent://a//b", 10),
        ("agent://a/%", 10),
        ("agent://a/%4", 10),
        ("agent://a/%zz", 10),
        ("agent://a/%0a", 10),
        ("agent://a/<", 10),
        ("agent://a/b?x=%", 14),
        ("agent://a/b?x=[1]", 14),
        ("agent://a/b#c#d", 13),
        ("agent://did:WEB:a", 12),
        ("agent://did:web:", 12),
        ("agent://did:web:a::b", 12),
        ("agent://did:web:a!", 17),
    ];
    for (text, offset) in cases {
        let why = AgentUri::parse(text).expect_err(text);
        assert_eq!(why.offset, offset, "{text}: {why}");
    }
    let user = AgentUri::parse("agent://user:pass@a/").unwrap_err();
    assert!(user.reason.contains("userinfo") && !user.to_string().contains("pass@"), "{user}");
}

#[test]
fn r157_a_template_is_refused_at_its_brace() {
    for (text, offset) in [
        ("agent://a.example/greet{?name}", 23),
        ("agent://a.example/{capability}/x", 18),
        ("agent://a.example/greet?name={name}", 29),
        ("agent://{host}/x", 8),
    ] {
        let why = AgentUri::parse(text).expect_err(text);
        assert_eq!(why.offset, offset, "{text}: {why}");
        assert!(why.reason.contains("URI template (RFC 6570)"), "{text}: {why}");
    }
    // Braces that are no expression.
    for (text, offset) in [
        ("agent://a.example/{", 18),
        ("agent://a.example/{}", 18),
        ("agent://a.example/x}", 19),
        ("agent://a.example/{a b}", 20),
    ] {
        let why = AgentUri::parse(text).expect_err(text);
        assert_eq!((why.offset, why.reason.contains("template")), (offset, false), "{text}: {why}");
    }
}

#[test]
fn r157_the_expression_for_the_query_is_the_last_and_only_one_of_a_template() {
    for (template, expression) in [
        ("agent://a.example/greet{?name}", Some("{?name}")),
        ("https://a.example/greet{?city,days*,first:3}", Some("{?city,days*,first:3}")),
        ("agent://a.example/{id}/greet{?name}", None),
        ("agent://a.example/greet{?name}{#part}", None),
        ("agent://a.example/greet{?name}#x", None),
        ("agent://a.example/greet{name}", None),
        ("agent://a.example/greet", None),
        ("agent://a.example/greet{?}", None),
        ("agent://a.example/greet{?a b}", None),
    ] {
        assert_eq!(query_expression(template), expression, "{template}");
    }
}

#[test]
fn r157_the_search_for_an_expression_takes_linear_time() {
    for hostile in ["{", "{a,", "{}", "{a b}", "}", "{?a,{"] {
        let text = hostile.repeat(1_000_000) + "}";
        let began = std::time::Instant::now();
        uri_template::find_expression(&text);
        // A quadratic search takes minutes.
        assert!(began.elapsed().as_secs() < 5, "{hostile}: {:?}", began.elapsed());
    }
    assert_eq!(uri_template::find_expression("{{a}"), Some(1));
    assert_eq!(uri_template::find_expression("{}{a b}x{a}"), Some(8));
}

#[test]
fn r158_a_transport_in_brackets_is_refused() {
    for text in ["agent:[+https]://a.example/x", "agent:[+]://a.example", "agent[+https]://a.example/x"] {
        let why = AgentUri::parse(text).expect_err(text);
        assert!(why.offset == 0 && why.reason.contains("agent+…://"), "{text}: {why}");
    }
    assert_eq!(parse("agent+https://a.example/x").transport(), Some("https"));
}

#[test]
fn lengths_and_counts_are_bounded() {
    let long = format!("agent://a/{}", "x".repeat(MAX_URI_LEN));
    assert_eq!(AgentUri::parse(&long).unwrap_err().offset, MAX_URI_LEN);
    for (text, is_valid) in [
        (format!("agent://{}.example/", "a".repeat(63)), true),
        (format!("agent://{}.example/", "a".repeat(64)), false),
        (format!("agent://{}", "a.".repeat(127) + "a"), false),
        (format!("agent://a{}", "/b".repeat(64)), true),
        (format!("agent://a{}", "/b".repeat(65)), false),
        (format!("agent+{}://a", "x".repeat(33)), false),
        (format!("agent://did:web:{}", "a".repeat(600)), false),
        (format!("agent+matrix://@{}", "a".repeat(600)), false),
    ] {
        assert_eq!(AgentUri::parse(&text).is_ok(), is_valid, "{text}");
    }
}

#[test]
fn r49_a_query_becomes_an_object_of_strings() {
    let input = |text: &str| parse(text).query_input().map(Value::Object);
    assert_eq!(input("agent://a"), Ok(json!({})));
    assert_eq!(input("agent://a?city=S%C3%A3o+Paulo&n=2&flag"), Ok(json!({"city": "São Paulo", "n": "2", "flag": ""})));
    assert_eq!(input("agent://a?t=a&x=1&t=b&t=c"), Ok(json!({"t": ["a", "b", "c"], "x": "1"})));
    assert!(input("agent://a?x=%ff").is_err());
    assert!(input("agent://a?=1").is_err());
    assert!(input(&format!("agent://a?{}", "a=1&".repeat(257))).is_err());
    assert_eq!(parse("agent://a?version=%5E1.2").query_parameter("version").as_deref(), Some("^1.2"));
}

fn any_uri() -> impl Strategy<Value = String> {
    let host = prop_oneof![
        "[a-z][a-z0-9-]{0,20}(\\.[a-z]{2,8}){0,3}",
        "did:[a-z]{1,8}:[A-Za-z0-9._-]{1,20}(:[a-z]{1,9}){0,3}"
    ];
    let protocol = prop_oneof![Just(String::new()), "\\+[a-z][a-z0-9-]{0,9}"];
    (
        protocol,
        host,
        "(:[1-9][0-9]{0,3})?",
        "(/([a-zA-Z0-9@!$'*,:~-]|%[2-7][0-9A-D]){1,9}){0,5}/?",
        "(\\?([a-z0-9=&/?+]|%[0-9A-Fa-f]{2}){0,30})?",
        "(#[a-z0-9/?]{0,9})?",
    )
        .prop_map(|(protocol, host, port, path, query, fragment)| {
            let port = if host.starts_with("did:") { String::new() } else { port };
            format!("agent{protocol}://{host}{port}{path}{query}{fragment}")
        })
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in "\\PC{0,200}") {
        let _ = AgentUri::parse(&text);
    }

    #[test]
    fn every_parsed_name_survives_formatting(text in "agent(\\+[a-z]{0,8})?://[a-z0-9@:%./?#\\[\\]&=+;,_ -]{0,60}") {
        if let Ok(uri) = AgentUri::parse(&text) {
            // The formatted name parses to an equal value and formats identically.
            let formatted = uri.to_string();
            prop_assert_eq!(&AgentUri::parse(&formatted).unwrap(), &uri);
            prop_assert_eq!(AgentUri::parse(&formatted).unwrap().to_string(), formatted);
            let _ = uri.query_input();
        }
    }

    #[test]
    fn r47_parsing_and_formatting_are_lossless(text in any_uri()) {
        let uri = AgentUri::parse(&text).map_err(|why| TestCaseError::fail(format!("{text}: {why}")))?;
        prop_assert_eq!(uri.to_string(), text);
    }

    #[test]
    fn url_parsers_agree_on_host_and_path(text in any_uri(), index in any::<prop::sample::Index>(), byte in 0x21_u8..0x7f) {
        // One character is replaced at random.
        let mut bytes = text.into_bytes();
        let index = index.index(bytes.len());
        bytes[index] = byte;
        let text = String::from_utf8(bytes).unwrap();
        if let Ok(uri) = AgentUri::parse(&text)
            && let Some(host) = uri.authority().host_and_port()
        {
            let url = format!("https://{host}{}", uri.path());
            let url = reqwest::Url::parse(&url).map_err(|why| TestCaseError::fail(format!("{text}: {why}")))?;
            let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
            let actual_host = format!("{}{port}", url.host_str().unwrap_or_default());
            prop_assert_eq!(actual_host, host.strip_suffix(":443").unwrap_or(&host));
            prop_assert_eq!(url.path(), if uri.path().is_empty() { "/" } else { uri.path() });
        }
    }
}
