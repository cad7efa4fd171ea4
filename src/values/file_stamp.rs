//! File stamp: whether a file has changed, without reading it.

use std::{
    fs::{self, Metadata},
    os::unix::fs::MetadataExt,
    path::Path,
};

/// Metadata that changes when a file changes: device and inode, length, and the times of the last modification and of
/// the last change of the inode, in nanoseconds. Symbolic links are followed, so that swapping a link changes the inode.
/// A file whose time and length were set to those of its predecessor has another inode, or another time of change, which
/// no program can set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStamp {
    device: u64,
    inode: u64,
    length: u64,
    modified: FileTime,
    changed: FileTime,
}

/// Seconds since 1970 and the nanoseconds beyond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileTime {
    seconds: i64,
    nanoseconds: i64,
}

impl FileStamp {
    /// Returns the stamp of the file that has this metadata.
    pub fn from_metadata(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            length: metadata.size(),
            modified: FileTime { seconds: metadata.mtime(), nanoseconds: metadata.mtime_nsec() },
            changed: FileTime { seconds: metadata.ctime(), nanoseconds: metadata.ctime_nsec() },
        }
    }

    /// Returns the stamp of the file at `path`; `None` if its metadata cannot be read. Blocks on the file system.
    pub fn read(path: &Path) -> Option<Self> {
        fs::metadata(path).ok().map(|metadata| Self::from_metadata(&metadata))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set_modified_like(path: &Path, other: &Path) {
        let modified = fs::metadata(other).unwrap().modified().unwrap();
        fs::File::options().write(true).open(path).unwrap().set_modified(modified).unwrap();
    }

    #[test]
    fn a_file_that_replaces_one_of_equal_length_and_time_has_another_stamp() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("a"), folder.path().join("b"));
        fs::write(&path, "one").unwrap();
        fs::write(&other, "two").unwrap();
        set_modified_like(&other, &path);
        let before = FileStamp::read(&path).unwrap();
        assert_eq!(FileStamp::read(&path), Some(before), "reading does not change the stamp");
        let after = FileStamp::read(&other).unwrap();
        assert_eq!((after.length, after.modified), (before.length, before.modified));
        fs::rename(&other, &path).unwrap();
        assert_ne!(FileStamp::read(&path), Some(before));
    }

    #[test]
    fn swapping_a_symbolic_link_changes_the_stamp() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        for name in ["one", "two"] {
            fs::write(file(name), name).unwrap();
        }
        set_modified_like(&file("two"), &file("one"));
        std::os::unix::fs::symlink(file("one"), file("link")).unwrap();
        let before = FileStamp::read(&file("link")).unwrap();
        std::os::unix::fs::symlink(file("two"), file("new")).unwrap();
        fs::rename(file("new"), file("link")).unwrap();
        assert_ne!(FileStamp::read(&file("link")), Some(before));
    }

    #[test]
    fn a_missing_file_has_no_stamp() {
        assert_eq!(FileStamp::read(Path::new("/nonexistent/file")), None);
    }
}
