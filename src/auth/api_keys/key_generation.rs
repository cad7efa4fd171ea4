//! Generation of API keys. A key is printed once; only its hash is stored.

use super::api_key_table::{KeyHasher, PREFIX_LENGTH, SECRET_LENGTH};
use crate::{
    auth::{caller::is_valid_name, config::StoredApiKey},
    values::{Secret, encode_hex},
};
use aws_lc_rs::rand;
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
    let stored = StoredApiKey {
        hash: encode_hex(&KeyHasher::new(pepper).hash(&text)),
        prefix,
        caller: key.caller.clone(),
        groups: key.groups.clone(),
        tier: key.tier.clone(),
        expires: key.expires.map(format_key_time).transpose()?,
        disabled: false,
        created: Some(format_key_time(OffsetDateTime::now_utc())?),
    };
    let line = serde_json::to_string(&stored).map_err(|why| format!("the key cannot be serialized ({why})"))?;
    Ok((Secret::new(text), line))
}

/// Returns a time as key files have it: in RFC 3339, without fractions of a second.
pub(super) fn format_key_time(at: OffsetDateTime) -> Result<String, String> {
    let at = at.replace_nanosecond(0).unwrap_or(at);
    at.format(&Rfc3339).map_err(|why| format!("the time cannot be formatted ({why})"))
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
