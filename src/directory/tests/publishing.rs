//! Publishing: which questions the registry is asked, and what becomes of its answers.

use super::*;
use crate::registry::{Past, PublishConfig, Saved, Stored, When};
use time::OffsetDateTime;

/// A registry in a folder of its own, in which nobody may publish.
async fn with_registry(documents: &[Value]) -> Stand {
    let mut stand = stand(documents);
    let folder = tempfile::tempdir().unwrap().keep();
    let config: PublishConfig =
        serde_json::from_value(json!({"store": folder.join("documents.db")})).unwrap_or_default();
    let registry = Registry::open(&config, Arc::default()).await.unwrap();
    stand.directory.registry = Some(Arc::new(registry));
    stand
}

fn stored() -> Stored {
    Stored {
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
async fn r17_without_a_registry_nothing_can_be_published_and_the_methods_that_work_are_named() {
    let stand = stand(&[translator()]);
    for (method, target) in [
        (Method::POST, "/agents"),
        (Method::PUT, "/agents/new"),
        (Method::PATCH, "/agents/translator"),
        (Method::DELETE, "/agents/translator"),
    ] {
        let fault = stand.refused(send(method.clone(), target, &plain("new"))).await;
        assert_eq!(fault.code(), Code::MethodNotAllowed, "{method} {target}");
        assert_eq!(fault.headers(), [("Allow", "GET, HEAD".to_owned())]);
    }
    assert_eq!(stand.refused(get("/agents/translator/history")).await.code(), Code::NotFound);
}

#[tokio::test]
async fn r18_who_may_not_publish_is_refused_before_the_body_is_read() {
    let stand = with_registry(&[translator()]).await;
    for (kind, code) in [(CallerKind::Anonymous, Code::Unauthorized), (CallerKind::Key, Code::PermissionDenied)] {
        for (method, target) in [
            (Method::POST, "/agents"),
            (Method::PUT, "/agents/x"),
            (Method::PATCH, "/agents/x"),
            (Method::DELETE, "/agents/x"),
        ] {
            let request = Request { kind, body: "no JSON".to_owned(), ..send(method, target, &Value::Null) };
            assert_eq!(stand.refused(request).await.code(), code, "{target}");
        }
    }
    assert_eq!(stand.refused(get("/agents/translator/history")).await.code(), Code::NotFound);
    // Whoever publishes nothing still reads.
    assert_eq!(stand.read("/agents/translator").await["id"], "translator");
}

#[test]
fn r17_a_new_document_is_201_with_its_place_and_a_changed_one_200() {
    let created = publish::saved(BASE, Saved::Created(stored()));
    assert_eq!((created.status.as_u16(), created.field("location")), (201, "https://gw.example/agents/new"));
    let updated = publish::saved(BASE, Saved::Updated(stored()));
    assert_eq!((updated.status.as_u16(), updated.field("location")), (200, ""));
    for answer in [created, updated] {
        assert_eq!(answer.text(), &*stored().document);
        assert_eq!(answer.field("etag"), crate::unit::etag(stored().document.as_bytes()));
        assert_eq!((answer.field("cache-control"), answer.field("content-type")), ("no-store", "application/json"));
    }
}

#[test]
fn a_write_is_guarded_by_what_its_fields_say() {
    let read = |fields: &[(&'static str, &str)]| publish::when(&headers(fields)).unwrap();
    assert_eq!(read(&[]), When::Always);
    assert_eq!(read(&[("if-none-match", "*")]), When::Absent);
    assert_eq!(read(&[("if-match", "*")]), When::Matches(vec!["*".to_owned()]));
    assert_eq!(read(&[("if-match", "\"a\", \"b\"")]), When::Matches(vec!["\"a\"".to_owned(), "\"b\"".to_owned()]));
    assert_eq!(
        read(&[("if-match", "\"a\""), ("if-match", "\"b\"")]),
        When::Matches(vec!["\"a\"".to_owned(), "\"b\"".to_owned()])
    );
    // A weak tag never guards: nothing is left that could match.
    assert_eq!(read(&[("if-match", "W/\"a\"")]), When::Matches(vec![]));
}

#[test]
fn a_guard_that_cannot_be_read_is_refused_rather_than_left_out_of_account() {
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
        assert_eq!(publish::when(&headers(&fields)).unwrap_err().code(), Code::InvalidInput, "{fields:?}");
    }
}

#[test]
fn r8_a_documents_history_says_when_who_and_what() {
    let past = |document: Option<&str>| Past {
        at: OffsetDateTime::UNIX_EPOCH,
        by: "key:team-a".into(),
        document: document.map(Into::into),
    };
    assert_eq!(
        publish::change(&past(Some("{\"id\":\"new\"}"))),
        json!({"at": "1970-01-01T00:00:00Z", "by": "key:team-a", "removed": false, "document": {"id": "new"}})
    );
    assert_eq!(publish::change(&past(None))["removed"], true);
}
