//! Commands that need several modules but no gateway: export, import and history of the registry, which access the
//! store directly, also while gateways use it; resolving and calling agents by name.

mod call;
mod reach;

pub use call::{CallArgs, call};
pub use reach::{ResolveArgs, resolve};

use crate::{
    agent::AgentId,
    app,
    config::{Loaded, plain},
    net::AddressPolicy,
    registry::{Past, Registry},
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
    let written = with(config, async |registry| registry.export(folder).await.map_err(|why| anyhow!(why)))?;
    say(&format!("{written} {} in {}", documents(written), folder.display()))
}

/// `gatepost registry import`.
///
/// # Errors
/// As for the export, or documents were refused; accepted documents are kept.
pub fn import(config: &Path, folder: &Path, owner: Option<&str>) -> anyhow::Result<()> {
    let restored = with(config, async |registry| registry.import(folder, owner).await.map_err(|why| anyhow!(why)))?;
    for told in &restored.refused {
        eprintln!("not imported: {}: {}", told.file.display(), plain(&told.why));
    }
    say(&format!("{} {} imported", restored.kept, documents(restored.kept)))?;
    match restored.refused.len() {
        0 => Ok(()),
        many => Err(anyhow!("{many} {} not imported (each is listed above)", documents(many))),
    }
}

/// `gatepost registry history`: one JSON object per line, newest first.
///
/// # Errors
/// The configuration or the store cannot be used, or the registry never had this agent.
pub fn history(config: &Path, id: &str) -> anyhow::Result<()> {
    let id: AgentId = id.parse().map_err(|why: String| anyhow!(why))?;
    let past = with(config, async |registry| registry.whole_history(&id).await.map_err(|why| anyhow!("{why}")))?;
    if past.is_empty() {
        return Err(anyhow!("the registry has no history of the agent '{id}'"));
    }
    past.iter().try_for_each(|past| say(&line(past)?.to_string()))
}

fn line(past: &Past) -> anyhow::Result<Value> {
    let document: Option<Value> = past.document.as_deref().map(serde_json::from_str).transpose()?;
    Ok(json!({"at": past.at.format(&Rfc3339)?, "by": past.by, "document": document}))
}

/// Opens the registry of the configuration `config` and runs `work` with it.
fn with<T>(config: &Path, work: impl AsyncFnOnce(&Registry) -> anyhow::Result<T>) -> anyhow::Result<T> {
    let named = || config.display().to_string();
    let loaded = Loaded::read(config).with_context(named)?;
    let section = loaded.file.registry.as_ref();
    let section = section.with_context(|| format!("{} has no section 'registry'", config.display()))?;
    let policy = Arc::new(AddressPolicy::new(loaded.file.network.allowed_addresses.clone()));
    app::runtime()?.block_on(async {
        let opened = Registry::open(section, policy).await;
        let placed = |whys: Vec<String>| whys.into_iter().map(|why| format!("registry.{why}")).collect();
        work(&opened.map_err(|whys| loaded.problems(placed(whys))).with_context(named)?).await
    })
}

fn documents(count: usize) -> &'static str {
    if count == 1 { "document" } else { "documents" }
}

/// Prints a line. A closed pipe, as with `head`, is not an error.
fn say(text: &str) -> anyhow::Result<()> {
    match writeln!(std::io::stdout(), "{text}") {
        Err(why) if why.kind() != ErrorKind::BrokenPipe => Err(why).context("stdout cannot be written"),
        _ => Ok(()),
    }
}
