//! Commands for the audit log: `gatepost audit verify`.

use super::print_line;
use crate::{
    audit::{ChainProof, ChainVerification, KnownLine, list_files},
    config::{GatewayConfig, LoadedConfig},
    signing::{SigningKey, TrustedKeys},
    values::{SecretRef, format_count},
};
use anyhow::{Context, anyhow};
use std::path::{Path, PathBuf};

/// A command for the audit log.
#[derive(clap::Subcommand)]
pub enum AuditCommand {
    /// Verify the chain over all files of the log, and name the first line that was changed, removed or cut off
    Verify(VerifyArgs),
}

/// Arguments of `gatepost audit verify`.
#[derive(clap::Args)]
pub struct VerifyArgs {
    /// Files of the log, in any order [default: audit.file of the configuration, with its renamed files]
    files: Vec<PathBuf>,
    /// Configuration file, for the log and the key of its checkpoints [default: gatepost.yaml unless files are given]
    #[arg(short, long)]
    config: Option<PathBuf>,
    /// JWK Set with the key of the checkpoints, as the gateway publishes it at /.well-known/jwks.json
    #[arg(long)]
    jwks: Option<PathBuf>,
    /// A line that the log must have, as an earlier verification printed it
    #[arg(long, value_name = "NUMBER:SHA256")]
    known_line: Option<KnownLine>,
    /// A copy of the log's head from another folder [default: audit.anchor_file of the configuration]
    #[arg(long, value_name = "FILE")]
    anchor: Option<PathBuf>,
}

/// Implements `gatepost audit`.
///
/// # Errors
/// The first broken line, or a file that cannot be read.
pub fn run_audit_command(command: AuditCommand) -> anyhow::Result<()> {
    let AuditCommand::Verify(args) = command;
    let config = match (args.config, args.files.is_empty()) {
        (None, false) => None,
        (config, _) => Some(config.unwrap_or_else(|| "gatepost.yaml".into())),
    };
    let loaded = config.as_deref().map(read_config).transpose()?;
    let files = match (&loaded, args.files.is_empty()) {
        (Some(config), true) => {
            let section = config.audit.as_ref().context("the configuration has no section 'audit' (name the files)")?;
            list_files(&section.file)
                .with_context(|| format!("the folder of {} cannot be read", section.file.display()))?
        }
        _ => args.files,
    };
    let keys = match (&args.jwks, loaded.as_ref().and_then(|config| config.directory.signing_key.as_ref())) {
        (Some(jwks), _) => Some(TrustedKeys::from_file(jwks).map_err(|why| anyhow!(why))?),
        (None, Some(key)) => Some(public_keys(key).map_err(|why| anyhow!("directory.signing_key: {why}"))?),
        (None, None) => None,
    };
    let section = loaded.as_ref().and_then(|config| config.audit.as_ref());
    let configured_anchor = section.and_then(|section| Some(section.anchor_file.as_ref()?.to_path_buf()));
    let anchor_file = args.anchor.or(configured_anchor);
    let verification = ChainVerification { keys, known_line: args.known_line, anchor_file };
    let proof = verification.verify(&files).map_err(|why| anyhow!(why))?;
    print_proof(&proof)
}

fn read_config(path: &Path) -> anyhow::Result<GatewayConfig> {
    Ok(LoadedConfig::read(path).with_context(|| path.display().to_string())?.config)
}

fn public_keys(key: &SecretRef) -> Result<TrustedKeys, String> {
    TrustedKeys::from_jwks(&SigningKey::from_pem(key.load()?.expose())?.jwks())
}

fn print_proof(proof: &ChainProof) -> anyhow::Result<()> {
    let ChainProof { files, lines, first_sequence, last, signed_up_to, anchored_up_to, unproven } = proof;
    let (lines, files) = (format_count(*lines, "line"), format_count(*files, "file"));
    print_line(&format!("valid: {lines} in {files}, {first_sequence} to {}", last.sequence))?;
    print_line(&format!("last line: {}:{}", last.sequence, last.hash))?;
    for (name, sequence) in [("signed", signed_up_to), ("in the anchor", anchored_up_to)] {
        if let Some(sequence) = sequence {
            print_line(&format!("{name}: up to line {sequence}"))?;
        }
    }
    unproven.iter().try_for_each(|what| print_line(what))
}
