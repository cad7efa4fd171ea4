//! Warnings about a configuration that is valid: settings that are dangerous, most of them only together with others.
//! `gatepost check` prints them, `check --strict` fails on them, and `gatepost run` logs them. Each is formatted as
//! `path: danger (what to do)`.

mod config_walk;
mod config_warning;
mod exposure;
mod file_permissions;
mod trust;

use super::finding_codes::FindingCode;
use crate::{
    config::{ConfigProblem, GatewayConfig, LoadedConfig},
    transport::{TransportConfig, UpstreamTimeouts},
    values::CertificateValidity,
};
pub(super) use config_walk::ConfigWalk;
pub use config_warning::ConfigWarning;
use config_warning::UnlocatedWarning;
use std::path::Path;
use time::OffsetDateTime;

/// Logs every warning about a configuration that is in force or is about to be.
pub fn log_config_warnings(loaded: &LoadedConfig, config_file: &Path) {
    for warning in locate_config_warnings(loaded, config_file) {
        tracing::warn!("configuration: {}", warning.problem);
    }
}

/// Returns every warning about a configuration, each with its line.
pub fn locate_config_warnings(loaded: &LoadedConfig, config_file: &Path) -> Vec<ConfigWarning> {
    let locate = |warning: UnlocatedWarning| {
        let located = loaded.locate_problems(vec![warning.text]).0;
        located.into_iter().map(move |problem| ConfigWarning { code: warning.code, problem })
    };
    let mut warnings: Vec<ConfigWarning> =
        config_warnings(&loaded.config, config_file).into_iter().flat_map(locate).collect();
    warnings.extend(ignored_variables(loaded));
    warnings
}

/// Returns the environment variables that are no overrides because an underscore is missing. One that the configuration
/// refers to has a purpose of its own.
fn ignored_variables(loaded: &LoadedConfig) -> Vec<ConfigWarning> {
    let settings = serde_json::to_string(&loaded.config).unwrap_or_default();
    let is_used = |name: &str| settings.contains(&format!("\"env:{name}\""));
    let ignored = loaded.ignored_variables().iter().filter(|name| !is_used(name));
    let warning = |name: &String| {
        let meant = name.replacen("GATEPOST_", "GATEPOST__", 1);
        let message = format!("the environment variable {name} overrides no setting (write {meant}, or remove it)");
        let problem = ConfigProblem { path: String::new(), line: None, message };
        ConfigWarning { code: FindingCode::VariableIgnored, problem }
    };
    ignored.map(warning).collect()
}

/// Returns the settings of agents that give the first byte more time than the whole call has.
fn timeout_warnings(config: &GatewayConfig) -> Vec<UnlocatedWarning> {
    let agents = &config.agents;
    let rules = agents.rules.iter().enumerate();
    let rules = rules.map(|(at, rule)| (format!("agents.rules[{at}].settings"), &rule.settings));
    let all = [("agents.defaults".to_owned(), &agents.defaults)].into_iter().chain(rules);
    let warning = |(path, settings): (String, &TransportConfig)| {
        let first_byte = settings.timeouts.first_byte?;
        let total = UpstreamTimeouts::from(&settings.with_fallback(&agents.defaults).timeouts).total;
        (first_byte.get() > total).then(|| {
            let text = format!(
                "{path}.timeouts.first_byte: {first_byte} is longer than timeouts.total ({}s), which ends the call before \
                 (raise timeouts.total, or lower timeouts.first_byte)",
                total.as_secs_f64()
            );
            UnlocatedWarning::new(FindingCode::FirstByteTooLong, text)
        })
    };
    all.filter_map(warning).collect()
}

/// Returns every warning about the configuration, and about the modes of `config_file` and the files that it names.
/// Reads metadata and certificates.
fn config_warnings(config: &GatewayConfig, config_file: &Path) -> Vec<UnlocatedWarning> {
    let walk = ConfigWalk::new(config);
    let mut warnings = exposure::exposure_warnings(config);
    warnings.extend(trust::trust_warnings(config, &walk));
    warnings.extend(file_permissions::file_permission_warnings(config, &walk, config_file));
    warnings.extend(certificate_warnings(&walk));
    warnings.extend(drain_warning(config));
    warnings.extend(timeout_warnings(config));
    warnings
}

/// Returns the certificates that are not valid now. They do not end a start, because a restart must not end the service.
fn certificate_warnings(walk: &ConfigWalk) -> Vec<UnlocatedWarning> {
    let now = OffsetDateTime::now_utc();
    let warnings = walk.certificates.iter().filter_map(|(path, file)| {
        let validity = CertificateValidity::of_file(file)?;
        let problem = validity.problem_at(now)?;
        let is_expired = now.unix_timestamp() > validity.not_after;
        let code = if is_expired { FindingCode::CertificateExpired } else { FindingCode::CertificateNotYetValid };
        let text = format!("{path}: {}: {problem} (replace it; its users refuse the connection)", file.display());
        Some(UnlocatedWarning::new(code, text))
    });
    warnings.collect()
}

fn drain_warning(config: &GatewayConfig) -> Option<UnlocatedWarning> {
    let (configured, longest) = (config.shutdown.drain_timeout?, config.longest_call());
    (configured.get() < longest).then(|| {
        let text = format!(
            "shutdown.drain_timeout: {configured} is shorter than the longest timeouts.total ({}s), so that a shutdown \
             cuts calls short (remove the setting, or set it to at least that)",
            longest.as_secs()
        );
        UnlocatedWarning::new(FindingCode::DrainTooShort, text)
    })
}
