//! Why a key file was not read or changed.

use std::{
    fmt, io,
    path::{Path, PathBuf},
};

/// Why a key file was not read or changed.
#[derive(Debug)]
pub enum KeyFileError {
    /// The system does not let the file be read.
    Unreadable {
        /// The file.
        file: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// The system does not let the file be changed.
    Unwritable {
        /// The file.
        file: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// It is no file, or too large.
    NotUsable(PathBuf),
    /// The change itself is not possible.
    Refused(String),
}

impl KeyFileError {
    pub(super) fn unreadable(file: &Path, error: io::Error) -> Self {
        Self::Unreadable { file: file.to_owned(), error }
    }

    pub(super) fn unwritable(file: &Path, error: io::Error) -> Self {
        Self::Unwritable { file: file.to_owned(), error }
    }
}

impl fmt::Display for KeyFileError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { file, error } => write!(to, "{} cannot be read ({error})", file.display()),
            Self::Unwritable { file, error } => write!(to, "{} cannot be written ({error})", file.display()),
            Self::NotUsable(file) => write!(to, "{} must be a file of at most 1GiB", file.display()),
            Self::Refused(why) => to.write_str(why),
        }
    }
}

impl std::error::Error for KeyFileError {}
