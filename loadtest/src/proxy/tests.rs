//! The configurations of the other proxies.

use crate::certificate::TestCertificate;
use crate::proxy_settings::{API_KEY, CHECKED_PATH, ListenAddresses, ProxyMode, ProxySettings};
use crate::{envoy, haproxy, nginx};
use std::path::Path;

fn settings(folder: &Path) -> ProxySettings {
    let certificate = TestCertificate::new(folder).unwrap();
    ProxySettings {
        folder: folder.to_owned(),
        agent: "127.0.0.1:9".parse().unwrap(),
        certificate,
        connections: 64,
        envoy: None,
    }
}

/// The addresses in the configurations, on which no process listens.
fn addresses() -> ListenAddresses {
    ListenAddresses { plain: "127.0.0.1:7".parse().unwrap(), tls: "127.0.0.1:8".parse().unwrap() }
}

#[test]
fn proxies_with_checks_know_the_key_and_the_path() {
    let folder = tempfile::tempdir().unwrap();
    let (settings, addresses) = (settings(folder.path()), addresses());
    let nginx = nginx::config(&settings, ProxyMode::Checked, addresses, folder.path());
    let envoy = envoy::config(&settings, ProxyMode::Checked, addresses).to_string();
    assert!([&nginx, &envoy].into_iter().all(|text| text.contains(API_KEY) && text.contains(CHECKED_PATH)));
    assert!(haproxy::config(&settings, ProxyMode::Checked, addresses).contains(CHECKED_PATH));
}

#[test]
fn only_unbuffered_proxies_send_events_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let (settings, addresses) = (settings(folder.path()), addresses());
    assert!(haproxy::config(&settings, ProxyMode::Unbuffered, addresses).contains("http-no-delay"));
    assert!(!haproxy::config(&settings, ProxyMode::PassThrough, addresses).contains("http-no-delay"));
}
