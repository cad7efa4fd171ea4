//! Reads the newest entries of the log, from its end and within bounds, for operators.

use super::{
    audit_line::MAX_LINE_BYTES,
    chained_file::{list_renamed_files, read_first_line},
};
use serde::Deserialize;
use std::{fs::File, io, os::unix::fs::FileExt as _, path::Path};

/// Maximum bytes that one page reads.
const MAX_BYTES_OF_PAGE: usize = 1 << 20;
/// Bytes that are read at once.
const CHUNK_BYTES: usize = 64 << 10;
/// Bytes in which the search for a line looks for one.
const PROBE_BYTES: usize = 2 * MAX_LINE_BYTES;

/// Which entries are read.
#[derive(Clone, Debug, Default)]
pub struct AuditQuery {
    /// Only entries before the one with this number.
    pub before: Option<u64>,
    /// Only entries with this action.
    pub action: Option<String>,
    /// Only entries whose actor contains this text.
    pub actor: Option<String>,
    /// Only entries with this outcome.
    pub outcome: Option<String>,
    /// Maximum number of entries.
    pub limit: usize,
}

impl AuditQuery {
    fn selects(&self, entry: &StoredEntry) -> bool {
        let is_wanted = |wanted: &Option<String>, found: &str| wanted.as_ref().is_none_or(|wanted| *wanted == *found);
        is_wanted(&self.action, &entry.action)
            && is_wanted(&self.outcome, &entry.outcome)
            && self.actor.as_ref().is_none_or(|actor| entry.actor.contains(&**actor))
    }
}

/// An entry as it is in the log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct StoredEntry {
    /// The number of the line.
    pub sequence: u64,
    /// When the change was made, in RFC 3339.
    pub time: String,
    /// Who made it, or a pseudonym.
    pub actor: String,
    /// What was done.
    pub action: String,
    /// What was changed.
    pub subject: String,
    /// The caller that the change concerns, or a pseudonym.
    #[serde(default)]
    pub caller: Option<String>,
    /// The id of the request that made the change.
    #[serde(default)]
    pub request_id: Option<String>,
    /// The address from which the request came.
    #[serde(default)]
    pub address: Option<String>,
    /// How the change ended.
    pub outcome: String,
    /// The reason of a refusal, or more about the change.
    #[serde(default)]
    pub detail: Option<String>,
}

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditLine {
    /// An entry.
    Entry(Box<StoredEntry>),
    /// A line that is no entry, in the file with this name.
    Broken(String),
}

/// Entries of the log, the newest first.
#[derive(Clone, Debug, Default)]
pub struct AuditPage {
    /// The lines: entries that the query selects, and lines that are no entries.
    pub lines: Vec<AuditLine>,
    /// Entries before the one with this number were not read.
    pub next: Option<u64>,
}

/// Reads the newest entries of a log that the query selects. Reads at most 1 MiB, so that a page of a rare kind of entry
/// may have few of them and continue. Blocks.
///
/// # Errors
/// A file or the folder cannot be read.
pub fn read_newest(log: &Path, query: &AuditQuery) -> io::Result<AuditPage> {
    let mut reader = PageReader { query, upper: query.before, budget: MAX_BYTES_OF_PAGE, page: AuditPage::default() };
    // The current file first: where it is renamed meanwhile, its entries are not read twice.
    if reader.read_file(log)? {
        for renamed in list_renamed_files(log)?.into_iter().rev() {
            let is_before = reader.upper.is_none_or(|upper| renamed.first_sequence < upper);
            if is_before && !reader.read_file(&renamed.path)? {
                break;
            }
        }
    }
    Ok(reader.page)
}

struct PageReader<'a> {
    query: &'a AuditQuery,
    /// The number of the oldest entry that was read, or where the page begins.
    upper: Option<u64>,
    budget: usize,
    page: AuditPage,
}

impl PageReader<'_> {
    /// Reads a file from its end. Returns whether the page goes on with the file before.
    fn read_file(&mut self, path: &Path) -> io::Result<bool> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(true),
            Err(why) => return Err(why),
        };
        let first = read_first_line(path)?.and_then(|line| parse(&line)).map(|entry| entry.sequence);
        if first.zip(self.upper).is_some_and(|(first, upper)| first >= upper) {
            return Ok(true);
        }
        let length = file.metadata()?.len();
        let end = match self.upper {
            Some(upper) => self.find_end(&file, length, upper)?,
            None => length,
        };
        let mut lines = BackwardLines { file, position: end, unread: Vec::new(), is_at_end: true };
        loop {
            let line = match lines.next_line(&mut self.budget)? {
                BackwardLine::Line(line) => line,
                BackwardLine::Start => return Ok(true),
                BackwardLine::OutOfBudget => {
                    self.page.next = self.upper;
                    return Ok(false);
                }
            };
            if !self.add_line(&line, path) {
                return Ok(false);
            }
        }
    }

    /// Adds a line to the page if it belongs there. Returns whether there is room for more.
    fn add_line(&mut self, line: &[u8], path: &Path) -> bool {
        let is_full = self.page.lines.len() >= self.query.limit;
        match parse(line) {
            Some(entry) if self.upper.is_some_and(|upper| entry.sequence >= upper) => return true,
            _ if is_full => {
                self.page.next = self.upper;
                return false;
            }
            Some(entry) => {
                self.upper = Some(entry.sequence);
                if self.query.selects(&entry) {
                    self.page.lines.push(AuditLine::Entry(Box::new(entry)));
                }
            }
            None => {
                let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
                self.page.lines.push(AuditLine::Broken(name));
            }
        }
        true
    }

    /// Returns an offset in a file behind the entries before the one with the number `upper`, and close to them.
    fn find_end(&mut self, file: &File, length: u64, upper: u64) -> io::Result<u64> {
        let (mut low, mut high) = (0, length);
        while high - low > CHUNK_BYTES as u64 {
            let middle = low + (high - low) / 2;
            let mut probe = vec![0; PROBE_BYTES.min(usize::try_from(length - middle).unwrap_or(PROBE_BYTES))];
            file.read_exact_at(&mut probe, middle)?;
            self.budget = self.budget.saturating_sub(probe.len());
            let Some((offset, sequence)) = first_entry(&probe) else { break };
            let offset = middle + offset as u64;
            if sequence < upper {
                low = offset;
            } else if offset < high {
                high = offset;
            } else {
                break;
            }
        }
        Ok(high)
    }
}

/// Returns the offset and the number of the first entry that begins behind a line feed.
fn first_entry(probe: &[u8]) -> Option<(usize, u64)> {
    let mut offset = 0;
    for line in probe.split_inclusive(|byte| *byte == b'\n') {
        if offset > 0
            && let Some(entry) = line.strip_suffix(b"\n").and_then(parse)
        {
            return Some((offset, entry.sequence));
        }
        offset += line.len();
    }
    None
}

fn parse(line: &[u8]) -> Option<StoredEntry> {
    serde_json::from_slice(line).ok()
}

/// The lines of a file from an offset towards its start.
struct BackwardLines {
    file: File,
    /// The offset of the bytes that were read.
    position: u64,
    /// Bytes from `position` on that belong to no line yet.
    unread: Vec<u8>,
    is_at_end: bool,
}

enum BackwardLine {
    Line(Vec<u8>),
    Start,
    OutOfBudget,
}

impl BackwardLines {
    /// Returns the line before, without its line feed. What a process has not completed at the end is left out.
    fn next_line(&mut self, budget: &mut usize) -> io::Result<BackwardLine> {
        loop {
            if let Some(at) = self.unread.iter().rposition(|byte| *byte == b'\n') {
                let line = self.unread.split_off(at + 1);
                self.unread.truncate(at);
                if std::mem::take(&mut self.is_at_end) {
                    continue;
                }
                return Ok(BackwardLine::Line(line));
            }
            let is_too_long = self.unread.len() > MAX_LINE_BYTES;
            if is_too_long || self.position == 0 {
                let line = std::mem::take(&mut self.unread);
                let is_no_line = line.is_empty() || std::mem::take(&mut self.is_at_end);
                if !is_no_line {
                    return Ok(BackwardLine::Line(line));
                }
                if self.position == 0 {
                    return Ok(BackwardLine::Start);
                }
            }
            if *budget == 0 {
                return Ok(BackwardLine::OutOfBudget);
            }
            self.read_chunk(budget)?;
        }
    }

    fn read_chunk(&mut self, budget: &mut usize) -> io::Result<()> {
        let length = CHUNK_BYTES.min(usize::try_from(self.position).unwrap_or(CHUNK_BYTES));
        let mut chunk = vec![0; length];
        self.position -= length as u64;
        self.file.read_exact_at(&mut chunk, self.position)?;
        *budget = budget.saturating_sub(length);
        chunk.append(&mut self.unread);
        self.unread = chunk;
        Ok(())
    }
}

/// Returns the size of a log: the files and their bytes.
///
/// # Errors
/// The folder cannot be read.
pub fn measure_log(log: &Path) -> io::Result<LogSize> {
    let renamed = list_renamed_files(log)?;
    let current = std::fs::metadata(log).map_or(0, |metadata| metadata.len());
    let bytes = renamed.iter().map(|file| file.size).sum::<u64>() + current;
    Ok(LogSize { files: renamed.len() + 1, bytes })
}

/// The size of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSize {
    /// Number of files.
    pub files: usize,
    /// Bytes of all files.
    pub bytes: u64,
}
