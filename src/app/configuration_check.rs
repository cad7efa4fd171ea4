//! The check of a configuration: builds everything that a gateway has but its listeners, and collects every problem.
//! Writes no file.

use super::GatewayAssembly;
use crate::{
    config::LoadedConfig,
    http_server,
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

/// Returns a problem if the folder of the access log's file does not exist.
fn check_log_folder(log: &telemetry::AccessLogTarget) -> Option<String> {
    let AccessLogTarget::File(path) = log else { return None };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.is_dir())?;
    Some(format!("access_log.output: {} cannot be created ({} is not a folder)", path.display(), folder.display()))
}
