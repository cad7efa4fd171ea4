//! Quota file: loaded at startup, and replaced by rename, so that it is complete at any time. An invalid file prevents
//! the start, because counts from zero would grant every quota again.

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
/// Maximum size of the file.
const MAX_FILE_BYTES: u64 = 4 << 30;
/// Minimum interval between writes: less than that of the maintenance, which asks for a write about once a second, so
/// that a process that is killed loses the counts of a second.
const MIN_WRITE_INTERVAL: Duration = Duration::from_millis(500);
/// Minimum interval as a multiple of the duration of a write: the counts of some 100,000 callers are written in a tenth
/// of a second, and those of more callers less often.
const WRITE_INTERVAL_FACTOR: u32 = 9;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct QuotaDocument {
    format: u32,
    callers: Vec<QuotaRow>,
}

/// A caller, the day and its count, the month and its count.
#[derive(Serialize, Deserialize)]
struct QuotaRow(Box<str>, u32, u64, u32, u64);

/// Loads the file into `quotas`; a missing file is like an empty one.
pub(super) fn load_quotas(path: &Path, quotas: &QuotaCounters) -> Result<(), String> {
    let cannot_read =
        |why: &dyn std::fmt::Display| format!("quota_state_file: {} cannot be read ({why})", path.display());
    let file = match File::open(path) {
        Ok(file) => file,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(why) => return Err(cannot_read(&why)),
    };
    let document: QuotaDocument = serde_json::from_reader(BufReader::new(file.take(MAX_FILE_BYTES)))
        .map_err(|why| cannot_read(&format_args!("{why}; restore the file, or remove it to count from zero")))?;
    if document.format != FORMAT_VERSION {
        return Err(cannot_read(&format_args!("format version is {}, expected {FORMAT_VERSION}", document.format)));
    }
    for QuotaRow(name, day, day_count, month, month_count) in document.callers {
        quotas.restore(QuotaUsage { name, day, day_count, month, month_count });
    }
    Ok(())
}

/// Checks that the file can be written. Does not open it, because another gateway may be using it.
pub(super) fn check_writable(path: &Path) -> Result<(), String> {
    let temporary = temporary_path(path);
    let result = OpenOptions::new().create(true).append(true).mode(0o600).open(&temporary);
    result
        .and_then(|_| std::fs::remove_file(&temporary))
        .map_err(|why| format!("quota_state_file: {} cannot be written ({why})", path.display()))
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

    /// Writes the file if a count changed and the minimum interval has passed, or `ignore_interval` is set.
    pub(super) fn save_if_changed(&mut self, quotas: &QuotaCounters, ignore_interval: bool) -> Result<(), String> {
        let Some(path) = &self.path else {
            return Ok(());
        };
        let started = Instant::now();
        if (!ignore_interval && self.next_write.is_some_and(|earliest| started < earliest)) || !quotas.take_changed() {
            return Ok(());
        }
        let result = write_atomically(path, quotas);
        self.next_write = Some(Instant::now() + MIN_WRITE_INTERVAL.max(started.elapsed() * WRITE_INTERVAL_FACTOR));
        result.map_err(|why| {
            quotas.set_changed();
            format!("quota_state_file: {} cannot be written ({why})", path.display())
        })
    }
}

/// Returns the path of the temporary file, which has the process id, because two gateways run during a listener
/// handover.
fn temporary_path(path: &Path) -> PathBuf {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".{}.new", std::process::id()));
    PathBuf::from(temporary)
}

fn write_atomically(path: &Path, quotas: &QuotaCounters) -> io::Result<()> {
    let temporary = temporary_path(path);
    let result = write_rows(&temporary, quotas).and_then(|()| std::fs::rename(&temporary, path));
    if result.is_err() {
        // The first error is the one to report.
        let _ = std::fs::remove_file(&temporary);
    }
    result
}

fn write_rows(path: &Path, quotas: &QuotaCounters) -> io::Result<()> {
    let file = OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(path)?;
    let mut file = BufWriter::new(file);
    write!(file, "{{\"format\":{FORMAT_VERSION},\"callers\":[")?;
    let mut result = Ok(());
    let mut rows: Vec<u8> = Vec::new();
    let mut is_first = true;
    quotas.for_each(|usage| {
        rows.extend_from_slice(if std::mem::take(&mut is_first) { b"\n" } else { b",\n" });
        let row = QuotaRow(usage.name.clone(), usage.day, usage.day_count, usage.month, usage.month_count);
        // A write to memory cannot fail.
        let _ = serde_json::to_writer(&mut rows, &row);
        if rows.len() > 1 << 16 && result.is_ok() {
            result = file.write_all(&rows);
            rows.clear();
        }
    });
    result?;
    file.write_all(&rows)?;
    file.write_all(b"\n]}\n")?;
    file.into_inner()?.sync_all()
}
