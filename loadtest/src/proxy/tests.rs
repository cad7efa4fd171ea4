//! The configurations of the other proxies.

use super::{CHECKED_PATH, Fronts, API_KEY, Setting, Work};
use crate::certificate::Certificate;
use crate::{envoy, haproxy, nginx};
use std::path::Path;

fn settings(folder: &Path) -> Setting {
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
fn proxies_with_checks_know_the_key_and_the_path() {
    let folder = tempfile::tempdir().unwrap();
    let (settings, addresses) = (settings(folder.path()), Fronts::free().unwrap());
    let nginx = nginx::text(&settings, Work::Check, (addresses, folder.path()));
    let envoy = envoy::config(&settings, Work::Check, addresses).to_string();
    assert!([&nginx, &envoy].into_iter().all(|text| text.contains(API_KEY) && text.contains(CHECKED_PATH)));
    assert!(haproxy::text(&settings, Work::Check, addresses).contains(CHECKED_PATH));
}

#[test]
fn only_unbuffered_proxies_send_events_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let (settings, addresses) = (settings(folder.path()), Fronts::free().unwrap());
    assert!(haproxy::text(&settings, Work::Prompt, addresses).contains("http-no-delay"));
    assert!(!haproxy::text(&settings, Work::Pass, addresses).contains("http-no-delay"));
}
