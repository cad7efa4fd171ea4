//! The check of a configuration: builds everything that a gateway has but its listeners, and collects every problem.
//! Writes no file.

use super::GatewayAssembly;
use crate::{
    config::{AgentsConfig, GatewayConfig, LoadedConfig},
    http_server,
    registry::SourceConfig,
    telemetry::{self, AccessLogTarget},
};

/// What a check yields.
#[derive(Default)]
pub(super) struct CheckedConfiguration {
    /// The gateway, unless its parts have problems.
    pub(super) assembly: Option<GatewayAssembly>,
    /// Every problem, each formatted as `path: message`.
    pub(super) problems: Vec<String>,
}

/// Checks a configuration, which writes no access log from now on.
pub(super) async fn check_configuration(loaded: &mut LoadedConfig) -> CheckedConfiguration {
    let log = std::mem::replace(&mut loaded.config.access_log.output, AccessLogTarget::Off);
    loaded.config.agents.check_only = true;
    let assembly = GatewayAssembly::build(&loaded.config).await;
    let mut problems: Vec<String> =
        http_server::check_listener_files(&loaded.config.listeners).err().unwrap_or_default();
    problems.extend(check_log_folder(&log));
    let assembly = assembly.map_err(|found| problems.extend(found)).ok();
    CheckedConfiguration { assembly, problems }
}

/// Builds a gateway from the settings of agents alone, for a configuration whose other settings have problems; `None` if
/// these settings have problems as well. Every method of authentication is missing.
pub(super) async fn build_agents_only(loaded: &LoadedConfig) -> Option<GatewayAssembly> {
    let config = &loaded.config;
    let readable = config.agents.sources.iter().filter(|source| match source {
        SourceConfig::Files(path) => path.exists(),
        SourceConfig::Remote(_) => true,
    });
    let reduced = GatewayConfig {
        listeners: Vec::new(),
        network: config.network.clone(),
        agents: AgentsConfig { sources: readable.cloned().collect(), ..config.agents.clone() },
        contract: config.contract.clone(),
        resolver: config.resolver.clone(),
        ..serde_json::from_value(serde_json::json!({"listeners": []})).ok()?
    };
    if reduced.agents.sources.is_empty() {
        return None;
    }
    if let Ok(assembly) = GatewayAssembly::build(&reduced).await {
        return Some(assembly);
    }
    let mut files_only = reduced;
    files_only.agents.sources.retain(|source| matches!(source, SourceConfig::Files(_)));
    if files_only.agents.sources.is_empty() { None } else { GatewayAssembly::build(&files_only).await.ok() }
}

/// Returns a problem if the folder of the access log's file does not exist.
fn check_log_folder(log: &telemetry::AccessLogTarget) -> Option<String> {
    let AccessLogTarget::File(path) = log else { return None };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.is_dir())?;
    Some(format!("access_log.output: {} cannot be created ({} is not a folder)", path.display(), folder.display()))
}
