//! Last known good: saving, loading, and rejecting files.

use super::{super::keep::Keeper, *};
use crate::agent::Agent;
use std::{fs, os::unix::fs::PermissionsExt, time::SystemTime};

fn keeper(folder: &Path) -> Keeper {
    Keeper::new(folder.join("state"), "aidip:a.example", "aidip", "https://a.example/")
}

fn agent_of(id: &str) -> Arc<Agent> {
    let text = agent(id).to_string();
    Arc::new(Agent::from_document(&agent(id), read::sha256(text.as_bytes())).unwrap())
}

fn file(folder: &Path) -> std::path::PathBuf {
    folder.join("state/aidip:a.example.agents")
}

#[test]
fn saved_agents_are_loaded_with_their_digests() {
    let folder = tempfile::tempdir().unwrap();
    let keeper = keeper(folder.path());
    assert!(keeper.load().unwrap().is_none(), "a missing file is no error");
    let parts = vec![("one".into(), vec![agent_of("a"), agent_of("b")]), ("none".into(), vec![])];
    keeper.save(&parts, SystemTime::now()).unwrap();
    keeper.save(&parts, SystemTime::now()).unwrap();
    let (good, found) = keeper.load().unwrap().unwrap();
    assert!(good.elapsed().unwrap() < Duration::from_secs(20));
    assert_eq!(found.iter().map(|part| &*part.name).collect::<Vec<_>>(), ["one", "none"]);
    let News::Whole(documents) = &found[0].news else { panic!("{found:?}") };
    assert_eq!(
        documents.iter().map(|document| document.digest).collect::<Vec<_>>(),
        [agent_of("a").digest, agent_of("b").digest]
    );
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&file(folder.path())), mode(&folder.path().join("state"))), (0o600, 0o700));
    assert_eq!(fs::read_dir(folder.path().join("state")).unwrap().count(), 1, "no temporary file is left");
    let left = file(folder.path()).with_extension("agents.1-1.new");
    fs::write(&left, "half").unwrap();
    assert!(keeper.load().unwrap().is_some() && left.exists(), "another process may be writing it");
    fs::File::options().write(true).open(&left).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
    assert!(keeper.load().unwrap().is_some() && !left.exists(), "an abandoned file is removed");
    let earlier = SystemTime::now() - Duration::from_secs(1_000);
    keeper.touch(earlier).unwrap();
    assert!(keeper.load().unwrap().unwrap().0.elapsed().unwrap() >= Duration::from_secs(999));
}

#[test]
fn truncated_modified_or_foreign_files_are_rejected() {
    let folder = tempfile::tempdir().unwrap();
    keeper(folder.path()).save(&[("one".into(), vec![agent_of("a")])], SystemTime::now()).unwrap();
    let whole = fs::read(file(folder.path())).unwrap();
    for length in 0..whole.len() {
        fs::write(file(folder.path()), &whole[..length]).unwrap();
        assert!(keeper(folder.path()).load().unwrap_err().contains("truncated"), "{length}");
    }
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        fs::write(file(folder.path()), bytes).unwrap();
        assert!(keeper(folder.path()).load().is_err(), "{at}");
    }
    // Malformed files with a valid checksum.
    for body in [&b"gatepost agents 2\n"[..], b"gatepost agents 1\n", b"gatepost agents 1\n\xff\xff\xff\xff", b""] {
        let bytes = [body, &read::sha256(body)].concat();
        fs::write(file(folder.path()), bytes).unwrap();
        assert!(keeper(folder.path()).load().is_err());
    }
    fs::write(file(folder.path()), whole).unwrap();
    let other = Keeper::new(folder.path().join("state"), "aidip:a.example", "aidip", "https://b.example/");
    assert!(other.load().unwrap_err().contains("another location"));
    assert!(keeper(folder.path()).load().unwrap().is_some());
}

#[test]
fn a_write_error_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("state"), "a file").unwrap();
    assert!(keeper(folder.path()).save(&[], SystemTime::now()).unwrap_err().contains("cannot be written"));
}
