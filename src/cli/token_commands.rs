//! Commands for tokens: `gatepost token revoke`.

use super::{
    admin_request::{admin_client, admin_url, error_message},
    command_audit::CommandAudit,
    print_line,
    resolve_command::CommandError,
    revocation_publisher,
};
use crate::{
    app,
    audit::{AuditAction, AuditEntry, os_user_actor},
    auth::TokenRevocationRequest,
    config::{GatewayConfig, LoadedConfig},
    net::FetchLimits,
    values::{ByteSize, ConfigDuration, SecretRef},
};
use anyhow::{Context, anyhow};
use serde_json::Value;
use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

/// Maximum size of a token, with white space around it.
const MAX_TOKEN_BYTES: u64 = 17 << 10;

/// A command for bearer tokens.
#[derive(clap::Subcommand)]
pub enum TokenCommand {
    /// Revoke a token before it expires, or all tokens of a subject that were issued until now: gateways that share a
    /// state refuse them within a second
    Revoke(RevokeTokenArgs),
}

/// Arguments of `gatepost token revoke`.
#[derive(clap::Args)]
#[command(
    after_help = "With a section state, the command writes to the shared state. Without it, or with --url, it asks a running gateway, which forgets the revocation when it stops."
)]
pub struct RevokeTokenArgs {
    /// File with the token, or - for stdin
    #[arg(long, value_name = "FILE", conflicts_with_all = ["issuer", "jti", "subject"], required_unless_present = "issuer")]
    token_file: Option<PathBuf>,
    /// Issuer of the tokens: iss
    #[arg(long)]
    issuer: Option<String>,
    /// Id of the token: jti
    #[arg(long, requires = "issuer", conflicts_with = "subject")]
    jti: Option<String>,
    /// Subject, of whose tokens those issued until now are revoked: sub
    #[arg(long, requires = "issuer")]
    subject: Option<String>,
    /// How long from now such a token is valid at most, such as 12h [default: exp of the token, or 30d]
    #[arg(long)]
    max_lifetime: Option<ConfigDuration>,
    /// Configuration file of the gateway
    #[arg(short, long, default_value = "gatepost.yaml")]
    config: PathBuf,
    /// URL of the admin listener of the gateway to ask, also where the configuration has a shared state
    #[arg(long)]
    url: Option<String>,
    /// API key of the operator who asks, as env:NAME or file:PATH, where admin.access requires one
    #[arg(long, value_name = "SECRET")]
    operator_key: Option<SecretRef>,
    /// How long to wait for the answer of a gateway
    #[arg(long, default_value = "10s")]
    timeout: ConfigDuration,
}

/// Implements `gatepost token`.
///
/// # Errors
/// The tokens are not revoked, or that is not recorded in the audit log.
pub fn manage_tokens(command: TokenCommand) -> anyhow::Result<()> {
    let TokenCommand::Revoke(args) = command;
    let request = args.request()?;
    if args.url.is_none() {
        let loaded = LoadedConfig::read(&args.config).with_context(|| args.config.display().to_string())?;
        if loaded.config.state.is_some() {
            loaded.config.accepted_tokens().require_possible(&request).map_err(|why| anyhow!(why))?;
            return revoke_in_shared_state(&loaded.config, &request);
        }
    }
    let answer = args.ask_gateway(&request).map_err(|why| match why {
        CommandError::Usage(why) | CommandError::Failed(why) => anyhow!(why),
    })?;
    print_line(match answer.get("published") {
        None => "revoked at this gateway only (the gateway shares no state with others)",
        Some(Value::Bool(true)) => "revoked at all gateways",
        Some(_) => "revoked at this gateway; the others learn of it when the shared state is available",
    })
}

impl RevokeTokenArgs {
    fn request(&self) -> anyhow::Result<TokenRevocationRequest> {
        let request = TokenRevocationRequest {
            token: self.token_file.as_deref().map(read_token).transpose()?,
            issuer: self.issuer.clone(),
            jti: self.jti.clone(),
            subject: self.subject.clone(),
            max_lifetime: self.max_lifetime,
        };
        // Before anything is asked; the time is that of the gateway then.
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        request.select(now).map_err(|why| anyhow!(why))?;
        Ok(request)
    }

    fn ask_gateway(&self, request: &TokenRevocationRequest) -> Result<Value, CommandError> {
        let url = format!("{}/tokens/revoke", admin_url(&self.config, self.url.as_deref())?);
        let client = admin_client(self.operator_key.as_ref())?;
        let failed = |why: String| CommandError::Failed(why);
        let body = serde_json::to_vec(request).map_err(|why| failed(why.to_string()))?;
        let limits = FetchLimits { time: self.timeout, size: ByteSize::from_kib(64) };
        let runtime = app::build_runtime().map_err(|why| failed(why.to_string()))?;
        let reply = runtime.block_on(client.ask_json(&url, body, limits)).map_err(|why| {
            failed(format!("{why}: is the gateway running? (admin.address or --url names its listener)"))
        })?;
        let answer: Option<Value> = serde_json::from_slice(&reply.body).ok();
        match (reply.status, answer) {
            (200 | 202, Some(answer)) => Ok(answer),
            (status, answer) => {
                let absent = "the listener revokes no tokens (is it the admin listener?)";
                let message = error_message(answer.as_ref(), absent);
                Err(failed(format!("the gateway answered with status {status}: {message}")))
            }
        }
    }
}

/// Revokes tokens at all gateways that share the state of a configuration.
fn revoke_in_shared_state(config: &GatewayConfig, request: &TokenRevocationRequest) -> anyhow::Result<()> {
    // Tokens are revoked also where that cannot be recorded: they may be stolen.
    let audit = CommandAudit::open(Some(config));
    let mut selected = Err("the configuration has no shared state".to_owned());
    revocation_publisher::publish(Some(config), |now: Duration| {
        selected = request.select(now);
        selected.iter().map(|tokens| tokens.revocation.clone()).collect()
    })
    .context("the tokens are not revoked")?;
    let tokens = selected.map_err(|why| anyhow!(why))?;
    print_line("revoked at all gateways")?;
    let entry = AuditEntry::new(AuditAction::TokensRevoked, os_user_actor(), tokens.subject);
    let audit = audit.map_err(|why| anyhow!("the tokens are revoked, which is not recorded: {why:#}"))?;
    audit.record(match tokens.detail {
        Some(detail) => entry.with_detail(detail),
        None => entry,
    })
}

/// Reads a token. The error does not repeat it.
fn read_token(file: &Path) -> anyhow::Result<String> {
    let read =
        if file == Path::new("-") { read_bounded(io::stdin().lock()) } else { File::open(file).and_then(read_bounded) };
    Ok(read.with_context(|| format!("{} cannot be read", file.display()))?.trim().to_owned())
}

fn read_bounded(source: impl Read) -> io::Result<String> {
    let mut text = String::new();
    source.take(MAX_TOKEN_BYTES).read_to_string(&mut text)?;
    Ok(text)
}
