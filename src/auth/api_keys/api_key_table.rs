//! Immutable table of API keys by prefix, and the hashes of keys; compact, because there may be a million keys.

pub(super) use crate::auth::key_file_state::PREFIX_LENGTH;
use crate::{
    agent::AuthenticationMethod,
    auth::{
        caller::{Caller, is_valid_name},
        caller_claims::CallerClaims,
        config::StoredApiKey,
        grants::GrantIndex,
        key_file_state::StoredKeys,
    },
    telemetry::ApiKeyCounts,
    values::{Secret, sha256},
};
use aws_lc_rs::hmac;
use serde::Deserialize;
use std::{
    borrow::Cow,
    collections::HashMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

/// A stored key: what a presented key is compared with, and its caller.
#[derive(Debug)]
pub(super) struct ApiKeyEntry {
    pub(super) hash: [u8; 32],
    /// First second at which the key is no longer valid; a disabled key is never valid.
    expires_at: i64,
    pub(super) caller: Arc<Caller>,
}

impl ApiKeyEntry {
    pub(super) fn is_valid_at(&self, now: i64) -> bool {
        now < self.expires_at
    }

    pub(super) fn is_disabled(&self) -> bool {
        self.expires_at == i64::MIN
    }
}

/// The keys of one file or of the configuration.
#[derive(Debug, Default)]
pub(super) struct ApiKeyTable {
    by_prefix: HashMap<[u8; PREFIX_LENGTH], u32>,
    keys: Vec<ApiKeyEntry>,
    /// When keys expire, in order: of those that do and are not disabled.
    expirations: Box<[i64]>,
    disabled: usize,
}

impl ApiKeyTable {
    /// Returns how many keys are valid, expired and disabled at `now`.
    pub(super) fn counts_at(&self, now: i64) -> ApiKeyCounts {
        let expired = self.expirations.partition_point(|expires_at| *expires_at <= now);
        ApiKeyCounts {
            valid: self.keys.len() - self.disabled - expired,
            expired,
            disabled: self.disabled,
            next_expiration: self.expirations.get(expired).copied(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Returns the keys of a caller, or the key with a prefix, by an id such as `key:team-a`; each with its prefix.
    pub(super) fn with_id<'a>(
        &'a self,
        id: &'a str,
    ) -> impl Iterator<Item = (&'a [u8; PREFIX_LENGTH], &'a ApiKeyEntry)> {
        let prefix = id.strip_prefix(AuthenticationMethod::ApiKey.caller_id_prefix());
        let prefix = prefix.and_then(|prefix| prefix.as_bytes().try_into().ok());
        let of_prefix = prefix.and_then(|prefix: [u8; PREFIX_LENGTH]| self.by_prefix.get_key_value(&prefix));
        let entry = |(prefix, at): (&'a [u8; PREFIX_LENGTH], &u32)| Some((prefix, self.keys.get(*at as usize)?));
        let of_caller = self.by_prefix.iter().filter_map(entry).filter(move |(_, key)| *key.caller.id == *id);
        of_caller.chain(of_prefix.and_then(entry))
    }

    pub(super) fn find(&self, prefix: [u8; PREFIX_LENGTH]) -> Option<&ApiKeyEntry> {
        self.keys.get(*self.by_prefix.get(&prefix)? as usize)
    }

    /// Builds the table from the keys in the configuration. Also returns the invalid keys, each with its index from 0.
    pub(super) fn from_config(keys: &[StoredApiKey], grants: &GrantIndex) -> (Self, Vec<(usize, String)>) {
        let mut builder = ApiKeyTableBuilder::new(grants);
        for (at, key) in keys.iter().enumerate() {
            builder.add(at, Ok(ApiKeyLine::from(key)));
        }
        builder.build()
    }

    /// Builds the table from the text of a file. Also returns the invalid lines, each with its number from 1.
    pub(super) fn from_lines(text: &str, grants: &GrantIndex) -> (Self, Vec<(usize, String)>) {
        let mut builder = ApiKeyTableBuilder::new(grants);
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            if !line.is_empty() {
                // The message of serde_json is not used: it may quote the line, which may contain a whole key.
                let parsed = serde_json::from_str::<ApiKeyLine<'_>>(line);
                builder.add(at + 1, parsed.map_err(|why| format!("is not a key in JSON (column {})", why.column())));
            }
        }
        builder.build()
    }
}

impl StoredKeys for ApiKeyTable {
    fn prefixes(&self) -> Vec<[u8; PREFIX_LENGTH]> {
        self.by_prefix.keys().copied().collect()
    }

    fn fingerprint(&self, prefix: [u8; PREFIX_LENGTH]) -> Option<u64> {
        let ApiKeyEntry { hash, expires_at, caller } = self.find(prefix)?;
        let mut fingerprint = DefaultHasher::new();
        (hash, expires_at, &caller.id, &caller.groups, &caller.tier).hash(&mut fingerprint);
        Some(fingerprint.finish())
    }
}

/// A line of a key file: the members of `StoredApiKey`, borrowed.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ApiKeyLine<'a> {
    #[serde(borrow)]
    prefix: Cow<'a, str>,
    #[serde(borrow)]
    hash: Cow<'a, str>,
    #[serde(borrow)]
    caller: Cow<'a, str>,
    #[serde(default, borrow)]
    groups: Vec<Cow<'a, str>>,
    #[serde(default, borrow)]
    tier: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    expires: Option<Cow<'a, str>>,
    #[serde(default)]
    disabled: bool,
    #[serde(default, borrow, rename = "created")]
    _created: Option<Cow<'a, str>>,
}

impl<'a> From<&'a StoredApiKey> for ApiKeyLine<'a> {
    fn from(key: &'a StoredApiKey) -> Self {
        Self {
            prefix: key.prefix.as_str().into(),
            hash: key.hash.as_str().into(),
            caller: key.caller.as_str().into(),
            groups: key.groups.iter().map(|group| group.as_str().into()).collect(),
            tier: key.tier.as_deref().map(Into::into),
            expires: key.expires.as_deref().map(Into::into),
            disabled: key.disabled,
            _created: None,
        }
    }
}

/// Builds a table; callers and their groups are shared between keys.
struct ApiKeyTableBuilder<'a> {
    grants: &'a GrantIndex,
    table: ApiKeyTable,
    callers: HashMap<Arc<str>, Arc<Caller>>,
    /// Names of groups and tiers.
    names: HashMap<Box<str>, Arc<str>>,
    invalid: Vec<(usize, String)>,
}

impl<'a> ApiKeyTableBuilder<'a> {
    fn new(grants: &'a GrantIndex) -> Self {
        Self {
            grants,
            table: ApiKeyTable::default(),
            callers: HashMap::new(),
            names: HashMap::new(),
            invalid: Vec::new(),
        }
    }

    fn build(mut self) -> (ApiKeyTable, Vec<(usize, String)>) {
        self.table.keys.shrink_to_fit();
        let expires = |key: &&ApiKeyEntry| !key.is_disabled() && key.expires_at != i64::MAX;
        let mut expirations: Vec<i64> = self.table.keys.iter().filter(expires).map(|key| key.expires_at).collect();
        expirations.sort_unstable();
        self.table.expirations = expirations.into();
        self.table.disabled = self.table.keys.iter().filter(|key| key.is_disabled()).count();
        (self.table, self.invalid)
    }

    fn add(&mut self, at: usize, line: Result<ApiKeyLine<'_>, String>) {
        if let Err(why) = line.and_then(|line| self.insert(&line)) {
            self.invalid.push((at, why));
        }
    }

    fn insert(&mut self, line: &ApiKeyLine<'_>) -> Result<(), String> {
        let is_alphanumeric = line.prefix.bytes().all(|b| b.is_ascii_alphanumeric());
        let prefix: [u8; PREFIX_LENGTH] = line
            .prefix
            .as_bytes()
            .try_into()
            .ok()
            .filter(|_| is_alphanumeric)
            .ok_or_else(|| format!("prefix: must be {PREFIX_LENGTH} letters or digits"))?;
        let hash = decode_hex(&line.hash).ok_or("hash: must be 64 hexadecimal digits")?;
        let names = line.groups.iter().chain(&line.tier).chain([&line.caller]);
        if !names.into_iter().all(|name| is_valid_name(name)) {
            return Err("caller, groups and tier: must be 1 to 256 characters without control characters".to_owned());
        }
        let expires = line.expires.as_deref().map(|text| OffsetDateTime::parse(text, &Rfc3339)).transpose();
        let expires = expires.map_err(|_| "expires: must be an RFC 3339 date-time")?;
        let expires_at = match (line.disabled, expires) {
            (true, _) => i64::MIN,
            (false, None) => i64::MAX,
            (false, Some(at)) => at.unix_timestamp(),
        };
        if self.table.by_prefix.contains_key(&prefix) {
            return Err(format!("prefix: {} is a duplicate", line.prefix));
        }
        let index = u32::try_from(self.table.keys.len()).map_err(|_| "there are too many keys")?;
        let caller = self.intern_caller(line);
        self.table.by_prefix.insert(prefix, index);
        self.table.keys.push(ApiKeyEntry { hash, expires_at, caller });
        Ok(())
    }

    fn intern_caller(&mut self, line: &ApiKeyLine<'_>) -> Arc<Caller> {
        let id = format!("{}{}", AuthenticationMethod::ApiKey.caller_id_prefix(), line.caller);
        let has_same_attributes = |caller: &&Arc<Caller>| {
            caller.tier.as_deref() == line.tier.as_deref()
                && caller.groups.iter().map(|group| &**group).eq(line.groups.iter().map(|group| &**group))
        };
        if let Some(caller) = self.callers.get(id.as_str()).filter(has_same_attributes) {
            return Arc::clone(caller);
        }
        let groups: Arc<[Arc<str>]> = line.groups.iter().map(|group| self.intern_name(group)).collect();
        let tier = line.tier.as_deref().map(|tier| self.intern_name(tier));
        let (id, grants): (Arc<str>, _) = (id.as_str().into(), self.grants.rules_for_caller(&id, &groups));
        let caller = Arc::new(Caller {
            id: Arc::clone(&id),
            owner_key: Arc::clone(&id),
            method: AuthenticationMethod::ApiKey,
            groups,
            scopes: Arc::default(),
            claims: CallerClaims::default(),
            tier,
            grants,
        });
        self.callers.insert(id, Arc::clone(&caller));
        caller
    }

    fn intern_name(&mut self, text: &str) -> Arc<str> {
        if let Some(name) = self.names.get(text) {
            return Arc::clone(name);
        }
        let name: Arc<str> = text.into();
        self.names.insert(text.into(), Arc::clone(&name));
        name
    }
}

fn decode_hex(text: &str) -> Option<[u8; 32]> {
    let digits: &[u8; 64] = text.as_bytes().try_into().ok()?;
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        for digit in pair {
            *byte = *byte << 4 | char::from(*digit).to_digit(16)? as u8;
        }
    }
    Some(bytes)
}

/// Minimum length of the secret part: 32 of 62 letters are 190 bits.
pub(super) const SECRET_LENGTH: usize = 32;

/// Computes the stored hash of a key. Keys are random, so that a slow hash would add no security, and would let callers
/// overload the gateway.
#[derive(Debug)]
pub(super) enum KeyHasher {
    Sha256,
    HmacSha256(Box<hmac::Key>),
}

impl KeyHasher {
    pub(super) fn new(pepper: Option<&Secret>) -> Self {
        match pepper {
            None => Self::Sha256,
            Some(pepper) => Self::HmacSha256(Box::new(hmac::Key::new(hmac::HMAC_SHA256, pepper.expose().as_bytes()))),
        }
    }

    pub(super) fn hash(&self, key: &str) -> [u8; 32] {
        match self {
            Self::Sha256 => sha256(key.as_bytes()),
            Self::HmacSha256(pepper) => {
                let mut hash = [0; 32];
                hash.copy_from_slice(hmac::sign(pepper, key.as_bytes()).as_ref());
                hash
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::{AccessConfig, ApiKeyState};

    #[test]
    fn r2_a_key_is_valid_until_the_second_in_which_it_expires_for_calls_and_listings() {
        let expires = OffsetDateTime::from_unix_timestamp(1_800_000_000).unwrap();
        let key = |expires: Option<&str>, disabled: bool| StoredApiKey {
            prefix: "abcdefghijkl".to_owned(),
            hash: "00".repeat(32),
            caller: "team-a".to_owned(),
            groups: Vec::new(),
            tier: None,
            expires: expires.map(str::to_owned),
            disabled,
            created: None,
        };
        let text = expires.format(&Rfc3339).unwrap();
        for (key, states) in [
            (key(Some(&text), false), [ApiKeyState::Valid, ApiKeyState::Expired, ApiKeyState::Expired]),
            (key(None, false), [ApiKeyState::Valid; 3]),
            (key(Some(&text), true), [ApiKeyState::Disabled; 3]),
        ] {
            let (table, invalid) =
                ApiKeyTable::from_config(std::slice::from_ref(&key), &GrantIndex::build(&AccessConfig::default()).0);
            let entry = table.find(*b"abcdefghijkl").unwrap();
            assert_eq!((invalid.len(), entry.is_disabled()), (0, key.disabled));
            for (offset, state) in [-1, 0, 1].into_iter().zip(states) {
                let now = expires + time::Duration::seconds(offset);
                assert_eq!(ApiKeyState::of(&key, now), state, "{offset}");
                assert_eq!(entry.is_valid_at(now.unix_timestamp()), state == ApiKeyState::Valid, "{offset}");
            }
        }
    }
}
