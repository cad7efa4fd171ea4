//! Paths as written in a file: a relative one is meant from where that file is, not from where the process runs.

use std::{
    cell::RefCell,
    ops::Deref,
    path::{Path, PathBuf},
};

thread_local! {
    static BASE: RefCell<PathBuf> = const { RefCell::new(PathBuf::new()) };
}

/// A path in the configuration; absolute once read.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FilePath(PathBuf);

impl FilePath {
    /// Runs `read` with relative paths meant from `base`.
    pub fn relative_to<T>(base: &Path, read: impl FnOnce() -> T) -> T {
        let outer = BASE.replace(base.to_owned());
        let value = read();
        BASE.set(outer);
        value
    }

    /// `path`, meant from the base in force.
    pub(super) fn based(path: &str) -> PathBuf {
        BASE.with_borrow(|base| base.join(path))
    }
}

impl<T: Into<PathBuf>> From<T> for FilePath {
    fn from(path: T) -> Self {
        Self(path.into())
    }
}

impl Deref for FilePath {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl AsRef<Path> for FilePath {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl std::str::FromStr for FilePath {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "" => Err("a path must not be empty".to_owned()),
            text => Ok(Self(Self::based(text))),
        }
    }
}

impl serde::Serialize for FilePath {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&self.0.display())
    }
}

super::written_as_string!(
    FilePath,
    "A path; a relative one is meant from the folder of the configuration file.",
    r"^.+$"
);
