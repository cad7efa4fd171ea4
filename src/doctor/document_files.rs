//! The files with documents of agents, and the lines of their members.

use super::finding::Place;
use crate::config::LineIndex;
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::OnceLock,
};

/// Maximum number of files that are indexed, and their size together in bytes. Documents in other files have no line.
const MAX_FILES: usize = 10_000;
const MAX_TOTAL_SIZE: u64 = 64 << 20;

/// The files with documents of agents. Reads files, so it belongs on a thread that may block.
#[derive(Debug)]
pub struct DocumentFiles {
    /// The files, each of which is indexed when a line of it is wanted.
    files: BTreeMap<PathBuf, OnceLock<Option<LineIndex>>>,
    current_folder: PathBuf,
}

impl DocumentFiles {
    /// Lists the files of these sources, each of which is a file or a folder.
    pub fn list<'a>(sources: impl IntoIterator<Item = &'a Path>) -> Self {
        let current_folder = std::env::current_dir().unwrap_or_default();
        let mut listed = Self { files: BTreeMap::new(), current_folder };
        let mut size_left = MAX_TOTAL_SIZE;
        sources.into_iter().for_each(|source| listed.list_source(source, &mut size_left));
        listed
    }

    fn list_source(&mut self, root: &Path, size_left: &mut u64) {
        let entries = fs::read_dir(root).map(|entries| entries.filter_map(|entry| Some(entry.ok()?.path())).collect());
        let mut files: Vec<PathBuf> = entries.unwrap_or_else(|_| vec![root.to_owned()]);
        files.sort_unstable();
        for file in files {
            let size = fs::metadata(&file).ok().filter(fs::Metadata::is_file).map(|metadata| metadata.len());
            let Some(left) = size.and_then(|size| size_left.checked_sub(size)) else { continue };
            if self.files.len() >= MAX_FILES {
                return;
            }
            *size_left = left;
            self.files.insert(file, OnceLock::new());
        }
    }

    /// Returns the lines of a file; `None` for other files, and where it cannot be parsed.
    pub(super) fn lines_of(&self, file: &Path) -> Option<&LineIndex> {
        let parse = || fs::read_to_string(file).ok().and_then(|text| LineIndex::parse(&text));
        self.files.get(file)?.get_or_init(parse).as_ref()
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
