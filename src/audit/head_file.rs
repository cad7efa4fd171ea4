//! The head of the log: a small file beside it with the number and the hash of the last line. It is the lock of all
//! processes that write, and shows that lines at the end are missing.

use super::audit_line::{ChainPosition, has_successor};
use rustix::fs::OFlags;
use serde::{Serialize, de::DeserializeOwned};
use std::{
    ffi::OsString,
    fs::{File, OpenOptions, TryLockError},
    io::{self, Read as _},
    os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _, fchown},
    path::{Path, PathBuf},
    thread::sleep,
    time::{Duration, Instant},
};

/// How long a process waits for another one that writes.
pub(super) const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(5);
/// Maximum bytes of a head or an anchor.
const MAX_JSON_FILE_BYTES: u64 = 8 << 10;

/// Returns the path of the head of a log.
pub(super) fn head_path(log: &Path) -> PathBuf {
    let mut name = OsString::from(log);
    name.push(".head");
    PathBuf::from(name)
}

/// The head, locked until this value is dropped.
pub(super) struct LockedHead {
    file: File,
    /// The position of the last line; `None` while there is none, or it cannot be read.
    pub(super) position: Option<ChainPosition>,
}

impl LockedHead {
    /// Opens and locks the head of a log for writing; a new one is created. Blocks, and waits for another process for at
    /// most `lock_timeout`.
    ///
    /// # Errors
    /// It cannot be opened, or another process holds the lock for too long.
    #[expect(clippy::disallowed_methods, reason = "only threads that may block write the log")]
    pub(super) fn open(log: &Path, lock_timeout: Duration) -> io::Result<Self> {
        let file = open_log_file(&head_path(log))?;
        let deadline = Instant::now() + lock_timeout;
        while let Err(why) = file.try_lock() {
            match why {
                TryLockError::Error(why) => return Err(why),
                TryLockError::WouldBlock if Instant::now() >= deadline => {
                    return Err(io::Error::new(io::ErrorKind::TimedOut, "another process holds the lock"));
                }
                TryLockError::WouldBlock => sleep(LOCK_RETRY_INTERVAL),
            }
        }
        let position = read_position(&file);
        Ok(Self { file, position })
    }

    /// Writes the position of the last line.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn set_position(&mut self, position: ChainPosition) -> io::Result<()> {
        write_json_file(&self.file, &position)?;
        self.position = Some(position);
        Ok(())
    }
}

/// Reads the head of a log, under its lock, and calls `read` meanwhile. `None` where there is no head.
///
/// # Errors
/// As [`LockedHead::open`].
pub(super) fn with_position_of<T>(log: &Path, read: impl FnOnce(Option<ChainPosition>) -> T) -> io::Result<T> {
    let file = match File::open(head_path(log)) {
        Ok(file) => file,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(read(None)),
        Err(why) => return Err(why),
    };
    file.lock_shared()?;
    let position = read_position(&file);
    Ok(read(position))
}

fn read_position(file: &File) -> Option<ChainPosition> {
    let position: Option<ChainPosition> = read_json_file(file);
    position.filter(|position| has_successor(position.sequence))
}

/// Reads a small file with one JSON object; `None` if it is empty or broken.
pub(super) fn read_json_file<T: DeserializeOwned>(mut file: &File) -> Option<T> {
    let mut text = String::new();
    file.by_ref().take(MAX_JSON_FILE_BYTES).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

/// Replaces the content of a small file by one JSON object.
///
/// # Errors
/// The file cannot be written.
pub(super) fn write_json_file(file: &File, content: &impl Serialize) -> io::Result<()> {
    let text = format!("{}\n", serde_json::to_string(content)?);
    file.write_all_at(text.as_bytes(), 0)?;
    file.set_len(text.len() as u64)
}

/// Opens a file of the log to append, and creates it with the owner of its folder, so that a command of another user
/// does not lock the gateway out. A symbolic link is refused.
///
/// # Errors
/// The file cannot be opened.
pub(super) fn open_log_file(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::CLOEXEC).bits().cast_signed();
    // Not world-readable: entries name callers.
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o640).custom_flags(flags);
    match options.open(path) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => {}
        opened => return opened,
    }
    let file = options.create(true).truncate(false).open(path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let (own, folder) = (file.metadata()?, folder.metadata()?);
    if own.uid() != folder.uid() {
        // Only the superuser may, and only then it is needed.
        let _ = fchown(&file, Some(folder.uid()), Some(folder.gid()));
    }
    Ok(file)
}
