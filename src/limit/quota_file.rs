//! Quota file: loaded at startup, and replaced atomically by rename, so that it is complete at any time. An invalid
//! file stops the start: counting from zero would grant every quota again.

use super::quota::{QuotaCounters, QuotaUsage};
use crate::values::ConfigPath;
use serde::{Deserialize, Serialize};
use std::{
    fs::{File, OpenOptions},
    io::{self, BufReader, BufWriter, Read as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

const FORMAT_VERSION: u32 = 1;
/// Largest file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 4 << 30;
/// Minimum interval between writes; longer where a write takes long.
const MIN_WRITE_INTERVAL: Duration = Duration::from_secs(5);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct QuotaDocument {
    format: u32,
    callers: Vec<QuotaRow>,
}

/// A caller, the day and its count, the month and its count.
#[derive(Serialize, Deserialize)]
struct QuotaRow(Box<str>, u32, u64, u32, u64);

/// Loads the file into `quotas`; a missing file counts as empty.
pub(super) fn load_quotas(path: &Path, quotas: &QuotaCounters, key: impl Fn(&str) -> u64) -> Result<(), String> {
    let cannot_read = |why: &dyn std::fmt::Display| format!("state: {} cannot be read ({why})", path.display());
    let file = match File::open(path) {
        Ok(file) => file,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(why) => return Err(cannot_read(&why)),
    };
    let document: QuotaDocument = serde_json::from_reader(BufReader::new(file.take(MAX_FILE_BYTES)))
        .map_err(|why| format!("{}; restore the file, or remove it to count from zero", cannot_read(&why)))?;
    if document.format != FORMAT_VERSION {
        return Err(cannot_read(&format_args!("format version is {}, expected {FORMAT_VERSION}", document.format)));
    }
    for QuotaRow(name, day, in_day, month, in_month) in document.callers {
        quotas.restore(key(&name), QuotaUsage { name, day, day_count: in_day, month, month_count: in_month });
    }
    Ok(())
}

/// Checks that the file can be written. Does not touch it, because another gateway may be using it.
pub(super) fn check_writable(path: &Path) -> Result<(), String> {
    let temporary = temporary_path(path);
    let opened = OpenOptions::new().create(true).append(true).mode(0o600).open(&temporary);
    opened
        .and_then(|_| std::fs::remove_file(&temporary))
        .map_err(|why| format!("state: {} cannot be written ({why})", path.display()))
}

/// Path of the quota file, and the earliest time of the next write.
#[derive(Debug, Default)]
pub(super) struct QuotaFile {
    pub(super) path: Option<ConfigPath>,
    next_write: Option<Instant>,
}

impl QuotaFile {
    pub(super) fn new(path: Option<ConfigPath>) -> Self {
        Self { path, next_write: None }
    }

    /// Writes the file if a count changed and the minimum interval has passed; `now` skips the interval.
    pub(super) fn save_if_changed(&mut self, quotas: &QuotaCounters, now: bool) -> Result<(), String> {
        let Some(path) = &self.path else {
            return Ok(());
        };
        let started = Instant::now();
        if (!now && self.next_write.is_some_and(|then| started < then)) || !quotas.take_changed() {
            return Ok(());
        }
        let written = write_atomically(path, quotas);
        self.next_write = Some(Instant::now() + MIN_WRITE_INTERVAL.max(started.elapsed() * 20));
        written.map_err(|why| {
            quotas.set_changed();
            format!("state: {} cannot be written ({why})", path.display())
        })
    }
}

/// Returns the path of the temporary file. The process id keeps two gateways apart during a listener handover.
fn temporary_path(path: &Path) -> PathBuf {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".{}.new", std::process::id()));
    PathBuf::from(temporary)
}

fn write_atomically(path: &Path, quotas: &QuotaCounters) -> io::Result<()> {
    let temporary = temporary_path(path);
    let written = write_rows(&temporary, quotas).and_then(|()| std::fs::rename(&temporary, path));
    if written.is_err() {
        // The caller reports the first error.
        let _ = std::fs::remove_file(&temporary);
    }
    written
}

fn write_rows(path: &Path, quotas: &QuotaCounters) -> io::Result<()> {
    let file = OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(path)?;
    let mut file = BufWriter::new(file);
    write!(file, "{{\"format\":{FORMAT_VERSION},\"callers\":[")?;
    let mut wrote = Ok(());
    let mut rows: Vec<u8> = Vec::new();
    let mut first = true;
    quotas.for_each(|used| {
        rows.extend_from_slice(if std::mem::take(&mut first) { b"\n" } else { b",\n" });
        let row = QuotaRow(used.name.clone(), used.day, used.day_count, used.month, used.month_count);
        // Writing to memory cannot fail; only the write to disk can.
        let _ = serde_json::to_writer(&mut rows, &row);
        if rows.len() > 1 << 16 && wrote.is_ok() {
            wrote = file.write_all(&rows);
            rows.clear();
        }
    });
    wrote?;
    file.write_all(&rows)?;
    file.write_all(b"\n]}\n")?;
    file.into_inner()?.sync_all()
}
