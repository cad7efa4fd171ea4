//! API key file: a changed file is reloaded as a whole. While a file is invalid, the previous keys stay in force; an
//! invalid line does not affect the other lines.

use super::api_key_table::ApiKeyTable;
use crate::{
    auth::{grants::GrantIndex, key_file_state::KeyFileState},
    telemetry::{Event, Metrics},
    values::{FileStamp, sha256},
};
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Maximum size of a file, which is enough for about three million keys.
const MAX_FILE_BYTES: u64 = 1 << 30;

/// Maximum number of invalid lines that are logged one by one.
const MAX_LOGGED_LINES: usize = 20;

#[derive(Debug)]
pub(super) struct ApiKeyFile {
    path: PathBuf,
    pub(super) table: ArcSwap<ApiKeyTable>,
    /// SHA-256 of the file in force.
    digest: Mutex<[u8; 32]>,
    /// Why the last content was refused, if it was.
    refusal: Mutex<Option<String>>,
    /// Stamp of the last content that was read, valid or not; `None` while the file is missing.
    stamp: Mutex<Option<FileStamp>>,
}

impl ApiKeyFile {
    pub(super) fn open(path: &Path, grants: &GrantIndex, metrics: &Metrics) -> Result<Self, String> {
        let (stamp, text) = read_with_stamp(path)?;
        let table = parse_keys(path, &text, grants, metrics)?;
        Ok(Self {
            path: path.to_owned(),
            table: ArcSwap::from_pointee(table),
            digest: Mutex::new(sha256(text.as_bytes())),
            refusal: Mutex::default(),
            stamp: Mutex::new(Some(stamp)),
        })
    }

    /// Reloads the file if it changed. Logs invalid content once, not at every check.
    pub(super) fn reload_if_changed(&self, grants: &GrantIndex, metrics: &Metrics) {
        let mut last_stamp = self.stamp.lock();
        let current_stamp = FileStamp::read(&self.path);
        if current_stamp == *last_stamp {
            return;
        }
        let read = read_with_stamp(&self.path);
        *last_stamp = read.as_ref().map_or(current_stamp, |(stamp, _)| Some(*stamp));
        let parsed = read.and_then(|(_, text)| {
            parse_keys(&self.path, &text, grants, metrics).map(|table| (sha256(text.as_bytes()), table))
        });
        match parsed {
            Ok((digest, table)) => {
                *self.digest.lock() = digest;
                *self.refusal.lock() = None;
                tracing::info!(file = %self.path.display(), keys = table.len(), "API keys reloaded");
                self.table.store(Arc::new(table));
                metrics.record_event(Event::ApiKeysLoaded);
            }
            Err(why) => {
                tracing::error!(file = %self.path.display(), error = why, "API keys not reloaded: keeping the previous keys");
                metrics.record_event(Event::ApiKeysRejected);
                *self.refusal.lock() = Some(why);
            }
        }
    }

    /// Returns the keys in force.
    pub(super) fn state(&self) -> KeyFileState {
        KeyFileState {
            path: self.path.clone(),
            digest: *self.digest.lock(),
            refusal: self.refusal.lock().clone(),
            keys: self.table.load_full(),
        }
    }
}

/// Reads a file. The stamp is taken before the content, so that the next check detects a change in between.
fn read_with_stamp(path: &Path) -> Result<(FileStamp, String), String> {
    let read_error = |why: std::io::Error| format!("{} cannot be read ({why})", path.display());
    let file = File::open(path).map_err(read_error)?;
    let metadata = file.metadata().map_err(read_error)?;
    if !metadata.is_file() || metadata.len() > MAX_FILE_BYTES {
        return Err(format!("{} must be a file of at most 1GiB", path.display()));
    }
    let mut text = String::new();
    file.take(MAX_FILE_BYTES).read_to_string(&mut text).map_err(read_error)?;
    Ok((FileStamp::from_metadata(&metadata), text))
}

/// Parses a key file. A file without a valid line is an error, unless it is empty.
fn parse_keys(path: &Path, text: &str, grants: &GrantIndex, metrics: &Metrics) -> Result<ApiKeyTable, String> {
    let (table, invalid) = ApiKeyTable::from_lines(text, grants);
    for (line, why) in invalid.iter().take(MAX_LOGGED_LINES) {
        tracing::warn!(file = %path.display(), line, error = why, "invalid line in API key file ignored");
    }
    match invalid.first() {
        Some((line, why)) if table.len() == 0 => Err(format!("{} has no key (line {line}: {why})", path.display())),
        Some(_) => {
            tracing::warn!(file = %path.display(), lines = invalid.len(), "API key file has invalid lines (fix them)");
            metrics.record_event(Event::ApiKeysRejected);
            Ok(table)
        }
        None => Ok(table),
    }
}
