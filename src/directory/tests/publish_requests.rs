//! Publishing: conversion of requests for the registry, and of its results.

use super::*;
use crate::registry::{DocumentRevision, PublishConfig, PublishOutcome, PublishedDocument, WritePrecondition};
use time::OffsetDateTime;

/// A directory with a registry in a new folder, which has no publishers.
async fn with_registry(documents: &[Value]) -> TestDirectory {
    let mut fixture = test_directory(documents);
    let folder = tempfile::tempdir().unwrap().keep();
    let config: PublishConfig =
        serde_json::from_value(json!({"sqlite_file": folder.join("documents.db")})).unwrap_or_default();
    let registry = EmbeddedRegistry::open(&config, Arc::default()).await.unwrap();
    fixture.directory.registry = Some(Arc::new(registry));
    fixture
}

fn stored() -> PublishedDocument {
    PublishedDocument {
        id: "new".parse().unwrap(),
        document: "{\"id\":\"new\",\"name\":\"N\"}".into(),
        owner: "key:team-a".into(),
        created: OffsetDateTime::UNIX_EPOCH,
        updated: OffsetDateTime::UNIX_EPOCH,
    }
}

fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        headers.append(*name, HeaderValue::from_str(value).unwrap());
    }
    headers
}

#[tokio::test]
async fn r17_without_a_registry_publishing_is_refused_with_the_allowed_methods() {
    let fixture = test_directory(&[translator()]);
    for (method, target) in [
        (Method::POST, "/agents"),
        (Method::PUT, "/agents/new"),
        (Method::PATCH, "/agents/translator"),
        (Method::DELETE, "/agents/translator"),
    ] {
        let fault = fixture.expect_fault(send(method.clone(), target, &minimal_agent("new"))).await;
        assert_eq!(fault.code(), FaultCode::MethodNotAllowed, "{method} {target}");
        assert!(fault.headers().eq([("Allow", "GET, HEAD")]), "{fault}");
    }
    assert_eq!(fixture.expect_fault(get("/agents/translator/history")).await.code(), FaultCode::NotFound);
}

#[tokio::test]
async fn r18_a_caller_that_may_not_publish_is_refused_before_the_body_is_read() {
    let fixture = with_registry(&[translator()]).await;
    for (authentication, code) in [
        (AuthenticationMethod::Anonymous, FaultCode::Unauthorized),
        (AuthenticationMethod::ApiKey, FaultCode::PermissionDenied),
    ] {
        for (method, target) in [
            (Method::POST, "/agents"),
            (Method::PUT, "/agents/x"),
            (Method::PATCH, "/agents/x"),
            (Method::DELETE, "/agents/x"),
        ] {
            let request =
                TestRequest { authentication, body: "no JSON".to_owned(), ..send(method, target, &Value::Null) };
            assert_eq!(fixture.expect_fault(request).await.code(), code, "{target}");
        }
    }
    assert_eq!(fixture.expect_fault(get("/agents/translator/history")).await.code(), FaultCode::NotFound);
    // A caller that may not publish can still read.
    assert_eq!(fixture.get_json("/agents/translator").await["id"], "translator");
}

#[test]
fn r17_a_created_document_is_201_with_its_location_and_an_updated_one_200() {
    let created = publishing::saved_response(BASE, PublishOutcome::Created(stored()));
    assert_eq!((created.status.as_u16(), created.header("location")), (201, "https://gw.example/agents/new"));
    let updated = publishing::saved_response(BASE, PublishOutcome::Updated(stored()));
    assert_eq!((updated.status.as_u16(), updated.header("location")), (200, ""));
    for response in [created, updated] {
        assert_eq!(response.text(), &*stored().document);
        assert_eq!(response.header("etag"), crate::values::etag(stored().document.as_bytes()));
        assert_eq!(
            (response.header("cache-control"), response.header("content-type")),
            ("no-store", "application/json")
        );
    }
}

#[test]
fn a_write_is_guarded_by_its_preconditions() {
    let parse = |fields: &[(&'static str, &str)]| publishing::parse_precondition(&headers(fields)).unwrap();
    assert_eq!(parse(&[]), WritePrecondition::Always);
    assert_eq!(parse(&[("if-none-match", "*")]), WritePrecondition::Absent);
    assert_eq!(parse(&[("if-match", "*")]), WritePrecondition::Matches(vec!["*".to_owned()]));
    assert_eq!(
        parse(&[("if-match", "\"a\", \"b\"")]),
        WritePrecondition::Matches(vec!["\"a\"".to_owned(), "\"b\"".to_owned()])
    );
    assert_eq!(
        parse(&[("if-match", "\"a\""), ("if-match", "\"b\"")]),
        WritePrecondition::Matches(vec!["\"a\"".to_owned(), "\"b\"".to_owned()])
    );
    // A weak tag never guards: no tag is left that could match.
    assert_eq!(parse(&[("if-match", "W/\"a\"")]), WritePrecondition::Matches(vec![]));
}

#[test]
fn an_invalid_precondition_is_refused_instead_of_ignored() {
    let many = vec!["\"a\""; 21].join(",");
    for fields in [
        vec![("if-match", "")],
        vec![("if-match", ",")],
        vec![("if-match", "a")],
        vec![("if-match", "\"")],
        vec![("if-match", "\"a\" \"b\"x")],
        vec![("if-match", "*, \"a\"")],
        vec![("if-match", many.as_str())],
        vec![("if-none-match", "\"a\"")],
        vec![("if-none-match", "*"), ("if-match", "*")],
    ] {
        assert_eq!(
            publishing::parse_precondition(&headers(&fields)).unwrap_err().code(),
            FaultCode::InvalidInput,
            "{fields:?}"
        );
    }
}

#[test]
fn r8_a_history_entry_has_time_publisher_and_document() {
    let revision = |document: Option<&str>| DocumentRevision {
        at: OffsetDateTime::UNIX_EPOCH,
        writer: "key:team-a".into(),
        document: document.map(Into::into),
    };
    assert_eq!(
        publishing::history_entry(&revision(Some("{\"id\":\"new\"}"))),
        json!({"at": "1970-01-01T00:00:00Z", "by": "key:team-a", "removed": false, "document": {"id": "new"}})
    );
    assert_eq!(publishing::history_entry(&revision(None))["removed"], true);
}

/// A directory with a registry to which the caller may publish.
async fn with_publisher() -> TestDirectory {
    let mut fixture = test_directory(&[]);
    let folder = tempfile::tempdir().unwrap().keep();
    let config = json!({"sqlite_file": folder.join("documents.db"), "publishers": [{"callers": ["key:team-a"]}]});
    let config: PublishConfig = serde_json::from_value(config).unwrap();
    fixture.directory.registry = Some(Arc::new(EmbeddedRegistry::open(&config, Arc::default()).await.unwrap()));
    fixture
}

#[tokio::test]
async fn r17_r19_r20_a_document_is_published_read_changed_under_guard_and_removed() {
    let fixture = with_publisher().await;
    let document = json!({"name": "New", "endpoint": "https://93.184.216.34/run", "operations": [{"name": "do", "inputs": {}, "outputs": {}}]});
    let created = fixture.expect_response(send(Method::POST, "/agents", &document)).await;
    assert_eq!(created.status, 201, "{}", created.text());
    let location = created.header("location").strip_prefix(BASE).unwrap().to_owned();
    // The publisher reads the stored document with the tag that guards the next write, even before it is served.
    let own_document = fixture.expect_response(get(&location)).await;
    assert_eq!((&own_document.body, own_document.header("etag")), (&created.body, created.header("etag")));
    let tag = own_document.header("etag");
    let patch = || {
        send(Method::PATCH, &location, &json!({"name": "Newer"})).header("content-type", "application/merge-patch+json")
    };
    assert_eq!(fixture.expect_fault(patch().header("if-match", "\"other\"")).await.http_status(), 412);
    let weak = format!("W/{tag}");
    assert_eq!(fixture.expect_fault(patch().header("if-match", &weak)).await.http_status(), 412);
    let patched = fixture.expect_response(patch().header("if-match", tag)).await;
    assert_eq!((patched.status.as_u16(), &patched.json()["name"]), (200, &json!("Newer")));
    assert_ne!(patched.header("etag"), tag);
    assert_eq!(fixture.expect_fault(patch().header("if-match", tag)).await.http_status(), 412);
    let put = fixture.expect_response(send(Method::PUT, &location, &document)).await;
    assert_eq!((put.status.as_u16(), &put.json()["name"]), (200, &json!("New")));
    let history = fixture.get_json(&format!("{location}/history?top=2")).await;
    assert_eq!(history["changes"][1]["document"]["name"], "Newer");
    assert_eq!(history["changes"][0]["by"], "key:team-a");
    let removed = fixture.expect_response(send(Method::DELETE, &location, &Value::Null)).await;
    assert_eq!((removed.status.as_u16(), removed.body.len()), (204, 0));
    assert_eq!(fixture.expect_fault(get(&location)).await.code(), FaultCode::NotFound);
}

#[tokio::test]
async fn r18_r74_an_invalid_document_is_refused_with_its_violations() {
    let fixture = with_publisher().await;
    let unquoted = TestRequest {
        body: "{\"id\":\"a\",\"version\":3.1.4}".to_owned(),
        ..send(Method::POST, "/agents", &Value::Null)
    };
    let fault = fixture.expect_fault(unquoted).await;
    assert_eq!((fault.code(), pointers(&fault)), (FaultCode::InvalidInput, vec!["/version"]));
    let fault = fixture.expect_fault(send(Method::POST, "/agents", &json!({"endpoint": "ftp://x"}))).await;
    assert!(fault.violations().len() > 1, "{:?}", fault.violations());
    for (media, method) in [("text/plain", Method::POST), ("application/json-patch+json", Method::PATCH)] {
        let target = if method == Method::POST { "/agents" } else { "/agents/a" };
        let fault = fixture.expect_fault(send(method, target, &json!({})).header("content-type", media)).await;
        assert_eq!(fault.code(), FaultCode::UnsupportedMediaType, "{media}");
    }
    let large = TestRequest { body: " ".repeat((1 << 20) + 1), ..send(Method::PUT, "/agents/a", &Value::Null) };
    assert_eq!(fixture.expect_fault(large).await.code(), FaultCode::PayloadTooLarge);
    let guarded = send(Method::POST, "/agents", &minimal_agent("a")).header("if-none-match", "*");
    assert_eq!(fixture.expect_fault(guarded).await.code(), FaultCode::InvalidInput);
}
