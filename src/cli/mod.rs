//! Commands beside the gateway: the probe of a running one, API keys, tokens, verification of the audit log, export, import and history of the registry, and
//! resolution and calls of agents by name. The registry commands access the store directly, also while gateways use it.

mod admin_request;
mod audit_command;
mod call_command;
mod command_audit;
mod doctor_command;
mod explain_command;
mod explained_caller;
mod explanation_text;
mod health_command;
mod init_command;
mod key_commands;
mod key_in_force;
mod resolve_command;
mod revocation_publisher;
mod systemd_unit;
mod token_commands;

pub use audit_command::{AuditCommand, run_audit_command};
pub use call_command::{CallArgs, call};
pub use doctor_command::{DoctorArgs, doctor};
pub use explain_command::{ExplainArgs, explain};
pub use health_command::{HealthArgs, health};
pub use init_command::{InitArgs, init};
pub use key_commands::{KeyCommand, manage_keys};
pub use resolve_command::{ResolveArgs, resolve};
pub use token_commands::{TokenCommand, manage_tokens};

use crate::{
    agent::AgentId,
    app,
    audit::{AuditAction, AuditEntry, os_user_actor},
    config::{LoadedConfig, strip_os_error_codes},
    registry::{DocumentRevision, EmbeddedRegistry},
    values::{format_count, visible_text},
};
use anyhow::{Context, anyhow};
use command_audit::CommandAudit;
use serde_json::{Value, json};
use std::{
    io::{ErrorKind, Write as _},
    path::Path,
    sync::Arc,
};
use time::format_description::well_known::Rfc3339;

/// Implements `gatepost registry export`.
///
/// # Errors
/// The configuration, the store or the folder cannot be used.
pub fn export(config: &Path, folder: &Path) -> anyhow::Result<()> {
    let count =
        with_registry(config, async |registry| registry.archive().export(folder).await.map_err(|why| anyhow!(why)))?;
    print_line(&format!("{} in {}", format_count(count, "document"), folder.display()))
}

/// Implements `gatepost registry import`.
///
/// # Errors
/// As [`export`], or documents were rejected; the other documents are imported.
pub fn import(config: &Path, folder: &Path, owner: Option<&str>) -> anyhow::Result<()> {
    let loaded = LoadedConfig::read(config).with_context(|| config.display().to_string())?;
    let audit = CommandAudit::open(Some(&loaded.config))?;
    let report = with_registry(config, async |registry| {
        registry.archive().import(folder, owner).await.map_err(|why| anyhow!(why))
    })?;
    for document in &report.rejected {
        print_error(&format!("not imported: {}: {}", document.file.display(), document.reason));
    }
    let imported = format!("{} imported", format_count(report.imported, "document"));
    let entry = AuditEntry::new(AuditAction::DocumentsImported, os_user_actor(), folder.display().to_string());
    let refused = report.rejected.len();
    audit.record(entry.with_detail(format!("{imported}, {refused} rejected")))?;
    print_line(&imported)?;
    match report.rejected.len() {
        0 => Ok(()),
        count => Err(anyhow!("{} not imported (each is listed above)", format_count(count, "document"))),
    }
}

/// Implements `gatepost registry history`: prints one JSON object per line, newest first.
///
/// # Errors
/// The configuration or the store cannot be used, or the registry never had this agent.
pub fn history(config: &Path, id: &str) -> anyhow::Result<()> {
    let id: AgentId = id.parse().map_err(|why: String| anyhow!(why))?;
    let revisions =
        with_registry(config, async |registry| registry.full_history(&id).await.map_err(|why| anyhow!("{why}")))?;
    if revisions.is_empty() {
        return Err(anyhow!("the registry has no history of the agent '{id}'"));
    }
    revisions.iter().try_for_each(|revision| print_line(&history_entry(revision)?.to_string()))
}

fn history_entry(revision: &DocumentRevision) -> anyhow::Result<Value> {
    let document: Option<Value> = revision.document.as_deref().map(serde_json::from_str).transpose()?;
    Ok(json!({"at": revision.at.format(&Rfc3339)?, "by": revision.writer, "document": document}))
}

/// Opens the registry of the configuration file `config` and runs `action` with it.
fn with_registry<T>(
    config: &Path,
    action: impl AsyncFnOnce(&EmbeddedRegistry) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let config_path = || config.display().to_string();
    let loaded = LoadedConfig::read(config).with_context(config_path)?;
    let section = loaded.config.registry.as_ref();
    let section = section.with_context(|| format!("{} has no section 'registry'", config.display()))?;
    let policy = Arc::new(loaded.config.network.policy());
    app::build_runtime()?.block_on(async {
        let registry = EmbeddedRegistry::open(section, policy).await;
        let with_section = |problems: Vec<String>| problems.into_iter().map(|why| format!("registry.{why}")).collect();
        action(&registry.map_err(|problems| loaded.locate_problems(with_section(problems))).with_context(config_path)?)
            .await
    })
}

/// Prints an error of a command, in which texts of documents and agents are visible as they are.
pub fn print_error(text: &str) {
    eprintln!("{}", visible_text(&strip_os_error_codes(text)));
}

/// Prints a line, in which texts of documents and agents are visible as they are. A closed pipe, as with `head`, is not an
/// error.
pub fn print_line(text: &str) -> anyhow::Result<()> {
    match writeln!(std::io::stdout(), "{}", visible_text(text)) {
        Err(why) if why.kind() != ErrorKind::BrokenPipe => Err(why).context("stdout cannot be written"),
        _ => Ok(()),
    }
}
