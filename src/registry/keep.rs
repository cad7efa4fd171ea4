//! Last known good: what a source beyond this machine said when it was last well, in one file that is replaced whole.
//! A file that is half written, changed or another source's is not believed. The file's time of change is when the
//! source was last well.

use super::{
    catalogue::Kept,
    feed::{Body, Document, News, Part},
};
use aws_lc_rs::digest::{Context, SHA256};
use bytes::{Buf, Bytes};
use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, BufWriter, ErrorKind, Read, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::PathBuf,
    sync::Arc,
    time::SystemTime,
};

/// Bytes of one file.
const LARGEST: usize = 1 << 30;
/// What stands first; the number changes with the form of what follows.
const MAGIC: &[u8] = b"gatepost agents 1\n";
/// Bytes of the SHA-256 of everything before it, at the end.
const SEAL: usize = 32;

/// The file of one source.
#[derive(Debug)]
pub(super) struct Keeper {
    path: PathBuf,
    /// Whose agents these are: a source at another place is another source.
    whose: String,
}

/// What was kept, and when it was good.
pub(super) type Remembered = (SystemTime, Vec<Part>);

impl Keeper {
    /// The file of the source called `name`, which was vetted as a file's name, in `folder`.
    pub(super) fn new(folder: PathBuf, name: &str, kind: &str, place: &str) -> Self {
        Self { path: folder.join(format!("{name}.agents")), whose: format!("{kind} {place}") }
    }

    /// What was kept, if anything.
    ///
    /// # Errors
    /// Why the file cannot be believed.
    pub(super) fn load(&self) -> Result<Option<Remembered>, String> {
        let unusable = |why: &str| format!("{} is ignored: {why}", self.path.display());
        let mut file = match File::open(&self.path) {
            Ok(file) => file,
            Err(why) if why.kind() == ErrorKind::NotFound => return Ok(None),
            Err(why) => return Err(unusable(&why.to_string())),
        };
        let read = |file: &mut File| -> io::Result<(SystemTime, Vec<u8>)> {
            let mut bytes = Vec::new();
            Read::by_ref(file).take(LARGEST as u64 + 1).read_to_end(&mut bytes)?;
            Ok((file.metadata()?.modified()?, bytes))
        };
        let (good, bytes) = read(&mut file).map_err(|why| unusable(&why.to_string()))?;
        if bytes.len() > LARGEST {
            return Err(unusable("it is too large"));
        }
        let parts = self.parse(bytes.into()).map_err(unusable)?;
        Ok(Some((good, parts)))
    }

    fn parse(&self, mut bytes: Bytes) -> Result<Vec<Part>, &'static str> {
        const HALF: &str = "it is half written, or was changed";
        let body = bytes.len().checked_sub(SEAL).ok_or(HALF)?;
        let seal = bytes.split_off(body);
        let mut sum = Context::new(&SHA256);
        sum.update(&bytes);
        if sum.finish().as_ref() != seal {
            return Err(HALF);
        }
        if !bytes.starts_with(MAGIC) {
            return Err("it is of another version");
        }
        bytes.advance(MAGIC.len());
        if text(&mut bytes).ok_or(HALF)? != self.whose {
            return Err("it is of a source at another place");
        }
        let mut parts = Vec::new();
        while !bytes.is_empty() {
            parts.push(part(&mut bytes).ok_or(HALF)?);
        }
        Ok(parts)
    }

    /// Replaces what was kept.
    ///
    /// # Errors
    /// What the file system refuses; what was kept before stays.
    pub(super) fn save(&self, parts: &[Kept]) -> Result<(), String> {
        self.write(parts).map_err(|why| format!("{} cannot be written ({why})", self.path.display()))
    }

    fn write(&self, parts: &[Kept]) -> io::Result<()> {
        let folder = self.path.parent().ok_or(ErrorKind::InvalidInput)?;
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let aside = self.path.with_extension("agents.new");
        // Left by a process that died while it wrote; two gateways in one folder replace each other's, whole.
        drop(fs::remove_file(&aside));
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&aside)?;
        let mut to = Sealing { to: BufWriter::with_capacity(1 << 16, file), sum: Context::new(&SHA256), written: 0 };
        to.write(MAGIC)?;
        to.sized(self.whose.as_bytes())?;
        for (name, agents) in parts {
            to.sized(name.as_bytes())?;
            to.write(&size(agents.len())?)?;
            for agent in agents {
                to.write(&agent.digest)?;
                to.sized(agent.document.as_bytes())?;
            }
        }
        let Sealing { mut to, sum, .. } = to;
        to.write_all(sum.finish().as_ref())?;
        to.into_inner()?.sync_all()?;
        fs::rename(&aside, &self.path)?;
        File::open(folder)?.sync_all()
    }

    /// Says that the source is well, and still says what was kept.
    pub(super) fn touch(&self, good: SystemTime) -> io::Result<()> {
        File::options().write(true).open(&self.path)?.set_modified(good)
    }
}

/// A writer that sums up what it wrote, and stops before the file is too large to be read again.
struct Sealing<W> {
    to: W,
    sum: Context,
    written: usize,
}

impl<W: Write> Sealing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.written += bytes.len();
        if self.written > LARGEST - SEAL {
            return Err(ErrorKind::FileTooLarge.into());
        }
        self.sum.update(bytes);
        self.to.write_all(bytes)
    }

    fn sized(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write(&size(bytes.len())?)?;
        self.write(bytes)
    }
}

fn size(count: usize) -> io::Result<[u8; 4]> {
    u32::try_from(count).map(u32::to_le_bytes).map_err(|_| ErrorKind::FileTooLarge.into())
}

fn number(bytes: &mut Bytes) -> Option<usize> {
    let number = bytes.try_get_u32_le().ok()?;
    usize::try_from(number).ok()
}

fn sized(bytes: &mut Bytes) -> Option<Bytes> {
    let length = number(bytes)?;
    (length <= bytes.len()).then(|| bytes.split_to(length))
}

fn text(bytes: &mut Bytes) -> Option<String> {
    String::from_utf8(sized(bytes)?.to_vec()).ok()
}

fn part(bytes: &mut Bytes) -> Option<Part> {
    let name: Arc<str> = text(bytes)?.into();
    let count = number(bytes)?;
    let mut found = Vec::new();
    for _ in 0..count {
        let mut digest = [0; 32];
        bytes.try_copy_to_slice(&mut digest).ok()?;
        found.push(Document { digest, body: Body::Text(sized(bytes)?) });
    }
    Some(Part { name, news: News::Whole(found) })
}
