//! Tests without a network: splitting and joining of names, and validation of the configuration. `tests/it/resolver.rs`
//! tests resolution against test sites.

use super::{
    document_cache::ResolverDocument,
    resolution_step::{DescriptorError, ResolutionRequest, ResolutionStep, step_from_descriptor},
    url_join::append_path_and_query,
    *,
};
use crate::{
    agent::AgentUri,
    fault::FaultCode,
    net::{self, AddressPolicy, Url},
};
use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::net::IpAddr;

fn request(uri: &str, version: Option<&str>) -> ResolutionRequest {
    ResolutionRequest::new(&AgentUri::parse(uri).unwrap(), version)
}

fn url(text: &str) -> Url {
    Url::parse(text).unwrap()
}

/// Resolves `uri` through a descriptor at `https://a.example/p/agent.json`; its first segment is the agent's own name.
fn resolve_hint(descriptor: Value, uri: &str) -> Result<String, String> {
    let document =
        ResolverDocument { url: url("https://a.example/p/agent.json"), value: descriptor, body: Bytes::new() };
    let describe = |error| match error {
        DescriptorError::Unusable(reason) => reason,
        DescriptorError::Refused(fault) => fault.to_string(),
    };
    match step_from_descriptor(&document, &request(uri, None), 1).map_err(describe)? {
        ResolutionStep::Location(location) => Ok(location.endpoint),
        ResolutionStep::Alias(name) => Ok(name.to_string()),
    }
}

#[test]
fn r68_a_version_suffix_in_a_path_is_distinguished_from_a_plain_at_sign() {
    let split = |uri: &str| {
        let request = request(uri, None);
        (request.segments.join("/"), request.version)
    };
    assert_eq!(split("agent://a/planner@1.2/x"), ("planner/x".into(), Some("1.2".into())));
    assert_eq!(split("agent://a/planner@%5E1/x?version=2"), ("planner/x".into(), Some("^1".into())));
    assert_eq!(split("agent://a/planner@latest"), ("planner".into(), Some("latest".into())));
    assert_eq!(split("agent://a/me@example.com/x?version=2"), ("me@example.com/x".into(), Some("2".into())));
    assert_eq!(split("agent://a/@1/x@"), ("@1/x@".into(), None));
    assert_eq!(request("agent://a/p@1", Some("3")).version.as_deref(), Some("3"));
}

#[test]
fn r53_endpoint_hints_of_every_kind_are_resolved() {
    for (hint, expected) in [
        (json!({"endpoint": "https://b.example/x"}), "https://b.example/x/do?q=1"),
        (json!({"endpoint": "/x/"}), "https://a.example/x/do?q=1"),
        (json!({"url": "run"}), "https://a.example/p/run/do?q=1"),
        (json!({"transport": {"url": "wss://b.example/s"}}), "wss://b.example/s/do?q=1"),
        (json!({"endpoint": "agent+wss://b.example/s"}), "wss://b.example/s/do?q=1"),
        (json!({"endpoint": "agent://b.example/s"}), "agent://b.example/s/do?q=1"),
        (json!({"endpoint": "https://b.example/x?k=v"}), "https://b.example/x/do?k=v&q=1"),
    ] {
        assert_eq!(resolve_hint(hint.clone(), "agent://a.example/p/do?q=1"), Ok(expected.to_owned()), "{hint}");
    }
    for hint in
        ["agent+unix:///run/x", "agent+local://x", "unix:/x", "file:///x", "javascript://x", "https://u@b.example"]
    {
        assert!(resolve_hint(json!({"endpoint": hint}), "agent://a.example/p").is_err(), "{hint}");
    }
}

#[test]
fn r67_a_capabilitys_own_endpoint_does_not_serve_other_versions() {
    let descriptor = json!({"version": "2.0.0", "endpoint": "/agent", "supportedVersions": {"1.0.0": "/old"},
        "capabilities": [{"name": "do", "endpoint": "/fast/do"}]});
    for (uri, expected) in [
        ("agent://a.example/p/do", "https://a.example/fast/do"),
        ("agent://a.example/p@2/do", "https://a.example/fast/do"),
        ("agent://a.example/p@1/do", "https://a.example/old/do"),
        ("agent://a.example/p@1/more", "https://a.example/old/more"),
    ] {
        assert_eq!(resolve_hint(descriptor.clone(), uri), Ok(expected.to_owned()), "{uri}");
    }
}

#[test]
fn path_and_query_are_appended_to_urls_without_loss() {
    for (before, rest, query, after) in [
        ("https://a/x", vec!["y", "z"], None, "https://a/x/y/z"),
        ("https://a/x/", vec!["y"], Some("q"), "https://a/x/y?q"),
        ("https://a", vec![], Some("q"), "https://a?q"),
        ("https://a/x?k", vec!["%2F"], Some(""), "https://a/x/%2F?k"),
        ("agent+unix:///s#/x", vec![], None, "agent+unix:///s#/x"),
    ] {
        assert_eq!(append_path_and_query(before, &rest, query).as_deref(), Ok(after));
    }
    assert!(append_path_and_query("agent+unix:///s#/x", &["y"], None).is_err());
    let base = url("https://a.example:8443/api/invoke");
    let join = |reference| join_same_origin(&base, reference).map(String::from);
    assert_eq!(join("/v2").as_deref(), Some("https://a.example:8443/v2"));
    assert_eq!(join("v2/invoke").as_deref(), Some("https://a.example:8443/api/v2/invoke"));
    assert_eq!(join("https://a.example:8443/x").as_deref(), Some("https://a.example:8443/x"));
    for reference in [
        "https://a.example/x",
        "http://a.example:8443/x",
        "//b.example/x",
        "\\\\b.example/x",
        "https://u:p@a.example:8443/",
        "/ x",
        "javascript:x",
    ] {
        assert_eq!(join(reference), None, "{reference}");
    }
}

#[test]
fn invalid_settings_are_all_reported_at_once() {
    let mut config = ResolverConfig::default();
    assert!(config.problems().is_empty());
    for (name, target) in [
        ("planner", "https://a.example"),
        ("agent+https://a.example", "https://a.example"),
        ("agent://a.example?x=1", "https://a.example"),
        ("agent://b.example", "nowhere"),
        ("agent://c.example", "https://u:p@a.example"),
        ("agent://d.example", "agent://d.example/../x"),
    ] {
        config.map.insert(name.to_owned(), target.to_owned());
    }
    config.resolution_timeout = crate::values::ConfigDuration::from_secs(3_600);
    config.max_concurrency = 0;
    config.cache.max_size = crate::values::ByteSize::from_kib(1);
    config.publisher_jwks = Some("/nowhere/keys.json".into());
    let problems = config.problems();
    assert_eq!(problems.len(), 10, "{problems:#?}");
    assert!(problems.iter().any(|problem| problem.starts_with("publisher_jwks: /nowhere/keys.json: cannot be read")));
    assert!(problems.iter().all(|problem| !problem.contains("u:p")), "{problems:#?}");
}

#[tokio::test]
async fn loops_in_the_map_and_too_many_concurrent_names_are_refused() {
    let mut config = ResolverConfig {
        max_concurrency: 1,
        resolution_timeout: crate::values::ConfigDuration::from_millis(200),
        ..ResolverConfig::default()
    };
    for (name, target) in [("agent://a.example", "agent://b.example"), ("agent://b.example", "agent://a.example")] {
        config.map.insert(name.to_owned(), target.to_owned());
    }
    let resolver = UriResolver::new(&config, &net::NetworkConfig::default(), &AddressPolicy::default()).unwrap();
    let uri = AgentUri::parse("agent://a.example/x").unwrap();
    assert_eq!(resolver.resolve(&uri, None, "a").await.unwrap_err().code(), FaultCode::AgentError);
    let socket = AgentUri::parse("agent://c.example").unwrap();
    let result = resolver.resolve(&socket, None, "a").await.map_err(|fault| fault.code());
    assert!(matches!(result, Err(FaultCode::AgentUnavailable | FaultCode::Timeout)), "{result:?}");
}

#[test]
fn private_networks_are_refused_to_callers_unless_their_own_list_has_them() {
    let policy = AddressPolicy::new(vec!["10.0.0.0/8".parse().unwrap()]);
    let for_callers = policy.for_callers(&["10.1.0.0/16".parse().unwrap(), "127.0.0.1:8080".parse().unwrap()]);
    let permits = |policy: &AddressPolicy, address: &str| {
        policy.permits_address((address.parse::<IpAddr>().unwrap(), 443).into())
    };
    for private in [
        "10.2.0.1",
        "172.16.0.1",
        "192.168.1.1",
        "100.64.0.1",
        "fd00::1",
        "64:ff9b::c0a8:1",
        "::ffff:10.2.0.1",
        "64:ff9b:1::7f00:1",
        "::ffff:0:7f00:1",
        "2001:0:1:1:1:1:f5ff:fffe",
        "fec0::1",
        "100::1",
        "5f00::1",
        "3fff::1",
    ] {
        assert!(permits(&policy, private) && !permits(&for_callers, private), "{private}");
    }
    for public in ["10.1.2.3", "192.0.2.1", "2001:db8::1", "100.128.0.1", "172.32.0.1"] {
        assert!(permits(&for_callers, public), "{public}");
    }
    assert!(!permits(&for_callers, "127.0.0.1"), "the entry is for another port");
    assert!(for_callers.permits_address("127.0.0.1:8080".parse().unwrap()));
    policy.set_own_listeners(vec!["192.0.2.1:443".parse().unwrap()]);
    assert!(!permits(&for_callers, "192.0.2.1"), "both policies refuse the gateway's listeners");
}

proptest! {
    #[test]
    fn a_hint_of_a_document_never_leads_to_local_endpoints_of_this_machine(
        scheme in "(agent|agent\\+(unix|local|https|wss|matrix|x)|file|https?|HTTPS?|wss?|mqtts?|unix|javascript)?",
        rest in "(:)?/{0,3}[a-z0-9.@:#%/\\\\?\\[\\]_-]{0,40}",
        uri in "agent://a\\.example(/[a-z0-9@.~-]{1,6}){0,3}(\\?[a-z=&]{0,8})?",
    ) {
        let Ok(uri) = AgentUri::parse(&uri) else { return Ok(()) };
        let document = ResolverDocument {
            url: url("https://a.example/p/agent.json"),
            value: json!({"endpoint": format!("{scheme}{rest}"), "version": "1.0.0"}),
            body: Bytes::new(),
        };
        match step_from_descriptor(&document, &ResolutionRequest::new(&uri, None), 1) {
            Ok(ResolutionStep::Location(location)) => {
                let scheme = location.endpoint.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
                let allowed = ["https", "http", "wss", "ws", "mqtts", "agent+matrix"];
                prop_assert!(scheme.is_some_and(|scheme| allowed.contains(&&*scheme)), "{}", location.endpoint);
                prop_assert!(!location.endpoint.contains('#'), "{}", location.endpoint);
            }
            Ok(ResolutionStep::Alias(name)) => prop_assert!(name.transport().is_none() && name.fragment().is_none()),
            Err(_) => {}
        }
    }
}
