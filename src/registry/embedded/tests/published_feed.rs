//! Feed of published documents: what it reports, and how long a publisher waits for it.

use super::{
    super::super::feed::{DocumentBody, Feed, FeedPart, PartUpdate},
    *,
};
use std::time::{Duration, Instant};

fn describe_parts(parts: &[FeedPart]) -> Vec<String> {
    let describe = |part: &FeedPart| {
        let marker = match &part.update {
            PartUpdate::Replaced(documents) if documents.len() == 1 => '+',
            PartUpdate::Removed => '-',
            PartUpdate::Unreadable(_) => '!',
            other => panic!("{other:?}"),
        };
        format!("{marker}{}", part.name)
    };
    parts.iter().map(describe).collect()
}

#[tokio::test]
async fn r16_the_first_poll_reports_everything_and_later_polls_changes() {
    let fixture = open_registry().await;
    let stored = fixture.publish_new(ONE, document("a")).await;
    fixture.publish_new(ONE, document("b")).await;
    let mut feed = fixture.registry.feed();
    let first = feed.poll().await;
    assert_eq!(describe_parts(&first.parts), ["+registry/a", "+registry/b"]);
    let PartUpdate::Replaced(documents) = &first.parts[0].update else { panic!() };
    let DocumentBody::Text(text) = &documents[0].body else { panic!() };
    assert_eq!(documents[0].digest, crate::values::sha256(text));
    let (mut reported, stored): (serde_json::Value, serde_json::Value) =
        (serde_json::from_slice(text).unwrap(), serde_json::from_str(&stored.document).unwrap());
    let times = ["created_at", "updated_at"].map(|name| reported.as_object_mut().unwrap().remove(name).unwrap());
    assert_eq!(times[0], times[1]);
    assert_eq!(reported, stored, "the document is reported with the times of the registry");
    assert!(feed.poll().await.parts.is_empty());
    feed.acknowledge();
    let a = id("a");
    let writes = fixture.registry.writes();
    let (removed, ()) = tokio::join!(writes.remove(ONE, &a, &WritePrecondition::Always), async {
        feed.wait_for_update().await;
        assert_eq!(describe_parts(&feed.poll().await.parts), ["-registry/a"]);
        feed.acknowledge();
    });
    removed.unwrap();
}

#[tokio::test]
async fn r17_publishing_returns_once_the_agent_is_in_force() {
    let fixture = Arc::new(open_registry().await);
    let mut feed = fixture.registry.feed();
    feed.poll().await;
    let began = Instant::now();
    let publishing = tokio::spawn({
        let fixture = Arc::clone(&fixture);
        async move { fixture.publish_new(ONE, document("a")).await }
    });
    feed.wait_for_update().await;
    assert_eq!(describe_parts(&feed.poll().await.parts), ["+registry/a"]);
    assert!(!publishing.is_finished(), "the agent is not in force yet");
    feed.acknowledge();
    publishing.await.unwrap();
    assert!(began.elapsed() < Duration::from_millis(900), "{:?}", began.elapsed());
    // A feed that is never acknowledged delays a publisher for a second, and no longer.
    let began = Instant::now();
    fixture.publish_new(ONE, document("b")).await;
    assert!(began.elapsed() >= Duration::from_secs(1) && began.elapsed() < Duration::from_secs(5));
    drop(feed);
    let began = Instant::now();
    fixture.publish_new(ONE, document("c")).await;
    assert!(began.elapsed() < Duration::from_secs(1), "without a feed there is nothing to wait for");
}

#[tokio::test]
async fn r16_changes_without_a_notification_are_polled() {
    let fixture =
        open_registry_with(|config| config.poll_interval = crate::values::ConfigDuration::from_millis(500), &[]).await;
    let second = EmbeddedRegistry::open(&fixture.config, Arc::default()).await.unwrap();
    let mut feed = fixture.registry.feed();
    feed.poll().await;
    second.writes().publish(ONE, document("a")).await.unwrap();
    tokio::time::timeout(Duration::from_secs(5), feed.wait_for_update()).await.unwrap();
    assert_eq!(describe_parts(&feed.poll().await.parts), ["+registry/a"]);
}

#[tokio::test]
async fn r16_a_replaced_store_replaces_all_documents() {
    let fixture = open_registry().await;
    for name in ["a", "b"] {
        fixture.publish_new(ONE, document(name)).await;
    }
    let mut feed = fixture.registry.feed();
    feed.poll().await;
    let file = open_database(&fixture);
    file.execute_batch("delete from gatepost_documents where id = 'b'; update gatepost_state set epoch = 'x'").unwrap();
    assert_eq!(describe_parts(&feed.poll().await.parts), ["+registry/a", "-registry/b"]);
    assert!(feed.poll().await.parts.is_empty());
}

#[tokio::test]
async fn r16_an_unreadable_store_keeps_its_documents_and_is_reported() {
    let fixture = open_registry().await;
    fixture.publish_new(ONE, document("a")).await;
    let mut feed = fixture.registry.feed();
    feed.poll().await;
    let file = open_database(&fixture);
    file.execute_batch("alter table gatepost_removed rename to hidden").unwrap();
    for _ in 0..2 {
        let result = feed.poll().await;
        assert!(result.parts.is_empty() && result.error.is_some(), "{result:?}");
    }
    assert_eq!(
        fixture.registry.writes().remove(ONE, &id("a"), &WritePrecondition::Always).await.unwrap_err().code(),
        FaultCode::Overloaded
    );
    file.execute_batch("alter table hidden rename to gatepost_removed").unwrap();
    let result = feed.poll().await;
    assert!(result.parts.is_empty() && result.error.is_none(), "only the error is over: {result:?}");
    fixture.registry.store.get_document("a").await.unwrap().unwrap();
}

fn open_database(fixture: &TestRegistry) -> rusqlite::Connection {
    rusqlite::Connection::open(&fixture.config.sqlite_file).unwrap()
}
