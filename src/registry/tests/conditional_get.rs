//! Conditional GET: requests, credentials, redirects and failures.

use super::{
    super::{
        conditional_get::{ConditionalClient, ConditionalResponse, FetchedDocument, LinkTarget},
        config::CacheBounds,
    },
    scripted_server::{ScriptedResponse, ScriptedServer, ok, response},
};
use crate::{
    net::{self, AddressPolicy, FetchClient, FetchLimits, LinkAuthor, SourceClient, SourceCredential, Url},
    values::{ByteSize, ConfigDuration, SecretRef},
};
use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

/// A client of `url` under a policy that refuses this machine's addresses except the configured one.
fn strict_client(url: &str, credential: Option<&SourceCredential>) -> ConditionalClient {
    let config = net::NetworkConfig::default();
    let fetch_client = FetchClient::build(&config, Arc::new(AddressPolicy::default())).unwrap();
    let limits = FetchLimits { size: ByteSize::from_kib(4), time: ConfigDuration::from_millis(400) };
    ConditionalClient::new(
        SourceClient::build(&config, &fetch_client, url, credential, limits).unwrap(),
        CacheBounds::default(),
    )
}

async fn get(client: &ConditionalClient) -> Result<Option<FetchedDocument>, String> {
    match client.get(client.url()).await? {
        ConditionalResponse::NotModified => Ok(None),
        ConditionalResponse::Modified(document) => Ok(Some(document)),
    }
}

fn secret(folder: &Path, text: &str) -> SecretRef {
    let path = folder.join("secret");
    std::fs::write(&path, text).unwrap();
    format!("file:{}", path.display()).parse().unwrap()
}

#[tokio::test]
async fn r62_unchanged_content_is_revalidated_with_every_validator() {
    let headers = "etag: \"one\"\r\nlast-modified: Sat, 21 Nov 2026 10:00:00 GMT\r\n";
    let server = ScriptedServer::new(move |head| {
        if head.contains("if-none-match: \"one\"") {
            response("304 Not Modified", "", "")
        } else {
            response("200 OK", headers, "[1]")
        }
    })
    .await;
    let client = strict_client(&server.url("/"), None);
    assert_eq!(&get(&client).await.unwrap().unwrap().body[..], b"[1]");
    assert!(get(&client).await.unwrap().is_none());
    let requests = server.requests();
    assert!(!requests[0].contains("if-"), "{requests:?}");
    assert!(requests[1].contains("if-modified-since: sat, 21 nov 2026 10:00:00 gmt"), "{requests:?}");
    assert!(client.get_unconditional(client.url()).await.is_ok(), "the unconditional request succeeds");
    client.clear_cache();
    assert!(get(&client).await.unwrap().is_some(), "after clearing the cache, the content counts as changed");
}

#[tokio::test]
async fn r62_a_new_etag_for_the_same_bytes_is_no_change() {
    let count = AtomicUsize::new(0);
    let server = ScriptedServer::new(move |_| {
        let tag = count.fetch_add(1, Ordering::SeqCst);
        response("200 OK", &format!("etag: \"{tag}\"\r\n"), "[1]")
    })
    .await;
    let client = strict_client(&server.url("/"), None);
    assert!(get(&client).await.unwrap().is_some());
    for _ in 0..3 {
        assert!(get(&client).await.unwrap().is_none());
    }
    server.set_script(|_| response("200 OK", "etag: \"3\"\r\n", "[2]"));
    assert!(get(&client).await.unwrap().is_some(), "other bytes under the same ETag are a change");
}

#[tokio::test]
async fn r62_fresh_responses_are_not_fetched_again_within_the_configured_bounds() {
    for (headers, request_count, delay) in [
        ("cache-control: max-age=60\r\n", 1, Some(60)),
        ("cache-control: public, max-age=999999\r\n", 1, Some(3_600)),
        ("cache-control: max-age=60\r\nage: 50\r\n", 1, Some(10)),
        ("cache-control: no-store\r\n", 2, Some(0)),
        ("cache-control: no-cache, max-age=60\r\n", 2, Some(0)),
        ("cache-control: max-age=nonsense\r\n", 2, Some(0)),
        ("last-modified: Sat, 21 Nov 2020 10:00:00 GMT\r\n", 2, Some(0)),
        ("", 2, Some(0)),
    ] {
        let server = ScriptedServer::new(move |_| response("200 OK", headers, "[1]")).await;
        let client = strict_client(&server.url("/"), None);
        assert!(get(&client).await.unwrap().is_some());
        assert_eq!(client.requested_delay().map(|delay| delay.as_secs()), delay, "{headers}");
        assert!(get(&client).await.unwrap().is_none());
        assert_eq!(server.requests().len(), request_count, "{headers}");
    }
}

#[tokio::test]
async fn retry_after_is_respected_within_bounds() {
    let server = ScriptedServer::new(|_| response("503 Service Unavailable", "retry-after: 120\r\n", "")).await;
    let client = strict_client(&server.url("/"), None);
    assert!(get(&client).await.unwrap_err().contains("503"));
    assert_eq!(client.requested_delay(), Some(Duration::from_secs(120)));
    server.set_script(|_| response("429 Too Many Requests", "retry-after: 99999999999\r\n", ""));
    assert!(get(&client).await.is_err());
    assert_eq!(client.requested_delay(), Some(Duration::from_secs(3_600)));
}

#[tokio::test]
async fn retry_after_of_a_link_does_not_delay_the_source() {
    let server = ScriptedServer::new(|_| response("503 Service Unavailable", "retry-after: 120\r\n", "")).await;
    let client = strict_client(&server.url("/"), None);
    let link = LinkTarget { url: client.url(), author: LinkAuthor::Source };
    assert_eq!(client.get_link(link).await.unwrap_err().retry_after, Some(Duration::from_secs(120)));
    assert!(client.get_link_unconditional(link).await.is_err());
    assert_eq!(client.requested_delay(), None);
}

#[tokio::test]
async fn every_server_failure_is_an_error_within_bounded_time() {
    let long = "x".repeat(5_000);
    let endless = format!("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{long}");
    let cases: Vec<(&str, ScriptedResponse, &str)> = vec![
        ("nothing", ScriptedResponse::Close, "/feed"),
        ("silence", ScriptedResponse::Hang, "takes longer"),
        (
            "a slow drip",
            ScriptedResponse::SendSlowly(b"HTTP/1.1 200 OK\r\ncontent-length: 400\r\n\r\n[[[[[[[[[[[[".to_vec()),
            "takes longer",
        ),
        ("half a head", ScriptedResponse::Send(b"HTTP/1.1 200 OK\r\ncontent-le".to_vec()), "/feed"),
        ("half a body", ScriptedResponse::Send(b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\n[1,".to_vec()), "/feed"),
        ("no HTTP", ScriptedResponse::Send(b"SSH-2.0-OpenSSH_9.2\r\n".to_vec()), "/feed"),
        ("too long", ok(&long), "4KiB"),
        ("too long, without a declared length", ScriptedResponse::Send(endless.into()), "4KiB"),
        (
            "a false length",
            ScriptedResponse::Send(b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n[]".to_vec()),
            "4KiB",
        ),
        ("an error", response("500 Internal Server Error", "", "[]"), "500"),
        ("no content", response("204 No Content", "", ""), "204"),
        ("a part", response("206 Partial Content", "", "[]"), "206"),
        ("304 without a condition", response("304 Not Modified", "", ""), "304"),
        ("an HTML page", response("200 OK", "content-type: text/html; charset=utf-8\r\n", "<html>"), "text/html"),
        ("compressed", response("200 OK", "content-encoding: gzip\r\n", "[]"), "compressed"),
        ("a redirect to itself", response("302 Found", "location: /feed\r\n", ""), "redirects more than 3"),
        ("a redirect to nowhere", response("302 Found", "", ""), "redirects without a valid Location"),
        ("cloud metadata", response("302 Found", "location: http://169.254.169.254/latest\r\n", ""), "169.254.169.254"),
        (
            "metadata over TLS",
            response("302 Found", "location: https://169.254.169.254/\r\n", ""),
            "may not be reached",
        ),
        ("another port here", response("302 Found", "location: http://127.0.0.1:1/\r\n", ""), "may not be reached"),
        ("by its name", response("302 Found", "location: http://localhost:1/\r\n", ""), "may not be reached"),
        ("plain http elsewhere", response("302 Found", "location: http://10.0.0.1/\r\n", ""), "must be https"),
        ("a file", response("302 Found", "location: file:///etc/passwd\r\n", ""), "has no host"),
        ("a password", response("302 Found", "location: https://a:b@example.org/\r\n", ""), "user name or password"),
    ];
    for (name, scripted, expected) in cases {
        let server = ScriptedServer::new(move |_| scripted.clone()).await;
        let client = strict_client(&server.url("/feed"), None);
        let began = Instant::now();
        let why = get(&client).await.expect_err(name);
        assert!(why.contains(expected), "{name}: {why}");
        assert!(began.elapsed() < Duration::from_secs(5), "{name}");
        server.set_script(|_| ok("[1]"));
        assert!(get(&client).await.unwrap().is_some(), "{name}: it recovers");
    }
}

#[tokio::test]
async fn a_redirect_within_the_source_is_followed_and_its_target_returned() {
    let server = ScriptedServer::new(|head| {
        if head.starts_with("get /feed") {
            response("307 Temporary Redirect", "location: v2/list?a=b\r\n", "")
        } else {
            ok("[1]")
        }
    })
    .await;
    let client = strict_client(&server.url("/feed"), None);
    assert_eq!(get(&client).await.unwrap().unwrap().url.path(), "/v2/list");
}

#[tokio::test]
async fn a_credential_is_sent_to_the_source_only() {
    let folder = tempfile::tempdir().unwrap();
    let other = ScriptedServer::with_body("[]").await;
    let target = other.url("/stolen");
    let server = ScriptedServer::new(move |head| {
        if head.starts_with("get /away") {
            response("302 Found", &format!("location: {target}\r\n"), "")
        } else {
            ok("[1]")
        }
    })
    .await;
    let header = net::SourceHeader { name: "X-API-Key".to_owned(), value: secret(folder.path(), "hunter2") };
    for credential in [
        SourceCredential { bearer: Some(secret(folder.path(), "hunter2")), ..SourceCredential::default() },
        SourceCredential { header: Some(header), ..SourceCredential::default() },
    ] {
        let config = net::NetworkConfig {
            allowed_addresses: vec!["127.0.0.0/8".parse().unwrap()],
            ..net::NetworkConfig::default()
        };
        let fetch_client = FetchClient::build(&config, Arc::new(config.policy())).unwrap();
        let limits = FetchLimits { size: ByteSize::from_kib(4), time: ConfigDuration::from_secs(5) };
        let source_client =
            SourceClient::build(&config, &fetch_client, &server.url("/"), Some(&credential), limits).unwrap();
        let client = ConditionalClient::new(source_client, CacheBounds::default());
        for url in [server.url("/away"), other.url("/link")] {
            client.get_unconditional(&url.parse::<Url>().unwrap()).await.unwrap();
        }
        // A document of another server named the URL of the source.
        let url = server.url("/private").parse::<Url>().unwrap();
        client.get_link(LinkTarget { url: &url, author: LinkAuthor::Foreign }).await.unwrap();
        let strict = strict_client(&server.url("/"), Some(&credential));
        let denied = strict.get_link(LinkTarget { url: &url, author: LinkAuthor::Foreign }).await.unwrap_err().why;
        assert!(denied.contains("may not be reached"), "{denied}");
        assert!(format!("{client:?}").find("hunter2").is_none(), "secrets are not printed");
    }
    assert_eq!(server.requests().iter().filter(|head| head.contains("hunter2")).count(), 2);
    let other_requests = other.requests();
    assert!(
        other_requests.len() == 4 && other_requests.iter().all(|head| !head.contains("hunter2")),
        "{other_requests:?}"
    );
}

/// A token endpoint that numbers its tokens, and a source that accepts the newest only.
async fn token_server(expires: &'static str) -> (ScriptedServer, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let token_counter = Arc::clone(&count);
    let server = ScriptedServer::new(move |head| {
        if head.starts_with("post /token") {
            let number = token_counter.fetch_add(1, Ordering::SeqCst) + 1;
            return ok(&format!(r#"{{"access_token": "t{number}", "token_type": "Bearer"{expires}}}"#));
        }
        if head.contains(&format!("authorization: bearer t{}\r\n", token_counter.load(Ordering::SeqCst))) {
            ok("[1]")
        } else {
            response("401 Unauthorized", "", "")
        }
    })
    .await;
    (server, count)
}

#[tokio::test]
async fn client_credentials_tokens_are_cached_and_renewed_on_expiry_or_401() {
    let folder = tempfile::tempdir().unwrap();
    for (expires, token_count) in
        [(r#", "expires_in": 3600"#, 1), (r#", "expires_in": "3600""#, 1), ("", 1), (r#", "expires_in": 0"#, 3)]
    {
        let (server, count) = token_server(expires).await;
        let credential = SourceCredential {
            client_credentials: Some(net::ClientCredentials {
                token_url: server.url("/token"),
                client_id: "gate:post".to_owned(),
                client_secret: secret(folder.path(), "hunter2"),
                scope: Some("agents.read".to_owned()),
            }),
            ..SourceCredential::default()
        };
        let client = strict_client(&server.url("/"), Some(&credential));
        for _ in 0..3 {
            client.get_unconditional(client.url()).await.unwrap();
        }
        assert_eq!(count.load(Ordering::SeqCst), token_count, "{expires}");
        // Z2F0ZSUzQXBvc3Q6aHVudGVyMg== is gate%3Apost:hunter2.
        assert!(
            server.requests()[0].contains("authorization: basic z2f0zsuzqxbvc3q6ahvudgvymg=="),
            "{:?}",
            server.requests()
        );
        count.fetch_add(1, Ordering::SeqCst);
        client.get_unconditional(client.url()).await.expect("a revoked token is renewed once");
        let newest = count.load(Ordering::SeqCst);
        server.set_script(|head| {
            if head.starts_with("post") {
                ok(r#"{"access_token": "useless"}"#)
            } else {
                response("401 Unauthorized", "", "")
            }
        });
        assert!(
            client.get_unconditional(client.url()).await.unwrap_err().contains("401"),
            "renewed only once ({newest})"
        );
        server.set_script(|_| response("400 Bad Request", "", r#"{"error": "invalid_client"}"#));
        let why = client.get_unconditional(client.url()).await.unwrap_err();
        assert!(!why.contains("hunter2"), "{why}");
    }
}

#[test]
fn an_invalid_credential_is_reported_by_its_path() {
    let folder = tempfile::tempdir().unwrap();
    let (valid, missing) = (secret(folder.path(), "x"), "env:GATEPOST_TEST_NOT_SET".parse::<SecretRef>().unwrap());
    let header = |name: &str| Some(net::SourceHeader { name: name.to_owned(), value: valid.clone() });
    let mtls =
        |certificate: &Path| net::SourceMtls { certificate: certificate.into(), key: "/nowhere".into(), ca: None };
    let none = SourceCredential::default;
    for (credential, path) in [
        (SourceCredential { bearer: Some(missing.clone()), ..none() }, "credential.bearer"),
        (SourceCredential { header: header("Host"), ..none() }, "credential.header.name"),
        (SourceCredential { header: header("a b"), ..none() }, "credential.header.name"),
        (
            SourceCredential { header: header("X-Key"), bearer: Some(valid.clone()), ..none() },
            "credential.bearer: only one",
        ),
        (SourceCredential { mtls: Some(mtls(Path::new("/nowhere"))), ..none() }, "credential.mtls.certificate"),
        (SourceCredential { mtls: Some(mtls(&folder.path().join("secret"))), ..none() }, "credential.mtls.key"),
    ] {
        let config = net::NetworkConfig::default();
        let client = FetchClient::build(&config, Arc::default()).unwrap();
        let limits = FetchLimits { size: ByteSize::from_kib(4), time: ConfigDuration::from_secs(5) };
        let problems =
            SourceClient::build(&config, &client, "https://a.example/", Some(&credential), limits).unwrap_err();
        assert!(problems[0].starts_with(path), "{problems:?}");
    }
}
