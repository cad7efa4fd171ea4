//! Quota file: loaded at startup, and replaced atomically by rename, so that it is complete at any time. An invalid
//! file stops the start: counting from zero would grant every quota again.

use super::quota::{Quotas, Used};
use crate::unit::FilePath;
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
const LONGEST: u64 = 4 << 30;
/// Minimum interval between writes; longer where a write takes long.
const APART: Duration = Duration::from_secs(5);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    format: u32,
    callers: Vec<Row>,
}

/// A caller, the day and its count, the month and its count.
#[derive(Serialize, Deserialize)]
struct Row(Box<str>, u32, u64, u32, u64);

/// Loads the file into `quotas`; a missing file counts as empty.
pub(super) fn read(path: &Path, quotas: &Quotas, key: impl Fn(&str) -> u64) -> Result<(), String> {
    let refuse = |why: &dyn std::fmt::Display| format!("state: {} cannot be read ({why})", path.display());
    let file = match File::open(path) {
        Ok(file) => file,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(why) => return Err(refuse(&why)),
    };
    let kept: Kept = serde_json::from_reader(BufReader::new(file.take(LONGEST)))
        .map_err(|why| format!("{}; restore the file, or remove it to count from zero", refuse(&why)))?;
    if kept.format != FORMAT_VERSION {
        return Err(refuse(&format_args!("format version is {}, expected {FORMAT_VERSION}", kept.format)));
    }
    for Row(name, day, in_day, month, in_month) in kept.callers {
        quotas.restore(key(&name), Used { name, day, in_day, month, in_month });
    }
    Ok(())
}

/// Checks that the file can be written. Does not touch it, because another gateway may be using it.
pub(super) fn probe(path: &Path) -> Result<(), String> {
    let beside = beside(path);
    let made = OpenOptions::new().create(true).append(true).mode(0o600).open(&beside);
    made.and_then(|_| std::fs::remove_file(&beside))
        .map_err(|why| format!("state: {} cannot be written ({why})", path.display()))
}

/// Path of the quota file, and the earliest time of the next write.
#[derive(Debug, Default)]
pub(super) struct Keeper {
    pub(super) path: Option<FilePath>,
    not_before: Option<Instant>,
}

impl Keeper {
    pub(super) fn new(path: Option<FilePath>) -> Self {
        Self { path, not_before: None }
    }

    /// Writes the file if a count changed and the minimum interval has passed; `now` skips the interval.
    pub(super) fn save(&mut self, quotas: &Quotas, now: bool) -> Result<(), String> {
        let Some(path) = &self.path else {
            return Ok(());
        };
        let begun = Instant::now();
        if (!now && self.not_before.is_some_and(|then| begun < then)) || !quotas.take_changed() {
            return Ok(());
        }
        let written = write(path, quotas);
        self.not_before = Some(Instant::now() + APART.max(begun.elapsed() * 20));
        written.map_err(|why| {
            quotas.set_changed();
            format!("state: {} cannot be written ({why})", path.display())
        })
    }
}

/// Returns the path of the temporary file. The process id keeps two gateways apart during a listener handover.
fn beside(path: &Path) -> PathBuf {
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}.new", std::process::id()));
    PathBuf::from(beside)
}

fn write(path: &Path, quotas: &Quotas) -> io::Result<()> {
    let beside = beside(path);
    let written = fill(&beside, quotas).and_then(|()| std::fs::rename(&beside, path));
    if written.is_err() {
        // The caller reports the first error.
        let _ = std::fs::remove_file(&beside);
    }
    written
}

fn fill(path: &Path, quotas: &Quotas) -> io::Result<()> {
    let file = OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(path)?;
    let mut file = BufWriter::new(file);
    write!(file, "{{\"format\":{FORMAT_VERSION},\"callers\":[")?;
    let mut wrote = Ok(());
    let mut rows: Vec<u8> = Vec::new();
    let mut first = true;
    quotas.each(|used| {
        rows.extend_from_slice(if std::mem::take(&mut first) { b"\n" } else { b",\n" });
        let row = Row(used.name.clone(), used.day, used.in_day, used.month, used.in_month);
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
