//! Changes by operators and programs over the admin listener, as the audit log records them: who makes a change, from
//! where, and how it ended. The JSON interface and the console record their changes here.

use super::{access::Operator, bounded_listener::ClientAddress};
use crate::audit::{AuditAction, AuditEntry, AuditLog};
use axum::{
    extract::FromRequestParts,
    http::{Extensions, HeaderMap, request},
};
use std::{convert::Infallible, net::IpAddr, sync::Arc};

/// Maximum characters of a request id that the log takes over.
const MAX_REQUEST_ID_CHARS: usize = 128;

/// Who makes a change, and from where.
#[derive(Clone, Debug)]
pub struct ChangeAuthor {
    /// The operator's name in the audit log; `None` where the listener identifies none.
    name: Option<String>,
    address: Option<IpAddr>,
    request_id: Option<String>,
}

/// How a change ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeResult {
    /// The change is in force.
    Made,
    /// The request was accepted, and nothing is different.
    NothingChanged,
    /// The change was refused, for this reason.
    Refused(String),
}

impl ChangeAuthor {
    pub(super) fn of_request(extensions: &Extensions, headers: &HeaderMap) -> Self {
        let id = headers.get("x-request-id").and_then(|id| id.to_str().ok());
        Self {
            name: extensions.get::<Operator>().map(|operator| operator.audit_actor().to_owned()),
            address: extensions.get::<ClientAddress>().map(|client| client.0),
            request_id: id.map(|id| id.chars().take(MAX_REQUEST_ID_CHARS).collect()),
        }
    }

    /// Returns the entry of a change of `subject`.
    pub fn audit_entry(&self, action: AuditAction, subject: impl Into<String>) -> AuditEntry {
        let mut entry = match &self.name {
            Some(name) => AuditEntry::new(action, name.clone(), subject),
            None => AuditEntry::by_admin(action, subject),
        };
        entry.address = self.address;
        entry.request_id.clone_from(&self.request_id);
        entry
    }
}

impl<S: Sync> FromRequestParts<S> for ChangeAuthor {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut request::Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self::of_request(&parts.extensions, &parts.headers))
    }
}

/// Makes a change, and records it with the result that `result_of` reads from its outcome. A task of its own does both: a
/// client that leaves ends the handling of its request, but not the change that is under way. `None` if the change
/// panicked. Without an audit log the change is only made.
pub async fn make_recorded_change<T: Send + 'static>(
    log: Option<Arc<AuditLog>>,
    entry: AuditEntry,
    change: impl Future<Output = T> + Send + 'static,
    result_of: impl FnOnce(&T) -> ChangeResult + Send + 'static,
) -> Option<T> {
    let Some(log) = log else { return Some(change.await) };
    let ended = tokio::spawn(async move {
        let outcome = change.await;
        let entry = match result_of(&outcome) {
            ChangeResult::Made => entry,
            ChangeResult::NothingChanged => return outcome,
            ChangeResult::Refused(why) => entry.refused(why),
        };
        log.record_in_background(entry).await;
        outcome
    });
    ended.await.ok()
}
