//! Warnings about a configuration that is valid: settings that are dangerous, most of them only together with others.
//! `gatepost check` prints them, `check --strict` fails on them, and `gatepost run` logs them. Each is formatted as
//! `path: danger (what to do)`.

mod config_walk;
mod exposure;
mod file_permissions;
mod trust;

use crate::{
    config::{ConfigProblem, GatewayConfig, LoadedConfig},
    values::CertificateValidity,
};
use config_walk::ConfigWalk;
use std::path::Path;
use time::OffsetDateTime;

/// Logs every warning about a configuration that is in force or is about to be.
pub(super) fn log_config_warnings(loaded: &LoadedConfig, config_file: &Path) {
    for warning in locate_config_warnings(loaded, config_file) {
        tracing::warn!("configuration: {warning}");
    }
}

/// Returns every warning about a configuration, each with its line.
pub(super) fn locate_config_warnings(loaded: &LoadedConfig, config_file: &Path) -> Vec<ConfigProblem> {
    loaded.locate_problems(config_warnings(&loaded.config, config_file)).0
}

/// Returns every warning about the configuration, and about the modes of `config_file` and the files that it names.
/// Reads metadata and certificates.
fn config_warnings(config: &GatewayConfig, config_file: &Path) -> Vec<String> {
    let walk = ConfigWalk::new(config);
    let mut warnings = exposure::exposure_warnings(config);
    warnings.extend(trust::trust_warnings(config, &walk));
    warnings.extend(file_permissions::file_permission_warnings(config, &walk, config_file));
    warnings.extend(certificate_warnings(&walk));
    warnings.extend(drain_warning(config));
    warnings
}

/// Returns the certificates that are not valid now. They do not end a start, because a restart must not end the service.
fn certificate_warnings(walk: &ConfigWalk) -> Vec<String> {
    let now = OffsetDateTime::now_utc();
    let warnings = walk.certificates.iter().filter_map(|(path, file)| {
        let problem = CertificateValidity::of_file(file)?.problem_at(now)?;
        Some(format!("{path}: {}: {problem} (replace it; its users refuse the connection)", file.display()))
    });
    warnings.collect()
}

fn drain_warning(config: &GatewayConfig) -> Option<String> {
    let (configured, longest) = (config.shutdown.drain_timeout?, config.longest_call());
    (configured.get() < longest).then(|| {
        format!(
            "shutdown.drain_timeout: {configured} is shorter than the longest timeouts.total ({}s), so that a shutdown \
             cuts calls short (remove the setting, or set it to at least that)",
            longest.as_secs()
        )
    })
}
