//! Last known good: stores the agents of a remote source after a successful poll, in one file that is replaced
//! atomically. A file that is truncated, modified or of another source is rejected. The file's modification time is the
//! time of the last successful poll.

use super::{
    catalogue::PartAgents,
    feed::{DocumentBody, FeedPart, PartUpdate, RawDocument},
};
use aws_lc_rs::digest::{Context, SHA256};
use bytes::{Buf, Bytes};
use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, BufWriter, ErrorKind, Read, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

/// Maximum size of one file in bytes.
const MAX_FILE_SIZE: usize = 1 << 30;
/// Start of every file; the number is the version of the format.
const MAGIC: &[u8] = b"gatepost agents 2\n";
/// Length in bytes of the SHA-256 checksum at the end, which covers everything before it.
const CHECKSUM_LENGTH: usize = 32;

/// Age after which a temporary file counts as left behind by a process that died.
const ABANDONED_AFTER: Duration = Duration::from_secs(3_600);
/// Numbers the files that this process writes.
static FILE_COUNTER: AtomicU64 = AtomicU64::new(0);

/// The last-known-good file of one source.
#[derive(Debug)]
pub(super) struct LastKnownGoodFile {
    path: PathBuf,
    /// Identity of the source: a source at another location is a different source.
    source_identity: String,
}

/// Stored parts, and the time of the poll that they came from.
pub(super) type LastKnownGood = (SystemTime, Vec<FeedPart>);

impl LastKnownGoodFile {
    /// Returns the file of the source called `name` in `folder`. `name` must have been validated as a file name.
    pub(super) fn new(folder: PathBuf, name: &str, kind: &str, location: &str) -> Self {
        Self { path: folder.join(format!("{name}.agents")), source_identity: format!("{kind} {location}") }
    }

    /// Loads the stored agents; `None` where there is no file.
    ///
    /// # Errors
    /// Why the file is rejected.
    pub(super) fn load(&self) -> Result<Option<LastKnownGood>, String> {
        self.remove_abandoned_files();
        let load_error = |why: &str| format!("{} is ignored: {why}", self.path.display());
        let mut file = match File::open(&self.path) {
            Ok(file) => file,
            Err(why) if why.kind() == ErrorKind::NotFound => return Ok(None),
            Err(why) => return Err(load_error(&why.to_string())),
        };
        let read = |file: &mut File| -> io::Result<(SystemTime, Vec<u8>)> {
            let mut bytes = Vec::new();
            Read::by_ref(file).take(MAX_FILE_SIZE as u64 + 1).read_to_end(&mut bytes)?;
            Ok((file.metadata()?.modified()?, bytes))
        };
        let (last_success, bytes) = read(&mut file).map_err(|why| load_error(&why.to_string()))?;
        if bytes.len() > MAX_FILE_SIZE {
            return Err(load_error("the file is too large"));
        }
        let parts = self.parse(bytes.into()).map_err(load_error)?;
        Ok(Some((last_success, parts)))
    }

    fn parse(&self, mut bytes: Bytes) -> Result<Vec<FeedPart>, &'static str> {
        const TRUNCATED: &str = "the file is truncated or modified";
        let body = bytes.len().checked_sub(CHECKSUM_LENGTH).ok_or(TRUNCATED)?;
        let checksum = bytes.split_off(body);
        let mut hasher = Context::new(&SHA256);
        hasher.update(&bytes);
        if hasher.finish().as_ref() != checksum {
            return Err(TRUNCATED);
        }
        if !bytes.starts_with(MAGIC) {
            return Err("the file has another format version");
        }
        bytes.advance(MAGIC.len());
        if read_string(&mut bytes).ok_or(TRUNCATED)? != self.source_identity {
            return Err("the file belongs to a source at another location");
        }
        let mut parts = Vec::new();
        while !bytes.is_empty() {
            parts.push(read_part(&mut bytes).ok_or(TRUNCATED)?);
        }
        Ok(parts)
    }

    /// Removes temporary files of processes that died while writing.
    fn remove_abandoned_files(&self) -> Option<()> {
        let prefix = format!("{}.", self.path.file_name()?.to_str()?);
        for entry in fs::read_dir(self.path.parent()?).ok()?.flatten() {
            let name = entry.file_name();
            let is_temporary = name.to_str().is_some_and(|name| name.starts_with(&prefix) && name.ends_with(".new"));
            let is_abandoned =
                || entry.metadata().ok()?.modified().ok()?.elapsed().ok().map(|age| age > ABANDONED_AFTER);
            if is_temporary && is_abandoned().unwrap_or(false) {
                drop(fs::remove_file(entry.path()));
            }
        }
        Some(())
    }

    /// Replaces the stored agents by `parts`, which were polled at `last_success`.
    ///
    /// # Errors
    /// Why the file cannot be written; the previous file stays.
    pub(super) fn save(&self, parts: &[PartAgents], last_success: SystemTime) -> Result<(), String> {
        // A unique name for each writer: two may write at once, around a reload or in two processes.
        let number = FILE_COUNTER.fetch_add(1, Ordering::Relaxed);
        let temporary = self.path.with_extension(format!("agents.{}-{number}.new", std::process::id()));
        self.write(&temporary, parts, last_success).map_err(|why| {
            drop(fs::remove_file(&temporary));
            format!("{} cannot be written ({why})", self.path.display())
        })
    }

    fn write(&self, temporary: &Path, parts: &[PartAgents], last_success: SystemTime) -> io::Result<()> {
        let folder = self.path.parent().ok_or(ErrorKind::InvalidInput)?;
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(temporary)?;
        let inner = BufWriter::with_capacity(1 << 16, file);
        let mut writer = ChecksumWriter { inner, hasher: Context::new(&SHA256), written: 0 };
        writer.write(MAGIC)?;
        writer.write_with_length(self.source_identity.as_bytes())?;
        for (name, agents) in parts {
            writer.write_with_length(name.as_bytes())?;
            writer.write(&encode_length(agents.len())?)?;
            for agent in agents {
                writer.write(&agent.digest)?;
                writer.write_with_length(agent.source.publisher().map_or("", |id| id).as_bytes())?;
                writer.write_with_length(agent.document.as_bytes())?;
            }
        }
        let ChecksumWriter { mut inner, hasher, .. } = writer;
        inner.write_all(hasher.finish().as_ref())?;
        let file = inner.into_inner()?;
        file.set_modified(last_success)?;
        file.sync_all()?;
        fs::rename(temporary, &self.path)?;
        File::open(folder)?.sync_all()
    }

    /// Sets the time of the last successful poll; the stored agents are unchanged.
    pub(super) fn touch(&self, last_success: SystemTime) -> io::Result<()> {
        File::options().write(true).open(&self.path)?.set_modified(last_success)
    }
}

/// A writer that computes the checksum and fails before the file exceeds the size that can be loaded.
struct ChecksumWriter<W> {
    inner: W,
    hasher: Context,
    written: usize,
}

impl<W: Write> ChecksumWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.written += bytes.len();
        if self.written > MAX_FILE_SIZE - CHECKSUM_LENGTH {
            return Err(ErrorKind::FileTooLarge.into());
        }
        self.hasher.update(bytes);
        self.inner.write_all(bytes)
    }

    fn write_with_length(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write(&encode_length(bytes.len())?)?;
        self.write(bytes)
    }
}

fn encode_length(count: usize) -> io::Result<[u8; 4]> {
    u32::try_from(count).map(u32::to_le_bytes).map_err(|_| ErrorKind::FileTooLarge.into())
}

fn read_length(bytes: &mut Bytes) -> Option<usize> {
    let number = bytes.try_get_u32_le().ok()?;
    usize::try_from(number).ok()
}

fn read_bytes(bytes: &mut Bytes) -> Option<Bytes> {
    let length = read_length(bytes)?;
    (length <= bytes.len()).then(|| bytes.split_to(length))
}

fn read_string(bytes: &mut Bytes) -> Option<String> {
    String::from_utf8(read_bytes(bytes)?.to_vec()).ok()
}

fn read_part(bytes: &mut Bytes) -> Option<FeedPart> {
    let name: Arc<str> = read_string(bytes)?.into();
    let count = read_length(bytes)?;
    let mut documents = Vec::new();
    for _ in 0..count {
        let mut digest = [0; 32];
        bytes.try_copy_to_slice(&mut digest).ok()?;
        let publisher =
            read_string(bytes).map(|publisher| Some(publisher.into()).filter(|id: &Arc<str>| !id.is_empty()))?;
        documents.push(RawDocument { publisher, ..RawDocument::new(digest, DocumentBody::Text(read_bytes(bytes)?)) });
    }
    Some(FeedPart { name, update: PartUpdate::Replaced(documents) })
}
