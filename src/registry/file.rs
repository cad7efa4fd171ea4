//! File feed: one file, or the *.json, *.yaml and *.yml files of one folder; `stat` tells which ones changed.
//! Only a changed file is read again. A file that is being written is left for the next poll; a file that cannot be
//! read is reported and keeps its previous content; a deleted file removes its agents.

use super::{
    feed::{Change, Feed, News, Part},
    read,
};
use bytes::Bytes;
use std::{
    collections::BTreeMap,
    fs::{self, File, Metadata},
    io::{self, ErrorKind, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

/// A file that was modified more recently than this may be half written.
const SETTLING: Duration = Duration::from_millis(150);
/// Maximum number of polls that put off a file which keeps changing.
const PATIENCE: u8 = 20;
/// Two writes that are closer than this may have the same modification time on a file system with a coarse clock.
const COARSE: Duration = Duration::from_secs(2);
/// Polls in which a file must be missing before it counts as deleted: some editors replace a file in two steps.
const MISSING: u8 = 2;

/// Feed of one configured path.
#[derive(Debug)]
pub struct Files(Looking);

#[derive(Debug, Default)]
struct Looking {
    root: PathBuf,
    seen: BTreeMap<PathBuf, Seen>,
    trouble: Option<String>,
    looked: bool,
}

#[derive(Debug, Default)]
struct Seen {
    stat: Option<Stat>,
    /// Digest of the content that was last read.
    content: Option<[u8; 32]>,
    trouble: Option<String>,
    missing: u8,
    waited: u8,
}

/// What identifies a state of a file. Symbolic links are followed, so that swapping a link changes the inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Files {
    /// Creates a feed of the file or folder at `root`.
    pub fn new(root: PathBuf) -> Self {
        Self(Looking { root, ..Looking::default() })
    }
}

#[async_trait::async_trait]
impl Feed for Files {
    async fn next(&mut self) -> Change {
        let mut looking = std::mem::take(&mut self.0);
        let root = looking.root.clone();
        let looked = tokio::task::spawn_blocking(move || {
            let change = looking.look();
            (looking, change)
        });
        match looked.await {
            Ok((looking, change)) => {
                self.0 = looking;
                change
            }
            // The runtime is shutting down, or reading panicked: report no change.
            Err(_) => {
                self.0.root = root;
                Change::default()
            }
        }
    }
}

impl Looking {
    fn look(&mut self) -> Change {
        let mut change = Change::default();
        let first = !std::mem::replace(&mut self.looked, true);
        let listing = list(&self.root, self.seen.contains_key(&self.root))
            .map_err(|why| format!("{} cannot be read ({why})", self.root.display()));
        let trouble = listing.as_ref().err().cloned();
        if trouble != self.trouble {
            let name = name(&self.root);
            let news = match &trouble {
                Some(why) => News::Kept(why.clone()),
                None if self.seen.contains_key(&self.root) => News::Steady,
                None => News::Gone,
            };
            change.parts.push(Part { name, news });
            self.trouble = trouble;
        }
        let Ok(paths) = listing else { return change };
        for path in &paths {
            self.seen.entry(path.clone()).or_default().look(path, first, &mut change);
        }
        self.seen.retain(|path, seen| {
            if paths.binary_search(path).is_ok() {
                return true;
            }
            seen.missing += 1;
            change.soon = true;
            if seen.missing >= MISSING {
                change.parts.push(Part { name: name(path), news: News::Gone });
            }
            seen.missing < MISSING
        });
        change
    }
}

impl Seen {
    fn look(&mut self, path: &Path, first: bool, change: &mut Change) {
        self.missing = 0;
        let read = fs::metadata(path).map_err(|why| unreadable(&why)).and_then(|metadata| {
            let stat = Stat::of(&metadata);
            let age = metadata.modified().ok().and_then(|at| SystemTime::now().duration_since(at).ok());
            let fresh = |bound| age.is_some_and(|age| age < bound);
            if self.stat == Some(stat) {
                return Ok(None);
            }
            if !first && self.waited < PATIENCE && fresh(SETTLING) {
                self.waited += 1;
                change.soon = true;
                return Ok(None);
            }
            let bytes = whole(path, &metadata)?;
            let after = fs::metadata(path).map_err(|why| unreadable(&why))?;
            // Not remembered while another write could have the same stat, or came in between.
            let settled = Stat::of(&after) == stat && !fresh(COARSE);
            self.stat = settled.then_some(stat);
            if !first && self.waited < PATIENCE && Stat::of(&after) != stat {
                self.waited += 1;
                change.soon = true;
                return Ok(None);
            }
            self.waited = 0;
            Ok(Some(bytes))
        });
        let news = match read {
            Ok(None) => return,
            Ok(Some(bytes)) => self.read(path, bytes),
            Err(why) => {
                self.stat = None;
                self.content = None;
                self.troubled(why)
            }
        };
        change.parts.extend(news.map(|news| Part { name: name(path), news }));
    }

    fn read(&mut self, path: &Path, bytes: Bytes) -> Option<News> {
        let content = read::sha256(&bytes);
        if self.content == Some(content) {
            return None;
        }
        self.content = Some(content);
        match read::documents(path, bytes) {
            Ok(documents) => {
                self.trouble = None;
                Some(News::Whole(documents))
            }
            Err(why) => self.troubled(why),
        }
    }

    /// Records an error; returns it only if it is new.
    fn troubled(&mut self, why: String) -> Option<News> {
        let new = self.trouble.as_ref() != Some(&why);
        self.trouble = Some(why.clone());
        new.then_some(News::Kept(why))
    }
}

impl Stat {
    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

fn name(path: &Path) -> Arc<str> {
    path.display().to_string().into()
}

fn unreadable(why: &io::Error) -> String {
    format!("the file cannot be read ({why})")
}

/// Lists the files at `root`, in order. A file that was there before (`was`) and is missing from an existing folder was
/// deleted, which is not an error.
fn list(root: &Path, was: bool) -> io::Result<Vec<PathBuf>> {
    let metadata = match fs::metadata(root) {
        Ok(metadata) => metadata,
        Err(why) if was && why.kind() == ErrorKind::NotFound && parent_stands(root) => {
            return Ok(Vec::new());
        }
        Err(why) => return Err(why),
    };
    if !metadata.is_dir() {
        return Ok(vec![root.to_owned()]);
    }
    let mut paths = Vec::new();
    for entry in fs::read_dir(root)? {
        let path = entry?.path();
        let hidden = path.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
        if !hidden && named_like_a_file(&path) && !path.is_dir() {
            paths.push(path);
        }
    }
    paths.sort_unstable();
    Ok(paths)
}

fn named_like_a_file(path: &Path) -> bool {
    path.extension().is_some_and(|extension| ["json", "yaml", "yml"].iter().any(|known| extension == *known))
}

fn parent_stands(path: &Path) -> bool {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    parent.is_dir()
}

/// Reads a regular file within bounds. Reading any other file could block or never end.
fn whole(path: &Path, metadata: &Metadata) -> Result<Bytes, String> {
    let too_large = || format!("the file has more than {} bytes", read::LARGEST_FILE);
    if !metadata.is_file() {
        return Err("not a regular file".to_owned());
    }
    let size = usize::try_from(metadata.len()).ok().filter(|size| *size <= read::LARGEST_FILE).ok_or_else(too_large)?;
    let mut bytes = Vec::with_capacity(size + 1);
    let file = File::open(path).map_err(|why| unreadable(&why))?;
    file.take(read::LARGEST_FILE as u64 + 1).read_to_end(&mut bytes).map_err(|why| unreadable(&why))?;
    if bytes.len() > read::LARGEST_FILE {
        return Err(too_large());
    }
    Ok(bytes.into())
}
