//! Commands for API keys: `gatepost key new`, `list`, `disable` and `rotate`.

use super::{command_audit::CommandAudit, print_line};
use crate::{
    app::ConfiguredKeys,
    audit::{AuditAction, AuditEntry, os_user_actor},
    auth::{self, ApiKeyState, KeyRotation, StoredApiKey},
    values::{ConfigDuration, Secret, encode_hex, format_count, sha256},
};
use anyhow::{Context, anyhow};
use std::{
    io::Write as _,
    path::{Path, PathBuf},
    str::FromStr,
};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

/// A command for API keys.
#[derive(clap::Subcommand)]
pub enum KeyCommand {
    /// Create a key, print it once, and append its hash to the first configured key file
    New(NewKeyArgs),
    /// List the keys, without their hashes
    List(KeyFileArgs),
    /// Disable keys: gateways refuse them within a second or so
    Disable(DisableKeyArgs),
    /// Create a key like another one, which stays valid for a while, and print it once
    Rotate(RotateKeyArgs),
}

/// Where the keys are.
#[derive(clap::Args)]
pub struct KeyFileArgs {
    /// Configuration file that names the key files and the pepper [default: gatepost.yaml unless --file is given]
    #[arg(short, long)]
    config: Option<PathBuf>,
    /// Key file to use instead of the configured ones; without --config, new keys have no pepper
    #[arg(long)]
    file: Option<PathBuf>,
}

/// When a new key expires.
#[derive(clap::Args)]
struct KeyExpiryArgs {
    /// Lifetime of the key, such as 30d, or never [default: 90d]
    #[arg(long, conflicts_with = "expires")]
    expires_in: Option<KeyLifetime>,
    /// Expiry, as an RFC 3339 date-time
    #[arg(long)]
    expires: Option<String>,
}

/// Arguments of `gatepost key new`.
#[derive(clap::Args)]
pub struct NewKeyArgs {
    #[command(flatten)]
    files: KeyFileArgs,
    /// Caller of the key; grants refer to it as key:NAME
    #[arg(long)]
    caller: String,
    /// Group of the caller; may be repeated
    #[arg(long)]
    group: Vec<String>,
    /// Tier of the caller
    #[arg(long)]
    tier: Option<String>,
    #[command(flatten)]
    expiry: KeyExpiryArgs,
}

/// Arguments of `gatepost key disable`.
#[derive(clap::Args)]
pub struct DisableKeyArgs {
    #[command(flatten)]
    files: KeyFileArgs,
    /// Disable all keys of this caller
    #[arg(long, conflicts_with = "prefixes", required_unless_present = "prefixes")]
    caller: Option<String>,
    /// Prefixes of the keys: the 12 characters after gp_, as `gatepost key list` shows them
    #[arg(required_unless_present = "caller")]
    prefixes: Vec<String>,
}

/// Arguments of `gatepost key rotate`.
#[derive(clap::Args)]
pub struct RotateKeyArgs {
    #[command(flatten)]
    files: KeyFileArgs,
    /// Prefix of the key: the 12 characters after gp_, as `gatepost key list` shows it
    prefix: String,
    /// How long the previous key stays valid
    #[arg(long, default_value = "1d")]
    overlap: ConfigDuration,
    #[command(flatten)]
    expiry: KeyExpiryArgs,
}

/// Lifetime of a key.
#[derive(Clone, Copy, Debug)]
enum KeyLifetime {
    Limited(ConfigDuration),
    Unlimited,
}

impl Default for KeyLifetime {
    fn default() -> Self {
        Self::Limited(ConfigDuration::from_secs(90 * 86_400))
    }
}

impl FromStr for KeyLifetime {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "never" {
            return Ok(Self::Unlimited);
        }
        let lifetime: ConfigDuration = text.parse().map_err(|why| format!("{why}, or never"))?;
        if lifetime < ConfigDuration::from_secs(1) {
            return Err("must be at least 1s (gatepost key disable ends a key)".to_owned());
        }
        Ok(Self::Limited(lifetime))
    }
}

/// Returns the public prefix of a key. The error does not repeat the text, which may be the key; clap's errors would.
fn parse_prefix(text: &str) -> anyhow::Result<String> {
    let prefix = text.strip_prefix("gp_").unwrap_or(text);
    if prefix.contains('_') {
        return Err(anyhow!("a whole key does not belong on a command line (write the 12 characters after gp_)"));
    }
    Ok(prefix.to_owned())
}

/// The key files that a command concerns.
struct KeyFiles {
    files: Vec<PathBuf>,
    configured: Option<ConfiguredKeys>,
}

impl KeyFiles {
    fn find(args: KeyFileArgs) -> anyhow::Result<Self> {
        let (file, config) = match (args.file, args.config) {
            (Some(file), None) => return Ok(Self { files: vec![file], configured: None }),
            (file, config) => (file, config.unwrap_or_else(|| "gatepost.yaml".into())),
        };
        let configured = ConfiguredKeys::read(&config)?;
        let files = file.map_or_else(|| configured.files.clone(), |file| vec![file]);
        Ok(Self { files, configured: Some(configured) })
    }

    fn first(&self) -> anyhow::Result<&Path> {
        let first = self.files.first().map(PathBuf::as_path);
        first.context("auth.api_keys.files is empty (name a file there, or use --file)")
    }

    /// Opens the audit log of the configuration, if there is one.
    fn open_audit_log(&self) -> anyhow::Result<CommandAudit> {
        CommandAudit::open(self.configured.as_ref().map(|configured| &configured.config))
    }

    fn load_pepper(&self) -> anyhow::Result<Option<Secret>> {
        self.configured.as_ref().map_or(Ok(None), ConfiguredKeys::load_pepper)
    }

    /// Returns the prefixes of the selected keys that the configuration itself has and that are valid: no command
    /// changes the configuration.
    fn enabled_in_config(&self, is_selected: impl Fn(&StoredApiKey) -> bool) -> Vec<&str> {
        let now = OffsetDateTime::now_utc();
        let keys = self.configured.iter().flat_map(|configured| &configured.keys);
        let enabled = keys.filter(|key| is_selected(key) && ApiKeyState::of(key, now) == ApiKeyState::Valid);
        enabled.map(|key| &*key.prefix).collect()
    }

    /// The problem that no file has the key, with the reason where it is in the configuration itself.
    fn absence_of(&self, prefix: &str) -> anyhow::Error {
        let mut in_config = self.configured.iter().flat_map(|configured| &configured.keys);
        if in_config.any(|key| key.prefix == prefix) {
            return anyhow!("the key {prefix} is in auth.api_keys.keys of the configuration (change it there)");
        }
        anyhow!("there is no key with the prefix {prefix} (gatepost key list shows the keys)")
    }
}

/// Implements `gatepost key`.
///
/// # Errors
/// The configuration or a key file cannot be used, or there is no such key.
pub fn manage_keys(command: KeyCommand) -> anyhow::Result<()> {
    match command {
        KeyCommand::New(args) => create_key(args),
        KeyCommand::List(files) => list_keys(&KeyFiles::find(files)?),
        KeyCommand::Disable(args) => disable_keys(args),
        KeyCommand::Rotate(args) => rotate_key(args),
    }
}

fn create_key(args: NewKeyArgs) -> anyhow::Result<()> {
    let files = KeyFiles::find(args.files)?;
    let (file, pepper) = (files.first()?, files.load_pepper()?);
    let expires = expiry(args.expiry)?;
    let key = auth::NewApiKey { caller: args.caller, groups: args.group, tier: args.tier, expires };
    // Before the change: a key that cannot be recorded is not created.
    let audit = files.open_audit_log()?;
    let key = GeneratedKey::new(key, pepper.as_ref())?;
    let change = KeyChange::begin(AuditAction::KeyCreated, file);
    let (caller, prefix) = (key.key.caller.clone(), prefix_of(&key.secret).to_owned());
    key.append_to(file)?;
    let recorded = audit.record(change.end(&prefix, &caller));
    key.print(file)?;
    recorded
}

/// A change of a key file that is recorded when it was made.
struct KeyChange<'a> {
    action: AuditAction,
    file: &'a Path,
    digest_before: Option<String>,
}

impl<'a> KeyChange<'a> {
    fn begin(action: AuditAction, file: &'a Path) -> Self {
        Self { action, file, digest_before: digest_of(file) }
    }

    /// Returns the entry of the change of one key.
    fn end(&self, prefix: &str, caller: &str) -> AuditEntry {
        let entry = AuditEntry::new(self.action, os_user_actor(), prefix).with_detail(self.file.display().to_string());
        entry.with_digests(self.digest_before.clone(), digest_of(self.file)).with_caller(format!("key:{caller}"))
    }
}

/// Returns the SHA-256 of a file, with which the gateway records that it read the file.
fn digest_of(file: &Path) -> Option<String> {
    std::fs::read(file).ok().map(|content| encode_hex(&sha256(&content)))
}

/// Returns the public prefix of a key.
fn prefix_of(key: &Secret) -> &str {
    key.expose().split('_').nth(1).unwrap_or_default()
}

/// A new key that is in no file yet.
pub(super) struct GeneratedKey {
    key: auth::NewApiKey,
    secret: Secret,
    line: String,
}

impl GeneratedKey {
    /// Generates a key of `caller` with the usual lifetime.
    ///
    /// # Errors
    /// The name is not valid.
    pub(super) fn of_caller(caller: String) -> anyhow::Result<Self> {
        let expires = expiry(KeyExpiryArgs { expires_in: None, expires: None })?;
        Self::new(auth::NewApiKey { caller, expires, ..auth::NewApiKey::default() }, None)
    }

    fn new(key: auth::NewApiKey, pepper: Option<&Secret>) -> anyhow::Result<Self> {
        let (secret, line) = auth::generate_api_key(&key, pepper).map_err(|why| anyhow!(why))?;
        Ok(Self { key, secret, line })
    }

    /// Adds the key to a file, and prints it.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn add_to(self, file: &Path) -> anyhow::Result<()> {
        self.append_to(file)?;
        self.print(file)
    }

    fn append_to(&self, file: &Path) -> anyhow::Result<()> {
        auth::append_api_key(file, &self.line).map_err(|why| anyhow!(why))
    }

    fn print(&self, file: &Path) -> anyhow::Result<()> {
        eprintln!(
            "API key of {} (not shown again; its hash is in {}; {}):",
            self.key.caller,
            file.display(),
            describe_expiry(self.key.expires)
        );
        print_key(&self.secret)
    }
}

fn rotate_key(args: RotateKeyArgs) -> anyhow::Result<()> {
    let (files, prefix) = (KeyFiles::find(args.files)?, parse_prefix(&args.prefix)?);
    let (pepper, audit) = (files.load_pepper()?, files.open_audit_log()?);
    let rotation = KeyRotation { overlap: args.overlap.get(), expires: expiry(args.expiry)? };
    for file in &files.files {
        let change = KeyChange::begin(AuditAction::KeyRotated, file);
        let rotated = auth::rotate_api_key(file, &prefix, &rotation, pepper.as_ref()).map_err(|why| anyhow!(why))?;
        if let Some(secret) = rotated {
            let entry = change.end(prefix_of(&secret), &caller_of(file, &prefix));
            let recorded = audit.record(entry.with_detail(format!("replaces {prefix} in {}", file.display())));
            eprintln!(
                "API key that replaces {prefix} (not shown again; its hash is in {}; {}; the previous key is valid for {} \
                 at most):",
                file.display(),
                describe_expiry(rotation.expires),
                args.overlap
            );
            print_key(&secret)?;
            return recorded;
        }
    }
    Err(files.absence_of(&prefix))
}

/// Returns the caller of the key with a prefix.
fn caller_of(file: &Path, prefix: &str) -> String {
    let keys = auth::list_api_keys(file).map(|listing| listing.keys).unwrap_or_default();
    keys.into_iter().find(|key| key.prefix == prefix).map(|key| key.caller).unwrap_or_default()
}

fn disable_keys(args: DisableKeyArgs) -> anyhow::Result<()> {
    let files = KeyFiles::find(args.files)?;
    let prefixes = args.prefixes.iter().map(|text| parse_prefix(text)).collect::<anyhow::Result<Vec<String>>>()?;
    let is_selected = |key: &StoredApiKey| args.caller.as_ref() == Some(&key.caller) || prefixes.contains(&key.prefix);
    let (mut found, mut disabled) = (Vec::new(), 0);
    for file in &files.files {
        let listing = auth::list_api_keys(file).map_err(|why| anyhow!(why))?;
        found.extend(listing.keys.into_iter().filter(is_selected));
    }
    // Nothing changes where a key is misspelt.
    if let Some(absent) = prefixes.iter().find(|prefix| !found.iter().any(|key| key.prefix == **prefix)) {
        return Err(files.absence_of(absent));
    }
    let enabled_in_config = files.enabled_in_config(is_selected);
    if let (Some(caller), [], []) = (&args.caller, &*found, &*enabled_in_config) {
        return Err(anyhow!("the caller {caller} has no key in a file (gatepost key list shows the keys)"));
    }
    // A key is disabled also where that cannot be recorded: it may be stolen.
    let audit = files.open_audit_log();
    let mut recorded =
        audit.as_ref().map(drop).map_err(|why| anyhow!("the keys are disabled, which is not recorded: {why:#}"));
    for file in &files.files {
        let change = KeyChange::begin(AuditAction::KeyDisabled, file);
        let enabled = auth::list_api_keys(file).map_err(|why| anyhow!(why))?.keys;
        disabled += auth::disable_api_keys(file, is_selected).map_err(|why| anyhow!(why))?;
        for key in enabled.iter().filter(|key| !key.disabled && is_selected(key)) {
            if let Ok(audit) = &audit {
                recorded = recorded.and(audit.record(change.end(&key.prefix, &key.caller)));
            }
        }
    }
    print_line(&format!("{} disabled", format_count(disabled, "key")))?;
    recorded?;
    if enabled_in_config.is_empty() {
        return Ok(());
    }
    let prefixes = enabled_in_config.join(", ");
    Err(anyhow!(
        "auth.api_keys.keys of the configuration has other keys that stay valid: {prefixes} (remove them there)"
    ))
}

fn list_keys(files: &KeyFiles) -> anyhow::Result<()> {
    let (now, mut rows) = (OffsetDateTime::now_utc(), Vec::new());
    rows.push(
        ["PREFIX", "STATE", "EXPIRES", "CREATED", "CALLER", "GROUPS", "TIER", "WHERE"].map(str::to_owned).to_vec(),
    );
    for file in &files.files {
        let listing = auth::list_api_keys(file).map_err(|why| anyhow!(why))?;
        rows.extend(listing.keys.iter().map(|key| list_row(key, now, &file.display().to_string())));
        for line in listing.invalid_lines {
            eprintln!("{}: line {line} is not a key", file.display());
        }
    }
    let configured = files.configured.iter().flat_map(|configured| &configured.keys);
    rows.extend(configured.map(|key| list_row(key, now, "configuration")));
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..8).map(|column| width(column).unwrap_or_default()).collect();
    for row in &rows {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}", width = *width)).collect();
        print_line(cells.join("  ").trim_end())?;
    }
    Ok(())
}

fn list_row(key: &StoredApiKey, now: OffsetDateTime, place: &str) -> Vec<String> {
    // A file that was edited by hand may contain control characters.
    let shown = |text: &str| if text.is_empty() { "-".to_owned() } else { text.escape_debug().to_string() };
    let state = match ApiKeyState::of(key, now) {
        ApiKeyState::Valid => "valid",
        ApiKeyState::Expired => "expired",
        ApiKeyState::Disabled => "disabled",
        ApiKeyState::Invalid => "invalid",
    };
    vec![
        shown(&key.prefix),
        state.to_owned(),
        shown(key.expires.as_deref().unwrap_or("never")),
        shown(key.created.as_deref().unwrap_or_default()),
        shown(&key.caller),
        shown(&key.groups.join(",")),
        shown(key.tier.as_deref().unwrap_or_default()),
        place.to_owned(),
    ]
}

/// Returns the time at which a new key expires; `None` is never.
fn expiry(args: KeyExpiryArgs) -> anyhow::Result<Option<OffsetDateTime>> {
    if let Some(text) = args.expires {
        let expires = OffsetDateTime::parse(&text, &Rfc3339)
            .map_err(|_| anyhow!("--expires {text:?} is not a date-time (write it as 2030-01-31T00:00:00Z)"))?;
        return Ok(Some(expires));
    }
    match args.expires_in.unwrap_or_default() {
        KeyLifetime::Limited(lifetime) => Ok(Some(OffsetDateTime::now_utc() + lifetime.get())),
        KeyLifetime::Unlimited => Ok(None),
    }
}

fn describe_expiry(expires: Option<OffsetDateTime>) -> String {
    expires.map_or_else(|| "it never expires".to_owned(), |at| format!("it expires on {}", at.date()))
}

fn print_key(secret: &Secret) -> anyhow::Result<()> {
    writeln!(std::io::stdout(), "{}", secret.expose()).context("the key cannot be printed (create another one)")
}
