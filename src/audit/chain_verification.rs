//! Verification of the chain over all files of a log: names the first line that was changed, removed, moved or cut off.

use super::{
    anchor_file::{Anchor, SignedPosition, read_anchor},
    audit_entry::AuditAction,
    audit_line::{ChainPosition, FIRST_PREV, MAX_LINE_BYTES, StoredLine, hash_line},
    audit_log::CHECKPOINT_TYPE,
    chained_file::{list_renamed_files, parse_number, read_first_line},
    head_file::{head_path, with_position_of},
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
    /// The last line that the anchor knows; `None` without an anchor.
    pub anchored_up_to: Option<u64>,
    /// What is not proven, each with the reason.
    pub unproven: Vec<String>,
}

/// What a verification needs besides the files.
#[derive(Debug, Default)]
pub struct ChainVerification {
    /// Keys of the checkpoints; without them signatures are not verified.
    pub keys: Option<TrustedKeys>,
    /// A line that the chain must have.
    pub known_line: Option<KnownLine>,
    /// The anchor of the log.
    pub anchor_file: Option<PathBuf>,
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
            let added = snapshot.add(path, self.anchor_file.as_deref());
            added.map_err(|why| format!("{}: cannot be read ({why})", path.display()))?;
        }
        snapshot.files.sort_by_key(|file| file.first_sequence);
        // Without the current file the anchor was not read yet.
        let unread = self.anchor_file.as_deref().filter(|_| snapshot.anchor.is_none()).map(read_anchor);
        let anchor = snapshot.anchor.or(unread).transpose()?;
        self.check_anchor(anchor.as_ref())?;
        let mut walk = ChainWalk::new(self, LogEnds { head: snapshot.head, head_file: snapshot.head_file, anchor });
        for file in &snapshot.files {
            file.check_name()?;
            if !walk.read_file(file, deadline)? {
                return Ok(None);
            }
        }
        walk.finish(snapshot.files.len()).map(Some)
    }

    /// Checks the signature in the anchor.
    fn check_anchor(&self, anchor: Option<&Anchor>) -> Result<(), String> {
        let checkpoint = anchor.and_then(|anchor| anchor.checkpoint.as_ref());
        let (Some(keys), Some(SignedPosition { position, signature })) = (&self.keys, checkpoint) else {
            return Ok(());
        };
        let claims = SignedClaims::verify(keys, signature);
        let claims = claims.ok_or("the checkpoint of the anchor is not signed with a trusted key")?;
        let is_of_line = claims.position.as_ref() == Some(position);
        is_of_line
            .then_some(())
            .ok_or_else(|| "the checkpoint of the anchor has the signature of another line".to_owned())
    }
}

/// What the signature of a checkpoint or a pruning is over.
struct SignedClaims {
    /// The line before, and thus all lines before.
    position: Option<ChainPosition>,
    /// The hash of the last line that was deleted.
    before: Option<String>,
}

impl SignedClaims {
    /// Returns the claims; `None` if no trusted key has signed them.
    fn verify(keys: &TrustedKeys, signature: &str) -> Option<Self> {
        let signature = Some(signature).filter(|text| text.len() <= MAX_SIGNATURE_CHARS)?;
        let claims = keys.verify_claims(CHECKPOINT_TYPE, signature).ok()?;
        let text = |name: &str| claims.get(name).and_then(|value| value.as_str()).map(str::to_owned);
        let sequence = claims.get("sequence").and_then(|sequence| sequence.as_u64());
        let position = sequence.zip(text("hash")).map(|(sequence, hash)| ChainPosition { sequence, hash });
        Some(Self { position, before: text("before") })
    }
}

/// The files at one moment.
#[derive(Default)]
struct LogSnapshot {
    files: Vec<FileSnapshot>,
    head: Option<ChainPosition>,
    /// Where the head belongs; `None` without the current file.
    head_file: Option<PathBuf>,
    anchor: Option<Result<Anchor, String>>,
}

struct FileSnapshot {
    path: PathBuf,
    length: u64,
    /// The number of the first line; 0 if there is none, or it cannot be read.
    first_sequence: u64,
}

impl LogSnapshot {
    fn add(&mut self, path: &Path, anchor_file: Option<&Path>) -> io::Result<()> {
        let read_length = || fs::metadata(path).map(|metadata| metadata.len());
        let length = if number_in_name(path).is_some() {
            read_length()
        } else {
            // Under the lock, so that the three belong together.
            let read = |position| (position, read_length(), anchor_file.map(read_anchor));
            let (position, length, anchor) = with_position_of(path, read)?;
            (self.head, self.anchor) = (position.or(self.head.take()), anchor);
            self.head_file = Some(head_path(path));
            length
        };
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

/// What is known of the end of the log besides its lines.
struct LogEnds {
    head: Option<ChainPosition>,
    head_file: Option<PathBuf>,
    anchor: Option<Anchor>,
}

impl LogEnds {
    /// Returns the lines that are known, each with what knows it.
    fn known_lines(&self) -> impl Iterator<Item = (&'static str, &ChainPosition)> {
        let anchor = self.anchor.as_ref();
        let checkpoint = anchor.and_then(|anchor| anchor.checkpoint.as_ref()).map(|checkpoint| &checkpoint.position);
        let known = [
            ("the head of the log", self.head.as_ref()),
            ("the anchor", anchor.map(|anchor| &anchor.head)),
            ("the checkpoint of the anchor", checkpoint),
        ];
        known.into_iter().filter_map(|(source, position)| Some((source, position?)))
    }
}

/// The entry that says that the files before the first line were deleted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StartProof {
    Unsigned,
    NotVerified,
    Signed,
}

/// The walk over the lines.
struct ChainWalk<'a> {
    verification: &'a ChainVerification,
    ends: LogEnds,
    /// The last line.
    last: Option<(ChainPosition, LinePlace)>,
    lines: u64,
    first_sequence: u64,
    /// What the first line refers to, if files before it were deleted and no entry has said so yet.
    unproved_start: Option<(String, LinePlace)>,
    start_proof: StartProof,
    signed_up_to: Option<u64>,
    known_line_found: bool,
}

impl<'a> ChainWalk<'a> {
    fn new(verification: &'a ChainVerification, ends: LogEnds) -> Self {
        Self {
            verification,
            ends,
            last: None,
            lines: 0,
            first_sequence: 0,
            unproved_start: None,
            // Nothing was deleted before line 1.
            start_proof: StartProof::Signed,
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
        let is_other = |known: &ChainPosition| known.sequence == position.sequence && known.hash != position.hash;
        if let Some((source, _)) = self.ends.known_lines().find(|(_, known)| is_other(known)) {
            let sequence = position.sequence;
            return Err(place.problem(&format!("line {sequence} was changed: {source} has another hash of it")));
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
        let is_pruning = stored.action == AuditAction::LogPruned.name();
        let proves_start =
            is_pruning && self.unproved_start.as_ref().is_some_and(|(prev, _)| stored.before.as_ref() == Some(prev));
        let is_checkpoint = stored.action == AuditAction::Checkpoint.name();
        let keys = self.verification.keys.as_ref();
        // An unsigned pruning of files that are there again, or were deleted before another pruning, proves nothing.
        let needs_signature = is_checkpoint || proves_start || (is_pruning && stored.signature.is_some());
        if let Some(keys) = keys.filter(|_| needs_signature) {
            check_signature(keys, stored, place)?;
            self.signed_up_to = stored.sequence.checked_sub(1);
        }
        if proves_start {
            self.unproved_start = None;
            self.start_proof = match (keys, &stored.signature) {
                (Some(_), _) => StartProof::Signed,
                (None, Some(_)) => StartProof::NotVerified,
                (None, None) => StartProof::Unsigned,
            };
        }
        Ok(())
    }

    fn finish(self, files: usize) -> Result<ChainProof, String> {
        let furthest = self.ends.known_lines().max_by_key(|(_, known)| known.sequence);
        let Some((last, place)) = &self.last else {
            let missing = furthest.map(|(_, known)| format!("{} missing: ", lines_text(1, known.sequence)));
            return Err(format!("{}the files have no line", missing.unwrap_or_default()));
        };
        if let Some((_, place)) = &self.unproved_start {
            let missing = lines_text(1, self.first_sequence - 1);
            return Err(place.problem(&format!(
                "{missing} missing before line {} (name the earlier files too)",
                self.first_sequence
            )));
        }
        if let Some((source, known)) = furthest.filter(|(_, known)| known.sequence > last.sequence) {
            let missing = lines_text(last.sequence + 1, known.sequence);
            return Err(place.problem(&format!("{missing} missing at the end: {source} knows line {}", known.sequence)));
        }
        if let Some(known) = self.verification.known_line.as_ref().filter(|_| !self.known_line_found) {
            return Err(place.problem(&format!("line {}, which is known, is missing", known.sequence)));
        }
        self.check_ends(place)?;
        if self.verification.keys.is_some() && self.signed_up_to.is_none() {
            return Err(place.problem("no checkpoint is signed"));
        }
        Ok(ChainProof {
            files,
            lines: self.lines,
            first_sequence: self.first_sequence,
            last: KnownLine { sequence: last.sequence, hash: last.hash.clone() },
            signed_up_to: self.signed_up_to,
            anchored_up_to: self.ends.anchor.as_ref().map(|anchor| anchor.head.sequence),
            unproven: self.unproven(last.sequence),
        })
    }

    /// The head says where the log ends. Only a line that is known from elsewhere makes up for it. The anchor knows the last
    /// line, so that the first line cannot come after it.
    fn check_ends(&self, place: &LinePlace) -> Result<(), String> {
        if let Some(anchor) = self.ends.anchor.as_ref().filter(|anchor| anchor.head.sequence < self.first_sequence) {
            return Err(place.problem(&format!(
                "line {}, which the anchor knows, is missing: the log begins with line {}",
                anchor.head.sequence, self.first_sequence
            )));
        }
        match (&self.ends.head, &self.ends.head_file) {
            (None, _) if self.known_line_found => Ok(()),
            (None, Some(file)) => Err(format!(
                "{}: the head of the log is missing or broken, so that lines at the end may be missing (restore it, or give --known-line)",
                file.display()
            )),
            (None, None) => Err(place.problem(
                "the head of the log is missing, because the current file is not named: lines at the end may be missing (name it too, or give --known-line)",
            )),
            (Some(_), _) => Ok(()),
        }
    }

    /// Returns what the verification could not know.
    fn unproven(&self, last_sequence: u64) -> Vec<String> {
        let pruned = |entry: &str| {
            format!("the beginning is not proven: lines before {} were pruned by {entry}", self.first_sequence)
        };
        let start = match self.start_proof {
            StartProof::Signed => None,
            StartProof::NotVerified => Some(pruned("an entry whose signature was not verified")),
            StartProof::Unsigned => Some(pruned("an unsigned entry")),
        };
        let keys = self.verification.keys.is_none().then(|| {
            "signatures not verified: there is no key (directory.signing_key of --config, or --jwks)".to_owned()
        });
        let end = match self.ends.anchor.as_ref().map(|anchor| anchor.head.sequence) {
            None => Some("the end is not proven: lines may have been cut off together with the head (audit.anchor_file or --anchor knows the end from elsewhere)".to_owned()),
            Some(sequence) if sequence < last_sequence => {
                Some(format!("the end is not proven: lines after {sequence} are not in the anchor"))
            }
            Some(_) => None,
        };
        [keys, start, end].into_iter().flatten().collect()
    }
}

/// Checks the signature of a checkpoint or a pruning: it is over the line before it, and over what the pruning says.
fn check_signature(keys: &TrustedKeys, stored: &StoredLine, place: &LinePlace) -> Result<(), String> {
    let name = if stored.action == AuditAction::LogPruned.name() { "pruning" } else { "checkpoint" };
    let claims = stored.signature.as_deref().and_then(|signature| SignedClaims::verify(keys, signature));
    let claims = claims.ok_or_else(|| place.problem(&format!("the {name} is not signed with a trusted key")))?;
    let previous = ChainPosition { sequence: stored.sequence.saturating_sub(1), hash: stored.prev.clone() };
    if claims.position.as_ref() != Some(&previous) || claims.before != stored.before {
        return Err(place
            .problem(&format!("the signature of the {name} is of another line (the lines before it were changed)")));
    }
    Ok(())
}

fn lines_text(first: u64, last: u64) -> String {
    if first == last { format!("line {first} is") } else { format!("lines {first} to {last} are") }
}
