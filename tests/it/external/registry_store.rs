//! The stores of published documents: the same cases on a SQLite file and on a real PostgreSQL, then cases of a shared
//! store and of failures.

use super::support::postgres::Postgres;
use crate::support::eventually;
use futures_util::future::join_all;
use gatepost::{
    fault::FaultCode,
    store::{
        self, ChangeCursor, DocumentChange, DocumentStore, DocumentWrite, StoreLocation, StoredDocument, WriteEffect,
        WriteOutcome, WritePrecondition, WriteRefusal,
    },
    values::etag,
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tempfile::TempDir;
use time::OffsetDateTime;

mod deleted_ids;
mod embedded_registry;

fn database(address: &str) -> StoreLocation {
    StoreLocation::Database { address: address.parse().unwrap(), authorities: None }
}

async fn open(location: &StoreLocation) -> Arc<dyn DocumentStore> {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    store::open_documents(location).await.unwrap()
}

fn put(id: &str, text: &str) -> DocumentWrite {
    DocumentWrite {
        id: id.into(),
        document: Some(text.into()),
        writer: "key:one".into(),
        any_owner: false,
        precondition: WritePrecondition::Always,
        limits: (100_000, 100_000),
        deleted_id_retention: Duration::from_secs(3_600),
        restored: None,
    }
}

fn removal(id: &str) -> DocumentWrite {
    DocumentWrite { document: None, ..put(id, "") }
}

async fn created(store: &Arc<dyn DocumentStore>, write: DocumentWrite) -> StoredDocument {
    match store.write(write).await.unwrap().into_result() {
        Ok(WriteEffect::Created(stored)) => stored,
        other => panic!("{other:?}"),
    }
}

async fn updated(store: &Arc<dyn DocumentStore>, write: DocumentWrite) -> StoredDocument {
    match store.write(write).await.unwrap().into_result() {
        Ok(WriteEffect::Updated(stored)) => stored,
        other => panic!("{other:?}"),
    }
}

/// Returns every change since a cursor, read in pages, and the next cursor.
async fn changes_since_cursor(
    store: &Arc<dyn DocumentStore>,
    mut cursor: Option<ChangeCursor>,
    page_size: usize,
) -> (Vec<DocumentChange>, ChangeCursor) {
    let mut changes = Vec::new();
    loop {
        let batch = store.changes_since(cursor.as_ref(), page_size).await.unwrap();
        changes.extend(batch.changes);
        if !batch.has_more {
            return (changes, batch.cursor);
        }
        cursor = Some(batch.cursor);
    }
}

fn ids(changes: &[DocumentChange]) -> Vec<String> {
    let describe = |change: &DocumentChange| match change {
        DocumentChange::Put(document) => format!("+{}", document.id),
        DocumentChange::Removed(id) => format!("-{id}"),
    };
    changes.iter().map(describe).collect()
}

/// Runs a case on an empty store of each kind.
async fn on_both(case: impl AsyncFn(&StoreLocation)) {
    let folder = TempDir::new().unwrap();
    case(&StoreLocation::File(folder.path().join("store.db"))).await;
    let mut server = Postgres::start().await;
    case(&database(&server.create_database().await)).await;
}

#[tokio::test]
async fn r16_r20_a_document_is_read_exactly_as_written_also_after_reopening_the_store() {
    on_both(async |location| {
        let store = open(location).await;
        let text = "{\"id\":\"a\",\"name\":\"你好 \\u0000 \u{1f980} \\\"quoted\\\" 'single'; drop table x\"}";
        assert_eq!(store.get_document("a").await.unwrap(), None);
        let first = created(&store, put("a", text)).await;
        assert_eq!((&*first.document, &*first.owner), (text, "key:one"));
        assert_eq!(store.get_document("a").await.unwrap().unwrap(), first);
        let second = updated(&store, put("a", "{}")).await;
        assert_eq!(second.created, first.created);
        assert!(second.updated >= first.updated && second.revision > first.revision);
        let reopened = open(location).await;
        assert_eq!(reopened.get_document("a").await.unwrap().unwrap(), second);
        assert!(matches!(store.write(removal("a")).await.unwrap().into_result(), Ok(WriteEffect::Removed(_))));
        assert_eq!(reopened.get_document("a").await.unwrap(), None);
        assert_eq!(store.write(removal("a")).await.unwrap().into_result(), Err(WriteRefusal::NotFound));
        let history = reopened.history("a", 10).await.unwrap();
        let texts: Vec<_> = history.iter().map(|change| change.document.as_deref()).collect();
        assert_eq!(texts, [None, Some("{}"), Some(text)], "the newest change first, with the removal");
        assert!(history.iter().all(|change| &*change.writer == "key:one"));
        assert_eq!(store.history("a", 1).await.unwrap().len(), 1);
        assert!(store.history("b", 10).await.unwrap().is_empty());
    })
    .await;
}

#[tokio::test]
async fn r19_a_write_of_the_same_document_is_not_a_change() {
    on_both(async |location| {
        let store = open(location).await;
        let first = created(&store, put("a", "{}")).await;
        assert_eq!(updated(&store, put("a", "{}")).await, first);
        assert_eq!(store.history("a", 10).await.unwrap().len(), 1);
        assert_eq!(created(&store, put("b", "{}")).await.revision, first.revision + 1);
    })
    .await;
}

#[tokio::test]
async fn r17_preconditions_and_ownership_are_checked_before_a_write() {
    on_both(async |location| {
        let store = open(location).await;
        let tag = etag(b"{}");
        let put_if = |precondition: WritePrecondition| DocumentWrite { precondition, ..put("a", "{\"n\":1}") };
        let tags = |tags: &[&str]| WritePrecondition::Matches(tags.iter().map(ToString::to_string).collect());
        assert_eq!(
            store.write(put_if(tags(&["*"]))).await.unwrap().into_result(),
            Err(WriteRefusal::PreconditionFailed),
            "there is no document yet"
        );
        created(&store, DocumentWrite { precondition: WritePrecondition::Absent, ..put("a", "{}") }).await;
        for precondition in [
            WritePrecondition::Absent,
            tags(&[]),
            tags(&["\"0\""]),
            tags(&[&format!("W/{tag}")]),
            tags(&[tag.trim_matches('"')]),
        ] {
            assert_eq!(
                store.write(put_if(precondition.clone())).await.unwrap().into_result(),
                Err(WriteRefusal::PreconditionFailed),
                "{precondition:?}"
            );
            let removal_write = DocumentWrite { precondition: precondition.clone(), ..removal("a") };
            assert_eq!(
                store.write(removal_write).await.unwrap().into_result(),
                Err(WriteRefusal::PreconditionFailed),
                "{precondition:?}"
            );
        }
        let other = DocumentWrite { writer: "key:two".into(), precondition: tags(&["\"0\""]), ..put("a", "{}") };
        assert_eq!(
            store.write(other.clone()).await.unwrap().into_result(),
            Err(WriteRefusal::NotOwner),
            "ownership is checked before the precondition"
        );
        let removal_write = DocumentWrite { writer: "key:two".into(), ..removal("a") };
        assert_eq!(store.write(removal_write).await.unwrap().into_result(), Err(WriteRefusal::NotOwner));
        assert_eq!(
            &*store.get_document("a").await.unwrap().unwrap().document,
            "{}",
            "a refused write changed the document"
        );
        assert_eq!(store.history("a", 10).await.unwrap().len(), 1);
        updated(&store, put_if(tags(&["\"0\"", &tag]))).await;
        let stored = updated(&store, DocumentWrite { any_owner: true, precondition: tags(&["*"]), ..other }).await;
        assert_eq!(&*stored.owner, "key:one", "a writer with `any_owner` became the owner");
    })
    .await;
}

#[tokio::test]
async fn r17_of_concurrent_writes_with_the_same_etag_exactly_one_succeeds() {
    on_both(async |location| {
        let (one, two) = (open(location).await, open(location).await);
        created(&one, put("a", "{}")).await;
        let precondition = WritePrecondition::Matches(vec![etag(b"{}")]);
        let writes = (0..32).map(|number| {
            let store = if number % 2 == 0 { &one } else { &two };
            store
                .write(DocumentWrite { precondition: precondition.clone(), ..put("a", &format!("{{\"n\":{number}}}")) })
        });
        let outcomes: Vec<_> =
            join_all(writes).await.into_iter().map(|outcome| outcome.unwrap().into_result()).collect();
        assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1);
        assert!(outcomes.iter().all(|outcome| matches!(outcome, Ok(_) | Err(WriteRefusal::PreconditionFailed))));
        assert_eq!(one.history("a", 10).await.unwrap().len(), 2);
        let writes =
            (0..8).map(|_| two.write(DocumentWrite { precondition: WritePrecondition::Absent, ..put("b", "{}") }));
        let outcomes = join_all(writes).await;
        assert_eq!(outcomes.into_iter().filter(|outcome| matches!(outcome, Ok(WriteOutcome::Done(_)))).count(), 1);
    })
    .await;
}

#[tokio::test]
async fn r16_the_number_of_documents_is_limited() {
    on_both(async |location| {
        let store = open(location).await;
        let with_limits = |id: &str, limits| DocumentWrite { limits, ..put(id, "{}") };
        created(&store, with_limits("a", (2, 3))).await;
        created(&store, with_limits("b", (2, 3))).await;
        assert_eq!(store.write(with_limits("c", (2, 3))).await.unwrap().into_result(), Err(WriteRefusal::OwnerLimit));
        created(&store, DocumentWrite { writer: "key:two".into(), ..with_limits("d", (2, 3)) }).await;
        let fourth = DocumentWrite { writer: "key:two".into(), ..with_limits("e", (2, 3)) };
        assert_eq!(store.write(fourth.clone()).await.unwrap().into_result(), Err(WriteRefusal::TotalLimit));
        updated(&store, DocumentWrite { document: Some("{\"n\":1}".into()), ..with_limits("a", (2, 3)) }).await;
        store.write(removal("b")).await.unwrap().into_result().unwrap();
        created(&store, fourth).await;
    })
    .await;
}

#[tokio::test]
async fn r16_reading_from_a_cursor_gives_exactly_the_changes_since() {
    on_both(async |location| {
        let store = open(location).await;
        for id in ["a", "b", "c", "d", "e"] {
            created(&store, put(id, "{}")).await;
        }
        let (all, cursor) = changes_since_cursor(&store, None, 2).await;
        assert_eq!(ids(&all), ["+a", "+b", "+c", "+d", "+e"]);
        assert!(changes_since_cursor(&store, Some(cursor.clone()), 2).await.0.is_empty());
        updated(&store, put("b", "{\"n\":1}")).await;
        store.write(removal("c")).await.unwrap().into_result().unwrap();
        store.write(removal("d")).await.unwrap().into_result().unwrap();
        created(&store, put("c", "{\"n\":2}")).await;
        let (changed, next_cursor) = changes_since_cursor(&store, Some(cursor.clone()), 2).await;
        assert_eq!(ids(&changed), ["+b", "-d", "+c"], "each document once, in its current state");
        assert!(next_cursor.revision() > cursor.revision());
        let (everything, _) = changes_since_cursor(&store, None, 100).await;
        assert_eq!(ids(&everything), ["+a", "+e", "+b", "-d", "+c"]);
    })
    .await;
}

#[tokio::test]
async fn r16_readers_miss_no_change_while_several_gateways_write() {
    on_both(async |location| {
        let (one, two, reader) = (open(location).await, open(location).await, open(location).await);
        let write = |store: Arc<dyn DocumentStore>, name: &'static str| async move {
            for number in 0..60 {
                let writes = (0..4).map(|part| store.write(put(&format!("{name}-{number}-{part}"), "{}")));
                join_all(writes).await.into_iter().for_each(|written| drop(written.unwrap().into_result().unwrap()));
            }
        };
        let writers = [tokio::spawn(write(one, "one")), tokio::spawn(write(two, "two"))];
        let (mut seen, mut cursor) = (Vec::new(), None);
        loop {
            let finished = writers.iter().all(|writer| writer.is_finished());
            let (changes, next_cursor) = changes_since_cursor(&reader, cursor, 7).await;
            seen.extend(ids(&changes));
            cursor = Some(next_cursor);
            if finished {
                break;
            }
        }
        for writer in writers {
            writer.await.unwrap();
        }
        assert_eq!(seen.len(), 480, "a change is missing or repeated");
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), 480);
    })
    .await;
}

#[tokio::test]
async fn r8_the_history_of_a_document_is_bounded() {
    on_both(async |location| {
        let store = open(location).await;
        for number in 0..store::MAX_HISTORY_CHANGES + 20 {
            store.write(put("a", &format!("{{\"n\":{number}}}"))).await.unwrap().into_result().unwrap();
        }
        let history = store.history("a", 1_000).await.unwrap();
        assert_eq!(history.len(), store::MAX_HISTORY_CHANGES);
        assert_eq!(history[0].document.as_deref(), Some("{\"n\":119}"));
        for number in 0..12 {
            let large = format!("{{\"n\":{number},\"text\":\"{}\"}}", "x".repeat(1 << 20));
            store.write(put("b", &large)).await.unwrap().into_result().unwrap();
        }
        let history = store.history("b", 1_000).await.unwrap();
        assert!((5..=8).contains(&history.len()), "{} large documents", history.len());
    })
    .await;
}

#[tokio::test]
async fn r8_old_changes_are_deleted_by_age() {
    on_both(async |location| {
        let store = open(location).await;
        for number in 0..3 {
            store.write(put("a", &format!("{{\"n\":{number}}}"))).await.unwrap().into_result().unwrap();
        }
        let now = time::OffsetDateTime::now_utc();
        assert_eq!(store.delete_history_before(now - Duration::from_secs(60)).await.unwrap(), 0);
        assert_eq!(store.delete_history_before(now + Duration::from_secs(60)).await.unwrap(), 3);
        assert!(store.history("a", 10).await.unwrap().is_empty());
        assert!(store.get_document("a").await.unwrap().is_some());
    })
    .await;
}

#[tokio::test]
async fn tables_of_a_newer_gateway_are_left_alone() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("store.db");
    drop(open(&StoreLocation::File(path.clone())).await);
    rusqlite::Connection::open(&path).unwrap().execute_batch("update gatepost_state set version = 99").unwrap();
    let why = store::open_documents(&StoreLocation::File(path)).await.unwrap_err();
    assert!(why.contains("newer") && why.contains("99"), "{why}");
    let mut server = Postgres::start().await;
    let address = server.create_database().await;
    drop(open(&database(&address)).await);
    server.run_sql(&address, "update gatepost_state set version = 99").await;
    assert!(store::open_documents(&database(&address)).await.unwrap_err().contains("newer"));
}

#[tokio::test]
async fn a_file_that_is_not_a_store_is_refused_with_its_path() {
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("text"), "this is not a database, and long enough to be read ".repeat(40))
        .unwrap();
    for name in ["text", "", "missing/store.db"] {
        let path = folder.path().join(name);
        let why = store::open_documents(&StoreLocation::File(path.clone())).await.unwrap_err();
        assert!(why.contains(path.to_str().unwrap()), "{why}");
    }
}

#[tokio::test]
async fn the_files_are_readable_by_their_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let folder = TempDir::new().unwrap();
    let store = open(&StoreLocation::File(folder.path().join("store.db"))).await;
    created(&store, put("a", "{}")).await;
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o077, 0, "{:?}", entry.file_name());
    }
}

#[tokio::test]
async fn a_store_that_was_reset_is_read_from_the_start() {
    on_both_with_sql(async |location, sql| {
        let store = open(location).await;
        created(&store, put("a", "{}")).await;
        created(&store, put("b", "{}")).await;
        let (_, cursor) = changes_since_cursor(&store, None, 10).await;
        sql("delete from gatepost_documents where id = 'b'; update gatepost_state set revision = 1").await;
        let batch = store.changes_since(Some(&cursor), 10).await.unwrap();
        assert!(batch.is_restart);
        assert_eq!(ids(&batch.changes), ["+a"]);
        let cursor = batch.cursor;
        assert!(!store.changes_since(Some(&cursor), 10).await.unwrap().is_restart);
        sql("update gatepost_state set epoch = 'another'").await;
        assert!(store.changes_since(Some(&cursor), 10).await.unwrap().is_restart, "another store at the same location");
        sql("update gatepost_state set epoch = 'another', floor = 5, revision = 9").await;
        let (_, old_cursor) = changes_since_cursor(&store, None, 10).await;
        assert_eq!(old_cursor.revision(), 9);
        sql("update gatepost_state set floor = 12, revision = 14").await;
        assert!(
            store.changes_since(Some(&old_cursor), 10).await.unwrap().is_restart,
            "removals after the cursor were forgotten"
        );
    })
    .await;
}

type Sql<'a> = &'a dyn Fn(&'static str) -> std::pin::Pin<Box<dyn Future<Output = ()> + 'a>>;

/// As [`on_both`], with SQL that bypasses the store.
async fn on_both_with_sql(case: impl AsyncFn(&StoreLocation, Sql<'_>)) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("store.db");
    let run = |text: &'static str| -> std::pin::Pin<Box<dyn Future<Output = ()>>> {
        let connection = rusqlite::Connection::open(&path).unwrap();
        connection.execute_batch(text).unwrap();
        Box::pin(async {})
    };
    case(&StoreLocation::File(path.clone()), &run).await;
    let mut server = Postgres::start().await;
    let address = server.create_database().await;
    let server = &server;
    let name = &address;
    let run = move |text: &'static str| -> std::pin::Pin<Box<dyn Future<Output = ()> + '_>> {
        Box::pin(async move { server.run_sql(name, text).await })
    };
    case(&database(&address), &run).await;
}

/// The list of removed documents is bounded, and so is their history.
#[tokio::test]
async fn r8_removed_documents_are_forgotten_beyond_the_limit() {
    on_both_with_sql(async |location, sql| {
        let store = open(location).await;
        created(&store, put("old", "{}")).await;
        store.write(removal("old")).await.unwrap().into_result().unwrap();
        let (_, cursor) = changes_since_cursor(&store, None, 100).await;
        sql("insert into gatepost_removed (id, revision)
             with recursive n(i) as (select 10 union all select i + 1 from n where i < 10020)
             select 'gone-' || i, i from n;
             update gatepost_state set revision = 10020")
        .await;
        created(&store, put("new", "{}")).await;
        assert!(!store.history("old", 10).await.unwrap().is_empty());
        store.write(removal("new")).await.unwrap().into_result().unwrap();
        assert!(store.history("old", 10).await.unwrap().is_empty());
        assert!(!store.history("new", 10).await.unwrap().is_empty());
        let (changes, _) = changes_since_cursor(&store, None, 1_000).await;
        assert_eq!(changes.len(), store::MAX_REMOVED_DOCUMENTS);
        assert!(store.changes_since(Some(&cursor), 10).await.unwrap().is_restart);
    })
    .await;
}

#[tokio::test]
async fn r16_ten_thousand_documents_are_loaded() {
    on_both_with_sql(async |location, sql| {
        let store = open(location).await;
        sql("insert into gatepost_documents (id, document, owner, created, updated, revision)
             with recursive n(i) as (select 1 union all select i + 1 from n where i < 10000)
             select 'agent-' || i, '{\"id\":\"agent-' || i || '\",\"name\":\"A\",\"endpoint\":\"https://agent.example/\"}',
                    'key:one', 0, 0, i from n;
             update gatepost_state set revision = 10000, documents = 10000")
        .await;
        let started = Instant::now();
        let (changes, cursor) = changes_since_cursor(&store, None, 500).await;
        println!("10,000 documents: {:?} in {:?}", started.elapsed(), store_kind(location));
        assert_eq!((changes.len(), cursor.revision()), (10_000, 10_000));
        assert!(started.elapsed() < Duration::from_secs(10));
    })
    .await;
}

fn store_kind(location: &StoreLocation) -> &'static str {
    if matches!(location, StoreLocation::File(_)) { "SQLite" } else { "PostgreSQL" }
}

#[tokio::test]
async fn r16_a_change_reaches_other_gateways_in_under_a_second() {
    let mut server = Postgres::start().await;
    let location = database(&server.create_database().await);
    let (one, two) = (open(&location).await, open(&location).await);
    let mut notifications = two.watch_changes();
    created(&one, put("warm", "{}")).await;
    let (_, mut cursor) = changes_since_cursor(&two, None, 100).await;
    // Both gateways listen once the first notification has arrived.
    eventually("the second gateway is notified", async || notifications.has_changed().unwrap()).await;
    for number in 0..20 {
        notifications.mark_unchanged();
        let started = Instant::now();
        created(&one, put(&format!("a-{number}"), "{}")).await;
        let write_time = started.elapsed();
        tokio::time::timeout(Duration::from_secs(1), notifications.changed()).await.expect("no notification").unwrap();
        let changes = loop {
            let changes = changes_since_cursor(&two, Some(cursor.clone()), 100).await;
            if !changes.0.is_empty() {
                break changes;
            }
            notifications.changed().await.unwrap();
        };
        cursor = changes.1;
        if number == 19 {
            println!("written in {write_time:?}, seen by the other after {:?}", started.elapsed());
        }
        assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    }
}

#[tokio::test]
async fn r16_a_database_outage_fails_queries_until_the_database_is_back() {
    let mut server = Postgres::start().await;
    let location = database(&server.create_database().await);
    let store = open(&location).await;
    created(&store, put("a", "{}")).await;
    server.stop();
    let started = Instant::now();
    let fault = store.write(put("b", "{}")).await.unwrap_err();
    assert_eq!((fault.code(), fault.http_status()), (FaultCode::Overloaded, 503));
    assert!(fault.retry_after_secs().is_some());
    assert!(!fault.message().contains("127.0.0.1"), "{fault}");
    assert!(
        store.get_document("a").await.is_err()
            && store.changes_since(None, 1).await.is_err()
            && store.history("a", 1).await.is_err()
    );
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    let opened_while_down = open(&location).await;
    assert!(opened_while_down.get_document("a").await.is_err(), "a store opened during the outage fails too");
    let mut notifications = store.watch_changes();
    notifications.mark_unchanged();
    server.restart().await;
    for store in [&store, &opened_while_down] {
        eventually("the store answers again", async || store.get_document("a").await.is_ok()).await;
        assert!(store.get_document("a").await.unwrap().is_some(), "an acknowledged write was lost");
    }
    let reconnected = tokio::time::timeout(Duration::from_secs(15), notifications.changed()).await;
    reconnected.expect("no notification after the reconnection").unwrap();
    created(&opened_while_down, put("b", "{}")).await;
    assert!(store.get_document("b").await.unwrap().is_some());
}

#[tokio::test]
async fn a_database_that_never_answers_times_out() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = silent.local_addr().unwrap().port();
    let connections = tokio::spawn(async move {
        let mut connections = Vec::new();
        while let Ok(connection) = silent.accept().await {
            connections.push(connection);
        }
    });
    let started = Instant::now();
    let store = open(&database(&format!("postgres://postgres@127.0.0.1:{port}/x"))).await;
    assert_eq!(store.get_document("a").await.unwrap_err().code(), FaultCode::Overloaded);
    assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
    connections.abort();
}

/// An import restores the owner and the time of creation.
#[tokio::test]
async fn a_restored_document_keeps_its_owner_and_its_creation_time() {
    on_both(async |location| {
        let store = open(location).await;
        let created_at = OffsetDateTime::from_unix_timestamp(1_700_000_000).unwrap();
        let restored = Some(("key:two".into(), created_at));
        let stored = created(&store, DocumentWrite { restored: restored.clone(), ..put("a", "{}") }).await;
        assert_eq!((&*stored.owner, stored.created), ("key:two", created_at));
        created(&store, put("b", "{}")).await;
        let stored = updated(&store, DocumentWrite { restored, any_owner: true, ..put("b", "{}") }).await;
        assert_eq!((&*stored.owner, stored.created), ("key:two", created_at), "even with an unchanged document");
    })
    .await;
}
