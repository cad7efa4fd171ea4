//! What the proxies are told.

use super::{CHECKED, Fronts, KEY, Setting, Work};
use crate::certificate::Certificate;
use crate::{envoy, haproxy, nginx};
use std::path::Path;

fn setting(folder: &Path) -> Setting {
    let certificate = Certificate::new(folder).unwrap();
    Setting {
        folder: folder.to_owned(),
        agent: "127.0.0.1:9".parse().unwrap(),
        certificate,
        connections: 64,
        envoy: None,
    }
}

#[test]
fn who_checks_knows_the_key_and_the_path() {
    let folder = tempfile::tempdir().unwrap();
    let (setting, fronts) = (setting(folder.path()), Fronts::free().unwrap());
    let nginx = nginx::text(&setting, Work::Check, (fronts, folder.path()));
    let envoy = envoy::config(&setting, Work::Check, fronts).to_string();
    assert!([&nginx, &envoy].into_iter().all(|text| text.contains(KEY) && text.contains(CHECKED)));
    assert!(haproxy::text(&setting, Work::Check, fronts).contains(CHECKED));
}

#[test]
fn only_who_is_asked_to_sends_events_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let (setting, fronts) = (setting(folder.path()), Fronts::free().unwrap());
    assert!(haproxy::text(&setting, Work::Prompt, fronts).contains("http-no-delay"));
    assert!(!haproxy::text(&setting, Work::Pass, fronts).contains("http-no-delay"));
}
