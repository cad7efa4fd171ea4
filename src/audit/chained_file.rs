//! The files of the log: the current one, to which lines are appended under the lock of the head, and the renamed ones
//! before it. A renamed file has the number of its first line behind its name.

use super::{
    anchor_file::{AnchorFile, LogFiles, SignedPosition},
    audit_entry::AuditEntry,
    audit_line::{ChainPosition, MAX_LINE_BYTES, StoredLine, format_line, hash_line},
    head_file::{LockedHead, open_log_file},
};
use crate::telemetry::LogPrivacy;
use std::{
    ffi::OsStr,
    fs::{self, File},
    io::{self, BufRead as _, BufReader, Read as _},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    time::Duration,
};
use time::OffsetDateTime;

/// Digits of a number behind a file's name, so that names sort like numbers.
const NUMBER_DIGITS: usize = 12;

/// A log that this process has locked.
pub(super) struct LockedLog<'a> {
    path: &'a Path,
    head: LockedHead,
    anchor: Option<AnchorFile>,
    /// The last signature among the lines that are appended.
    checkpoint: Option<SignedPosition>,
    file: File,
    length: u64,
    position: ChainPosition,
    /// When the last line of the current file was written.
    last_time: Option<OffsetDateTime>,
}

impl<'a> LockedLog<'a> {
    /// Locks a log, and finds the position of its last line; `written` is the last line that this process has written. The
    /// rest of a line that a process did not complete is removed: it was never reported as written.
    ///
    /// # Errors
    /// A file cannot be opened or read, or another process holds the lock for too long.
    pub(super) fn open(
        files: &'a LogFiles,
        written: Option<&ChainPosition>,
        lock_timeout: Duration,
    ) -> io::Result<Self> {
        let path = &*files.log;
        let head = LockedHead::open(path, lock_timeout)?;
        let anchor = files.anchor.as_deref().map(AnchorFile::open).transpose()?;
        let file = open_log_file(path)?;
        let tail = Tail::read(&file)?;
        if tail.complete_length < tail.length {
            file.set_len(tail.complete_length)?;
        }
        let last = tail.last_line.as_deref().map(|line| (StoredLine::parse(line), hash_line(line)));
        let last_time = last.as_ref().and_then(|(line, _)| Some(line.as_ref()?.time));
        let anchored = anchor.as_ref().and_then(|anchor| anchor.anchor.as_ref()).map(|anchor| &anchor.head);
        // Of two that are of one line, the later one is harder to forge.
        let known_ends = [head.position.as_ref(), anchored, written].into_iter().flatten();
        let known_end = known_ends.max_by_key(|end| end.sequence).cloned();
        // The known end decides: where lines at the end were removed or changed, the next line shows it.
        let position = match (known_end, last) {
            (Some(end), Some((Some(line), hash))) if line.sequence > end.sequence => {
                // A process ended between its line and the head.
                ChainPosition { sequence: line.sequence, hash }
            }
            (Some(end), _) => end,
            (None, Some((line, hash))) => ChainPosition { sequence: line.map_or(0, |line| line.sequence), hash },
            (None, None) => last_position_of_renamed(path)?.unwrap_or_else(ChainPosition::start),
        };
        let (length, checkpoint) = (tail.complete_length, None);
        Ok(Self { path, head, anchor, checkpoint, file, length, position, last_time })
    }

    /// Writes the head and the anchor of a log with lines where they are missing or broken: the log is from a time without
    /// them, or they were removed.
    pub(super) fn restore_head_and_anchor(&mut self) {
        let has_anchor = self.anchor.as_ref().is_none_or(|anchor| anchor.anchor.is_some());
        if self.position.sequence == 0 || (self.head.position.is_some() && has_anchor) {
            return;
        }
        let (file, line) = (self.path.display(), self.position.sequence);
        tracing::warn!(%file, line, "head or anchor of the audit log was missing or broken, and is written anew: lines after this one may have been removed");
        self.write_head_and_anchor();
    }

    /// Returns the position of the last line.
    pub(super) fn position(&self) -> &ChainPosition {
        &self.position
    }

    /// Renames the current file and begins a new one, if the last line is of another day (UTC) or the file has its
    /// maximum size.
    ///
    /// # Errors
    /// The file cannot be renamed, or the new one cannot be created.
    pub(super) fn rotate_if_due(&mut self, now: OffsetDateTime, max_file_size: u64) -> io::Result<()> {
        let is_of_another_day = self.last_time.is_some_and(|last| last.date() != now.date());
        if !is_of_another_day && self.length < max_file_size {
            return Ok(());
        }
        let first = read_first_line(self.path)?.and_then(|line| StoredLine::parse(&line));
        let renamed = renamed_path(self.path, first.map_or(0, |line| line.sequence));
        if renamed.exists() {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("{} exists", renamed.display())));
        }
        fs::rename(self.path, renamed)?;
        self.file = open_log_file(self.path)?;
        (self.length, self.last_time) = (0, None);
        File::open(folder_of(self.path))?.sync_all()
    }

    /// Appends an entry. A line that was written in part is removed again.
    ///
    /// # Errors
    /// The line cannot be written.
    pub(super) fn append(&mut self, entry: &AuditEntry, privacy: &LogPrivacy) -> io::Result<()> {
        let line = format_line(entry, privacy, &self.position);
        let hash = hash_line(line.as_bytes());
        if let Err(why) = self.file.write_all_at(format!("{line}\n").as_bytes(), self.length) {
            let _ = self.file.set_len(self.length);
            return Err(why);
        }
        self.length += line.len() as u64 + 1;
        if let Some(signature) = entry.signature.clone() {
            self.checkpoint = Some(SignedPosition { position: self.position.clone(), signature });
        }
        self.position = ChainPosition { sequence: self.position.sequence + 1, hash };
        self.last_time = Some(entry.time);
        Ok(())
    }

    /// Writes the lines to disk, and then the head and the anchor. A head that cannot be written is behind, which the next
    /// process notices.
    ///
    /// # Errors
    /// The disk did not take the lines.
    pub(super) fn commit(&mut self) -> io::Result<()> {
        self.file.sync_data()?;
        self.write_head_and_anchor();
        Ok(())
    }

    fn write_head_and_anchor(&mut self) {
        if let Err(why) = self.head.set_position(self.position.clone()) {
            tracing::warn!(error = %why, "head of the audit log not written: the next entry writes it");
        }
        if let Some(anchor) = &mut self.anchor
            && let Err(why) = anchor.set(self.position.clone(), self.checkpoint.take())
        {
            tracing::warn!(error = %why, "anchor of the audit log not written: the next entry writes it");
        }
    }
}

/// A renamed file of the log.
#[derive(Debug)]
pub(super) struct RenamedFile {
    pub(super) path: PathBuf,
    /// The number in its name.
    pub(super) first_sequence: u64,
    pub(super) size: u64,
}

impl RenamedFile {
    /// Returns the last line and its hash.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn last_line(&self) -> io::Result<Option<(StoredLine, String)>> {
        let tail = Tail::read(&File::open(&self.path)?)?;
        Ok(tail.last_line.and_then(|line| Some((StoredLine::parse(&line)?, hash_line(&line)))))
    }
}

/// Returns the renamed files of a log, the oldest first.
///
/// # Errors
/// The folder cannot be read.
pub(super) fn list_renamed_files(log: &Path) -> io::Result<Vec<RenamedFile>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder_of(log))? {
        let path = entry?.path();
        let Some(first_sequence) = number_behind(log, &path) else { continue };
        let size = fs::symlink_metadata(&path)?.len();
        files.push(RenamedFile { path, first_sequence, size });
    }
    files.sort_by_key(|file| file.first_sequence);
    Ok(files)
}

/// Returns the number in the name of a renamed file of a log.
fn number_behind(log: &Path, path: &Path) -> Option<u64> {
    let name = path.file_name().and_then(OsStr::to_str)?;
    let digits = name.strip_prefix(log.file_name().and_then(OsStr::to_str)?)?.strip_prefix('.')?;
    parse_number(digits)
}

/// Parses the digits behind the name of a renamed file.
pub(super) fn parse_number(digits: &str) -> Option<u64> {
    let is_number = digits.len() == NUMBER_DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| is_number)
}

fn renamed_path(log: &Path, first_sequence: u64) -> PathBuf {
    let mut name = log.as_os_str().to_owned();
    name.push(format!(".{first_sequence:0NUMBER_DIGITS$}"));
    PathBuf::from(name)
}

/// Returns the folder of a file.
pub(super) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn last_position_of_renamed(log: &Path) -> io::Result<Option<ChainPosition>> {
    let files = list_renamed_files(log)?;
    let last = files.last().map(RenamedFile::last_line).transpose()?.flatten();
    Ok(last.map(|(line, hash)| ChainPosition { sequence: line.sequence, hash }))
}

/// Returns the first line of a file, without its line feed; `None` if the file is empty.
///
/// # Errors
/// The file cannot be read.
pub(super) fn read_first_line(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    BufReader::new(File::open(path)?).take(MAX_LINE_BYTES as u64).read_until(b'\n', &mut line)?;
    if line.last() == Some(&b'\n') {
        line.pop();
    }
    Ok(Some(line).filter(|line| !line.is_empty()))
}

/// The end of a file.
struct Tail {
    length: u64,
    /// The length up to the last line feed.
    complete_length: u64,
    /// The last complete line, without its line feed.
    last_line: Option<Vec<u8>>,
}

impl Tail {
    fn read(file: &File) -> io::Result<Self> {
        let length = file.metadata()?.len();
        // The last complete line, and the beginning of one that a process did not complete.
        let from = length.saturating_sub(2 * MAX_LINE_BYTES as u64);
        let mut bytes = vec![0; usize::try_from(length - from).unwrap_or_default()];
        file.read_exact_at(&mut bytes, from)?;
        let complete = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let incomplete_bytes = (bytes.len() - complete) as u64;
        bytes.truncate(complete.saturating_sub(1));
        let begin = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let last_line = (complete > 0).then(|| bytes.split_off(begin));
        Ok(Self { length, complete_length: length - incomplete_bytes, last_line })
    }
}
