//! Ids of deleted documents stay reserved for their owners, on both stores.

use super::{
    super::support::postgres::Postgres, created, database, on_both, on_both_with_sql, open, put, removal, store_kind,
    updated,
};
use futures_util::future::join_all;
use gatepost::store::{DocumentWrite, WriteEffect, WritePrecondition, WriteRefusal, open_documents};
use std::{sync::Arc, time::Duration};
use time::OffsetDateTime;

fn by(writer: &str, write: DocumentWrite) -> DocumentWrite {
    DocumentWrite { writer: writer.into(), ..write }
}

#[tokio::test]
async fn r17_a_deleted_id_is_published_again_by_its_owner_only() {
    on_both(async |location| {
        let store = open(location).await;
        assert_eq!(store.deleted_id("a").await.unwrap(), None);
        created(&store, put("a", "{}")).await;
        assert_eq!(store.deleted_id("a").await.unwrap(), None);
        store.write(removal("a")).await.unwrap().into_result().unwrap();
        let deleted = store.deleted_id("a").await.unwrap().unwrap();
        assert_eq!(&*deleted.owner, "key:one");
        assert!((OffsetDateTime::now_utc() - deleted.deleted).abs() < Duration::from_secs(60));
        let other_stores = [Arc::clone(&store), open(location).await];
        for store in &other_stores {
            let absent = DocumentWrite { precondition: WritePrecondition::Absent, ..put("a", "{}") };
            let expected =
                DocumentWrite { precondition: WritePrecondition::Matches(vec!["*".to_owned()]), ..put("a", "{}") };
            for write in [put("a", "{}"), absent, expected] {
                assert_eq!(
                    store.write(by("key:two", write)).await.unwrap().into_result(),
                    Err(WriteRefusal::NotOwner),
                    "{}: the owner is checked before the precondition",
                    store_kind(location)
                );
            }
            let again = store.write(by("key:two", removal("a"))).await.unwrap().into_result();
            assert_eq!(again, Err(WriteRefusal::NotFound), "a deleted document does not exist");
        }
        let stored = created(&other_stores[1], put("a", "{\"n\":1}")).await;
        assert_eq!(&*stored.owner, "key:one");
        assert_eq!(store.deleted_id("a").await.unwrap(), None, "the reservation has ended");
        store.write(removal("a")).await.unwrap().into_result().unwrap();
        let stored = created(&store, DocumentWrite { any_owner: true, ..by("key:admin", put("a", "{}")) }).await;
        assert_eq!(&*stored.owner, "key:admin");
    })
    .await;
}

#[tokio::test]
async fn the_owner_keeps_an_id_that_another_writer_deleted() {
    on_both(async |location| {
        let store = open(location).await;
        created(&store, put("a", "{}")).await;
        let by_admin = DocumentWrite { any_owner: true, ..by("key:admin", removal("a")) };
        store.write(by_admin).await.unwrap().into_result().unwrap();
        assert_eq!(&*store.deleted_id("a").await.unwrap().unwrap().owner, "key:one");
        let admin_alone = store.write(by("key:admin", put("a", "{}"))).await.unwrap().into_result();
        assert_eq!(admin_alone, Err(WriteRefusal::NotOwner));
        created(&store, put("a", "{}")).await;
    })
    .await;
}

#[tokio::test]
async fn an_id_is_free_after_the_term_and_with_a_term_of_zero() {
    on_both_with_sql(async |location, sql| {
        let store = open(location).await;
        for id in ["old", "recent", "later", "off"] {
            created(&store, put(id, "{}")).await;
            store.write(removal(id)).await.unwrap().into_result().unwrap();
        }
        // The term of these writes is one hour.
        sql("update gatepost_deleted_ids set at = at - 3601000000 where id = 'old'").await;
        sql("update gatepost_deleted_ids set at = at - 3590000000 where id = 'recent'").await;
        // A clock that is an hour ahead.
        sql("update gatepost_deleted_ids set at = at + 3600000000 where id = 'later'").await;
        created(&store, by("key:two", put("old", "{}"))).await;
        for id in ["recent", "later"] {
            let refused = store.write(by("key:two", put(id, "{}"))).await.unwrap().into_result();
            assert_eq!(refused, Err(WriteRefusal::NotOwner), "{id}");
        }
        let longer = DocumentWrite { deleted_id_retention: Duration::from_secs(86_400), ..put("recent", "{}") };
        sql("update gatepost_deleted_ids set at = at - 3601000000 where id = 'recent'").await;
        let refused = store.write(by("key:two", longer)).await.unwrap().into_result();
        assert_eq!(refused, Err(WriteRefusal::NotOwner), "a longer term holds for earlier deletions");
        created(&store, by("key:two", put("recent", "{}"))).await;
        let off = DocumentWrite { deleted_id_retention: Duration::ZERO, ..put("off", "{}") };
        created(&store, by("key:two", off.clone())).await;
        let removal_write = DocumentWrite { document: None, ..by("key:two", off) };
        store.write(removal_write).await.unwrap().into_result().unwrap();
        assert_eq!(store.deleted_id("off").await.unwrap(), None, "nothing is reserved");
        created(&store, put("off", "{}")).await;
    })
    .await;
}

#[tokio::test]
async fn r8_reserved_ids_are_bounded_for_each_owner_and_in_total() {
    on_both(async |location| {
        let store = open(location).await;
        let limited = |owner: &str, id: &str, document: bool| DocumentWrite {
            limits: (2, 3),
            document: document.then(|| "{}".into()),
            ..by(owner, put(id, "{}"))
        };
        for (owner, id) in
            [("key:one", "a"), ("key:one", "b"), ("key:two", "x"), ("key:one", "c"), ("key:two", "y"), ("key:two", "z")]
        {
            created(&store, limited(owner, id, true)).await;
            store.write(limited(owner, id, false)).await.unwrap().into_result().unwrap();
        }
        let mut reserved = Vec::new();
        for id in ["a", "b", "c", "x", "y", "z"] {
            reserved.extend(store.deleted_id(id).await.unwrap().map(|_| id));
        }
        // `a` and `x` were the oldest of their owners, `b` was the oldest of all.
        assert_eq!(reserved, ["c", "y", "z"], "{}", store_kind(location));
        let refused = store.write(limited("key:two", "c", true)).await.unwrap().into_result();
        assert_eq!(refused, Err(WriteRefusal::NotOwner));
        created(&store, limited("key:two", "a", true)).await;
    })
    .await;
}

#[tokio::test]
async fn of_concurrent_writers_of_a_deleted_id_its_owner_succeeds() {
    on_both(async |location| {
        let (one, two) = (open(location).await, open(location).await);
        created(&one, put("a", "{}")).await;
        one.write(removal("a")).await.unwrap().into_result().unwrap();
        let writes = (0..16).map(|number| {
            let (store, writer) = if number % 2 == 0 { (&one, "key:one") } else { (&two, "key:two") };
            store.write(by(writer, put("a", &format!("{{\"n\":{number}}}"))))
        });
        for (number, outcome) in join_all(writes).await.into_iter().enumerate() {
            let outcome = outcome.unwrap().into_result();
            match number % 2 {
                0 => assert!(matches!(outcome, Ok(WriteEffect::Created(_) | WriteEffect::Updated(_))), "{outcome:?}"),
                _ => assert_eq!(outcome, Err(WriteRefusal::NotOwner)),
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_database_of_another_version_is_refused_with_what_to_do_and_unchanged() {
    on_both_with_sql(async |location, sql| {
        let store = open(location).await;
        let kept = created(&store, put("kept", "{}")).await;
        drop(store);
        for (change, words) in [
            ("update gatepost_state set version = version - 1", "gatepost registry export"),
            ("update gatepost_state set version = version + 2", "a newer gateway"),
        ] {
            sql(change).await;
            let why = open_documents(location).await.err().unwrap();
            assert!(why.contains(words), "{why}");
        }
        sql("update gatepost_state set version = version - 1").await;
        assert_eq!(open(location).await.get_document("kept").await.unwrap(), Some(kept));
    })
    .await;
}

/// A gateway that does not know the table leaves the row of an id that is published again.
#[tokio::test]
async fn an_id_that_an_earlier_gateway_published_again_is_deleted_again() {
    on_both_with_sql(async |location, sql| {
        let store = open(location).await;
        created(&store, by("key:two", put("a", "{}"))).await;
        sql("insert into gatepost_deleted_ids (id, owner, at) values ('a', 'key:one', 0)").await;
        updated(&store, by("key:two", put("a", "{\"n\":1}"))).await;
        store.write(by("key:two", removal("a"))).await.unwrap().into_result().unwrap();
        assert_eq!(&*store.deleted_id("a").await.unwrap().unwrap().owner, "key:two");
    })
    .await;
}

#[tokio::test]
async fn a_reservation_survives_a_crash_of_the_database() {
    let mut server = Postgres::start().await;
    let location = database(&server.create_database().await);
    let store = open(&location).await;
    created(&store, put("a", "{}")).await;
    store.write(removal("a")).await.unwrap().into_result().unwrap();
    server.stop();
    assert!(store.deleted_id("a").await.is_err(), "an outage is no answer");
    server.restart().await;
    let store = open(&location).await;
    crate::support::eventually("the store answers again", async || store.get_document("a").await.is_ok()).await;
    let refused = store.write(by("key:two", put("a", "{}"))).await.unwrap().into_result();
    assert_eq!(refused, Err(WriteRefusal::NotOwner));
}
