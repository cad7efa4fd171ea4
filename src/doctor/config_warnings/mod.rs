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
    config::{GatewayConfig, LoadedConfig},
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
    config_warnings(&loaded.config, config_file).into_iter().flat_map(locate).collect()
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
