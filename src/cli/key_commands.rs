//! Commands for API keys: `gatepost key new`, `list`, `disable` and `rotate`.

use super::{command_audit::CommandAudit, key_in_force::wait_until_in_force, print_line, revocation_publisher};
use crate::{
    app::ConfiguredKeys,
    audit::os_user_actor,
    auth::{self, ApiKeyState, KeyRotation, NewApiKey, RevokedKey, StoredApiKey},
    config::GatewayConfig,
    key_management::{GeneratedKey, KeyLifetime, KeyRecorder, KeySelection, ManagedKeys, NewKey},
    values::{ConfigDuration, Secret, format_count},
};
use anyhow::{Context, anyhow};
use std::{io::Write as _, path::PathBuf};
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

/// Returns the public prefix of a key. The error does not repeat the text, which may be the key; clap's errors would.
fn parse_prefix(text: &str) -> anyhow::Result<String> {
    let prefix = text.strip_prefix("gp_").unwrap_or(text);
    if prefix.contains('_') {
        return Err(anyhow!("a whole key does not belong on a command line (write the 12 characters after gp_)"));
    }
    Ok(prefix.to_owned())
}

/// The keys that a command concerns.
struct CommandKeys {
    keys: ManagedKeys,
    config: Option<Box<GatewayConfig>>,
}

impl CommandKeys {
    fn find(args: KeyFileArgs) -> anyhow::Result<Self> {
        let (file, config) = match (args.file, args.config) {
            (Some(file), None) => {
                return Ok(Self { keys: ManagedKeys::of_file(file), config: None });
            }
            (file, config) => (file, config.unwrap_or_else(|| "gatepost.yaml".into())),
        };
        let ConfiguredKeys { mut keys, config } = ConfiguredKeys::read(&config)?;
        if let Some(file) = file {
            keys.files = vec![file];
        }
        Ok(Self { keys, config: Some(Box::new(config)) })
    }

    /// Tells the gateways that share a state that keys are disabled or replaced, whatever their own files say.
    fn publish(&self, keys: &[RevokedKey]) -> anyhow::Result<()> {
        let revocations = |now| keys.iter().map(|key| key.to_revocation(now)).collect();
        revocation_publisher::publish(self.config.as_deref(), revocations).map(drop)
    }

    /// Opens the audit log of the configuration, if there is one.
    fn open_audit_log(&self) -> anyhow::Result<CommandAudit> {
        CommandAudit::open(self.config.as_deref())
    }
}

/// Returns who records the changes of a command.
fn recorder(audit: Option<&CommandAudit>) -> KeyRecorder<'_> {
    KeyRecorder { log: audit.and_then(CommandAudit::log), actor: os_user_actor(), address: None }
}

/// Returns the problem of a change that was made and is not recorded.
fn require_recorded(is_recorded: bool) -> anyhow::Result<()> {
    if is_recorded { Ok(()) } else { Err(anyhow!("the change was made, and the audit log could not be written")) }
}

/// Implements `gatepost key`.
///
/// # Errors
/// The configuration or a key file cannot be used, or there is no such key.
pub fn manage_keys(command: KeyCommand) -> anyhow::Result<()> {
    match command {
        KeyCommand::New(args) => create_key(args),
        KeyCommand::List(files) => list_keys(&CommandKeys::find(files)?.keys),
        KeyCommand::Disable(args) => disable_keys(args),
        KeyCommand::Rotate(args) => rotate_key(args),
    }
}

fn create_key(args: NewKeyArgs) -> anyhow::Result<()> {
    let files = CommandKeys::find(args.files)?;
    files.keys.first_file()?;
    let expires = expiry(args.expiry)?;
    let audit = files.open_audit_log()?;
    let key = NewApiKey { caller: args.caller, groups: args.group, tier: args.tier, expires };
    let key = files.keys.create(key, &recorder(Some(&audit)))?;
    print_new_key(&key)?;
    wait_until_in_force(&files.keys, files.config.as_deref());
    require_recorded(key.is_recorded)
}

/// Generates a key of `caller` with the usual lifetime.
///
/// # Errors
/// The name is not valid.
pub(super) fn generate_key_of(caller: String) -> anyhow::Result<GeneratedKey> {
    let key = NewApiKey { caller, expires: KeyLifetime::default().expiry(), ..NewApiKey::default() };
    Ok(GeneratedKey::new(key, None)?)
}

/// Prints a new key.
///
/// # Errors
/// The key cannot be printed.
pub(super) fn print_new_key(key: &NewKey) -> anyhow::Result<()> {
    eprintln!(
        "API key of {} (not shown again; its hash is in {}; {}):",
        key.caller,
        key.file.display(),
        describe_expiry(key.expires)
    );
    print_key(&key.secret)
}

fn rotate_key(args: RotateKeyArgs) -> anyhow::Result<()> {
    let (files, prefix) = (CommandKeys::find(args.files)?, parse_prefix(&args.prefix)?);
    let audit = files.open_audit_log()?;
    let rotation = KeyRotation { overlap: args.overlap.get(), expires: expiry(args.expiry)? };
    let key = files.keys.rotate(&prefix, &rotation, &recorder(Some(&audit)))?;
    eprintln!(
        "API key that replaces {prefix} (not shown again; its hash is in {}; {}; the previous key is valid for {} at \
         most):",
        key.file.display(),
        describe_expiry(key.expires),
        args.overlap
    );
    print_key(&key.secret)?;
    wait_until_in_force(&files.keys, files.config.as_deref());
    let published = files.publish(key.replaced.as_slice());
    published.context("the other gateways do not know that the previous key ends (disable it when it does)")?;
    require_recorded(key.is_recorded)
}

fn disable_keys(args: DisableKeyArgs) -> anyhow::Result<()> {
    let files = CommandKeys::find(args.files)?;
    let selection = match args.caller {
        Some(caller) => KeySelection::OfCaller(caller),
        None => {
            KeySelection::WithPrefixes(args.prefixes.iter().map(|text| parse_prefix(text)).collect::<Result<_, _>>()?)
        }
    };
    // A key is disabled also where that cannot be recorded: it may be stolen.
    let audit = files.open_audit_log();
    let disabled = files.keys.disable(&selection, &recorder(audit.as_ref().ok()))?;
    print_line(&format!("{} disabled", format_count(disabled.disabled.len(), "key")))?;
    let published = files.publish(&disabled.revoked);
    published
        .context("the keys are disabled in the file, and the other gateways do not know it (repeat the command)")?;
    audit.map_err(|why| anyhow!("the keys are disabled, which is not recorded: {why:#}"))?;
    require_recorded(disabled.is_recorded)?;
    if disabled.valid_in_config.is_empty() {
        return Ok(());
    }
    let prefixes = disabled.valid_in_config.join(", ");
    Err(anyhow!(
        "auth.api_keys.keys of the configuration has other keys that stay valid: {prefixes} (remove them there)"
    ))
}

fn list_keys(keys: &ManagedKeys) -> anyhow::Result<()> {
    let (now, mut rows) = (OffsetDateTime::now_utc(), Vec::new());
    rows.push(
        ["PREFIX", "STATE", "EXPIRES", "CREATED", "CALLER", "GROUPS", "TIER", "WHERE"].map(str::to_owned).to_vec(),
    );
    for file in &keys.files {
        let listing = auth::list_api_keys(file)?;
        rows.extend(listing.keys.iter().map(|key| list_row(key, now, &file.display().to_string())));
        for line in listing.invalid_lines {
            eprintln!("{}: line {line} is not a key", file.display());
        }
    }
    rows.extend(keys.in_config.iter().map(|key| list_row(key, now, "configuration")));
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
    Ok(args.expires_in.unwrap_or_default().expiry())
}

fn describe_expiry(expires: Option<OffsetDateTime>) -> String {
    expires.map_or_else(|| "it never expires".to_owned(), |at| format!("it expires on {}", at.date()))
}

fn print_key(secret: &Secret) -> anyhow::Result<()> {
    writeln!(std::io::stdout(), "{}", secret.expose()).context("the key cannot be printed (create another one)")
}
