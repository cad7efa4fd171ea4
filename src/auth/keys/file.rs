//! API key file: reloaded when it changes, and replaced as a whole. While a file is invalid, the previous keys stay in
//! force; an invalid line does not affect the other lines.

use super::table::Table;
use crate::{
    auth::access::Access,
    telemetry::{Event, Metrics},
};
use arc_swap::{ArcSwap, Guard};
use std::{
    fs::File,
    io::Read,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

/// Maximum size of a file: about three million keys.
const LONGEST: u64 = 1 << 30;

/// Maximum number of invalid lines that are logged one by one.
const NAMED: usize = 20;

/// Identifies the version of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl Stamp {
    fn of(metadata: &std::fs::Metadata) -> Self {
        Self { inode: metadata.ino(), size: metadata.size(), modified: (metadata.mtime(), metadata.mtime_nsec()) }
    }
}

#[derive(Debug)]
pub(super) struct KeyFile {
    path: PathBuf,
    table: ArcSwap<Table>,
    /// Stamp of the last content that was read, valid or not; `None` while the file is missing.
    stamp: Mutex<Option<Stamp>>,
}

impl KeyFile {
    pub(super) fn open(path: &Path, access: &Access, metrics: &Metrics) -> Result<Self, String> {
        let (stamp, text) = read(path)?;
        let table = understand(path, &text, access, metrics)?;
        Ok(Self { path: path.to_owned(), table: ArcSwap::from_pointee(table), stamp: Mutex::new(Some(stamp)) })
    }

    pub(super) fn table(&self) -> Guard<Arc<Table>> {
        self.table.load()
    }

    pub(super) fn len(&self) -> usize {
        self.table.load().len()
    }

    /// Reloads the file if it changed. Logs an invalid content once, not at every check.
    pub(super) fn reload_if_changed(&self, access: &Access, metrics: &Metrics) {
        let mut last = self.stamp.lock().unwrap_or_else(PoisonError::into_inner);
        let now = std::fs::metadata(&self.path).ok().map(|metadata| Stamp::of(&metadata));
        if now == *last {
            return;
        }
        let read = read(&self.path);
        *last = read.as_ref().map_or(now, |(stamp, _)| Some(*stamp));
        match read.and_then(|(_, text)| understand(&self.path, &text, access, metrics)) {
            Ok(table) => {
                tracing::info!(file = %self.path.display(), keys = table.len(), "API keys reloaded");
                self.table.store(Arc::new(table));
                metrics.count(Event::KeysLoaded);
            }
            Err(why) => {
                tracing::error!(file = %self.path.display(), error = why, "API keys not reloaded: keeping the previous keys");
                metrics.count(Event::KeysRefused);
            }
        }
    }
}

/// Reads a file. The stamp is taken before the content, so that the next check detects a change in between.
fn read(path: &Path) -> Result<(Stamp, String), String> {
    let refuse = |why: std::io::Error| format!("{} cannot be read ({why})", path.display());
    let file = File::open(path).map_err(refuse)?;
    let metadata = file.metadata().map_err(refuse)?;
    if !metadata.is_file() || metadata.size() > LONGEST {
        return Err(format!("{} must be a file of at most 1GiB", path.display()));
    }
    let mut text = String::new();
    file.take(LONGEST).read_to_string(&mut text).map_err(refuse)?;
    Ok((Stamp::of(&metadata), text))
}

/// Parses a key file. A content without any valid line is an error, unless it is empty.
fn understand(path: &Path, text: &str, access: &Access, metrics: &Metrics) -> Result<Table, String> {
    let (table, bad) = Table::from_lines(text, access);
    for (line, why) in bad.iter().take(NAMED) {
        tracing::warn!(file = %path.display(), line, error = why, "invalid line in API key file ignored");
    }
    match bad.first() {
        Some((line, why)) if table.len() == 0 => Err(format!("{} has no key (line {line}: {why})", path.display())),
        Some(_) => {
            tracing::warn!(file = %path.display(), lines = bad.len(), "API key file has invalid lines (fix them)");
            metrics.count(Event::KeysRefused);
            Ok(table)
        }
        None => Ok(table),
    }
}
