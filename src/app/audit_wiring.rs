//! Wiring of the audit log: opens that of a configuration.

use super::problem_paths::prefix_problems;
use crate::{
    audit::{AuditConfig, AuditLog},
    config::GatewayConfig,
    telemetry::Metrics,
};
use std::sync::Arc;

/// Opens the audit log of a configuration, if it has one. With `check_only` the settings are checked, and no file is
/// created.
///
/// # Errors
/// Every problem, by its path in the file.
pub(super) fn open_audit_log(
    file: &GatewayConfig,
    metrics: &Arc<Metrics>,
) -> Result<Option<Arc<AuditLog>>, Vec<String>> {
    let Some(config) = &file.audit else { return Ok(None) };
    let opened = if file.agents.check_only {
        config.check(&file.access_log).map(|()| None)
    } else {
        AuditLog::open(config, &file.access_log, Some(Arc::clone(metrics))).map(|log| Some(Arc::new(log)))
    };
    opened.map_err(|problems| prefix_problems("audit", problems))
}

/// Opens the audit log for a command, if the configuration has one.
///
/// # Errors
/// Every problem, by its path in the file.
pub fn open_audit_log_of_command(file: &GatewayConfig) -> Result<Option<AuditLog>, Vec<String>> {
    let log = file.audit.as_ref().map(|config: &AuditConfig| AuditLog::open(config, &file.access_log, None));
    log.transpose().map_err(|problems| prefix_problems("audit", problems))
}
