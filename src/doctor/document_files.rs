//! The files with documents of agents, and the lines of their members.

use super::finding::Place;
use crate::config::LineIndex;
use std::{
    collections::BTreeMap,
    fs,
    io::Read as _,
    path::{Path, PathBuf},
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// Maximum number of files that are listed. Documents in other files have no line.
const MAX_FILES: usize = 10_000;

/// The files with documents of agents. Reads files, so it belongs on a thread that may block.
#[derive(Debug)]
pub struct DocumentFiles {
    /// The files, each of which is indexed when a line of it is wanted.
    files: BTreeMap<PathBuf, OnceLock<Option<LineIndex>>>,
    current_folder: PathBuf,
    /// The bytes of files that may still be indexed, which takes some thirty times as much memory.
    bytes_left: AtomicU64,
}

impl DocumentFiles {
    /// Lists the files of these sources, each of which is a file or a folder. At most `max_bytes` of them are indexed;
    /// documents in further files have no line.
    pub fn list<'a>(sources: impl IntoIterator<Item = &'a Path>, max_bytes: u64) -> Self {
        let current_folder = std::env::current_dir().unwrap_or_default();
        let mut listed = Self { files: BTreeMap::new(), current_folder, bytes_left: AtomicU64::new(max_bytes) };
        sources.into_iter().for_each(|source| listed.list_source(source));
        listed
    }

    fn list_source(&mut self, root: &Path) {
        let entries = fs::read_dir(root).map(|entries| entries.filter_map(|entry| Some(entry.ok()?.path())).collect());
        let mut files: Vec<PathBuf> = entries.unwrap_or_else(|_| vec![root.to_owned()]);
        files.sort_unstable();
        for file in files {
            if self.files.len() >= MAX_FILES {
                return;
            }
            if file.is_file() {
                self.files.insert(file, OnceLock::new());
            }
        }
    }

    /// Returns the lines of a file; `None` for other files, and where it cannot be parsed.
    pub(super) fn lines_of(&self, file: &Path) -> Option<&LineIndex> {
        self.files.get(file)?.get_or_init(|| self.index(file)).as_ref()
    }

    fn index(&self, file: &Path) -> Option<LineIndex> {
        let size = fs::metadata(file).ok()?.len();
        self.bytes_left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(size)).ok()?;
        let mut text = String::new();
        // The file may have grown meanwhile.
        fs::File::open(file).ok()?.take(size).read_to_string(&mut text).ok()?;
        LineIndex::parse(&text)
    }

    /// Returns the place of the member at `path` of the document of the agent `id` in a source, or of the nearest member
    /// above it; `None` where no file of the source has the document.
    pub fn find_member(&self, source: &str, id: &str, path: &str) -> Option<Place> {
        let of_source = || self.files.keys().filter(|file| file.starts_with(source));
        // A document often has the name of its agent, so that no other file needs to be read.
        let is_named = |file: &&PathBuf| file.file_stem().is_some_and(|stem| stem == id);
        let likely_first = of_source().filter(is_named).chain(of_source().filter(|file| !is_named(file)));
        let mut found = likely_first.filter_map(|file| Some((file, self.lines_of(file)?.line_in_agent(id, path)?)));
        let (file, line) = found.next()?;
        Some(Place { file: self.show(file), line: Some(line), path: path.to_owned() })
    }

    /// Returns the name of a file as operators read it.
    pub(super) fn show(&self, file: &Path) -> String {
        file.strip_prefix(&self.current_folder).unwrap_or(file).display().to_string()
    }
}
