//! Commands that need several modules but no gateway: export, import and history of the registry, which access the
//! store directly, also while gateways use it; resolving and calling agents by name.

mod call_command;
mod resolve_command;

pub use call_command::{CallArgs, call};
pub use resolve_command::{ResolveArgs, resolve};

use crate::{
    agent::AgentId,
    app,
    config::{LoadedConfig, strip_os_error_codes},
    net::AddressPolicy,
    registry::{DocumentRevision, EmbeddedRegistry},
};
use anyhow::{Context, anyhow};
use serde_json::{Value, json};
use std::{
    io::{ErrorKind, Write as _},
    path::Path,
    sync::Arc,
};
use time::format_description::well_known::Rfc3339;

/// `gatepost registry export`.
///
/// # Errors
/// The configuration, the store or the folder cannot be used.
pub fn export(config: &Path, folder: &Path) -> anyhow::Result<()> {
    let written = with_registry(config, async |registry| registry.export(folder).await.map_err(|why| anyhow!(why)))?;
    print_line(&format!("{written} {} in {}", pluralize_document(written), folder.display()))
}

/// `gatepost registry import`.
///
/// # Errors
/// As for the export, or documents were refused; accepted documents are kept.
pub fn import(config: &Path, folder: &Path, owner: Option<&str>) -> anyhow::Result<()> {
    let restored =
        with_registry(config, async |registry| registry.import(folder, owner).await.map_err(|why| anyhow!(why)))?;
    for told in &restored.rejected {
        eprintln!("not imported: {}: {}", told.file.display(), strip_os_error_codes(&told.reason));
    }
    print_line(&format!("{} {} imported", restored.imported, pluralize_document(restored.imported)))?;
    match restored.rejected.len() {
        0 => Ok(()),
        many => Err(anyhow!("{many} {} not imported (each is listed above)", pluralize_document(many))),
    }
}

/// `gatepost registry history`: one JSON object per line, newest first.
///
/// # Errors
/// The configuration or the store cannot be used, or the registry never had this agent.
pub fn history(config: &Path, id: &str) -> anyhow::Result<()> {
    let id: AgentId = id.parse().map_err(|why: String| anyhow!(why))?;
    let past =
        with_registry(config, async |registry| registry.full_history(&id).await.map_err(|why| anyhow!("{why}")))?;
    if past.is_empty() {
        return Err(anyhow!("the registry has no history of the agent '{id}'"));
    }
    past.iter().try_for_each(|past| print_line(&history_entry(past)?.to_string()))
}

fn history_entry(past: &DocumentRevision) -> anyhow::Result<Value> {
    let document: Option<Value> = past.document.as_deref().map(serde_json::from_str).transpose()?;
    Ok(json!({"at": past.at.format(&Rfc3339)?, "by": past.by, "document": document}))
}

/// Opens the registry of the configuration `config` and runs `work` with it.
fn with_registry<T>(
    config: &Path,
    work: impl AsyncFnOnce(&EmbeddedRegistry) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let named = || config.display().to_string();
    let loaded = LoadedConfig::read(config).with_context(named)?;
    let section = loaded.file.registry.as_ref();
    let section = section.with_context(|| format!("{} has no section 'registry'", config.display()))?;
    let policy = Arc::new(AddressPolicy::new(loaded.file.network.allowed_addresses.clone()));
    app::build_runtime()?.block_on(async {
        let opened = EmbeddedRegistry::open(section, policy).await;
        let placed = |whys: Vec<String>| whys.into_iter().map(|why| format!("registry.{why}")).collect();
        work(&opened.map_err(|whys| loaded.locate_problems(placed(whys))).with_context(named)?).await
    })
}

fn pluralize_document(count: usize) -> &'static str {
    if count == 1 { "document" } else { "documents" }
}

/// Prints a line. A closed pipe, as with `head`, is not an error.
fn print_line(text: &str) -> anyhow::Result<()> {
    match writeln!(std::io::stdout(), "{text}") {
        Err(why) if why.kind() != ErrorKind::BrokenPipe => Err(why).context("stdout cannot be written"),
        _ => Ok(()),
    }
}
