//! The lines of the audit log: JSON objects, of which each has a number and the SHA-256 of the line before.

use super::audit_entry::AuditEntry;
use crate::{
    telemetry::{LogPrivacy, redact},
    values::{encode_hex, sha256},
};
use serde::{Deserialize, Serialize};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

/// Maximum bytes of a line, its line feed included. Longer lines are no lines of this log.
pub(super) const MAX_LINE_BYTES: usize = 16 << 10;
/// Maximum characters of a text.
const MAX_TEXT_CHARS: usize = 512;
/// What the first line of a log has as `prev`.
pub(super) const FIRST_PREV: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// The number and the hash of a line, to which the next one refers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ChainPosition {
    pub(super) sequence: u64,
    pub(super) hash: String,
}

impl ChainPosition {
    /// Returns the position before the first line.
    pub(super) fn start() -> Self {
        Self { sequence: 0, hash: FIRST_PREV.to_owned() }
    }
}

/// Returns whether there is a number for a line after the one with this number.
pub(super) fn has_successor(sequence: u64) -> bool {
    sequence < u64::MAX
}

/// The members of a line, in their order.
#[derive(Serialize)]
struct LineMembers<'a> {
    sequence: u64,
    time: String,
    actor: &'a str,
    action: &'a str,
    subject: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    caller: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<String>,
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signature: Option<&'a str>,
    prev: &'a str,
}

/// Formats an entry as the line after `previous`, without its line feed.
pub(super) fn format_line(entry: &AuditEntry, privacy: &LogPrivacy, previous: &ChainPosition) -> String {
    // A caller may have sent a credential in any of these texts.
    let shown = |text: &str| -> String { redact(text).chars().take(MAX_TEXT_CHARS).collect() };
    let name = |name: &str| privacy.caller_pseudonym(name).unwrap_or_else(|| shown(name));
    let actor = if entry.names_a_caller() { name(&entry.actor) } else { entry.actor.clone() };
    let members = LineMembers {
        sequence: previous.sequence + 1,
        // A time that cannot be formatted is beyond the year 9999.
        time: entry
            .time
            .replace_nanosecond(entry.time.nanosecond() / 1_000_000 * 1_000_000)
            .unwrap_or(entry.time)
            .format(&Rfc3339)
            .unwrap_or_default(),
        actor: &actor,
        action: entry.action.name(),
        subject: &shown(&entry.subject),
        caller: entry.caller.as_deref().map(name),
        before: entry.before.as_deref(),
        after: entry.after.as_deref(),
        request_id: entry.request_id.as_deref().map(shown),
        address: entry.address.and_then(|address| privacy.address_text(address)),
        outcome: entry.outcome.name(),
        detail: entry.detail.as_deref().map(shown),
        signature: entry.signature.as_deref(),
        prev: &previous.hash,
    };
    // Strings and numbers can always be serialised.
    serde_json::to_string(&members).unwrap_or_default()
}

/// Returns the hash of a line, which is written without its line feed.
pub(super) fn hash_line(line: &[u8]) -> String {
    encode_hex(&sha256(line))
}

/// What the chain needs of a line that was read.
#[derive(Deserialize)]
pub(super) struct StoredLine {
    pub(super) sequence: u64,
    pub(super) prev: String,
    #[serde(with = "time::serde::rfc3339")]
    pub(super) time: OffsetDateTime,
    pub(super) action: String,
    #[serde(default)]
    pub(super) before: Option<String>,
    #[serde(default)]
    pub(super) signature: Option<String>,
}

impl StoredLine {
    /// Parses a line; `None` if it is no entry.
    pub(super) fn parse(line: &[u8]) -> Option<Self> {
        let line: Option<Self> = serde_json::from_slice(line).ok();
        line.filter(|line| line.sequence > 0 && has_successor(line.sequence))
    }
}
