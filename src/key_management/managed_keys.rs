//! The keys of a configuration, and their changes.

use super::{
    key_change_error::KeyChangeError,
    key_recorder::{ChangedKey, KeyRecorder},
};
use crate::{
    audit::AuditAction,
    auth::{self, ApiKeyState, ApiKeysConfig, KeyFileError, KeyRotation, NewApiKey, RevokedKey, StoredApiKey},
    values::{Secret, SecretRef, nearest_name},
};
use std::path::{Path, PathBuf};
use time::OffsetDateTime;

/// The key files, and the keys in the configuration itself.
#[derive(Clone, Debug, Default)]
pub struct ManagedKeys {
    /// Key files. New keys are appended to the first.
    pub files: Vec<PathBuf>,
    /// Keys in the configuration itself, which are changed there.
    pub in_config: Vec<StoredApiKey>,
    pepper: Option<SecretRef>,
}

/// A key that was created.
pub struct NewKey {
    /// The key itself, which is shown once.
    pub secret: Secret,
    /// Name of its caller, without `key:`.
    pub caller: String,
    /// When it expires; `None` is never.
    pub expires: Option<OffsetDateTime>,
    /// The file that has its hash.
    pub file: PathBuf,
    /// Whether the entry in the audit log is on disk.
    pub is_recorded: bool,
    /// The key that it replaces, which other gateways must learn of.
    pub replaced: Option<RevokedKey>,
}

/// Which keys are disabled.
#[derive(Clone, Debug)]
pub enum KeySelection {
    /// All keys of a caller, by its name without `key:`.
    OfCaller(String),
    /// The keys with these prefixes.
    WithPrefixes(Vec<String>),
}

impl KeySelection {
    fn contains(&self, key: &StoredApiKey) -> bool {
        match self {
            Self::OfCaller(caller) => key.caller == *caller,
            Self::WithPrefixes(prefixes) => prefixes.contains(&key.prefix),
        }
    }
}

/// What was disabled.
#[derive(Clone, Debug)]
pub struct DisabledKeys {
    /// The keys that were enabled before.
    pub disabled: Vec<StoredApiKey>,
    /// Prefixes of selected keys in the configuration itself, which stay valid.
    pub valid_in_config: Vec<String>,
    /// Whether the entries in the audit log are on disk.
    pub is_recorded: bool,
    /// All selected keys of the files, also those that were disabled before: other gateways must learn of them, and may
    /// not have done so then.
    pub revoked: Vec<RevokedKey>,
}

impl From<&ApiKeysConfig> for ManagedKeys {
    fn from(config: &ApiKeysConfig) -> Self {
        let files = config.files.iter().map(|file| file.to_path_buf()).collect();
        Self { files, in_config: config.keys.clone(), pepper: config.pepper.clone() }
    }
}

impl ManagedKeys {
    /// Returns the keys of one file, whose hashes have no pepper.
    pub fn of_file(file: PathBuf) -> Self {
        Self { files: vec![file], ..Self::default() }
    }

    /// Returns the file to which new keys are appended.
    ///
    /// # Errors
    /// There is none.
    pub fn first_file(&self) -> Result<&Path, KeyChangeError> {
        self.files.first().map(PathBuf::as_path).ok_or(KeyChangeError::NoKeyFile)
    }

    /// Loads the pepper of the hashes, if there is one.
    fn load_pepper(&self) -> Result<Option<Secret>, KeyChangeError> {
        self.pepper.as_ref().map(SecretRef::load).transpose().map_err(KeyChangeError::Pepper)
    }

    /// Creates a key in the first file. A key whose entry does not reach the disk is removed again. Blocks.
    ///
    /// # Errors
    /// A name is not valid, or a file cannot be written; nothing was created then. Or the change could not be recorded.
    pub fn create(&self, key: NewApiKey, recorder: &KeyRecorder<'_>) -> Result<NewKey, KeyChangeError> {
        let (file, pepper) = (self.first_file()?, self.load_pepper()?);
        let key = GeneratedKey::new(key, pepper.as_ref())?;
        recorder.require_writable()?;
        let change = recorder.begin(AuditAction::KeyCreated, file);
        key.append_to(file)?;
        let GeneratedKey { key: NewApiKey { caller, expires, .. }, secret, line } = key;
        let changed = ChangedKey { prefix: prefix_of(&secret), caller: &caller, replaces: None };
        if !change.record(&changed) {
            return Err(change.undone(&changed, auth::retract_api_key(file, &line)));
        }
        Ok(NewKey { secret, caller, expires, file: file.to_owned(), is_recorded: true, replaced: None })
    }

    /// Creates a key that replaces the one with a prefix, in its file. A change whose entry does not reach the disk is
    /// undone. Blocks.
    ///
    /// # Errors
    /// There is no such key, it is not valid, or a file cannot be written; nothing was changed then.
    pub fn rotate(
        &self,
        prefix: &str,
        rotation: &KeyRotation,
        recorder: &KeyRecorder<'_>,
    ) -> Result<NewKey, KeyChangeError> {
        let pepper = self.load_pepper()?;
        recorder.require_writable()?;
        for file in &self.files {
            let change = recorder.begin(AuditAction::KeyRotated, file);
            let before = std::fs::read_to_string(file);
            if let Some(auth::RotatedKey { secret, caller, previous }) =
                auth::rotate_api_key(file, prefix, rotation, pepper.as_ref())?
            {
                let changed = ChangedKey { prefix: prefix_of(&secret), caller: &caller, replaces: Some(prefix) };
                if !change.record(&changed) {
                    let unreadable = |error| KeyFileError::Unreadable { file: file.clone(), error };
                    let texts = before.and_then(|before| Ok((before, std::fs::read_to_string(file)?)));
                    let restored = texts
                        .map_err(unreadable)
                        .and_then(|(before, after)| auth::restore_key_file(file, &before, &after));
                    return Err(change.undone(&changed, restored));
                }
                let (expires, file) = (rotation.expires, file.clone());
                return Ok(NewKey { secret, caller, expires, file, is_recorded: true, replaced: Some(previous) });
            }
        }
        Err(self.absence_of(prefix))
    }

    /// Disables keys, also where that cannot be recorded: they may be stolen. Nothing changes where a key is absent.
    /// Blocks.
    ///
    /// # Errors
    /// There is no such key, or a file cannot be read or written.
    pub fn disable(
        &self,
        selection: &KeySelection,
        recorder: &KeyRecorder<'_>,
    ) -> Result<DisabledKeys, KeyChangeError> {
        let (mut found, mut other_callers): (Vec<RevokedKey>, Vec<String>) = (Vec::new(), Vec::new());
        for file in &self.files {
            let mut add_if_selected = |key: StoredApiKey| {
                if selection.contains(&key) {
                    found.push(auth::revoke_disabled_key(&key));
                } else {
                    other_callers.push(key.caller);
                }
            };
            auth::visit_api_keys(file, &mut add_if_selected)?;
        }
        let valid_in_config = self.valid_in_config(selection);
        match selection {
            KeySelection::WithPrefixes(prefixes) => {
                if let Some(absent) = prefixes.iter().find(|prefix| !found.iter().any(|key| key.prefix == **prefix)) {
                    return Err(self.absence_of(absent));
                }
            }
            KeySelection::OfCaller(caller) if found.is_empty() && valid_in_config.is_empty() => {
                let nearest = nearest_name(caller, other_callers.iter().map(String::as_str)).map(str::to_owned);
                return Err(KeyChangeError::NoKeyOfCaller { caller: caller.clone(), nearest });
            }
            KeySelection::OfCaller(_) => {}
        }
        let (mut disabled, mut is_recorded) = (Vec::new(), true);
        for file in &self.files {
            let change = recorder.begin(AuditAction::KeyDisabled, file);
            let of_file = auth::disable_api_keys(file, |key| selection.contains(key))?;
            for StoredApiKey { prefix, caller, .. } in &of_file {
                is_recorded &= change.record(&ChangedKey { prefix, caller, replaces: None });
            }
            disabled.extend(of_file);
        }
        Ok(DisabledKeys { disabled, valid_in_config, is_recorded, revoked: found })
    }

    /// Returns the prefixes of the selected keys that the configuration itself has and that are valid.
    fn valid_in_config(&self, selection: &KeySelection) -> Vec<String> {
        let now = OffsetDateTime::now_utc();
        let valid = self
            .in_config
            .iter()
            .filter(|key| selection.contains(key) && ApiKeyState::of(key, now) == ApiKeyState::Valid);
        valid.map(|key| key.prefix.clone()).collect()
    }

    /// Returns the problem that no file has the key.
    fn absence_of(&self, prefix: &str) -> KeyChangeError {
        let is_in_config = self.in_config.iter().any(|key| key.prefix == prefix);
        KeyChangeError::NoSuchKey { prefix: prefix.to_owned(), is_in_config }
    }
}

/// A new key that is in no file yet.
pub struct GeneratedKey {
    key: NewApiKey,
    /// The key itself.
    pub secret: Secret,
    line: String,
}

impl GeneratedKey {
    /// Generates a key.
    ///
    /// # Errors
    /// A name is not valid.
    pub fn new(key: NewApiKey, pepper: Option<&Secret>) -> Result<Self, KeyChangeError> {
        let (secret, line) = auth::generate_api_key(&key, pepper).map_err(KeyChangeError::InvalidKey)?;
        Ok(Self { key, secret, line })
    }

    /// Adds the key to a file. Nothing records it.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn append_to(&self, file: &Path) -> Result<(), KeyFileError> {
        auth::append_api_key(file, &self.line)
    }

    /// Adds the key to a file that no audit log covers.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn add_to(self, file: &Path) -> Result<NewKey, KeyFileError> {
        self.append_to(file)?;
        let NewApiKey { caller, expires, .. } = self.key;
        let file = file.to_owned();
        Ok(NewKey { secret: self.secret, caller, expires, file, is_recorded: true, replaced: None })
    }
}

/// Returns the public prefix of a key.
fn prefix_of(key: &Secret) -> &str {
    key.expose().split('_').nth(1).unwrap_or_default()
}
