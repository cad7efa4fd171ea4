//! Changes of key files by commands: keys are added, disabled and rotated. A changed file is replaced as a whole, so
//! that a gateway never reads half of it; lines that are not concerned stay as they are. A lock keeps commands apart.

use super::{
    api_key_table::ApiKeyTable,
    key_file_error::KeyFileError,
    key_generation::{NewApiKey, format_key_time, generate_api_key},
    locked_key_file::LockedKeyFile,
};
use crate::{
    auth::{
        config::StoredApiKey,
        grants::{AccessConfig, GrantIndex},
        revocation::RevokedKey,
    },
    values::Secret,
};
use std::{
    fs::File,
    io::{self, BufRead as _, BufReader, Read, Seek, SeekFrom, Write},
    path::Path,
    time::Duration,
};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

/// Maximum size of a file, as for the gateway that reads it.
const MAX_FILE_BYTES: u64 = 1 << 30;

/// Whether a stored key is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApiKeyState {
    /// Accepted.
    Valid,
    /// Refused, because its time has passed.
    Expired,
    /// Refused, because an operator disabled it.
    Disabled,
    /// Refused, because `expires` is not a date-time.
    Invalid,
}

impl ApiKeyState {
    /// Returns the state of a key at a time.
    pub fn of(key: &StoredApiKey, now: OffsetDateTime) -> Self {
        if key.disabled {
            return Self::Disabled;
        }
        match key.expires.as_deref().map(|text| OffsetDateTime::parse(text, &Rfc3339)) {
            None => Self::Valid,
            Some(Ok(at)) if now < at => Self::Valid,
            Some(Ok(_)) => Self::Expired,
            Some(Err(_)) => Self::Invalid,
        }
    }
}

/// How a key is rotated.
#[derive(Clone, Copy, Debug)]
pub struct KeyRotation {
    /// How long the previous key stays valid, unless it expires before.
    pub overlap: Duration,
    /// When the new key expires.
    pub expires: Option<OffsetDateTime>,
}

/// The keys of a file.
#[derive(Debug, Default)]
pub struct ApiKeyListing {
    /// The keys in the order of the file.
    pub keys: Vec<StoredApiKey>,
    /// Numbers of their lines, from 1.
    pub key_lines: Vec<usize>,
    /// Numbers of the lines that are no keys, from 1.
    pub invalid_lines: Vec<usize>,
}

/// A key that replaces another one.
#[derive(Debug)]
pub struct RotatedKey {
    /// The new key.
    pub secret: Secret,
    /// Name of its caller, without `key:`.
    pub caller: String,
    /// The key that it replaces, for gateways with key files of their own.
    pub previous: RevokedKey,
}

/// What happens to a line of a key file.
enum LineEdit {
    Keep,
    Change,
    ChangeAndAdd(String),
}

/// Reads the keys of a file.
///
/// # Errors
/// The file cannot be read.
pub fn list_api_keys(path: &Path) -> Result<ApiKeyListing, KeyFileError> {
    let (mut keys, mut key_lines) = (Vec::new(), Vec::new());
    let invalid_lines = visit_key_lines(path, |line, key| {
        keys.push(key);
        key_lines.push(line);
    })?;
    Ok(ApiKeyListing { keys, key_lines, invalid_lines })
}

/// A line of a key file that the gateway ignores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidKeyLine {
    /// Its number, from 1.
    pub line: usize,
    /// Why it is not a key.
    pub reason: String,
}

/// Returns the lines of a file that the gateway ignores because they are no keys.
///
/// # Errors
/// The file cannot be read.
pub fn invalid_key_lines(path: &Path) -> Result<Vec<InvalidKeyLine>, KeyFileError> {
    let file = File::open(path).map_err(|why| KeyFileError::unreadable(path, why))?;
    let text = read_text(path, &file)?;
    // Grants do not decide whether a line is a key.
    let (grants, _) = GrantIndex::build(&AccessConfig::default());
    let (_, invalid) = ApiKeyTable::from_lines(&text, &grants);
    Ok(invalid.into_iter().map(|(line, reason)| InvalidKeyLine { line, reason }).collect())
}

/// Reads the keys of a file one by one, so that a large file is never in memory. Returns the numbers of the lines that are
/// no keys, from 1.
///
/// # Errors
/// The file cannot be read.
pub fn visit_api_keys(path: &Path, mut visit: impl FnMut(StoredApiKey)) -> Result<Vec<usize>, KeyFileError> {
    visit_key_lines(path, |_, key| visit(key))
}

/// Reads the keys of a file one by one, each with the number of its line.
fn visit_key_lines(path: &Path, mut visit: impl FnMut(usize, StoredApiKey)) -> Result<Vec<usize>, KeyFileError> {
    let file = File::open(path).map_err(|why| KeyFileError::unreadable(path, why))?;
    check_file(path, &file)?;
    let mut reader = BufReader::with_capacity(1 << 16, file.take(MAX_FILE_BYTES));
    let (mut line, mut number, mut invalid_lines) = (String::new(), 0, Vec::new());
    loop {
        line.clear();
        if reader.read_line(&mut line).map_err(|why| KeyFileError::unreadable(path, why))? == 0 {
            return Ok(invalid_lines);
        }
        number += 1;
        let text = line.trim();
        match serde_json::from_str(text) {
            Ok(key) => visit(number, key),
            Err(_) if text.is_empty() => {}
            Err(_) => invalid_lines.push(number),
        }
    }
}

/// Disables the keys that `is_selected` selects; returns those that were enabled before.
///
/// # Errors
/// The file cannot be read or replaced; it is unchanged then.
pub fn disable_api_keys(
    path: &Path,
    is_selected: impl Fn(&StoredApiKey) -> bool,
) -> Result<Vec<StoredApiKey>, KeyFileError> {
    let mut disabled = Vec::new();
    edit_keys(path, |key| {
        if key.disabled || !is_selected(key) {
            return Ok(LineEdit::Keep);
        }
        key.disabled = true;
        disabled.push(key.clone());
        Ok(LineEdit::Change)
    })?;
    Ok(disabled)
}

/// Replaces the key with a prefix by a new one of the same caller, groups and tier. The previous key stays valid for a
/// while. Returns the new key, or `None` if the file has no such key.
///
/// # Errors
/// The previous key is not valid, or the file cannot be read or replaced; it is unchanged then.
pub fn rotate_api_key(
    path: &Path,
    prefix: &str,
    rotation: &KeyRotation,
    pepper: Option<&Secret>,
) -> Result<Option<RotatedKey>, KeyFileError> {
    let (now, mut new_key) = (OffsetDateTime::now_utc(), None);
    edit_keys(path, |key| {
        if key.prefix != prefix {
            return Ok(LineEdit::Keep);
        }
        if ApiKeyState::of(key, now) != ApiKeyState::Valid {
            return Err(format!("the key {prefix} is disabled or has expired (create one with gatepost key new)"));
        }
        let attributes = NewApiKey {
            caller: key.caller.clone(),
            groups: key.groups.clone(),
            tier: key.tier.clone(),
            expires: rotation.expires,
        };
        let (secret, line) = generate_api_key(&attributes, pepper)?;
        let overlap_end = now.checked_add(rotation.overlap.try_into().unwrap_or(time::Duration::MAX));
        let previous_end = expiry_of(key);
        let overlap = Some(rotation.overlap).filter(|overlap| !overlap.is_zero());
        let previous = RevokedKey { prefix: key.prefix.clone(), overlap, expires: previous_end };
        new_key = Some(RotatedKey { secret, caller: key.caller.clone(), previous });
        let is_earlier = |end: &OffsetDateTime| previous_end.is_none_or(|previous| *end < previous);
        if let Some(end) = overlap_end.filter(is_earlier) {
            key.expires = Some(format_key_time(end)?);
        }
        Ok(LineEdit::ChangeAndAdd(line))
    })?;
    Ok(new_key)
}

/// Returns when the file lets a key expire; `None` is never.
fn expiry_of(key: &StoredApiKey) -> Option<OffsetDateTime> {
    key.expires.as_deref().and_then(|text| OffsetDateTime::parse(text, &Rfc3339).ok())
}

/// Returns a key that is disabled, as gateways with key files of their own revoke it.
pub fn revoke_disabled_key(key: &StoredApiKey) -> RevokedKey {
    RevokedKey { prefix: key.prefix.clone(), overlap: None, expires: expiry_of(key) }
}

/// Appends a line to an API key file; a new file is readable by its owner only.
///
/// # Errors
/// The file cannot be written completely.
pub fn append_api_key(path: &Path, line: &str) -> Result<(), KeyFileError> {
    let write_error = |why: io::Error| KeyFileError::unwritable(path, why);
    // Locked, so that no other command replaces the file meanwhile; one write, because gateways read it without a lock.
    let mut file = LockedKeyFile::open_to_append(path).map_err(write_error)?.file;
    // A file that was edited by hand may lack the final line feed.
    let mut last = [b'\n'];
    if file.seek(SeekFrom::End(-1)).is_ok() {
        file.read_exact(&mut last).map_err(write_error)?;
    }
    let separator = if last == [b'\n'] { "" } else { "\n" };
    let length = file.metadata().map_err(write_error)?.len();
    let written = file.write_all(format!("{separator}{line}\n").as_bytes()).and_then(|()| file.sync_all());
    // A full disk may have taken a part of the line, or even the whole line.
    written.map_err(|why| {
        let _ = file.set_len(length);
        write_error(why)
    })
}

/// Removes the line that was appended last, if it still is the last. Needs no space on the disk.
///
/// # Errors
/// The file cannot be changed, or ends with another line.
pub fn retract_api_key(path: &Path, line: &str) -> Result<(), KeyFileError> {
    let locked = LockedKeyFile::open_to_replace(path).map_err(|why| KeyFileError::unwritable(path, why))?;
    let text = read_text(path, &locked.file)?;
    let Some(rest) = text.strip_suffix('\n').and_then(|text| text.strip_suffix(line)) else {
        return Err(KeyFileError::Refused("the key is not the last one of its file any more".to_owned()));
    };
    let shortened = locked.file.set_len(rest.len() as u64).and_then(|()| locked.file.sync_all());
    shortened.map_err(|why| KeyFileError::unwritable(path, why))
}

/// Gives a file its text `before` a change back, if nothing but the change, which led to `after`, was made.
///
/// # Errors
/// The file cannot be replaced, or has changed again.
pub fn restore_key_file(path: &Path, before: &str, after: &str) -> Result<(), KeyFileError> {
    let locked = LockedKeyFile::open_to_replace(path).map_err(|why| KeyFileError::unwritable(path, why))?;
    if read_text(path, &locked.file)? != after {
        return Err(KeyFileError::Refused("the file was changed again".to_owned()));
    }
    locked.replace(before).map_err(|why| KeyFileError::unwritable(path, why))
}

/// Applies `edit` to each key of a file, and replaces the file if a key changed. Returns the number of changed keys.
fn edit_keys(
    path: &Path,
    mut edit: impl FnMut(&mut StoredApiKey) -> Result<LineEdit, String>,
) -> Result<(), KeyFileError> {
    let locked = LockedKeyFile::open_to_replace(path).map_err(|why| KeyFileError::unwritable(path, why))?;
    let text = read_text(path, &locked.file)?;
    let (mut rewritten, mut added, mut changed) = (String::with_capacity(text.len() + 512), String::new(), false);
    for line in text.split_inclusive('\n') {
        let content = line.trim_end();
        let Ok(mut key) = serde_json::from_str::<StoredApiKey>(content.trim_start()) else {
            rewritten.push_str(line);
            continue;
        };
        match edit(&mut key).map_err(KeyFileError::Refused)? {
            LineEdit::Keep => {
                rewritten.push_str(line);
                continue;
            }
            LineEdit::Change => {}
            LineEdit::ChangeAndAdd(new) => added = format!("{added}{new}\n"),
        }
        changed = true;
        let rewritten_key = serde_json::to_string(&key);
        let unserializable = |why| KeyFileError::Refused(format!("a key cannot be serialized ({why})"));
        rewritten.push_str(&rewritten_key.map_err(unserializable)?);
        rewritten.push_str(line.get(content.len()..).unwrap_or_default());
    }
    if changed {
        let separator = if rewritten.ends_with('\n') || added.is_empty() { "" } else { "\n" };
        let rewritten = [&*rewritten, separator, &added].concat();
        locked.replace(&rewritten).map_err(|why| KeyFileError::unwritable(path, why))?;
    }
    Ok(())
}

fn read_text(path: &Path, file: &File) -> Result<String, KeyFileError> {
    check_file(path, file)?;
    let mut text = String::new();
    file.take(MAX_FILE_BYTES).read_to_string(&mut text).map_err(|why| KeyFileError::unreadable(path, why))?;
    Ok(text)
}

fn check_file(path: &Path, file: &File) -> Result<(), KeyFileError> {
    let metadata = file.metadata().map_err(|why| KeyFileError::unreadable(path, why))?;
    if !metadata.is_file() || metadata.len() > MAX_FILE_BYTES {
        return Err(KeyFileError::NotUsable(path.to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new_line(expires: Option<OffsetDateTime>) -> String {
        let key = NewApiKey { caller: "team-a".to_owned(), groups: Vec::new(), tier: None, expires };
        generate_api_key(&key, None).unwrap().1
    }

    fn keys_of(path: &Path) -> Vec<StoredApiKey> {
        let listing = list_api_keys(path).unwrap();
        assert!(listing.invalid_lines.is_empty(), "{listing:?}");
        listing.keys
    }

    #[test]
    fn r2_a_rotation_adds_a_key_and_limits_the_previous_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys.jsonl");
        // The file's last line lacks its line feed.
        std::fs::write(&path, [new_line(None), new_line(None)].join("\n")).unwrap();
        let [first, second] = keys_of(&path).try_into().unwrap();
        let in_a_day = OffsetDateTime::now_utc() + time::Duration::DAY;
        let rotation = KeyRotation { overlap: Duration::from_secs(60), expires: Some(in_a_day) };
        assert!(rotate_api_key(&path, "unknownkey00", &rotation, None).unwrap().is_none());
        let rotated = rotate_api_key(&path, &second.prefix, &rotation, None).unwrap().unwrap();
        let [kept, previous, new] = keys_of(&path).try_into().unwrap();
        assert!(kept == first && rotated.secret.expose().contains(&new.prefix), "{kept:?} {new:?}");
        assert_eq!((&*rotated.caller, &*new.caller), ("team-a", "team-a"));
        let end_of = |key: &StoredApiKey| OffsetDateTime::parse(key.expires.as_deref().unwrap(), &Rfc3339).unwrap();
        assert_eq!(end_of(&new), in_a_day.replace_nanosecond(0).unwrap());
        let seconds_left = (end_of(&previous) - OffsetDateTime::now_utc()).whole_seconds();
        assert!((0..=60).contains(&seconds_left), "{seconds_left}");
        // The overlap makes no key valid for longer.
        rotate_api_key(&path, &previous.prefix, &KeyRotation { overlap: Duration::MAX, expires: None }, None).unwrap();
        assert_eq!(keys_of(&path)[1].expires, previous.expires);
    }

    #[test]
    fn r2_a_disabled_key_stays_in_the_file_and_is_not_rotated() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys.jsonl");
        std::fs::write(&path, new_line(None)).unwrap();
        let disable = || disable_api_keys(&path, |key| key.caller == "team-a").unwrap().len();
        assert_eq!((disable(), disable()), (1, 0));
        assert!(!std::fs::read_to_string(&path).unwrap().ends_with('\n'), "a line changed and none was added");
        append_api_key(&path, &new_line(None)).unwrap();
        let [disabled, other] = keys_of(&path).try_into().unwrap();
        assert!(disabled.disabled && !other.disabled);
        let rotation = KeyRotation { overlap: Duration::ZERO, expires: None };
        let refused = rotate_api_key(&path, &disabled.prefix, &rotation, None).unwrap_err().to_string();
        assert!(refused.contains("is disabled or has expired"), "{refused}");
        assert_eq!(keys_of(&path), [disabled, other], "a refused rotation changes nothing");
    }
}
