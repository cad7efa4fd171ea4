//! The audit log (R8, R101, R102): who changed the configuration, keys, documents and sources. One JSON line for each
//! change, appended to a file and chained by SHA-256, so that a line that was changed, removed or moved is found. Several
//! processes write to one file: the gateway, its successor in a listener handover, and commands.

mod anchor_file;
mod audit_entry;
mod audit_line;
mod audit_log;
mod chain_verification;
mod chained_file;
mod config;
mod head_file;
mod log_reader;
mod os_user;
mod refusal_queue;

pub use audit_entry::{AuditAction, AuditEntry, AuditOutcome};
pub use audit_log::{AuditLog, AuditLogUnavailable};
pub use chain_verification::{ChainProof, ChainVerification, KnownLine, list_files};
pub use config::AuditConfig;
pub use log_reader::{AuditLine, AuditPage, AuditQuery, LogSize, StoredEntry, measure_log, read_newest};
pub use os_user::os_user_actor;

#[cfg(test)]
mod tests;
