//! Authentication by API key. A key is looked up by its public prefix, and its hash is compared in constant time; key
//! files are reloaded when they change. The key itself is never stored.

use super::{
    api_key_file::ApiKeyFile,
    api_key_table::{ApiKeyTable, KeyHasher, PREFIX_LENGTH, SECRET_LENGTH},
};
use crate::{
    agent::AuthenticationMethod,
    auth::{
        authenticator::{
            AuthenticationProgress, AuthenticationResult, Authenticator, Challenge, CredentialDescription,
            InvalidCredential,
        },
        build_context::{BuildContext, BuildResult},
        caller::{PresentedCredentials, unix_now},
        grants::GrantIndex,
        header_name::display_header_name,
        key_file_state::KeyFileState,
        revocation::RevocationList,
    },
    telemetry::{ApiKeyCounts, Event, LoggedCallers, Metrics},
    values::SecretRef,
};
use aws_lc_rs::constant_time;
use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use std::sync::Arc;

/// What every key begins with.
const API_KEY_BEGIN: &[u8] = b"gp_";
/// Maximum length of a key.
const MAX_KEY_LENGTH: usize = 256;

/// Authenticates callers by API key.
#[derive(Debug)]
pub(in crate::auth) struct ApiKeyAuthenticator {
    header: HeaderName,
    /// Whether `Authorization: Bearer` carries keys as well.
    accepts_bearer: bool,
    hasher: KeyHasher,
    configured: Arc<ApiKeyTable>,
    files: Arc<ApiKeyFiles>,
    revocations: Arc<RevocationList>,
    logged_callers: LoggedCallers,
}

/// The key files, shared with the thread that reloads them.
#[derive(Debug)]
struct ApiKeyFiles {
    files: Vec<ApiKeyFile>,
    grants: Arc<GrantIndex>,
    metrics: Arc<Metrics>,
}

impl ApiKeyFiles {
    /// Reloads the files that changed. Blocks: a million keys take a second.
    fn reload_if_changed(&self) {
        for file in &self.files {
            file.reload_if_changed(&self.grants, &self.metrics);
        }
    }

    /// Records how many keys there are, in the files and in the configuration.
    fn record_counts(&self, configured: &ApiKeyTable) {
        let now = unix_now();
        let of_files = self.files.iter().map(|file| file.table.load().counts_at(now));
        let counts = of_files.fold(configured.counts_at(now), ApiKeyCounts::plus);
        self.metrics.keys().set_api_keys(counts);
    }
}

impl ApiKeyAuthenticator {
    pub(in crate::auth) fn build(context: &BuildContext<'_>) -> BuildResult {
        let Some(config) = &context.config.api_keys else {
            context.services.metrics.keys().set_api_keys(ApiKeyCounts::default());
            return Ok(Vec::new());
        };
        let (grants, metrics) = (Arc::clone(context.grants), Arc::clone(&context.services.metrics));
        let mut problems = Vec::new();
        let header = config.header_name().filter(|name| !is_reserved_header(name));
        if header.is_none() {
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
        let (Some(header), true) = (header, problems.is_empty()) else {
            return Err(problems);
        };
        metrics.record_event(Event::ApiKeysLoaded);
        let configured = Arc::new(configured);
        let files = Arc::new(ApiKeyFiles { files, grants, metrics });
        files.record_counts(&configured);
        let (hasher, logged_callers) = (KeyHasher::new(pepper.as_ref()), context.services.logged_callers);
        let revocations = Arc::clone(&context.services.revocations);
        let accepts_bearer = config.accept_bearer;
        Ok(vec![Box::new(Self { header, accepts_bearer, hasher, configured, files, revocations, logged_callers })])
    }

    /// Returns what a request presents as its key.
    fn presented_key<'h>(&self, headers: &'h HeaderMap) -> Option<&'h [u8]> {
        let bearer = || {
            let value = headers.get(header::AUTHORIZATION).filter(|_| self.accepts_bearer)?.as_bytes();
            let (scheme, rest) = value.split_at_checked(7)?;
            let is_key = scheme.eq_ignore_ascii_case(b"bearer ") && rest.trim_ascii().starts_with(API_KEY_BEGIN);
            is_key.then(|| rest.trim_ascii())
        };
        headers.get(&self.header).map(HeaderValue::as_bytes).or_else(bearer)
    }

    /// Judges a key by its id, whose secret counts as presented. Of several keys of one caller, a valid one counts.
    #[cold]
    fn authenticate_assumed(&self, id: &str) -> AuthenticationResult {
        let now = unix_now();
        let mut withdrawn = None;
        let mut valid_caller = |table: &ApiKeyTable| {
            let valid = table.with_id(id).find(|(prefix, key)| {
                let is_revoked = self.revocations.is_api_key_revoked(*prefix);
                withdrawn = Some(if is_revoked {
                    "the key is revoked"
                } else if key.is_disabled() {
                    "the key is disabled"
                } else {
                    "the key has expired"
                });
                key.is_valid_at(now) && !is_revoked
            });
            valid.map(|(_, key)| Arc::clone(&key.caller))
        };
        let of_files = || self.files.files.iter().map(|file| file.table.load_full());
        let caller = valid_caller(&self.configured).or_else(|| of_files().find_map(|table| valid_caller(&table)));
        match caller {
            Some(caller) => AuthenticationResult::Authenticated(caller),
            None => invalid_key().with_detail(withdrawn.unwrap_or("there is no key with this id")).into(),
        }
    }

    /// Returns what the log says about a key that was valid once. The prefix identifies the key and is public.
    #[cold]
    fn withdrawal_detail(&self, prefix: &[u8], reason: &str) -> String {
        match self.logged_callers {
            LoggedCallers::Plain => format!("the key with the prefix {} {reason}", String::from_utf8_lossy(prefix)),
            LoggedCallers::Pseudonym => format!("the key {reason}"),
        }
    }

    /// Returns the number of keys.
    #[cfg(test)]
    pub(in crate::auth) fn key_count(&self) -> usize {
        self.configured.len() + self.files.files.iter().map(|file| file.table.load().len()).sum::<usize>()
    }
}

impl Authenticator for ApiKeyAuthenticator {
    fn describe(&self) -> CredentialDescription {
        let parameter = format!("header=\"{}\"", display_header_name(&self.header));
        CredentialDescription {
            method: AuthenticationMethod::ApiKey,
            header: Some(self.header.clone()),
            may_be_bearer: self.accepts_bearer,
            challenge: Some(Challenge { scheme: "ApiKey", parameter: Some(parameter), has_error_parameters: false }),
            is_offered: true,
        }
    }

    /// Checks a key. A key with an unknown prefix takes as long as a key with a wrong secret, and gets the same
    /// response.
    fn authenticate<'a>(&'a self, presented: &PresentedCredentials<'a>) -> AuthenticationProgress<'a> {
        let Some(value) = self.presented_key(presented.headers) else {
            return presented
                .assumed_key
                .map_or(AuthenticationResult::NotPresented, |id| self.authenticate_assumed(id))
                .into();
        };
        let refuse = || invalid_key().into();
        let Some((prefix, key)) = std::str::from_utf8(value).ok().and_then(split_key) else {
            return refuse();
        };
        let hash = self.hasher.hash(key);
        let mut withdrawal = None;
        let mut valid_caller = |table: &ApiKeyTable| {
            let entry = table.find(prefix);
            let expected_hash = entry.map_or(&[0; 32], |entry| &entry.hash);
            let is_equal = constant_time::verify_slices_are_equal(expected_hash, &hash).is_ok();
            let entry = entry.filter(|_| is_equal)?;
            if !entry.is_valid_at(unix_now()) {
                withdrawal = Some(if entry.is_disabled() { "is disabled" } else { "has expired" });
                return None;
            }
            // Whatever the file of this gateway says: another gateway may have disabled the key.
            if self.revocations.is_api_key_revoked(&prefix) {
                withdrawal = Some("is revoked");
                return None;
            }
            Some(Arc::clone(&entry.caller))
        };
        // An empty table needs no constant-time comparison: whether the configuration has keys is not a secret.
        let configured = Some(&*self.configured).filter(|table| table.len() > 0).and_then(&mut valid_caller);
        let caller = configured.or_else(|| self.files.files.iter().find_map(|file| valid_caller(&file.table.load())));
        match (caller, withdrawal) {
            (Some(caller), _) => AuthenticationResult::Authenticated(caller).into(),
            // The log has the reason, and the caller the response for every other invalid key.
            (None, Some(reason)) => invalid_key().with_detail(self.withdrawal_detail(&prefix, reason)).into(),
            (None, None) => refuse(),
        }
    }

    fn has_key(&self, id: &str) -> bool {
        let is_known = |table: &ApiKeyTable| table.with_id(id).next().is_some();
        is_known(&self.configured) || self.files.files.iter().any(|file| is_known(&file.table.load()))
    }

    fn key_files(&self) -> Vec<KeyFileState> {
        self.files.files.iter().map(ApiKeyFile::state).collect()
    }

    fn maintain(&self) -> BoxFuture<'_, ()> {
        let (files, configured) = (Arc::clone(&self.files), Arc::clone(&self.configured));
        let reload = move || {
            files.reload_if_changed();
            files.record_counts(&configured);
        };
        // The runtime reports a panic; the keys in force stay.
        Box::pin(async move { drop(tokio::task::spawn_blocking(reload).await) })
    }
}

fn invalid_key() -> InvalidCredential {
    InvalidCredential::new("the API key is not valid")
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
