//! The entries of commands in the audit log.

use crate::{
    app,
    audit::{AuditEntry, AuditLog},
    config::GatewayConfig,
};
use anyhow::anyhow;

/// The audit log of a command; `None` where the configuration has none, or the command has no configuration.
pub(super) struct CommandAudit(Option<AuditLog>);

impl CommandAudit {
    /// Opens the log of a configuration, before the command changes anything.
    ///
    /// # Errors
    /// The log cannot be written.
    pub(super) fn open(config: Option<&GatewayConfig>) -> anyhow::Result<Self> {
        let Some(config) = config else { return Ok(Self(None)) };
        let log = app::open_audit_log_of_command(config).map_err(|problems| anyhow!(problems.join("; ")))?;
        Ok(Self(log))
    }

    /// Returns the log, if there is one.
    pub(super) fn log(&self) -> Option<&AuditLog> {
        self.0.as_ref()
    }

    /// Records what the command has changed.
    ///
    /// # Errors
    /// The log could not be written: the change was made, and is not recorded.
    pub(super) fn record(&self, entry: AuditEntry) -> anyhow::Result<()> {
        let Some(log) = &self.0 else { return Ok(()) };
        log.record(entry);
        log.require_writable().map_err(|_| anyhow!("the change was made, and the audit log could not be written"))
    }
}
