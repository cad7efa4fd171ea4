//! File feed: one file, or the *.json, *.yaml and *.yml files of one folder; `stat` shows which ones changed.
//! Only a changed file is read again. A file that is being written is left for the next poll; a file that cannot be
//! read is reported and keeps its previous content; a deleted file removes its agents.

use super::{
    document_parser,
    feed::{Feed, FeedPart, PartUpdate, PollResult},
    file_document::convert_file_document,
};
use crate::values::{FileStamp, sha256};
use bytes::Bytes;
use std::{
    collections::BTreeMap,
    fs::{self, File, Metadata},
    io::{self, ErrorKind, Read},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

/// A file that was modified more recently than this may be half written.
const SETTLE_TIME: Duration = Duration::from_millis(150);
/// Maximum number of polls that put off a file which keeps changing.
const MAX_DEFERRALS: u8 = 20;
/// Two writes that are closer than this may have the same modification time on a file system with a coarse clock.
const CLOCK_GRANULARITY: Duration = Duration::from_secs(2);
/// How long a folder that seems unchanged is not listed: what a link of the folder points to may change without it.
const MAX_LISTING_AGE: Duration = Duration::from_secs(10);
/// Polls in which a file must be missing before it counts as deleted: some editors replace a file in two steps.
const MISSING_POLLS: u8 = 2;

/// Feed of one configured path.
#[derive(Debug)]
pub struct FileFeed(FileFeedState);

#[derive(Debug, Default)]
struct FileFeedState {
    root: PathBuf,
    files: BTreeMap<PathBuf, TrackedFile>,
    listing: Option<FolderListing>,
    error: Option<String>,
    polled: bool,
}

/// The files of the folder, for polls while the folder is unchanged.
#[derive(Debug)]
struct FolderListing {
    stamp: FileStamp,
    listed_at: Instant,
    paths: Vec<PathBuf>,
}

#[derive(Debug, Default)]
struct TrackedFile {
    stamp: Option<FileStamp>,
    /// Digest of the content that was last read.
    content_digest: Option<[u8; 32]>,
    error: Option<String>,
    missing_polls: u8,
    deferrals: u8,
}

impl FileFeed {
    /// Creates a feed of the file or folder at `root`.
    pub fn new(root: PathBuf) -> Self {
        Self(FileFeedState { root, ..FileFeedState::default() })
    }
}

#[async_trait::async_trait]
impl Feed for FileFeed {
    async fn poll(&mut self) -> PollResult {
        let mut state = std::mem::take(&mut self.0);
        let root = state.root.clone();
        let task = tokio::task::spawn_blocking(move || {
            let result = state.poll();
            (state, result)
        });
        match task.await {
            Ok((state, result)) => {
                self.0 = state;
                result
            }
            // The runtime is shutting down, or reading panicked: report no change.
            Err(_) => {
                self.0.root = root;
                PollResult::default()
            }
        }
    }
}

impl FileFeedState {
    fn poll(&mut self) -> PollResult {
        let mut result = PollResult::default();
        let first = !std::mem::replace(&mut self.polled, true);
        let listing = self.list_files().map_err(|why| format!("{} cannot be read ({why})", self.root.display()));
        let error = listing.as_ref().err().cloned();
        if error != self.error {
            let name = part_name(&self.root);
            let update = match &error {
                Some(why) => PartUpdate::Unreadable(why.clone()),
                None if self.files.contains_key(&self.root) => PartUpdate::ReadableAgain,
                None => PartUpdate::Removed,
            };
            result.parts.push(FeedPart { name, update });
            self.error = error;
        }
        let Ok(paths) = listing else { return result };
        for path in &paths {
            self.files.entry(path.clone()).or_default().poll(path, first, &mut result);
        }
        self.files.retain(|path, file| {
            if paths.binary_search(path).is_ok() {
                return true;
            }
            file.missing_polls += 1;
            result.poll_soon = true;
            if file.missing_polls >= MISSING_POLLS {
                result.parts.push(FeedPart { name: part_name(path), update: PartUpdate::Removed });
            }
            file.missing_polls < MISSING_POLLS
        });
        result
    }
}

impl FileFeedState {
    /// Lists the files at the path, in order. A missing file that existed before, in a folder that exists, was deleted,
    /// which is not an error. A folder that is unchanged is not read again.
    fn list_files(&mut self) -> io::Result<Vec<PathBuf>> {
        let metadata = match fs::metadata(&self.root) {
            Ok(metadata) => metadata,
            Err(why)
                if why.kind() == ErrorKind::NotFound
                    && self.files.contains_key(&self.root)
                    && parent_exists(&self.root) =>
            {
                return Ok(Vec::new());
            }
            Err(why) => return Err(why),
        };
        if !metadata.is_dir() {
            return Ok(vec![self.root.clone()]);
        }
        let stamp = FileStamp::from_metadata(&metadata);
        let is_current =
            |listing: &&FolderListing| listing.stamp == stamp && listing.listed_at.elapsed() < MAX_LISTING_AGE;
        if let Some(listing) = self.listing.as_ref().filter(is_current) {
            return Ok(listing.paths.clone());
        }
        let listed_at = Instant::now();
        self.listing = None;
        let paths = list_folder(&self.root)?;
        if !is_recently_modified(&metadata) {
            self.listing = Some(FolderListing { stamp, listed_at, paths: paths.clone() });
        }
        Ok(paths)
    }
}

impl TrackedFile {
    fn poll(&mut self, path: &Path, first: bool, result: &mut PollResult) {
        self.missing_polls = 0;
        let read = fs::metadata(path).map_err(|why| read_error(&why)).and_then(|metadata| {
            let stamp = FileStamp::from_metadata(&metadata);
            let age = metadata.modified().ok().and_then(|at| SystemTime::now().duration_since(at).ok());
            let modified_within = |bound| age.is_some_and(|age| age < bound);
            if self.stamp == Some(stamp) {
                return Ok(None);
            }
            if !first && self.deferrals < MAX_DEFERRALS && modified_within(SETTLE_TIME) {
                self.deferrals += 1;
                result.poll_soon = true;
                return Ok(None);
            }
            let bytes = read_regular_file(path, &metadata)?;
            let after = fs::metadata(path).map_err(|why| read_error(&why))?;
            // Not recorded while another write could have the same stamp, or came in between.
            let unchanged = FileStamp::from_metadata(&after) == stamp && !modified_within(CLOCK_GRANULARITY);
            self.stamp = unchanged.then_some(stamp);
            if !first && self.deferrals < MAX_DEFERRALS && FileStamp::from_metadata(&after) != stamp {
                self.deferrals += 1;
                result.poll_soon = true;
                return Ok(None);
            }
            self.deferrals = 0;
            Ok(Some(bytes))
        });
        let update = match read {
            Ok(None) => return,
            Ok(Some(bytes)) => self.parse_if_changed(path, bytes),
            Err(why) => {
                self.stamp = None;
                self.content_digest = None;
                self.set_error(why)
            }
        };
        result.parts.extend(update.map(|update| FeedPart { name: part_name(path), update }));
    }

    fn parse_if_changed(&mut self, path: &Path, bytes: Bytes) -> Option<PartUpdate> {
        let content = sha256(&bytes);
        if self.content_digest == Some(content) {
            return None;
        }
        self.content_digest = Some(content);
        match document_parser::parse_documents(path, bytes) {
            Ok(documents) => {
                self.error = None;
                Some(PartUpdate::Replaced(documents.into_iter().map(convert_file_document).collect()))
            }
            Err(why) => self.set_error(why),
        }
    }

    /// Records an error; returns it only if it is new.
    fn set_error(&mut self, why: String) -> Option<PartUpdate> {
        let new = self.error.as_ref() != Some(&why);
        self.error = Some(why.clone());
        new.then_some(PartUpdate::Unreadable(why))
    }
}

fn part_name(path: &Path) -> Arc<str> {
    path.display().to_string().into()
}

fn read_error(why: &io::Error) -> String {
    format!("the file cannot be read ({why})")
}

/// Lists the files of a folder, in order.
fn list_folder(root: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(root)? {
        let path = entry?.path();
        let hidden = path.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
        if !hidden && has_feed_extension(&path) && !path.is_dir() {
            paths.push(path);
        }
    }
    paths.sort_unstable();
    Ok(paths)
}

/// Returns whether the file or folder was modified so recently that a later change may leave its stamp as it is.
fn is_recently_modified(metadata: &Metadata) -> bool {
    let age = metadata.modified().ok().and_then(|at| SystemTime::now().duration_since(at).ok());
    age.is_none_or(|age| age < CLOCK_GRANULARITY)
}

fn has_feed_extension(path: &Path) -> bool {
    path.extension().is_some_and(|extension| ["json", "yaml", "yml"].iter().any(|allowed| extension == *allowed))
}

fn parent_exists(path: &Path) -> bool {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    parent.is_dir()
}

/// Reads a regular file within bounds. Reading any other file could block or never end.
fn read_regular_file(path: &Path, metadata: &Metadata) -> Result<Bytes, String> {
    let too_large = || format!("the file has more than {} bytes", document_parser::MAX_FILE_SIZE);
    if !metadata.is_file() {
        return Err("not a regular file".to_owned());
    }
    let size = usize::try_from(metadata.len())
        .ok()
        .filter(|size| *size <= document_parser::MAX_FILE_SIZE)
        .ok_or_else(too_large)?;
    let mut bytes = Vec::with_capacity(size + 1);
    let file = File::open(path).map_err(|why| read_error(&why))?;
    file.take(document_parser::MAX_FILE_SIZE as u64 + 1).read_to_end(&mut bytes).map_err(|why| read_error(&why))?;
    if bytes.len() > document_parser::MAX_FILE_SIZE {
        return Err(too_large());
    }
    Ok(bytes.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_unchanged_is_not_listed_again() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str| fs::write(folder.path().join(name), "{}").unwrap();
        let age_folder = || {
            let long_ago = SystemTime::now() - 2 * CLOCK_GRANULARITY;
            File::open(folder.path()).unwrap().set_modified(long_ago).unwrap();
        };
        write("a.json");
        let mut state = FileFeed::new(folder.path().to_owned()).0;
        let names = |paths: Vec<PathBuf>| paths.iter().map(|path| part_name(path).to_string()).collect::<Vec<_>>();
        assert_eq!(state.list_files().unwrap().len(), 1);
        assert!(state.listing.is_none(), "a later change may have the same stamp");
        age_folder();
        state.list_files().unwrap();
        let listed_at = state.listing.as_ref().unwrap().listed_at;
        assert_eq!(state.list_files().unwrap().len(), 1);
        assert_eq!(state.listing.as_ref().unwrap().listed_at, listed_at);
        write("b.json");
        assert_eq!(names(state.list_files().unwrap()).len(), 2);
        age_folder();
        state.list_files().unwrap();
        fs::remove_file(folder.path().join("a.json")).unwrap();
        let left = names(state.list_files().unwrap());
        assert!(left.len() == 1 && left[0].ends_with("b.json"), "{left:?}");
        age_folder();
        state.list_files().unwrap();
        // What a link points to may change without the folder.
        if let Some(listing) = &mut state.listing {
            listing.listed_at -= MAX_LISTING_AGE;
            listing.paths.clear();
        }
        assert_eq!(state.list_files().unwrap().len(), 1);
    }
}
