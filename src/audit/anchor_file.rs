//! The anchor of a log: a file in another folder with a copy of the head and of the last signed checkpoint. It shows that
//! lines at the end were cut off together with the head.

use super::{
    audit_line::{ChainPosition, has_successor},
    head_file::{open_log_file, read_json_file, write_json_file},
};
use serde::{Deserialize, Serialize};
use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
};

/// Where a log is.
#[derive(Clone, Debug)]
pub(super) struct LogFiles {
    /// The current file of the log.
    pub(super) log: PathBuf,
    /// The anchor, if there is one.
    pub(super) anchor: Option<PathBuf>,
}

/// A line, and a signature over it and all lines before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SignedPosition {
    #[serde(flatten)]
    pub(super) position: ChainPosition,
    pub(super) signature: String,
}

/// What the anchor says of the end of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Anchor {
    pub(super) head: ChainPosition,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) checkpoint: Option<SignedPosition>,
}

/// The anchor, opened by the process that has locked the log.
pub(super) struct AnchorFile {
    file: File,
    /// `None` while the file is empty or broken.
    pub(super) anchor: Option<Anchor>,
}

impl AnchorFile {
    /// Opens an anchor for writing; a new one is created.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let with_path = |why: io::Error| io::Error::new(why.kind(), format!("anchor_file {}: {why}", path.display()));
        let file = open_log_file(path).map_err(with_path)?;
        let anchor = read_anchor_of(&file);
        Ok(Self { file, anchor })
    }

    /// Writes the position of the last line, and the last checkpoint if there is a new one.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn set(&mut self, head: ChainPosition, checkpoint: Option<SignedPosition>) -> io::Result<()> {
        let former = self.anchor.take().and_then(|anchor| anchor.checkpoint);
        let anchor = Anchor { head, checkpoint: checkpoint.or(former) };
        write_json_file(&self.file, &anchor)?;
        self.anchor = Some(anchor);
        Ok(())
    }
}

/// Reads an anchor.
///
/// # Errors
/// The file is missing, cannot be read, or is not an anchor.
pub(super) fn read_anchor(path: &Path) -> Result<Anchor, String> {
    let file = File::open(path).map_err(|why| format!("{}: the anchor cannot be read ({why})", path.display()))?;
    read_anchor_of(&file).ok_or_else(|| format!("{}: the file is not an anchor of an audit log", path.display()))
}

fn read_anchor_of(file: &File) -> Option<Anchor> {
    let anchor: Option<Anchor> = read_json_file(file);
    anchor.filter(|anchor| has_successor(anchor.head.sequence))
}
