//! Behaviour of the SQLite store only: batched writes, and a file that another process locks.

use super::*;
use crate::fault::FaultCode;
use futures_util::future::join_all;
use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tempfile::TempDir;

fn put(id: String) -> DocumentWrite {
    DocumentWrite {
        id: id.into(),
        document: Some("{}".into()),
        writer: "key:one".into(),
        any_owner: false,
        precondition: WritePrecondition::Absent,
        limits: (1_000, 1_000),
        deleted_id_retention: Duration::from_secs(3_600),
        restored: None,
    }
}

async fn file() -> (TempDir, PathBuf, Arc<dyn DocumentStore>) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("store.db");
    let store = open_documents(&StoreLocation::File(path.clone())).await.unwrap();
    (folder, path, store)
}

#[tokio::test]
async fn r17_writes_of_one_batch_are_refused_individually() {
    let (_folder, _, store) = file().await;
    let writes = (0..200).map(|number| store.write(put(format!("a-{}", number % 100))));
    let outcomes: Vec<_> = join_all(writes).await.into_iter().map(|outcome| outcome.unwrap().into_result()).collect();
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 100);
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == Err(WriteRefusal::PreconditionFailed)).count(), 100);
    let mut revisions: Vec<u64> = outcomes
        .into_iter()
        .filter_map(|outcome| match outcome {
            Ok(WriteEffect::Created(document)) => Some(document.revision),
            _ => None,
        })
        .collect();
    revisions.sort_unstable();
    assert_eq!(revisions, (1..=100).collect::<Vec<_>>(), "a refused write uses no revision");
}

#[tokio::test]
async fn a_locked_file_refuses_some_writes_and_queues_a_bounded_number() {
    let (_folder, path, store) = file().await;
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("begin immediate").unwrap();
    let refused_count = AtomicUsize::new(0);
    let (store, refused_writes) = (&store, &refused_count);
    let writes = (0..600).map(|number| async move {
        let outcome = store.write(put(format!("a-{number}"))).await;
        refused_writes.fetch_add(usize::from(outcome.is_err()), Ordering::SeqCst);
        outcome
    });
    let (outcomes, ()) = tokio::join!(join_all(writes), async {
        assert!(store.get_document("a-0").await.unwrap().is_none(), "reads do not wait");
        while refused_count.load(Ordering::SeqCst) < 200 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        other.execute_batch("rollback").unwrap();
    });
    let (written, refused): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(|outcome| outcome.is_ok());
    assert!(written.len() >= 200 && refused.len() >= 200, "{} written, {} refused", written.len(), refused.len());
    assert!(refused.iter().all(|outcome| outcome.as_ref().is_err_and(|fault| fault.code() == FaultCode::Overloaded)));
    let stored_count = store.changes_since(None, 1_000).await.unwrap().changes.len();
    assert_eq!(stored_count, written.len(), "refused writes were not written");
}
