//! Which header fields cross the gateway, and which it writes itself.

use super::*;
use crate::agent::{AgentSource, DocumentWriter};
use crate::transport::headers::{
    CallerHeaderNames, ForwardedHeaders, GatewayHeaders, build_forwarded, build_request_headers,
};
use std::io::Write;

fn header_map(lines: &[(&str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        headers.append(HeaderName::try_from(*name).unwrap(), HeaderValue::from_str(value).unwrap());
    }
    headers
}

fn no_mutations<'a>() -> HeaderMutations<'a> {
    HeaderMutations::default()
}

fn sent_headers(lines: &[(&str, &str)], mutations: &HeaderMutations<'_>) -> HeaderMap {
    sent_with(&[], lines, mutations)
}

/// Builds the request for an agent for which `forwarded_headers` has `listed`.
fn sent_with(listed: &[&str], lines: &[(&str, &str)], mutations: &HeaderMutations<'_>) -> HeaderMap {
    let listed: Vec<String> = listed.iter().map(ToString::to_string).collect();
    let forwarded = ForwardedHeaders::compile(&listed).unwrap();
    let host = HeaderValue::from_static("agent.example:8443");
    let gateway = GatewayHeaders { host, credential: None, forwarded, caller_headers: CallerHeaderNames::default() };
    build_request_headers(&header_map(lines), &gateway, mutations, Duration::from_millis(29_500))
}

#[test]
fn r4_the_callers_credentials_and_identity_claims_are_stripped() {
    let secrets = [
        "authorization",
        "proxy-authorization",
        "x-api-key",
        "cookie",
        "x-forwarded-client-cert",
        "client-cert",
        "dpop",
        "x-forwarded-for",
        "x-forwarded-proto",
        "x-forwarded-host",
        "x-forwarded-user",
        "x-real-ip",
        "x-remote-user",
        "x-auth-request-email",
        "ssl-client-cert",
        "x-ssl-client-dn",
        "x-gatepost-caller",
        "x_api_key",
        "x_forwarded_for",
        "x-original-url",
        "x-http-method-override",
        "x-team-key",
        "forwarded",
    ];
    let lines: Vec<_> = secrets.iter().map(|name| (*name, "s3cret")).collect();
    let key_header = HeaderName::from_static("x-team-key");
    let headers = sent_headers(
        &lines,
        &HeaderMutations { credential_headers: std::slice::from_ref(&key_header), ..no_mutations() },
    );
    assert!(headers.values().all(|value| value != "s3cret"), "{headers:?}");
}

#[test]
fn hop_by_hop_fields_and_connection_options_are_stripped() {
    let lines = [
        ("connection", "keep-alive, X-Hop"),
        ("connection", "close, x-other"),
        ("x-hop", "1"),
        ("x-other", "1"),
        ("keep-alive", "1"),
        ("te", "trailers"),
        ("trailer", "1"),
        ("transfer-encoding", "chunked"),
        ("upgrade", "h2c"),
        ("http2-settings", "1"),
        ("proxy-connection", "1"),
        ("content-length", "3"),
        ("expect", "100-continue"),
        ("host", "gateway.example"),
        ("range", "bytes=0-1"),
        ("if-none-match", "*"),
    ];
    let headers = sent_headers(&lines, &no_mutations());
    let names: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
    assert_eq!(names, ["host", "accept-encoding", "forwarded", "via", "x-request-timeout"]);
    assert_eq!(headers["host"], "agent.example:8443");
    assert_eq!(headers["accept-encoding"], "identity");
    assert_eq!(headers["x-request-timeout"], "29500ms");
    assert_eq!(headers["via"], "1.1 gatepost");
}

#[test]
fn r34_r68_r76_ids_traces_versions_and_standard_fields_are_forwarded() {
    let names = [
        "traceparent",
        "tracestate",
        "x-request-id",
        "x-session-id",
        "x-task-id",
        "x-agent-version",
        "idempotency-key",
        "accept",
        "accept-language",
        "content-type",
        "content-encoding",
        "user-agent",
        "a2a-version",
        "mcp-session-id",
        "x-delegation-chain",
        "signature",
        "mcp-protocol-version",
        "mcp-method",
        "mcp-name",
        "mcp-param-region",
        "a2a-extensions",
        "x-a2a-extensions",
        "x-correlation-id",
        "x-b3-traceid",
        "b3",
        "baggage",
        "prefer",
        "last-event-id",
        "x-operation",
        "cache-control",
        "content-disposition",
    ];
    let lines: Vec<_> = names.iter().map(|name| (*name, "v")).collect();
    let headers = sent_headers(&lines, &no_mutations());
    for name in names {
        assert_eq!(headers[name], "v", "{name}");
    }
    let two = sent_headers(&[("accept", "a"), ("accept", "b")], &no_mutations());
    assert_eq!(two.get_all("accept").iter().collect::<Vec<_>>(), ["a", "b"]);
}

/// Fields by which proxies, identity providers and frameworks say who the caller is, and what else agents may trust.
const IDENTITY_CLAIMS: [&str; 24] = [
    "x-internal-token",
    "x_internal_token",
    "remote-groups",
    "remote-name",
    "remote-email",
    "cf-access-jwt-assertion",
    "cf-access-client-id",
    "cf-access-authenticated-user-email",
    "x-user",
    "x-user-id",
    "x-tenant-id",
    "x-consumer-username",
    "x-ms-client-principal",
    "x-pomerium-jwt-assertion",
    "x-vouch-user",
    "x-token",
    "x-vault-token",
    "x-plex-token",
    "tailscale-user-login",
    "x-azure-ref",
    "from",
    "origin",
    "referer",
    "x-mesh-principal",
];

#[test]
fn r4_fields_that_may_claim_an_identity_are_not_forwarded_because_they_are_not_listed() {
    let lines: Vec<_> = IDENTITY_CLAIMS.iter().map(|name| (*name, "claimed")).collect();
    let headers = sent_headers(&lines, &no_mutations());
    assert!(headers.values().all(|value| value != "claimed"), "{headers:?}");
    // A standard name with underscores is not the standard name.
    let spelled = [
        "content_type",
        "x_request_id",
        "x_delegation_chain",
        "mcp_session_id",
        "x-b3-trace_id",
        "x-datadog-trace_id",
        "mcp-param-tenant_id",
    ]
    .map(|name| (name, "x"));
    let headers = sent_headers(&spelled, &no_mutations());
    assert!(headers.values().all(|value| value != "x"), "{headers:?}");
}

#[test]
fn r4_listed_fields_are_forwarded_unless_they_carry_credentials() {
    let listed = ["X-Team", "x-app-*", "X-*", "Remote-Groups"];
    let lines = [
        ("x-team", "v"),
        ("x-app-one", "v"),
        ("x-whatever", "v"),
        ("remote-groups", "v"),
        ("x-api-key", "s3cret"),
        ("x-forwarded-for", "s3cret"),
        ("x-auth-token", "s3cret"),
        ("x-original-url", "s3cret"),
        ("x-app_one", "s3cret"),
        ("x-forwarded_for", "s3cret"),
        ("x-team-key", "s3cret"),
        ("remote-name", "s3cret"),
    ];
    let key_header = HeaderName::from_static("x-team-key");
    let mutations = HeaderMutations { credential_headers: std::slice::from_ref(&key_header), ..no_mutations() };
    let headers = sent_with(&listed, &lines, &mutations);
    for (name, value) in lines {
        assert_eq!(headers.get(name).is_some(), value == "v", "{name}");
    }
}

#[test]
fn r4_entries_of_forwarded_headers_that_cannot_pass_are_refused() {
    for (entry, reason) in [
        ("Authorization", "credential"),
        ("X-API-Key", "credential"),
        ("Cookie", "credential"),
        ("X-Forwarded-For", "credential"),
        ("Host", "gateway"),
        ("Connection", "gateway"),
        ("X_Team", "underscore"),
        ("X_*", "underscore"),
        ("X Team", "not a header name"),
        ("X-*-Team", "inside"),
        ("", "not a header name"),
        ("*", "not a header name"),
    ] {
        let problems = ForwardedHeaders::compile(&[entry.to_owned()]).map(|_| ()).unwrap_err().join(" ");
        assert!(problems.contains(reason), "{entry}: {problems}");
    }
}

#[test]
fn forwarded_has_the_form_of_rfc_7239() {
    let forwarded_header = |peer: &str, secure, host| {
        let forwarded = peer.parse().map(|peer| build_forwarded(peer, secure, host)).ok();
        let mutations = HeaderMutations { forwarded: forwarded.as_ref(), ..no_mutations() };
        sent_headers(&[("forwarded", "for=evil")], &mutations)["forwarded"].to_str().unwrap().to_owned()
    };
    assert_eq!(forwarded_header("192.0.2.7", true, Some("api.example")), "for=192.0.2.7;proto=https;host=api.example");
    assert_eq!(
        forwarded_header("2001:db8::7", false, Some("api.example:8443")),
        "for=\"[2001:db8::7]\";proto=http;host=\"api.example:8443\""
    );
    assert_eq!(forwarded_header("::ffff:192.0.2.7", true, None), "for=192.0.2.7;proto=https");
    assert_eq!(
        forwarded_header("192.0.2.7", true, Some("a\"b\\c;for=evil")),
        r#"for=192.0.2.7;proto=https;host="a\"b\\c;for=evil""#
    );
    assert_eq!(forwarded_header("", true, Some("api.example")), "for=unknown");
}

#[test]
fn r4_fields_that_tell_the_caller_never_come_from_the_caller() {
    let config = serde_json::from_str(r#"{"X-User": {"value": "id"}, "Remote-User": {"value": "id"}}"#).unwrap();
    let gateway = GatewayHeaders {
        host: HeaderValue::from_static("agent.example"),
        credential: None,
        forwarded: ForwardedHeaders::compile(&["X-*".to_owned(), "Remote-*".to_owned()]).unwrap(),
        caller_headers: CallerHeaderNames::compile(Some(&config)),
    };
    let lines =
        [("x-user", "forged"), ("x-user", "again"), ("x_user", "forged"), ("remote-user", "forged"), ("x-team", "v")];
    let told = [(HeaderName::from_static("x-user"), HeaderValue::from_static("key:a"))];
    for told in [&told[..], &[]] {
        let mutations = HeaderMutations { caller_headers: told, ..no_mutations() };
        let headers = build_request_headers(&header_map(&lines), &gateway, &mutations, Duration::from_secs(1));
        assert!(headers.values().all(|value| value != "forged" && value != "again"), "{headers:?}");
        assert_eq!(headers.get_all("x-user").iter().count(), told.len());
        assert_eq!(headers["x-team"], "v");
    }
}

#[test]
fn the_gateways_fields_replace_the_callers() {
    let own = [(HeaderName::from_static("x-request-id"), HeaderValue::from_static("ours"))];
    let headers = sent_headers(
        &[("x-request-id", "theirs"), ("x-request-id", "too"), ("x-request-timeout", "9h")],
        &HeaderMutations { set: &own, ..no_mutations() },
    );
    assert_eq!(headers.get_all("x-request-id").iter().collect::<Vec<_>>(), ["ours"]);
    assert_eq!(headers.get_all("x-request-timeout").iter().count(), 1);
}

/// Returns the request that an agent of `source` receives under `destinations`.
async fn request_under_destinations(source: AgentSource, destinations: CredentialDestinations) -> String {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"own-s3cret").unwrap();
    let value = format!("file:{}", file.path().display()).parse().unwrap();
    let credential = UpstreamCredential { header: "Authorization".to_owned(), scheme: None, value, destinations };
    let (address, _) = start_agent(|mut stream, _| async move {
        let text = read_request(&mut stream).await?;
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", text.len());
        stream.write_all((head + &text).as_bytes()).await
    })
    .await;
    let agent = agent(&format!("http://{address}/")).with_source(Arc::new(source));
    let settings = TransportConfig { credential: Some(credential), ..long_timeouts() };
    let body = read_body(TestUpstream::for_agent(&agent, &settings).post().await).await.unwrap();
    String::from_utf8_lossy(&body).into_owned()
}

#[tokio::test]
async fn r4_a_credential_is_sent_only_to_its_destinations() {
    let source = |name: &str, writer| AgentSource { name: name.into(), writer };
    let publisher = || source("registry", DocumentWriter::Publisher("key:mallory".into()));
    let origins = |pattern: &str| CredentialDestinations {
        origins: vec![pattern.parse().unwrap()],
        ..CredentialDestinations::default()
    };
    let sources = |name: &str| CredentialDestinations {
        sources: vec![name.parse().unwrap()],
        ..CredentialDestinations::default()
    };
    for (source, destinations, is_sent) in [
        (publisher(), origins("http://127.0.0.1:*"), true),
        (publisher(), sources("registry"), true),
        (source("agents.json", DocumentWriter::Operator), sources("files"), true),
        (source("reg", DocumentWriter::RemoteSource), sources("reg"), true),
        (publisher(), sources("files"), false),
        (source("files", DocumentWriter::RemoteSource), sources("registry"), false),
        (source("reg", DocumentWriter::RemoteSource), origins("https://127.0.0.1:*"), false),
        (publisher(), origins("http://127.0.0.1"), false),
        (publisher(), origins("http://example.com:*"), false),
        (publisher(), CredentialDestinations::default(), false),
    ] {
        let request = request_under_destinations(source.clone(), destinations.clone()).await;
        assert_eq!(request.contains("own-s3cret"), is_sent, "{source:?} {destinations:?}");
    }
}

/// Returns the request that an agent receives when the gateway has a credential for it and the caller sends its own.
async fn request_with_credential(header: &str, scheme: Option<&str>) -> String {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"own-s3cret\n").unwrap();
    let value = format!("file:{}", file.path().display()).parse().unwrap();
    let (header, scheme) = (header.to_owned(), scheme.map(str::to_owned));
    let credential =
        Some(UpstreamCredential { header, scheme, value, destinations: CredentialDestinations::everywhere() });
    let (address, _) = start_agent(|mut stream, _| async move {
        let text = read_request(&mut stream).await?;
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", text.len());
        stream.write_all((head + &text).as_bytes()).await
    })
    .await;
    let settings = TransportConfig { credential, ..long_timeouts() };
    let upstream = TestUpstream::new(&format!("http://{address}/"), &settings);
    let caller = header_map(&[("authorization", "Bearer callers"), ("x-api-key", "callers")]);
    let body = Bytes::from_static(b"{}").into();
    let text = read_body(upstream.send(Method::POST, &caller, body).await).await.unwrap();
    String::from_utf8(text.to_vec()).unwrap()
}

#[tokio::test]
async fn r4_the_gateway_sends_its_own_credential_and_not_the_callers() {
    let table = [
        ("Authorization", None, "authorization: Bearer own-s3cret"),
        ("X-API-Key", None, "x-api-key: own-s3cret"),
        ("Authorization", Some("Token"), "authorization: Token own-s3cret"),
        ("Authorization", Some(""), "authorization: own-s3cret"),
    ];
    for (header, scheme, line) in table {
        let text = request_with_credential(header, scheme).await;
        assert!(text.contains(&format!("\r\n{line}\r\n")), "{text}");
        assert!(!text.contains("callers"), "{text}");
    }
}

#[test]
fn r41_fields_that_reveal_the_agents_infrastructure_are_stripped() {
    let hidden = [
        "server",
        "x-powered-by",
        "via",
        "set-cookie",
        "www-authenticate",
        "strict-transport-security",
        "alt-svc",
        "connection",
        "keep-alive",
        "transfer-encoding",
        "content-length",
        "x-request-id",
        "ratelimit",
        "x-ratelimit-limit",
        "retry-after",
        "x-envoy-upstream-service-time",
        "x-debug-trace",
        "access-control-allow-origin",
        "proxy-authenticate",
        "x-amzn-requestid",
        "x-backend-server",
        "location",
        "date",
        "x-hop",
    ];
    let mut lines: Vec<_> = hidden.iter().map(|name| (*name, "x-hop")).collect();
    lines.extend([
        ("content-type", "application/json"),
        ("cache-control", "no-store"),
        ("etag", "\"1\""),
        ("mcp-session-id", "s"),
        ("x-custom", "1"),
    ]);
    let headers = filter_reply_headers(&header_map(&lines), ::http::StatusCode::OK);
    let mut names: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["cache-control", "content-type", "etag", "mcp-session-id", "x-custom"]);
}

#[test]
fn r33_r79_a_relative_location_is_kept_with_201_and_202_only() {
    let filter =
        |status, location| filter_reply_headers(&header_map(&[("location", location), ("retry-after", "3")]), status);
    use ::http::StatusCode as Status;
    assert_eq!(filter(Status::CREATED, "/runs/1")["location"], "/runs/1");
    assert_eq!(filter(Status::ACCEPTED, "runs/1?x=a:b")["location"], "runs/1?x=a:b");
    assert_eq!(filter(Status::ACCEPTED, "a")["retry-after"], "3");
    for location in ["http://10.0.0.7/runs/1", "//10.0.0.7/runs", "javascript:x", "\\\\host\\x", "", "/\\evil.example"]
    {
        assert!(!filter(Status::CREATED, location).contains_key("location"), "{location}");
    }
    assert!(
        !filter(Status::OK, "/runs/1").contains_key("location")
            && !filter(Status::CREATED, "/").contains_key("retry-after")
    );
}
