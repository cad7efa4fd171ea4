//! Export and import.

use super::{
    super::super::{
        feed::{Feed, PartUpdate},
        file_feed::FileFeed,
    },
    *,
};
use std::fs;

#[tokio::test]
async fn r16_an_export_is_a_readable_feed_and_imports_with_its_owners() {
    let fixture = open_registry().await;
    let first = fixture.publish_new(ONE, document("a")).await;
    fixture.publish_new(TEAM, document("team-b")).await;
    fixture.publish_new(ONE, document("gone")).await;
    fixture.registry.writes().remove(ONE, &id("gone"), &WritePrecondition::Always).await.unwrap();
    let folder = TempDir::new().unwrap();
    let out = folder.path().join("out");
    assert_eq!(fixture.registry.archive().export(&out).await.unwrap(), 2);
    assert_eq!(fs::read_to_string(out.join("a.json")).unwrap(), *first.document);
    let parts = FileFeed::new(out.clone()).poll().await.parts;
    assert_eq!(parts.len(), 2, "the owners' file is not a document");
    assert!(parts.iter().all(|part| matches!(&part.update, PartUpdate::Replaced(documents) if documents.len() == 1)));

    let other = super::open_registry().await;
    other.publish_new(TWO, document("a")).await;
    let restored = other.registry.archive().import(&out, None).await.unwrap();
    assert_eq!((restored.imported, restored.rejected.len()), (2, 0));
    let own = other.registry.owned_document(ONE, &id("a")).await.unwrap().unwrap();
    assert_eq!((&own.document, own.created), (&first.document, first.created));
    assert!(other.registry.owned_document(TWO, &id("a")).await.unwrap().is_none());
    assert!(other.registry.owned_document(TEAM, &id("team-b")).await.unwrap().is_some());
    assert_eq!(&*other.registry.full_history(&id("a")).await.unwrap()[0].writer, "import");
    assert!(fixture.registry.archive().export(&out).await.unwrap_err().contains("empty"));
}

#[tokio::test]
async fn r18_imported_documents_are_validated() {
    let fixture = open_registry().await;
    let folder = TempDir::new().unwrap();
    let put = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    put("good.json", &document("good").to_string());
    put("here.json", &document_with("endpoint", json!("https://127.0.0.1/")).to_string());
    put("broken.json", "{");
    put("large.json", &" ".repeat((1 << 20) + 1));
    put("notes.txt", "not looked at");
    let restored = fixture.registry.archive().import(folder.path(), None).await.unwrap();
    assert_eq!((restored.imported, restored.rejected.len()), (0, 4), "their owner is unknown");
    let restored = fixture.registry.archive().import(folder.path(), Some("key:two")).await.unwrap();
    assert_eq!((restored.imported, restored.rejected.len()), (1, 3), "{restored:?}");
    assert_eq!(&*fixture.registry.owned_document(TWO, &id("good")).await.unwrap().unwrap().owner, "key:two");
    assert!(fixture.registry.archive().import(&folder.path().join("missing"), None).await.is_err());
    put("registry.ndjson", "no object");
    assert!(fixture.registry.archive().import(folder.path(), None).await.is_err());
}
