//! Authentication by API key. A key is looked up by its public prefix, and its hash is compared in constant time; key
//! files are reloaded when they change. The key itself is never stored.

use super::{
    super::{
        caller::{AuthenticationResult, InvalidCredential, unix_now},
        config,
        grants::GrantIndex,
    },
    api_key_file::ApiKeyFile,
    api_key_table::{ApiKeyTable, PREFIX_LENGTH},
};
use crate::{
    telemetry::{Event, Metrics},
    values::{Secret, SecretRef, sha256},
};
use aws_lc_rs::{constant_time, hmac};
use http::{HeaderMap, HeaderName, header};
use std::sync::Arc;

/// Maximum length of a key.
const MAX_KEY_LENGTH: usize = 256;

/// Minimum length of the secret part: 32 of 62 letters are 190 bits.
pub(super) const SECRET_LENGTH: usize = 32;

/// Computes the stored hash of a key. Keys are random, so that a slow hash would add no security, and would let callers
/// overload the gateway.
#[derive(Debug)]
pub(in crate::auth) enum KeyHasher {
    Sha256,
    HmacSha256(Box<hmac::Key>),
}

impl KeyHasher {
    pub(in crate::auth) fn new(pepper: Option<&Secret>) -> Self {
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

/// All API keys, and the header that carries them.
#[derive(Debug)]
pub(in crate::auth) struct ApiKeyAuthenticator {
    header: HeaderName,
    hasher: KeyHasher,
    configured: ApiKeyTable,
    files: Vec<ApiKeyFile>,
    grants: Arc<GrantIndex>,
    metrics: Arc<Metrics>,
}

impl ApiKeyAuthenticator {
    pub(in crate::auth) fn build(
        config: &config::ApiKeysConfig,
        grants: Arc<GrantIndex>,
        metrics: Arc<Metrics>,
    ) -> Result<Self, Vec<String>> {
        let mut problems = Vec::new();
        let name = HeaderName::try_from(&config.header).ok().filter(|name| !is_reserved_header(name));
        if name.is_none() {
            problems.push(format!(
                "api_keys.header: '{}' is not usable (write a header name such as X-API-Key)",
                config.header
            ));
        }
        let pepper = config.pepper.as_ref().map(SecretRef::load).transpose();
        let pepper = pepper.map_err(|why| problems.push(format!("api_keys.pepper: {why}"))).unwrap_or_default();
        let (configured, invalid) = ApiKeyTable::from_config(&config.keys, &grants);
        problems.extend(invalid.into_iter().map(|(at, why)| format!("api_keys.keys[{at}]: {why}")));
        let mut files = Vec::with_capacity(config.files.len());
        for (at, path) in config.files.iter().enumerate() {
            match ApiKeyFile::open(path, &grants, &metrics) {
                Ok(file) => files.push(file),
                Err(why) => problems.push(format!("api_keys.files[{at}]: {why}")),
            }
        }
        let (Some(header), true) = (name, problems.is_empty()) else {
            return Err(problems);
        };
        metrics.record_event(Event::ApiKeysLoaded);
        Ok(Self { header, hasher: KeyHasher::new(pepper.as_ref()), configured, files, grants, metrics })
    }

    pub(in crate::auth) fn header(&self) -> &HeaderName {
        &self.header
    }

    /// Reloads the files that changed. Blocks: a million keys take a second.
    pub(in crate::auth) fn reload_if_changed(&self) {
        for file in &self.files {
            file.reload_if_changed(&self.grants, &self.metrics);
        }
    }

    /// Returns the number of keys.
    pub(in crate::auth) fn key_count(&self) -> usize {
        self.configured.len() + self.files.iter().map(ApiKeyFile::len).sum::<usize>()
    }

    /// Checks a key without I/O, and without allocation if the key is valid. A key with an unknown prefix takes as long
    /// as a key with a wrong secret, and gets the same response.
    pub(in crate::auth) fn authenticate(&self, headers: &HeaderMap) -> AuthenticationResult {
        let Some(value) = headers.get(&self.header) else {
            return AuthenticationResult::NotPresented;
        };
        let refuse = || AuthenticationResult::Invalid(InvalidCredential::new("the API key is not valid"));
        let Some((prefix, key)) = value.to_str().ok().and_then(split_key) else {
            return refuse();
        };
        let hash = self.hasher.hash(key);
        let valid_caller = |table: &ApiKeyTable| {
            let entry = table.find(prefix);
            let expected_hash = entry.map_or(&[0; 32], |entry| &entry.hash);
            let is_equal = constant_time::verify_slices_are_equal(expected_hash, &hash).is_ok();
            entry.filter(|entry| is_equal && entry.is_valid_at(unix_now())).map(|entry| Arc::clone(&entry.caller))
        };
        // An empty table needs no constant-time comparison: whether the configuration has keys is not a secret.
        let configured = Some(&self.configured).filter(|table| table.len() > 0).and_then(valid_caller);
        let caller = configured.or_else(|| self.files.iter().find_map(|file| valid_caller(&file.table())));
        caller.map_or_else(refuse, AuthenticationResult::Authenticated)
    }
}

/// Returns whether HTTP defines the header for another purpose.
fn is_reserved_header(name: &HeaderName) -> bool {
    [
        header::AUTHORIZATION,
        header::PROXY_AUTHORIZATION,
        header::COOKIE,
        header::HOST,
        header::CONTENT_LENGTH,
        header::TE,
    ]
    .contains(name)
        || [header::TRANSFER_ENCODING, header::CONNECTION, header::UPGRADE, header::TRAILER, header::ACCEPT]
            .contains(name)
        || [header::CONTENT_TYPE, header::FORWARDED].contains(name)
}

/// Parses a key, `gp_<12 letters or digits>_<32 or more>`; returns its public prefix and the whole key.
fn split_key(text: &str) -> Option<([u8; PREFIX_LENGTH], &str)> {
    let is_alphanumeric = |part: &str| part.bytes().all(|b| b.is_ascii_alphanumeric());
    let (prefix, secret) = text.strip_prefix("gp_")?.split_once('_')?;
    let has_valid_length = text.len() <= MAX_KEY_LENGTH && secret.len() >= SECRET_LENGTH;
    let is_well_formed = has_valid_length && is_alphanumeric(prefix) && is_alphanumeric(secret);
    Some((prefix.as_bytes().try_into().ok().filter(|_| is_well_formed)?, text))
}
