//! Paths in the configuration: a relative path is resolved against the folder of the configuration file, not against
//! the working directory of the process.

use std::{
    cell::RefCell,
    ops::Deref,
    path::{Path, PathBuf},
};

thread_local! {
    static BASE_FOLDER: RefCell<PathBuf> = const { RefCell::new(PathBuf::new()) };
}

/// A path in the configuration; absolute after parsing.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConfigPath(PathBuf);

impl ConfigPath {
    /// Runs `action`, during which relative paths are resolved against `folder`.
    pub fn with_base_folder<T>(folder: &Path, action: impl FnOnce() -> T) -> T {
        let outer_folder = BASE_FOLDER.replace(folder.to_owned());
        let value = action();
        BASE_FOLDER.set(outer_folder);
        value
    }

    /// Resolves `path` against the current base folder.
    pub(super) fn resolve(path: &str) -> PathBuf {
        BASE_FOLDER.with_borrow(|folder| folder.join(path))
    }
}

impl<T: Into<PathBuf>> From<T> for ConfigPath {
    fn from(path: T) -> Self {
        Self(path.into())
    }
}

impl Deref for ConfigPath {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl AsRef<Path> for ConfigPath {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl std::str::FromStr for ConfigPath {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "" => Err("a path must not be empty".to_owned()),
            text => Ok(Self(Self::resolve(text))),
        }
    }
}

impl serde::Serialize for ConfigPath {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0.display())
    }
}

super::impl_string_deserialize_and_schema!(
    ConfigPath,
    "A path; a relative path is resolved against the folder of the configuration file.",
    r"^.+$"
);
