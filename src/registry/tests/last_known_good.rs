//! Last known good: saving, loading, and rejecting files.

use super::{super::last_known_good::LastKnownGoodFile, *};
use crate::{agent::Agent, values::sha256};
use std::{fs, os::unix::fs::PermissionsExt, time::SystemTime};

fn test_file(folder: &Path) -> LastKnownGoodFile {
    LastKnownGoodFile::new(folder.join("state"), "aidip:a.example", "aidip", "https://a.example/")
}

fn parsed_agent(id: &str) -> Arc<Agent> {
    let text = agent(id).to_string();
    Arc::new(Agent::from_document(&agent(id), sha256(text.as_bytes())).unwrap())
}

fn file(folder: &Path) -> std::path::PathBuf {
    folder.join("state/aidip:a.example.agents")
}

#[test]
fn saved_agents_are_loaded_with_their_digests() {
    let folder = tempfile::tempdir().unwrap();
    let stored_file = test_file(folder.path());
    assert!(stored_file.load().unwrap().is_none(), "a missing file is no error");
    let parts = vec![("one".into(), vec![parsed_agent("a"), parsed_agent("b")]), ("none".into(), vec![])];
    stored_file.save(&parts, SystemTime::now()).unwrap();
    stored_file.save(&parts, SystemTime::now()).unwrap();
    let (last_success, loaded) = stored_file.load().unwrap().unwrap();
    assert!(last_success.elapsed().unwrap() < Duration::from_secs(20));
    assert_eq!(loaded.iter().map(|part| &*part.name).collect::<Vec<_>>(), ["one", "none"]);
    let PartUpdate::Replaced(documents) = &loaded[0].update else { panic!("{loaded:?}") };
    assert_eq!(
        documents.iter().map(|document| document.digest).collect::<Vec<_>>(),
        [parsed_agent("a").digest, parsed_agent("b").digest]
    );
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&file(folder.path())), mode(&folder.path().join("state"))), (0o600, 0o700));
    assert_eq!(fs::read_dir(folder.path().join("state")).unwrap().count(), 1, "no temporary file is left");
    let abandoned = file(folder.path()).with_extension("agents.1-1.new");
    fs::write(&abandoned, "half").unwrap();
    assert!(stored_file.load().unwrap().is_some() && abandoned.exists(), "another process may be writing it");
    fs::File::options().write(true).open(&abandoned).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
    assert!(stored_file.load().unwrap().is_some() && !abandoned.exists(), "an abandoned file is removed");
    let earlier = SystemTime::now() - Duration::from_secs(1_000);
    stored_file.touch(earlier).unwrap();
    assert!(stored_file.load().unwrap().unwrap().0.elapsed().unwrap() >= Duration::from_secs(999));
}

#[test]
fn truncated_modified_or_foreign_files_are_rejected() {
    let folder = tempfile::tempdir().unwrap();
    test_file(folder.path()).save(&[("one".into(), vec![parsed_agent("a")])], SystemTime::now()).unwrap();
    let bytes_of_file = fs::read(file(folder.path())).unwrap();
    for length in 0..bytes_of_file.len() {
        fs::write(file(folder.path()), &bytes_of_file[..length]).unwrap();
        assert!(test_file(folder.path()).load().unwrap_err().contains("truncated"), "{length}");
    }
    for position in 0..bytes_of_file.len() {
        let mut bytes = bytes_of_file.clone();
        bytes[position] ^= 1;
        fs::write(file(folder.path()), bytes).unwrap();
        assert!(test_file(folder.path()).load().is_err(), "{position}");
    }
    // Malformed files with a valid checksum.
    for body in [&b"gatepost agents 2\n"[..], b"gatepost agents 1\n", b"gatepost agents 1\n\xff\xff\xff\xff", b""] {
        let bytes = [body, &sha256(body)].concat();
        fs::write(file(folder.path()), bytes).unwrap();
        assert!(test_file(folder.path()).load().is_err());
    }
    fs::write(file(folder.path()), bytes_of_file).unwrap();
    let other = LastKnownGoodFile::new(folder.path().join("state"), "aidip:a.example", "aidip", "https://b.example/");
    assert!(other.load().unwrap_err().contains("another location"));
    assert!(test_file(folder.path()).load().unwrap().is_some());
}

#[test]
fn a_write_error_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("state"), "a file").unwrap();
    assert!(test_file(folder.path()).save(&[], SystemTime::now()).unwrap_err().contains("cannot be written"));
}
