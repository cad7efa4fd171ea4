//! Stores and the server of the shared state: whether the gateway can use them, and which schema they have; and the
//! folders for state.

use super::{
    examined_config::ExaminedConfig,
    finding::{Finding, SubjectKind},
    finding_codes::FindingCode,
    probe_runner::STEP_TIMEOUT,
};
use crate::{
    config::GatewayConfig,
    store::{StoreLocation, StoreProblem, StoreSchema, inspect_state, inspect_store},
};
use std::path::Path;

/// What is known about the stores.
#[derive(Debug, Default)]
pub struct StoreExamination {
    /// What is wrong.
    pub findings: Vec<Finding>,
    /// Whether the registry's store can be read as it is.
    pub is_registry_readable: bool,
}

/// Examines the stores of the configuration and its folders for state. Changes nothing.
pub async fn examine_stores(examined: ExaminedConfig<'_>) -> StoreExamination {
    let config = examined.config();
    let mut examination = StoreExamination { findings: folder_findings(examined), is_registry_readable: false };
    let registry = config.registry.as_ref().map(|registry| {
        let setting = if registry.database.is_some() { "database" } else { "sqlite_file" };
        (format!("registry.{setting}"), registry.store_location())
    });
    let registry_location = registry.as_ref().map(|(_, location)| location.clone());
    if let Some((path, location)) = &registry {
        let schema = inspect_store(location, STEP_TIMEOUT).await;
        examination.is_registry_readable = schema == Ok(StoreSchema::Current);
        examination.findings.extend(store_finding(examined, path, location, schema));
    }
    if let Some(tasks) = &config.tasks {
        let location = tasks.store_location(registry_location.clone());
        let is_own = tasks.database.is_some() || tasks.sqlite_file.is_some() || registry_location.is_none();
        if is_own {
            let setting = if tasks.database.is_some() { "database" } else { "sqlite_file" };
            let schema = inspect_store(&location, STEP_TIMEOUT).await;
            examination.findings.extend(store_finding(examined, &format!("tasks.{setting}"), &location, schema));
        }
    }
    if let Some(state) = &config.state
        && let Err(why) = inspect_state(state, STEP_TIMEOUT).await
    {
        let (setting, name) = match (&state.redis, &state.database) {
            (Some(redis), _) => ("state.redis.url", redis.url.to_string()),
            (None, database) => ("state.database", database.as_ref().map(ToString::to_string).unwrap_or_default()),
        };
        let place = examined.place(setting);
        let finding = Finding::new(FindingCode::StoreUnreachable, SubjectKind::Store, name, &why, place);
        examination.findings.push(finding);
    }
    examination
}

fn store_finding(
    examined: ExaminedConfig<'_>,
    path: &str,
    location: &StoreLocation,
    schema: Result<StoreSchema, StoreProblem>,
) -> Option<Finding> {
    let (code, problem) = match schema {
        Ok(StoreSchema::Current | StoreSchema::Missing) => return None,
        Err(StoreProblem::Unusable(why)) => (FindingCode::StoreUnusable, why),
        Err(StoreProblem::Unreachable(why)) => (FindingCode::StoreUnreachable, why),
        Err(StoreProblem::OtherSchema(why)) => (FindingCode::StoreOfOtherVersion, why),
    };
    let name = match location {
        StoreLocation::File(file) => file.display().to_string(),
        StoreLocation::Database { address, .. } => address.to_string(),
    };
    Some(Finding::new(code, SubjectKind::Store, name, &problem, examined.place(path)))
}

/// Returns the folders for state that exist and cannot be written, or cannot be created.
fn folder_findings(examined: ExaminedConfig<'_>) -> Vec<Finding> {
    let folders = state_folders(examined.config());
    let finding = |(path, folder): (String, std::path::PathBuf)| {
        let why = folder_problem(&folder)?;
        let problem = format!("{}: {why}", folder.display());
        Some(examined.finding(FindingCode::StateFolderUnusable, SubjectKind::Store, &path, &problem))
    };
    folders.into_iter().filter_map(finding).collect()
}

fn state_folders(config: &GatewayConfig) -> Vec<(String, std::path::PathBuf)> {
    let mut folders = Vec::new();
    let has_remote =
        config.agents.sources.iter().any(|source| matches!(source, crate::registry::SourceConfig::Remote(_)));
    let last_known_good = config.agents.last_known_good.as_ref().filter(|_| has_remote || config.registry.is_some());
    folders.extend(last_known_good.map(|folder| ("agents.last_known_good".to_owned(), folder.to_path_buf())));
    for (at, bridge) in config.mqtt_bridge.iter().enumerate() {
        let folder = bridge.state_folder.as_ref();
        folders.extend(folder.map(|folder| (format!("mqtt_bridge[{at}].state_folder"), folder.to_path_buf())));
    }
    let quota_folder = config.limits.quota_state_file.as_ref().and_then(|file| file.parent());
    folders.extend(quota_folder.map(|folder| ("limits.quota_state_file".to_owned(), folder.to_path_buf())));
    folders
}

/// Returns why the gateway could not write to a folder. One that does not exist is created in the nearest folder above.
fn folder_problem(folder: &Path) -> Option<String> {
    let existing = folder.ancestors().find(|folder| !folder.as_os_str().is_empty() && folder.exists())?;
    if !existing.is_dir() {
        return Some(format!("{} is not a folder", existing.display()));
    }
    let access = rustix::fs::access(existing, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK);
    access.err().map(|why| format!("{} cannot be written ({why})", existing.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_can_be_created_is_no_problem_and_a_file_in_its_way_is_one() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(folder_problem(&root.path().join("a/b/c")), None);
        std::fs::write(root.path().join("file"), "").unwrap();
        assert!(folder_problem(&root.path().join("file/state")).unwrap().contains("is not a folder"));
    }
}
