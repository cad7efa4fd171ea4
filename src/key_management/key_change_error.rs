//! Why no key was created, rotated or disabled.

use crate::auth::KeyFileError;
use std::fmt;

/// Why no key was created, rotated or disabled.
#[derive(Debug)]
pub enum KeyChangeError {
    /// A name is not valid.
    InvalidKey(String),
    /// There is no key file.
    NoKeyFile,
    /// The pepper of the hashes cannot be loaded.
    Pepper(String),
    /// A key file cannot be used, or the key is not valid any more.
    File(KeyFileError),
    /// The audit log cannot be written.
    NotRecordable,
    /// The change was made, and its entry could not be written.
    NotRecorded {
        /// The prefix of the new key, which nobody was told.
        prefix: String,
        /// Whether the key file is as before.
        is_undone: bool,
    },
    /// No file has the key with this prefix.
    NoSuchKey {
        /// The prefix.
        prefix: String,
        /// Whether the configuration itself has it.
        is_in_config: bool,
    },
    /// No file has a key of this caller.
    NoKeyOfCaller {
        /// The caller.
        caller: String,
        /// The caller with a key whose name is nearest.
        nearest: Option<String>,
    },
    /// The change did not end: whether it was made is not known.
    Interrupted,
}

impl From<KeyFileError> for KeyChangeError {
    fn from(why: KeyFileError) -> Self {
        Self::File(why)
    }
}

impl fmt::Display for KeyChangeError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidKey(why) => to.write_str(why),
            Self::NoKeyFile => to.write_str("auth.api_keys.files is empty (name a file there, or use --file)"),
            Self::Pepper(why) => write!(to, "auth.api_keys.pepper: {why}"),
            Self::File(why) => why.fmt(to),
            Self::NotRecordable => to.write_str("the audit log cannot be written (the gateway's log says why)"),
            Self::NotRecorded { is_undone: true, .. } => {
                to.write_str("the audit log cannot be written (the gateway's log says why); the change was undone")
            }
            Self::NotRecorded { prefix, is_undone: false } => write!(
                to,
                "the audit log cannot be written (the gateway's log says why), and the change could not be undone \
                 (disable the key {prefix}, which nobody knows)"
            ),
            Self::NoSuchKey { prefix, is_in_config: true } => {
                write!(to, "the key {prefix} is in auth.api_keys.keys of the configuration (change it there)")
            }
            Self::NoSuchKey { prefix, is_in_config: false } => {
                write!(to, "there is no key with the prefix {prefix} (gatepost key list shows the keys)")
            }
            Self::Interrupted => to.write_str("the change was interrupted (look at the list whether it was made)"),
            Self::NoKeyOfCaller { caller, nearest } => {
                let nearest = nearest.as_ref().map(|name| format!("did you mean {name}? ")).unwrap_or_default();
                write!(to, "the caller {caller} has no key in a file ({nearest}gatepost key list shows the keys)")
            }
        }
    }
}

impl std::error::Error for KeyChangeError {}
