//! When the certificates expire that the configuration names for agents and for callers' certificates. The listeners
//! report their own.

use crate::{
    config::GatewayConfig,
    telemetry::{CertificateExpirations, CertificateKind, Metrics},
    values::{CertificateValidity, FileStamp},
};
use parking_lot::Mutex;
use serde_json::Value;
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

/// The files with certificates, which are read when they change.
#[derive(Debug, Default)]
pub(super) struct CertificateWatch(Mutex<Vec<WatchedFile>>);

#[derive(Debug)]
struct WatchedFile {
    kind: CertificateKind,
    path: PathBuf,
    stamp: Option<FileStamp>,
    /// When the first of its certificates expires.
    expiration: Option<i64>,
}

impl CertificateWatch {
    /// Watches the files that a configuration names.
    pub(super) fn set_config(&self, config: &GatewayConfig) {
        let mut named = BTreeSet::new();
        // Without a value there is nothing to walk over; every configuration can be written as one.
        collect_files(&serde_json::to_value(config).unwrap_or_default(), false, &mut named);
        let watch = |(is_of_callers, path)| WatchedFile {
            kind: if is_of_callers { CertificateKind::Issuer } else { CertificateKind::Upstream },
            path,
            stamp: None,
            expiration: None,
        };
        *self.0.lock() = named.into_iter().map(watch).collect();
    }

    /// Reads the files that have changed, and records when the certificates expire. Blocks.
    pub(super) fn update(&self, metrics: &Metrics) {
        let mut files = self.0.lock();
        for file in &mut *files {
            let stamp = FileStamp::read(&file.path);
            if stamp.is_none() || stamp != file.stamp {
                file.stamp = stamp;
                file.expiration = CertificateValidity::earliest_end_in(&file.path);
            }
        }
        for kind in [CertificateKind::Upstream, CertificateKind::Issuer] {
            let mut expirations = CertificateExpirations::new();
            for file in files.iter().filter(|file| file.kind == kind) {
                let Some(expiration) = file.expiration else { continue };
                // Files of the same name in different folders share a series.
                let earliest = expirations.entry(file_name(&file.path)).or_insert(expiration);
                *earliest = expiration.min(*earliest);
            }
            metrics.certificates().set_expirations(kind, expirations);
        }
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Adds the certificate files of all sections to `files`, with whether they are for callers' certificates.
fn collect_files(value: &Value, is_listener: bool, files: &mut BTreeSet<(bool, PathBuf)>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                match (name.as_str(), member.as_str()) {
                    ("client_ca", Some(path)) => files.extend([(true, path.into())]),
                    ("ca" | "ca_file" | "database_ca" | "certificate", Some(path)) if !is_listener => {
                        files.extend([(false, path.into())]);
                    }
                    _ => collect_files(member, is_listener || name == "listeners", files),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect_files(item, is_listener, files)),
        _ => {}
    }
}
