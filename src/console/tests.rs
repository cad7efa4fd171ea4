//! Tests of the list of keys.

use super::key_list::{KeyFilter, KeyPosition, KeyState, read_keys};
use crate::{
    auth::{NewApiKey, RevocationList, StoredApiKey, append_api_key, generate_api_key},
    key_management::ManagedKeys,
};
use std::{collections::BTreeSet, fmt::Write as _, path::Path, time::Instant};
use time::{Duration, OffsetDateTime};

fn key_of(caller: &str, lifetime: Option<Duration>) -> StoredApiKey {
    let expires = lifetime.map(|lifetime| OffsetDateTime::now_utc() + lifetime);
    let key = NewApiKey { caller: caller.to_owned(), expires, ..NewApiKey::default() };
    serde_json::from_str(&generate_api_key(&key, None).unwrap().1).unwrap()
}

fn write_keys(file: &Path, keys: &[StoredApiKey]) {
    let mut text = String::new();
    keys.iter().for_each(|key| writeln!(text, "{}", serde_json::to_string(key).unwrap()).unwrap());
    std::fs::write(file, text).unwrap();
}

#[test]
fn pages_of_ten_thousand_keys_are_fast_and_have_each_key_once() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keys.jsonl");
    let template = key_of("x", None);
    let key = |number: usize| StoredApiKey {
        prefix: format!("{number:012}"),
        caller: format!("caller-{}", number % 700),
        ..template.clone()
    };
    let stored: Vec<StoredApiKey> = (0..10_000).map(key).collect();
    write_keys(&file, &stored);
    let keys = ManagedKeys::of_file(file);
    let (mut found, mut filter, mut pages) = (BTreeSet::new(), KeyFilter { limit: 100, ..KeyFilter::default() }, 0);
    let started = Instant::now();
    loop {
        let page = read_keys(&keys, &RevocationList::default(), &filter);
        assert_eq!((page.total, page.selected), (10_000, 10_000));
        assert!(page.rows.is_sorted_by_key(|row| (row.key.caller.clone(), row.key.prefix.clone())));
        found.extend(page.rows.iter().map(|row| row.key.prefix.clone()));
        pages += 1;
        filter.after = page.next;
        if filter.after.is_none() {
            break;
        }
    }
    assert_eq!((found.len(), pages), (10_000, 100));
    // Without optimisation, on a busy machine.
    assert!(started.elapsed().as_secs() < 60, "{:?} for 100 pages", started.elapsed());
}

#[test]
fn keys_are_found_by_caller_group_tier_prefix_and_state() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keys.jsonl");
    let mut keys = vec![
        key_of("team-a", None),
        key_of("team-b", Some(Duration::days(3))),
        key_of("team-c", Some(-Duration::days(3))),
        key_of("team-d", Some(Duration::days(30))),
    ];
    keys[0].groups = vec!["Robots".to_owned()];
    keys[1].tier = Some("gold".to_owned());
    keys[3].disabled = true;
    write_keys(&file, &keys);
    append_api_key(&file, "no key").unwrap();
    let mut managed = ManagedKeys::of_file(file);
    managed.in_config.push(key_of("config", None));
    let callers = |filter: KeyFilter| -> Vec<String> {
        let page = read_keys(&managed, &RevocationList::default(), &KeyFilter { limit: 10, ..filter });
        assert_eq!(page.problems, ["keys.jsonl: not a key on line 5"]);
        page.rows.into_iter().map(|row| row.key.caller).collect()
    };
    let with_text = |text: &str| callers(KeyFilter { text: text.to_owned(), ..KeyFilter::default() });
    assert_eq!(with_text(""), ["config", "team-a", "team-b", "team-c", "team-d"]);
    assert_eq!((with_text("robot"), with_text("GOLD")), (vec!["team-a".to_owned()], vec!["team-b".to_owned()]));
    assert_eq!(with_text(&keys[2].prefix), ["team-c"]);
    for (state, caller) in
        [(KeyState::EndsSoon, "team-b"), (KeyState::Expired, "team-c"), (KeyState::Disabled, "team-d")]
    {
        assert_eq!(callers(KeyFilter { state: Some(state), ..KeyFilter::default() }), [caller]);
    }
    let after = Some(KeyPosition { caller: "team-c".to_owned(), prefix: keys[2].prefix.clone() });
    assert_eq!(callers(KeyFilter { after, ..KeyFilter::default() }), ["team-d"]);
}

#[test]
fn a_key_file_that_cannot_be_read_is_named_without_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let page = read_keys(
        &ManagedKeys::of_file(folder.path().join("absent.jsonl")),
        &RevocationList::default(),
        &KeyFilter::default(),
    );
    assert_eq!(page.problems, ["The key file absent.jsonl cannot be read: No such file or directory"]);
}
