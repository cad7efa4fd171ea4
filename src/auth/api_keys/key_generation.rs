//! Generation of API keys. A key is printed once; only its hash is stored.

use super::api_key_table::{KeyHasher, PREFIX_LENGTH, SECRET_LENGTH};
use crate::{
    auth::{caller::is_valid_name, config::StoredApiKey},
    values::{Secret, encode_hex},
};
use aws_lc_rs::rand;
use std::{
    fs::OpenOptions,
    io::{Read, Seek, SeekFrom, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

const ALPHANUMERIC: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Attributes of a new API key.
#[derive(Clone, Debug, Default)]
pub struct NewApiKey {
    /// Name of the caller, without `key:`.
    pub caller: String,
    /// Groups of the caller.
    pub groups: Vec<String>,
    /// Tier of the caller.
    pub tier: Option<String>,
    /// Time at which the key expires.
    pub expires: Option<OffsetDateTime>,
}

/// Generates a key and its line for a key file. `pepper` must equal the pepper of the gateway that checks the key.
///
/// # Errors
/// An invalid name, or no randomness.
pub fn generate_api_key(key: &NewApiKey, pepper: Option<&Secret>) -> Result<(Secret, String), String> {
    let names = key.groups.iter().chain(&key.tier).chain([&key.caller]);
    if let Some(invalid) = names.into_iter().find(|name| !is_valid_name(name)) {
        return Err(format!("{invalid:?} is not a valid name (1 to 256 characters without control characters)"));
    }
    let prefix = random_alphanumeric(PREFIX_LENGTH)?;
    let text = format!("gp_{prefix}_{}", random_alphanumeric(SECRET_LENGTH)?);
    let format_time = |at: OffsetDateTime| {
        at.replace_nanosecond(0)
            .unwrap_or(at)
            .format(&Rfc3339)
            .map_err(|why| format!("the time cannot be formatted ({why})"))
    };
    let stored = StoredApiKey {
        hash: encode_hex(&KeyHasher::new(pepper).hash(&text)),
        prefix,
        caller: key.caller.clone(),
        groups: key.groups.clone(),
        tier: key.tier.clone(),
        expires: key.expires.map(format_time).transpose()?,
        disabled: false,
        created: Some(format_time(OffsetDateTime::now_utc())?),
    };
    let line = serde_json::to_string(&stored).map_err(|why| format!("the key cannot be serialized ({why})"))?;
    Ok((Secret::new(text), line))
}

/// Appends a line to an API key file; a new file is readable by its owner only.
///
/// # Errors
/// The file cannot be written completely.
pub fn append_api_key(path: &Path, line: &str) -> Result<(), String> {
    let write_error = |why: std::io::Error| format!("{} cannot be written ({why})", path.display());
    let file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path);
    let mut file = file.map_err(write_error)?;
    // One write with O_APPEND, so that concurrent commands do not interleave their lines. A file that was edited by
    // hand may lack the final line feed.
    let mut last = [b'\n'];
    if file.seek(SeekFrom::End(-1)).is_ok() {
        file.read_exact(&mut last).map_err(write_error)?;
    }
    let separator = if last == [b'\n'] { "" } else { "\n" };
    file.write_all(format!("{separator}{line}\n").as_bytes()).map_err(write_error)?;
    file.sync_all().map_err(write_error)
}

/// Returns random letters and digits, evenly distributed: bytes beyond the last multiple of 62 are discarded.
fn random_alphanumeric(count: usize) -> Result<String, String> {
    let mut text = String::with_capacity(count);
    while text.len() < count {
        let mut bytes = [0; 64];
        rand::fill(&mut bytes).map_err(|_| "the system has no randomness")?;
        let characters =
            bytes.iter().filter(|byte| **byte < 248).filter_map(|byte| ALPHANUMERIC.get(usize::from(byte % 62)));
        text.extend(characters.map(|byte| char::from(*byte)).take(count - text.len()));
    }
    Ok(text)
}
