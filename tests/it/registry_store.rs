//! The stores of published documents, the same cases on both: one file of SQLite, and a real PostgreSQL. Then what only
//! a shared store can do, and what each must survive.

use crate::support::{eventually, postgres::Postgres};
use futures_util::future::join_all;
use gatepost::{
    fault::FaultCode,
    store::{
        self, ChangeCursor, DocumentChange, DocumentStore, DocumentWrite, StoreLocation, StoredDocument, WriteEffect,
        WritePrecondition, WriteRefusal,
    },
    values::etag,
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tempfile::TempDir;
use time::OffsetDateTime;

mod registry;

fn database(address: &str) -> StoreLocation {
    StoreLocation::Database { address: address.parse().unwrap(), authorities: None }
}

async fn open(place: &StoreLocation) -> Arc<dyn DocumentStore> {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    store::open_documents(place).await.unwrap()
}

fn put(id: &str, text: &str) -> DocumentWrite {
    DocumentWrite {
        id: id.into(),
        document: Some(text.into()),
        writer: "key:one".into(),
        any_owner: false,
        precondition: WritePrecondition::Always,
        limits: (100_000, 100_000),
        restored: None,
    }
}

fn removal(id: &str) -> DocumentWrite {
    DocumentWrite { document: None, ..put(id, "") }
}

async fn created(store: &Arc<dyn DocumentStore>, write: DocumentWrite) -> StoredDocument {
    match store.write(write).await.unwrap() {
        Ok(WriteEffect::Created(kept)) => kept,
        other => panic!("{other:?}"),
    }
}

async fn updated(store: &Arc<dyn DocumentStore>, write: DocumentWrite) -> StoredDocument {
    match store.write(write).await.unwrap() {
        Ok(WriteEffect::Updated(kept)) => kept,
        other => panic!("{other:?}"),
    }
}

/// Everything that changed since, page by page, and where that ends.
async fn since(
    store: &Arc<dyn DocumentStore>,
    mut mark: Option<ChangeCursor>,
    page: usize,
) -> (Vec<DocumentChange>, ChangeCursor) {
    let mut changes = Vec::new();
    loop {
        let found = store.changes_since(mark.as_ref(), page).await.unwrap();
        changes.extend(found.changes);
        if !found.has_more {
            return (changes, found.cursor);
        }
        mark = Some(found.cursor);
    }
}

fn ids(changes: &[DocumentChange]) -> Vec<String> {
    let told = |change: &DocumentChange| match change {
        DocumentChange::Put(kept) => format!("+{}", kept.id),
        DocumentChange::Removed(id) => format!("-{id}"),
    };
    changes.iter().map(told).collect()
}

/// Each case gets a store with nothing in it.
async fn on_both(case: impl AsyncFn(&StoreLocation)) {
    let folder = TempDir::new().unwrap();
    case(&StoreLocation::File(folder.path().join("store.db"))).await;
    let mut server = Postgres::start().await;
    case(&database(&server.database().await)).await;
}

#[tokio::test]
async fn r16_r20_what_was_written_is_read_exactly_and_by_whoever_opens_the_store_later() {
    on_both(async |place| {
        let store = open(place).await;
        let text = "{\"id\":\"a\",\"name\":\"你好 \\u0000 \u{1f980} \\\"quoted\\\" 'single'; drop table x\"}";
        assert_eq!(store.get_document("a").await.unwrap(), None);
        let first = created(&store, put("a", text)).await;
        assert_eq!((&*first.document, &*first.owner), (text, "key:one"));
        assert_eq!(store.get_document("a").await.unwrap().unwrap(), first);
        let second = updated(&store, put("a", "{}")).await;
        assert_eq!(second.created, first.created);
        assert!(second.updated >= first.updated && second.revision > first.revision);
        let again = open(place).await;
        assert_eq!(again.get_document("a").await.unwrap().unwrap(), second);
        assert!(matches!(store.write(removal("a")).await.unwrap(), Ok(WriteEffect::Removed(_))));
        assert_eq!(again.get_document("a").await.unwrap(), None);
        assert_eq!(store.write(removal("a")).await.unwrap(), Err(WriteRefusal::NotFound));
        let past = again.history("a", 10).await.unwrap();
        let texts: Vec<_> = past.iter().map(|past| past.document.as_deref()).collect();
        assert_eq!(texts, [None, Some("{}"), Some(text)], "the newest first, the removal too");
        assert!(past.iter().all(|past| &*past.writer == "key:one"));
        assert_eq!(store.history("a", 1).await.unwrap().len(), 1);
        assert!(store.history("b", 10).await.unwrap().is_empty());
    })
    .await;
}

#[tokio::test]
async fn r19_a_write_that_changes_nothing_is_no_change() {
    on_both(async |place| {
        let store = open(place).await;
        let first = created(&store, put("a", "{}")).await;
        assert_eq!(updated(&store, put("a", "{}")).await, first);
        assert_eq!(store.history("a", 10).await.unwrap().len(), 1);
        assert_eq!(created(&store, put("b", "{}")).await.revision, first.revision + 1);
    })
    .await;
}

#[tokio::test]
async fn r17_what_a_write_asks_for_is_decided_before_it_happens() {
    on_both(async |place| {
        let store = open(place).await;
        let tag = etag(b"{}");
        let with = |precondition: WritePrecondition| DocumentWrite { precondition, ..put("a", "{\"n\":1}") };
        let tags = |tags: &[&str]| WritePrecondition::Matches(tags.iter().map(ToString::to_string).collect());
        assert_eq!(
            store.write(with(tags(&["*"]))).await.unwrap(),
            Err(WriteRefusal::PreconditionFailed),
            "nothing is there"
        );
        created(&store, DocumentWrite { precondition: WritePrecondition::Absent, ..put("a", "{}") }).await;
        for when in [
            WritePrecondition::Absent,
            tags(&[]),
            tags(&["\"0\""]),
            tags(&[&format!("W/{tag}")]),
            tags(&[tag.trim_matches('"')]),
        ] {
            assert_eq!(
                store.write(with(when.clone())).await.unwrap(),
                Err(WriteRefusal::PreconditionFailed),
                "{when:?}"
            );
            let gone = DocumentWrite { precondition: when.clone(), ..removal("a") };
            assert_eq!(store.write(gone).await.unwrap(), Err(WriteRefusal::PreconditionFailed), "{when:?}");
        }
        let other = DocumentWrite { writer: "key:two".into(), precondition: tags(&["\"0\""]), ..put("a", "{}") };
        assert_eq!(store.write(other.clone()).await.unwrap(), Err(WriteRefusal::NotOwner), "before its state is told");
        let gone = DocumentWrite { writer: "key:two".into(), ..removal("a") };
        assert_eq!(store.write(gone).await.unwrap(), Err(WriteRefusal::NotOwner));
        assert_eq!(&*store.get_document("a").await.unwrap().unwrap().document, "{}", "nothing of it was written");
        assert_eq!(store.history("a", 10).await.unwrap().len(), 1);
        updated(&store, with(tags(&["\"0\"", &tag]))).await;
        let kept = updated(&store, DocumentWrite { any_owner: true, precondition: tags(&["*"]), ..other }).await;
        assert_eq!(&*kept.owner, "key:one", "who may change all does not become the owner");
    })
    .await;
}

#[tokio::test]
async fn r17_of_many_writers_with_one_tag_exactly_one_wins() {
    on_both(async |place| {
        let (one, two) = (open(place).await, open(place).await);
        created(&one, put("a", "{}")).await;
        let when = WritePrecondition::Matches(vec![etag(b"{}")]);
        let writes = (0..32).map(|number| {
            let store = if number % 2 == 0 { &one } else { &two };
            store.write(DocumentWrite { precondition: when.clone(), ..put("a", &format!("{{\"n\":{number}}}")) })
        });
        let outcomes: Vec<_> = join_all(writes).await.into_iter().map(|outcome| outcome.unwrap()).collect();
        assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1);
        assert!(outcomes.iter().all(|outcome| matches!(outcome, Ok(_) | Err(WriteRefusal::PreconditionFailed))));
        assert_eq!(one.history("a", 10).await.unwrap().len(), 2);
        let writes =
            (0..8).map(|_| two.write(DocumentWrite { precondition: WritePrecondition::Absent, ..put("b", "{}") }));
        let outcomes = join_all(writes).await;
        assert_eq!(outcomes.into_iter().filter(|outcome| outcome.as_ref().unwrap().is_ok()).count(), 1);
    })
    .await;
}

#[tokio::test]
async fn r16_there_are_no_more_documents_than_allowed() {
    on_both(async |place| {
        let store = open(place).await;
        let with_limits = |id: &str, limits| DocumentWrite { limits, ..put(id, "{}") };
        created(&store, with_limits("a", (2, 3))).await;
        created(&store, with_limits("b", (2, 3))).await;
        assert_eq!(store.write(with_limits("c", (2, 3))).await.unwrap(), Err(WriteRefusal::OwnerLimit));
        created(&store, DocumentWrite { writer: "key:two".into(), ..with_limits("d", (2, 3)) }).await;
        let fourth = DocumentWrite { writer: "key:two".into(), ..with_limits("e", (2, 3)) };
        assert_eq!(store.write(fourth.clone()).await.unwrap(), Err(WriteRefusal::TotalLimit));
        updated(&store, DocumentWrite { document: Some("{\"n\":1}".into()), ..with_limits("a", (2, 3)) }).await;
        store.write(removal("b")).await.unwrap().unwrap();
        created(&store, fourth).await;
    })
    .await;
}

#[tokio::test]
async fn r16_whoever_reads_on_from_a_mark_reads_what_changed_and_nothing_else() {
    on_both(async |place| {
        let store = open(place).await;
        for id in ["a", "b", "c", "d", "e"] {
            created(&store, put(id, "{}")).await;
        }
        let (all, mark) = since(&store, None, 2).await;
        assert_eq!(ids(&all), ["+a", "+b", "+c", "+d", "+e"]);
        assert!(since(&store, Some(mark.clone()), 2).await.0.is_empty());
        updated(&store, put("b", "{\"n\":1}")).await;
        store.write(removal("c")).await.unwrap().unwrap();
        store.write(removal("d")).await.unwrap().unwrap();
        created(&store, put("c", "{\"n\":2}")).await;
        let (changed, later) = since(&store, Some(mark.clone()), 2).await;
        assert_eq!(ids(&changed), ["+b", "-d", "+c"], "each once, as it is now");
        assert!(later.revision() > mark.revision());
        let (everything, _) = since(&store, None, 100).await;
        assert_eq!(ids(&everything), ["+a", "+e", "+b", "-d", "+c"]);
    })
    .await;
}

#[tokio::test]
async fn r16_readers_miss_nothing_while_several_gateways_write() {
    on_both(async |place| {
        let (one, two, reader) = (open(place).await, open(place).await, open(place).await);
        let write = |store: Arc<dyn DocumentStore>, name: &'static str| async move {
            for number in 0..60 {
                let writes = (0..4).map(|part| store.write(put(&format!("{name}-{number}-{part}"), "{}")));
                join_all(writes).await.into_iter().for_each(|written| drop(written.unwrap().unwrap()));
            }
        };
        let writers = [tokio::spawn(write(one, "one")), tokio::spawn(write(two, "two"))];
        let (mut seen, mut mark) = (Vec::new(), None);
        loop {
            let done = writers.iter().all(|writer| writer.is_finished());
            let (changes, next) = since(&reader, mark, 7).await;
            seen.extend(ids(&changes));
            mark = Some(next);
            if done {
                break;
            }
        }
        for writer in writers {
            writer.await.unwrap();
        }
        assert_eq!(seen.len(), 480, "each change once");
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), 480);
    })
    .await;
}

#[tokio::test]
async fn r8_the_history_of_a_document_is_bounded() {
    on_both(async |place| {
        let store = open(place).await;
        for number in 0..store::MAX_HISTORY_CHANGES + 20 {
            store.write(put("a", &format!("{{\"n\":{number}}}"))).await.unwrap().unwrap();
        }
        let past = store.history("a", 1_000).await.unwrap();
        assert_eq!(past.len(), store::MAX_HISTORY_CHANGES);
        assert_eq!(past[0].document.as_deref(), Some("{\"n\":119}"));
        for number in 0..12 {
            let large = format!("{{\"n\":{number},\"text\":\"{}\"}}", "x".repeat(1 << 20));
            store.write(put("b", &large)).await.unwrap().unwrap();
        }
        let past = store.history("b", 1_000).await.unwrap();
        assert!((5..=8).contains(&past.len()), "{} large documents", past.len());
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
    let address = server.database().await;
    drop(open(&database(&address)).await);
    server.sql(&address, "update gatepost_state set version = 99").await;
    assert!(store::open_documents(&database(&address)).await.unwrap_err().contains("newer"));
}

#[tokio::test]
async fn a_file_that_cannot_be_a_store_is_refused_by_name() {
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("text"), "this is no database, and long enough to be looked at ".repeat(40))
        .unwrap();
    for name in ["text", "", "missing/store.db"] {
        let path = folder.path().join(name);
        let why = store::open_documents(&StoreLocation::File(path.clone())).await.unwrap_err();
        assert!(why.contains(path.to_str().unwrap()), "{why}");
    }
}

#[tokio::test]
async fn a_file_is_for_its_owner_only() {
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
async fn a_store_that_was_set_back_is_read_anew() {
    on_both_with_sql(async |place, sql| {
        let store = open(place).await;
        created(&store, put("a", "{}")).await;
        created(&store, put("b", "{}")).await;
        let (_, mark) = since(&store, None, 10).await;
        sql("delete from gatepost_documents where id = 'b'; update gatepost_state set revision = 1").await;
        let found = store.changes_since(Some(&mark), 10).await.unwrap();
        assert!(found.is_restart);
        assert_eq!(ids(&found.changes), ["+a"]);
        let mark = found.cursor;
        assert!(!store.changes_since(Some(&mark), 10).await.unwrap().is_restart);
        sql("update gatepost_state set epoch = 'another'").await;
        assert!(store.changes_since(Some(&mark), 10).await.unwrap().is_restart, "another store behind the same name");
        sql("update gatepost_state set epoch = 'another', floor = 5, revision = 9").await;
        let (_, early) = since(&store, None, 10).await;
        assert_eq!(early.revision(), 9);
        sql("update gatepost_state set floor = 12, revision = 14").await;
        assert!(
            store.changes_since(Some(&early), 10).await.unwrap().is_restart,
            "removals were forgotten that it had not read"
        );
    })
    .await;
}

type Sql<'a> = &'a dyn Fn(&'static str) -> std::pin::Pin<Box<dyn Future<Output = ()> + 'a>>;

/// As [`on_both`], with a way around the store.
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
    let address = server.database().await;
    let server = &server;
    let name = &address;
    let run = move |text: &'static str| -> std::pin::Pin<Box<dyn Future<Output = ()> + '_>> {
        Box::pin(async move { server.sql(name, text).await })
    };
    case(&database(&address), &run).await;
}

/// The longest list of forgotten removals is bounded, and so is their history.
#[tokio::test]
async fn r8_removed_documents_are_forgotten_in_the_end() {
    on_both_with_sql(async |place, sql| {
        let store = open(place).await;
        created(&store, put("old", "{}")).await;
        store.write(removal("old")).await.unwrap().unwrap();
        let (_, mark) = since(&store, None, 100).await;
        sql("insert into gatepost_removed (id, revision)
             with recursive n(i) as (select 10 union all select i + 1 from n where i < 10020)
             select 'gone-' || i, i from n;
             update gatepost_state set revision = 10020")
        .await;
        created(&store, put("new", "{}")).await;
        assert!(!store.history("old", 10).await.unwrap().is_empty());
        store.write(removal("new")).await.unwrap().unwrap();
        assert!(store.history("old", 10).await.unwrap().is_empty());
        assert!(!store.history("new", 10).await.unwrap().is_empty());
        let (changes, _) = since(&store, None, 1_000).await;
        assert_eq!(changes.len(), store::MAX_REMOVED_DOCUMENTS);
        assert!(store.changes_since(Some(&mark), 10).await.unwrap().is_restart);
    })
    .await;
}

#[tokio::test]
async fn r16_ten_thousand_documents_are_loaded() {
    on_both_with_sql(async |place, sql| {
        let store = open(place).await;
        sql("insert into gatepost_documents (id, document, owner, created, updated, revision)
             with recursive n(i) as (select 1 union all select i + 1 from n where i < 10000)
             select 'agent-' || i, '{\"id\":\"agent-' || i || '\",\"name\":\"A\",\"endpoint\":\"https://agent.example/\"}',
                    'key:one', 0, 0, i from n;
             update gatepost_state set revision = 10000, documents = 10000")
        .await;
        let began = Instant::now();
        let (changes, mark) = since(&store, None, 500).await;
        println!("10,000 documents: {:?} in {:?}", began.elapsed(), place_name(place));
        assert_eq!((changes.len(), mark.revision()), (10_000, 10_000));
        assert!(began.elapsed() < Duration::from_secs(10));
    })
    .await;
}

fn place_name(place: &StoreLocation) -> &'static str {
    if matches!(place, StoreLocation::File(_)) { "SQLite" } else { "PostgreSQL" }
}

#[tokio::test]
async fn r16_a_change_reaches_the_other_gateways_in_under_a_second() {
    let mut server = Postgres::start().await;
    let place = database(&server.database().await);
    let (one, two) = (open(&place).await, open(&place).await);
    let mut heard = two.watch_changes();
    created(&one, put("warm", "{}")).await;
    let (_, mut mark) = since(&two, None, 100).await;
    // Both listen once the first notice has come round.
    eventually("the second gateway hears of the first", async || heard.has_changed().unwrap()).await;
    for number in 0..20 {
        heard.mark_unchanged();
        let began = Instant::now();
        created(&one, put(&format!("a-{number}"), "{}")).await;
        let written = began.elapsed();
        tokio::time::timeout(Duration::from_secs(1), heard.changed()).await.expect("it hears of it").unwrap();
        let found = loop {
            let found = since(&two, Some(mark.clone()), 100).await;
            if !found.0.is_empty() {
                break found;
            }
            heard.changed().await.unwrap();
        };
        mark = found.1;
        if number == 19 {
            println!("written in {written:?}, seen by the other after {:?}", began.elapsed());
        }
        assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    }
}

#[tokio::test]
async fn r16_a_database_that_stops_costs_its_own_questions_and_comes_back_by_itself() {
    let mut server = Postgres::start().await;
    let place = database(&server.database().await);
    let store = open(&place).await;
    created(&store, put("a", "{}")).await;
    server.stop();
    let began = Instant::now();
    let why = store.write(put("b", "{}")).await.unwrap_err();
    assert_eq!((why.code(), why.http_status()), (FaultCode::Overloaded, 503));
    assert!(why.retry_after_secs().is_some());
    assert!(!why.message().contains("127.0.0.1"), "{why}");
    assert!(
        store.get_document("a").await.is_err()
            && store.changes_since(None, 1).await.is_err()
            && store.history("a", 1).await.is_err()
    );
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    let down = open(&place).await;
    assert!(down.get_document("a").await.is_err(), "one that was opened meanwhile is no worse off");
    let mut heard = store.watch_changes();
    heard.mark_unchanged();
    server.again().await;
    for store in [&store, &down] {
        eventually("it answers again", async || store.get_document("a").await.is_ok()).await;
        assert!(store.get_document("a").await.unwrap().is_some(), "what was acknowledged is there");
    }
    let back = tokio::time::timeout(Duration::from_secs(15), heard.changed()).await;
    back.expect("it listens again, and says that something may have been missed").unwrap();
    created(&down, put("b", "{}")).await;
    assert!(store.get_document("b").await.unwrap().is_some());
}

#[tokio::test]
async fn a_database_that_never_answers_is_given_up_in_time() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = silent.local_addr().unwrap().port();
    let held = tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok(connection) = silent.accept().await {
            held.push(connection);
        }
    });
    let began = Instant::now();
    let store = open(&database(&format!("postgres://postgres@127.0.0.1:{port}/x"))).await;
    assert_eq!(store.get_document("a").await.unwrap_err().code(), FaultCode::Overloaded);
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    held.abort();
}

/// What an import restores: whose it was, and since when.
#[tokio::test]
async fn what_is_restored_keeps_its_owner_and_its_age() {
    on_both(async |place| {
        let store = open(place).await;
        let then = OffsetDateTime::from_unix_timestamp(1_700_000_000).unwrap();
        let restored = Some(("key:two".into(), then));
        let kept = created(&store, DocumentWrite { restored: restored.clone(), ..put("a", "{}") }).await;
        assert_eq!((&*kept.owner, kept.created), ("key:two", then));
        created(&store, put("b", "{}")).await;
        let kept = updated(&store, DocumentWrite { restored, any_owner: true, ..put("b", "{}") }).await;
        assert_eq!((&*kept.owner, kept.created), ("key:two", then), "though its text is the same");
    })
    .await;
}
