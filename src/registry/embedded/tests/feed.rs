//! Feed of published documents: what it reports, and how long a publisher waits for it.

use super::{
    super::super::feed::{Body, Feed, News, Part},
    *,
};
use std::time::{Duration, Instant};

fn told(parts: &[Part]) -> Vec<String> {
    let told = |part: &Part| {
        let sign = match &part.news {
            News::Whole(documents) if documents.len() == 1 => '+',
            News::Gone => '-',
            News::Kept(_) => '!',
            other => panic!("{other:?}"),
        };
        format!("{sign}{}", part.name)
    };
    parts.iter().map(told).collect()
}

#[tokio::test]
async fn r16_the_first_poll_reports_everything_and_later_polls_changes() {
    let desk = desk().await;
    let stored = desk.created(ONE, document("a")).await;
    desk.created(ONE, document("b")).await;
    let mut feed = desk.registry.feed();
    let first = feed.next().await;
    assert_eq!(told(&first.parts), ["+registry/a", "+registry/b"]);
    let News::Whole(documents) = &first.parts[0].news else { panic!() };
    assert_eq!(documents[0].digest, sha256(stored.document.as_bytes()));
    assert!(matches!(&documents[0].body, Body::Text(text) if *text == stored.document.as_bytes()));
    assert!(feed.next().await.parts.is_empty());
    feed.taken();
    let a = id("a");
    let (removed, ()) = tokio::join!(desk.registry.remove(ONE, &a, &When::Always), async {
        feed.wake().await;
        assert_eq!(told(&feed.next().await.parts), ["-registry/a"]);
        feed.taken();
    });
    removed.unwrap();
}

#[tokio::test]
async fn r17_publishing_returns_once_the_agent_is_in_force() {
    let desk = Arc::new(desk().await);
    let mut feed = desk.registry.feed();
    feed.next().await;
    let began = Instant::now();
    let publishing = tokio::spawn({
        let desk = Arc::clone(&desk);
        async move { desk.created(ONE, document("a")).await }
    });
    feed.wake().await;
    assert_eq!(told(&feed.next().await.parts), ["+registry/a"]);
    assert!(!publishing.is_finished(), "the agent is not in force yet");
    feed.taken();
    publishing.await.unwrap();
    assert!(began.elapsed() < Duration::from_millis(900), "{:?}", began.elapsed());
    // A feed that is never acknowledged delays a publisher for a second, and no longer.
    let began = Instant::now();
    desk.created(ONE, document("b")).await;
    assert!(began.elapsed() >= Duration::from_secs(1) && began.elapsed() < Duration::from_secs(5));
    drop(feed);
    let began = Instant::now();
    desk.created(ONE, document("c")).await;
    assert!(began.elapsed() < Duration::from_secs(1), "without a feed there is nothing to wait for");
}

#[tokio::test]
async fn r16_changes_without_a_notification_are_polled() {
    let desk = desk_with(|config| config.poll_interval = crate::unit::Span::millis(500), &[]).await;
    let beside = Registry::open(&desk.config, Arc::default()).await.unwrap();
    let mut feed = desk.registry.feed();
    feed.next().await;
    beside.publish(ONE, document("a")).await.unwrap();
    tokio::time::timeout(Duration::from_secs(5), feed.wake()).await.unwrap();
    assert_eq!(told(&feed.next().await.parts), ["+registry/a"]);
}

#[tokio::test]
async fn r16_a_replaced_store_replaces_all_documents() {
    let desk = desk().await;
    for name in ["a", "b"] {
        desk.created(ONE, document(name)).await;
    }
    let mut feed = desk.registry.feed();
    feed.next().await;
    let file = rusqlite(&desk);
    file.execute_batch("delete from gatepost_documents where id = 'b'; update gatepost_state set epoch = 'x'").unwrap();
    assert_eq!(told(&feed.next().await.parts), ["+registry/a", "-registry/b"]);
    assert!(feed.next().await.parts.is_empty());
}

#[tokio::test]
async fn r16_an_unreadable_store_keeps_its_documents_and_is_reported() {
    let desk = desk().await;
    desk.created(ONE, document("a")).await;
    let mut feed = desk.registry.feed();
    feed.next().await;
    let file = rusqlite(&desk);
    file.execute_batch("alter table gatepost_removed rename to hidden").unwrap();
    for _ in 0..2 {
        let look = feed.next().await;
        assert!(look.parts.is_empty() && look.trouble.is_some(), "{look:?}");
    }
    assert_eq!(desk.registry.remove(ONE, &id("a"), &When::Always).await.unwrap_err().code(), Code::Overloaded);
    file.execute_batch("alter table hidden rename to gatepost_removed").unwrap();
    let look = feed.next().await;
    assert!(look.parts.is_empty() && look.trouble.is_none(), "only the error is over: {look:?}");
    desk.registry.store.get("a").await.unwrap().unwrap();
}

fn rusqlite(desk: &Desk) -> rusqlite::Connection {
    rusqlite::Connection::open(&desk.config.sqlite_file).unwrap()
}
