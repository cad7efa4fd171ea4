//! Runs every file of the corpora through its target.

use super::TARGETS;
use std::{collections::BTreeSet, fs, path::Path};

#[test]
fn r122_every_target_holds_for_its_corpus() {
    let corpora = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus");
    let folders: BTreeSet<_> =
        fs::read_dir(&corpora).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(folders, TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect(), "each target has a corpus");
    for (name, check) in TARGETS {
        let files: Vec<_> = fs::read_dir(corpora.join(name)).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(!files.is_empty(), "{name} has no corpus");
        for file in files {
            let input = fs::read(&file).unwrap();
            let held = std::panic::catch_unwind(|| check(&input));
            assert!(held.is_ok(), "{name} does not hold for {}", file.display());
        }
    }
}
