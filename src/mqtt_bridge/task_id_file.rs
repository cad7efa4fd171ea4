//! Ids of finished tasks on disk (R125, R161), so that a task which the broker delivers again after a restart does not
//! run again. One file for each agent on each broker; a lock file beside it makes the process that serves the agent its
//! only writer. A process that starts during a listener handover waits for the lock.

use crate::values::unix_time;
use std::{
    fs::{self, DirBuilder, File, Metadata, OpenOptions, TryLockError},
    io::{self, BufRead as _, BufReader, BufWriter, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    time::Duration,
};
use uuid::Uuid;

/// Maximum length of a line: seconds, a space and an id.
const MAX_LINE_BYTES: u64 = 64;

/// Which ids the file keeps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Retention {
    pub(super) max_ids: usize,
    pub(super) ttl: Duration,
}

/// The open file of one agent.
#[derive(Debug)]
pub(super) struct TaskIdFile {
    path: PathBuf,
    retention: Retention,
    file: File,
    /// Number of lines in the file.
    lines: usize,
    lock_path: PathBuf,
    /// Held until this value is dropped.
    _lock: File,
}

/// An id in the file, and how long ago its task finished.
pub(super) type FinishedTask = (Uuid, Duration);

impl TaskIdFile {
    /// Opens the file `name` in `folder`, which is created if it does not exist, and returns the ids in it, oldest
    /// first. Returns `None` while another process holds the lock. Blocks.
    ///
    /// # Errors
    /// The folder or the file cannot be read or written.
    pub(super) fn open(
        folder: &Path,
        name: &str,
        retention: Retention,
    ) -> io::Result<Option<(Self, Vec<FinishedTask>)>> {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let lock_path = folder.join(format!("{name}.lock"));
        let lock = open_options().append(true).open(&lock_path)?;
        match lock.try_lock() {
            Ok(()) if file_matches_path(&lock, &lock_path).unwrap_or(false) => {}
            // A process that deleted the file had the lock before.
            Ok(()) | Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        let path = folder.join(format!("{name}.tasks"));
        let ids = read_ids(&path, retention)?;
        let file = rewrite(&path, &ids)?;
        Ok(Some((Self { path, retention, file, lines: ids.len(), lock_path, _lock: lock }, ids)))
    }

    /// Deletes the ids and the lock file. Blocks.
    ///
    /// # Errors
    /// A file cannot be deleted.
    pub(super) fn delete(&self) -> io::Result<()> {
        fs::remove_file(&self.path)?;
        // The lock is held until this value is dropped, so no other process writes ids meanwhile.
        fs::remove_file(&self.lock_path)
    }

    /// Adds the id of a task that is done. Blocks.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn append(&mut self, id: Uuid) -> io::Result<()> {
        self.file.write_all(line(id, unix_time()).as_bytes())?;
        self.lines += 1;
        // Each rewrite follows as many appended lines as it keeps.
        if self.lines > self.retention.max_ids.saturating_mul(2) {
            let ids = read_ids(&self.path, self.retention)?;
            self.file = rewrite(&self.path, &ids)?;
            self.lines = ids.len();
        }
        Ok(())
    }
}

fn open_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.create(true).mode(0o600);
    options
}

fn line(id: Uuid, finished_at: Duration) -> String {
    format!("{} {id}\n", finished_at.as_secs())
}

/// Reads the ids to keep. A line that a killed process wrote in part is skipped.
fn read_ids(path: &Path, retention: Retention) -> io::Result<Vec<FinishedTask>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let max_bytes = (retention.max_ids as u64).saturating_mul(3).saturating_mul(MAX_LINE_BYTES);
    let now = unix_time();
    let parse = |line: &str| -> Option<FinishedTask> {
        let (seconds, id) = line.split_once(' ')?;
        let age = now.saturating_sub(Duration::from_secs(seconds.parse().ok()?));
        (age < retention.ttl).then_some((Uuid::parse_str(id).ok()?, age))
    };
    let mut ids = Vec::new();
    for line in BufReader::new(io::Read::take(file, max_bytes)).split(b'\n') {
        ids.extend(std::str::from_utf8(&line?).ok().and_then(parse));
    }
    ids.drain(..ids.len().saturating_sub(retention.max_ids));
    Ok(ids)
}

/// Replaces the file by one with these ids, and returns it, opened for appending.
fn rewrite(path: &Path, ids: &[FinishedTask]) -> io::Result<File> {
    let temporary = path.with_extension("tasks.new");
    let mut writer = BufWriter::new(open_options().write(true).truncate(true).open(&temporary)?);
    let now = unix_time();
    for (id, age) in ids {
        writer.write_all(line(*id, now.saturating_sub(*age)).as_bytes())?;
    }
    writer.into_inner().map_err(io::IntoInnerError::into_error)?.sync_data()?;
    fs::rename(&temporary, path)?;
    OpenOptions::new().append(true).open(path)
}

/// Returns whether `file` is the one at `path`: it was neither deleted nor replaced. Blocks on the file system.
///
/// # Errors
/// The metadata of `file` cannot be read.
fn file_matches_path(file: &File, path: &Path) -> io::Result<bool> {
    let identity = |metadata: Metadata| (metadata.dev(), metadata.ino());
    let opened = file.metadata().map(identity)?;
    Ok(fs::metadata(path).map(identity).is_ok_and(|present| present == opened))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RETENTION: Retention = Retention { max_ids: 3, ttl: Duration::from_secs(60) };

    fn open(folder: &Path) -> (TaskIdFile, Vec<Uuid>) {
        let (file, ids) = TaskIdFile::open(folder, "a", RETENTION).unwrap().unwrap();
        (file, ids.into_iter().map(|(id, _)| id).collect())
    }

    #[test]
    fn r125_r161_finished_tasks_are_known_to_the_next_process_within_the_bounds() {
        let folder = tempfile::TempDir::new().unwrap();
        let ids: Vec<Uuid> = (0..20).map(|_| Uuid::new_v4()).collect();
        let (mut file, known) = open(folder.path());
        assert!(known.is_empty());
        for id in &ids {
            file.append(*id).unwrap();
            assert!(file.lines <= 2 * RETENTION.max_ids);
        }
        drop(file);
        assert_eq!(open(folder.path()).1, ids[17..]);
        let expired = format!("{} {}\n", unix_time().as_secs() - 61, Uuid::new_v4());
        std::fs::write(folder.path().join("a.tasks"), expired).unwrap();
        assert!(open(folder.path()).1.is_empty());
    }

    #[test]
    fn r161_a_line_that_a_kill_cut_off_harms_no_other_line() {
        let folder = tempfile::TempDir::new().unwrap();
        let (whole, cut, later) = (Uuid::new_v4(), Uuid::new_v4(), Uuid::new_v4());
        let text = format!("{}\u{0}\nnonsense\n{}", line(whole, unix_time()), &line(cut, unix_time())[..20]);
        std::fs::write(folder.path().join("a.tasks"), text).unwrap();
        let (mut file, known) = open(folder.path());
        assert_eq!(known, [whole]);
        file.append(later).unwrap();
        drop(file);
        assert_eq!(open(folder.path()).1, [whole, later]);
    }

    #[test]
    fn r161_of_two_processes_one_has_the_file_at_a_time() {
        let folder = tempfile::TempDir::new().unwrap();
        let (first, _) = open(folder.path());
        assert!(TaskIdFile::open(folder.path(), "a", RETENTION).unwrap().is_none());
        assert!(TaskIdFile::open(folder.path(), "b", RETENTION).unwrap().is_some());
        drop(first);
        open(folder.path());
    }

    #[test]
    fn r161_a_deleted_file_leaves_nothing_and_a_lock_on_it_counts_for_nobody() {
        let folder = tempfile::TempDir::new().unwrap();
        let (mut file, _) = open(folder.path());
        file.append(Uuid::new_v4()).unwrap();
        let lock_path = folder.path().join("a.lock");
        let stale = open_options().append(true).open(&lock_path).unwrap();
        file.delete().unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        assert!(!file_matches_path(&stale, &lock_path).unwrap());
        let (_successor, known) = open(folder.path());
        assert!(known.is_empty() && !file_matches_path(&stale, &lock_path).unwrap());
    }
}
