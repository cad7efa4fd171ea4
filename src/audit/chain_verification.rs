//! Verification of the chain over all files of a log: names the first line that was changed, removed, moved or cut off.

use super::{
    audit_entry::AuditAction,
    audit_line::{ChainPosition, FIRST_PREV, MAX_LINE_BYTES, StoredLine, hash_line},
    audit_log::CHECKPOINT_TYPE,
    chained_file::{list_renamed_files, parse_number, read_first_line},
    head_file::with_position_of,
};
use crate::signing::TrustedKeys;
use std::{
    fs::{self, File},
    io::{self, BufRead as _, BufReader, Read as _},
    path::{Path, PathBuf},
    time::Instant,
};

/// Maximum characters of a signature.
const MAX_SIGNATURE_CHARS: usize = 4_096;
/// After how many lines a verification looks at the clock.
const LINES_PER_CLOCK: u64 = 1_024;

/// A line that is known from elsewhere, such as a note of an earlier verification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownLine {
    /// The number of the line.
    pub sequence: u64,
    /// Its SHA-256.
    pub hash: String,
}

impl std::str::FromStr for KnownLine {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text.split_once(':').and_then(|(sequence, hash)| Some((sequence.parse().ok()?, hash)));
        let is_hash = |hash: &str| hash.len() == FIRST_PREV.len() && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
        match parsed {
            Some((sequence, hash)) if is_hash(hash) => Ok(Self { sequence, hash: hash.to_ascii_lowercase() }),
            _ => Err("must be a line's number and its SHA-256, as NUMBER:HASH".to_owned()),
        }
    }
}

/// What the chain proves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainProof {
    /// Number of files.
    pub files: usize,
    /// Number of lines.
    pub lines: u64,
    /// The number of the first line: 1, or more if earlier files were deleted after their retention.
    pub first_sequence: u64,
    /// The number and the hash of the last line, to note elsewhere.
    pub last: KnownLine,
    /// The last line that a checkpoint covers with a valid signature; `None` without keys.
    pub signed_up_to: Option<u64>,
    /// Whether the head of the log says that no line is missing at the end.
    pub has_head: bool,
}

/// What a verification needs besides the files.
#[derive(Debug, Default)]
pub struct ChainVerification {
    /// Keys of the checkpoints; without them signatures are not verified.
    pub keys: Option<TrustedKeys>,
    /// A line that the chain must have.
    pub known_line: Option<KnownLine>,
}

/// Returns the files of a log: the renamed ones, the oldest first, and the current one.
///
/// # Errors
/// The folder cannot be read.
pub fn list_files(log: &Path) -> io::Result<Vec<PathBuf>> {
    let renamed = list_renamed_files(log)?;
    Ok(renamed.into_iter().map(|file| file.path).chain([log.to_owned()]).collect())
}

impl ChainVerification {
    /// Verifies the chain over `files`, in the order of their lines.
    ///
    /// # Errors
    /// The first broken line as `FILE:LINE: reason`, or a file that cannot be read.
    pub fn verify(&self, files: &[PathBuf]) -> Result<ChainProof, String> {
        let proof = self.verify_until(files, None)?;
        proof.ok_or_else(|| "the verification was not completed".to_owned())
    }

    /// As [`ChainVerification::verify`]; `None` if it is not completed by `deadline`.
    ///
    /// # Errors
    /// As [`ChainVerification::verify`].
    pub fn verify_until(&self, files: &[PathBuf], deadline: Option<Instant>) -> Result<Option<ChainProof>, String> {
        // The end as it is now: what other processes append meanwhile is not verified.
        let mut snapshot = LogSnapshot::default();
        for path in files {
            snapshot.add(path).map_err(|why| format!("{}: cannot be read ({why})", path.display()))?;
        }
        snapshot.files.sort_by_key(|file| file.first_sequence);
        let mut walk = ChainWalk::new(self, snapshot.head);
        for file in &snapshot.files {
            file.check_name()?;
            if !walk.read_file(file, deadline)? {
                return Ok(None);
            }
        }
        walk.finish(snapshot.files.len()).map(Some)
    }
}

/// The files at one moment.
#[derive(Default)]
struct LogSnapshot {
    files: Vec<FileSnapshot>,
    head: Option<ChainPosition>,
}

struct FileSnapshot {
    path: PathBuf,
    length: u64,
    /// The number of the first line; 0 if there is none, or it cannot be read.
    first_sequence: u64,
}

impl LogSnapshot {
    fn add(&mut self, path: &Path) -> io::Result<()> {
        let is_renamed = number_in_name(path).is_some();
        let read_file = |position: Option<ChainPosition>| (position, fs::metadata(path).map(|metadata| metadata.len()));
        let (position, length) = if is_renamed { read_file(None) } else { with_position_of(path, read_file)? };
        self.head = position.or(self.head.take());
        let first = read_first_line(path)?.and_then(|line| StoredLine::parse(&line));
        let first_sequence = first.map_or(u64::MAX, |line| line.sequence);
        self.files.push(FileSnapshot { path: path.to_owned(), length: length?, first_sequence });
        Ok(())
    }
}

fn number_in_name(path: &Path) -> Option<u64> {
    path.extension().and_then(|extension| extension.to_str()).and_then(parse_number)
}

impl FileSnapshot {
    /// A renamed file has the number of its first line in its name: files whose names were exchanged do not.
    fn check_name(&self) -> Result<(), String> {
        match number_in_name(&self.path) {
            Some(number) if number != self.first_sequence => {
                let found = match self.first_sequence {
                    u64::MAX => "has no line".to_owned(),
                    sequence => format!("begins with line {sequence}"),
                };
                Err(format!("{}:1: the file {found}, and its name says line {number}", self.path.display()))
            }
            _ => Ok(()),
        }
    }
}

/// A line in its file.
#[derive(Clone)]
struct LinePlace {
    file: PathBuf,
    line: u64,
}

impl LinePlace {
    fn problem(&self, why: &str) -> String {
        format!("{}:{}: {why}", self.file.display(), self.line)
    }
}

/// The walk over the lines.
struct ChainWalk<'a> {
    verification: &'a ChainVerification,
    head: Option<ChainPosition>,
    /// The last line.
    last: Option<(ChainPosition, LinePlace)>,
    lines: u64,
    first_sequence: u64,
    /// What the first line refers to, if files before it were deleted and no entry has said so yet.
    unproved_start: Option<(String, LinePlace)>,
    signed_up_to: Option<u64>,
    known_line_found: bool,
}

impl<'a> ChainWalk<'a> {
    fn new(verification: &'a ChainVerification, head: Option<ChainPosition>) -> Self {
        Self {
            verification,
            head,
            last: None,
            lines: 0,
            first_sequence: 0,
            unproved_start: None,
            signed_up_to: None,
            known_line_found: false,
        }
    }

    /// Reads a file. Returns whether it was read to its end by `deadline`.
    fn read_file(&mut self, file: &FileSnapshot, deadline: Option<Instant>) -> Result<bool, String> {
        let read_error = |why: io::Error| format!("{}: cannot be read ({why})", file.path.display());
        let mut reader = BufReader::new(File::open(&file.path).map_err(read_error)?.take(file.length));
        let (mut place, mut line) = (LinePlace { file: file.path.clone(), line: 0 }, Vec::new());
        loop {
            line.clear();
            if reader.by_ref().take(MAX_LINE_BYTES as u64).read_until(b'\n', &mut line).map_err(read_error)? == 0 {
                return Ok(true);
            }
            place.line += 1;
            if place.line.is_multiple_of(LINES_PER_CLOCK) && deadline.is_some_and(|deadline| Instant::now() >= deadline)
            {
                return Ok(false);
            }
            if line.pop() != Some(b'\n') {
                return Err(place.problem("the line is not complete (the file was cut off)"));
            }
            self.check_line(&line, &place)?;
        }
    }

    fn check_line(&mut self, line: &[u8], place: &LinePlace) -> Result<(), String> {
        let stored =
            StoredLine::parse(line).ok_or_else(|| place.problem("the line is not an entry of an audit log"))?;
        let position = ChainPosition { sequence: stored.sequence, hash: hash_line(line) };
        match &self.last {
            None => self.check_start(&stored, place)?,
            Some((previous, previous_place)) => {
                let expected = previous.sequence + 1;
                if stored.sequence > expected {
                    return Err(place.problem(&format!(
                        "{} missing before line {}",
                        lines_text(expected, stored.sequence - 1),
                        stored.sequence
                    )));
                }
                if stored.sequence < expected {
                    return Err(place.problem(&format!(
                        "line {} comes after line {} (lines were moved or repeated)",
                        stored.sequence, previous.sequence
                    )));
                }
                if stored.prev != previous.hash {
                    return Err(previous_place.problem(&format!(
                        "line {} was changed: line {expected} has another hash of it",
                        previous.sequence
                    )));
                }
            }
        }
        if let Some(head) = self.head.as_ref().filter(|head| head.sequence == position.sequence)
            && head.hash != position.hash
        {
            return Err(place.problem(&format!(
                "line {} was changed: the head of the log has another hash of it",
                position.sequence
            )));
        }
        if let Some(known) = self.verification.known_line.as_ref().filter(|known| known.sequence == position.sequence) {
            if known.hash != position.hash {
                return Err(place.problem(&format!("line {} is not the one that is known", position.sequence)));
            }
            self.known_line_found = true;
        }
        self.check_entry(&stored, place)?;
        self.lines += 1;
        self.last = Some((position, place.clone()));
        Ok(())
    }

    /// The first line is line 1, or an entry after it says that the files before it were deleted.
    fn check_start(&mut self, stored: &StoredLine, place: &LinePlace) -> Result<(), String> {
        self.first_sequence = stored.sequence;
        if stored.sequence == 1 && stored.prev != FIRST_PREV {
            return Err(place.problem("line 1 was changed: it refers to a line before it"));
        }
        if stored.sequence != 1 {
            self.unproved_start = Some((stored.prev.clone(), place.clone()));
        }
        Ok(())
    }

    fn check_entry(&mut self, stored: &StoredLine, place: &LinePlace) -> Result<(), String> {
        if stored.action == AuditAction::LogPruned.name()
            && self.unproved_start.as_ref().is_some_and(|(prev, _)| stored.before.as_ref() == Some(prev))
        {
            self.unproved_start = None;
        }
        let (Some(keys), true) = (&self.verification.keys, stored.action == AuditAction::Checkpoint.name()) else {
            return Ok(());
        };
        let signature = stored.signature.as_deref().filter(|text| text.len() <= MAX_SIGNATURE_CHARS);
        let claims = signature.and_then(|signature| keys.verify_claims(CHECKPOINT_TYPE, signature).ok());
        let claims = claims.ok_or_else(|| place.problem("the checkpoint is not signed with a trusted key"))?;
        let signs_previous = claims.get("hash").and_then(|hash| hash.as_str()) == Some(&stored.prev)
            && claims.get("sequence").and_then(|sequence| sequence.as_u64()) == stored.sequence.checked_sub(1);
        if !signs_previous {
            return Err(
                place.problem("the signature of the checkpoint is of another line (the lines before it were changed)")
            );
        }
        self.signed_up_to = stored.sequence.checked_sub(1);
        Ok(())
    }

    fn finish(self, files: usize) -> Result<ChainProof, String> {
        let (last, place) = match (self.last, &self.head) {
            (Some(last), _) => last,
            (None, Some(head)) => {
                return Err(format!("{} missing: the files have no line", lines_text(1, head.sequence)));
            }
            (None, None) => return Err("the files have no line".to_owned()),
        };
        if let Some((_, place)) = &self.unproved_start {
            let missing = lines_text(1, self.first_sequence - 1);
            return Err(place.problem(&format!(
                "{missing} missing before line {} (name the earlier files too)",
                self.first_sequence
            )));
        }
        if let Some(head) = self.head.as_ref().filter(|head| head.sequence > last.sequence) {
            return Err(place.problem(&format!("{} missing at the end", lines_text(last.sequence + 1, head.sequence))));
        }
        if let Some(known) = self.verification.known_line.as_ref().filter(|_| !self.known_line_found) {
            return Err(place.problem(&format!("line {}, which is known, is missing", known.sequence)));
        }
        if self.verification.keys.is_some() && self.signed_up_to.is_none() {
            return Err(place.problem("no checkpoint is signed"));
        }
        Ok(ChainProof {
            files,
            lines: self.lines,
            first_sequence: self.first_sequence,
            last: KnownLine { sequence: last.sequence, hash: last.hash },
            signed_up_to: self.signed_up_to,
            has_head: self.head.is_some(),
        })
    }
}

fn lines_text(first: u64, last: u64) -> String {
    if first == last { format!("line {first} is") } else { format!("lines {first} to {last} are") }
}
