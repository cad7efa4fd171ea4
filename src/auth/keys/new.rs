//! Making a key: the whole is returned once, to be shown; what is stored is its hash.

use super::{Hasher, SECRET, table::PREFIX};
use crate::{
    auth::{caller::is_name, config::StoredKey, peer::hex},
    unit::Secret,
};
use aws_lc_rs::rand;
use std::{
    fs::OpenOptions,
    io::{Read, Seek, SeekFrom, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

const LETTERS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Whom a key is for.
#[derive(Clone, Debug, Default)]
pub struct NewKey {
    /// The caller's name, without `key:`.
    pub caller: String,
    /// The groups that it is in.
    pub groups: Vec<String>,
    /// Its tier.
    pub tier: Option<String>,
    /// When the key stops to count.
    pub expires: Option<OffsetDateTime>,
}

/// A new key, and the line to store for it. `pepper` must be the one of the gateway that will check it.
///
/// # Errors
/// A name that cannot be one, or no randomness.
pub fn new_key(key: &NewKey, pepper: Option<&Secret>) -> Result<(Secret, String), String> {
    let names = key.groups.iter().chain(&key.tier).chain([&key.caller]);
    if let Some(bad) = names.into_iter().find(|name| !is_name(name)) {
        return Err(format!("{bad:?} cannot be a name (1 to 256 characters, none of them a control)"));
    }
    let prefix = letters(PREFIX)?;
    let text = format!("gp_{prefix}_{}", letters(SECRET)?);
    let written = |at: OffsetDateTime| {
        at.replace_nanosecond(0)
            .unwrap_or(at)
            .format(&Rfc3339)
            .map_err(|why| format!("the time cannot be written ({why})"))
    };
    let stored = StoredKey {
        hash: hex(&Hasher::new(pepper).hash(&text)),
        prefix,
        caller: key.caller.clone(),
        groups: key.groups.clone(),
        tier: key.tier.clone(),
        expires: key.expires.map(written).transpose()?,
        disabled: false,
        created: Some(written(OffsetDateTime::now_utc())?),
    };
    let line = serde_json::to_string(&stored).map_err(|why| format!("the key cannot be written ({why})"))?;
    Ok((Secret::new(text), line))
}

/// Adds a line to a file of keys, which only its owner may read if it is new.
///
/// # Errors
/// The file cannot be written to the end.
pub fn append_key(path: &Path, line: &str) -> Result<(), String> {
    let refuse = |why: std::io::Error| format!("{} cannot be written ({why})", path.display());
    let file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path);
    let mut file = file.map_err(refuse)?;
    // One write call with O_APPEND: two commands at once cannot mix their lines. A file edited by hand may
    // lack its last line feed.
    let mut last = [b'\n'];
    if file.seek(SeekFrom::End(-1)).is_ok() {
        file.read_exact(&mut last).map_err(refuse)?;
    }
    let before = if last == [b'\n'] { "" } else { "\n" };
    file.write_all(format!("{before}{line}\n").as_bytes()).map_err(refuse)?;
    file.sync_all().map_err(refuse)
}

/// Letters drawn evenly: a byte beyond the last multiple of 62 is drawn again.
fn letters(count: usize) -> Result<String, String> {
    let mut text = String::with_capacity(count);
    while text.len() < count {
        let mut bytes = [0; 64];
        rand::fill(&mut bytes).map_err(|_| "the system has no randomness")?;
        let fit = bytes.iter().filter(|byte| **byte < 248).filter_map(|byte| LETTERS.get(usize::from(byte % 62)));
        text.extend(fit.map(|letter| char::from(*letter)).take(count - text.len()));
    }
    Ok(text)
}
