//! What a page says of keys that were not read or changed. Paths of secrets, and what the system says of them, are for the
//! log only.

use crate::{auth::KeyFileError, config::strip_os_error_codes, key_management::KeyChangeError};
use std::{io, path::Path};

/// Returns the sentence for a key file that was not read or changed. Files have their names and no folders.
pub(super) fn file_problem(why: &KeyFileError) -> String {
    let name = |file: &Path| file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let reason = |error: &io::Error| strip_os_error_codes(&error.to_string());
    match why {
        KeyFileError::Unreadable { file, error } => {
            format!("The key file {} cannot be read: {}", name(file), reason(error))
        }
        KeyFileError::Unwritable { file, error } => {
            format!("The key file {} cannot be written: {}", name(file), reason(error))
        }
        KeyFileError::NotUsable(file) => format!("The key file {} is not a file of at most 1GiB", name(file)),
        KeyFileError::Refused(why) => capitalized(why),
    }
}

/// Returns the sentence for a change that was not made.
pub(super) fn change_problem(why: &KeyChangeError) -> String {
    tracing::warn!(reason = %why, "keys not changed in the console");
    match why {
        KeyChangeError::File(why) => file_problem(why),
        KeyChangeError::NoKeyFile => "There is no key file (set auth.api_keys.files)".to_owned(),
        KeyChangeError::Pepper(_) => "The secret of the hashes cannot be loaded (auth.api_keys.pepper)".to_owned(),
        KeyChangeError::NotRecordable => {
            "The audit log cannot be written, so that no key is created (the gateway's log says why)".to_owned()
        }
        KeyChangeError::NoSuchKey { prefix, is_in_config: true } => {
            format!("The key {prefix} is in auth.api_keys.keys of the configuration (change it there)")
        }
        KeyChangeError::NoSuchKey { prefix, .. } => format!("There is no key with the prefix {prefix}"),
        KeyChangeError::InvalidKey(_)
        | KeyChangeError::NoKeyOfCaller { .. }
        | KeyChangeError::NotRecorded { .. }
        | KeyChangeError::Interrupted => capitalized(&why.to_string()),
    }
}

fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}
