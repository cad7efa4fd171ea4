//! Changes of keys by an operator: made in the key files, recorded, and published for the gateways that share a state.

use super::{console_context::ConsoleContext, console_page::Visitor, page_thread::run_blocking};
use crate::{
    admin::{ClientAddress, OperatorRole},
    audit::AuditLog,
    auth::{Publication, RevocationList, RevokedKey, TooManyRevocations},
    fault::Fault,
    key_management::{DisabledKeys, KeyChangeError, KeyRecorder, ManagedKeys, NewKey},
};
use std::{net::IpAddr, sync::Arc};

/// Who changes keys, and from where.
pub(super) struct KeyOperator {
    log: Option<Arc<AuditLog>>,
    revocations: Arc<RevocationList>,
    actor: String,
    address: IpAddr,
}

/// A change of keys that was made.
pub(super) struct MadeChange<T> {
    pub(super) outcome: T,
    /// Whether the other gateways learn of keys that were disabled or replaced; `None` if there are no such keys, or no
    /// other gateways.
    publication: Option<Result<Publication, TooManyRevocations>>,
}

impl<T> MadeChange<T> {
    /// Returns whether other gateways share a state and have not learnt of the change.
    pub(super) const fn is_unpublished(&self) -> bool {
        matches!(self.publication, Some(Ok(Publication::Pending) | Err(_)))
    }
}

/// Keys that a change disables or replaces.
pub(super) trait EndsKeys: Send + 'static {
    fn ended_keys(&self) -> &[RevokedKey];
}

impl EndsKeys for NewKey {
    fn ended_keys(&self) -> &[RevokedKey] {
        self.replaced.as_slice()
    }
}

impl EndsKeys for DisabledKeys {
    fn ended_keys(&self) -> &[RevokedKey] {
        &self.revoked
    }
}

impl KeyOperator {
    /// Requires the role of admins.
    pub(super) fn of(
        context: &ConsoleContext,
        visitor: &Visitor,
        ClientAddress(address): ClientAddress,
    ) -> Result<Self, Fault> {
        visitor.operator.require(OperatorRole::Admin)?;
        Ok(Self {
            log: context.gateway.audit_log.clone(),
            revocations: Arc::clone(&context.gateway.revocations),
            actor: visitor.operator.audit_actor().to_owned(),
            address,
        })
    }

    /// Changes keys on a thread that may block, and revokes at all gateways those that end. A task of its own does both,
    /// so that a client that leaves ends neither.
    pub(super) async fn change<T: EndsKeys>(
        self,
        keys: ManagedKeys,
        change: impl FnOnce(&ManagedKeys, &KeyRecorder<'_>) -> Result<T, KeyChangeError> + Send + 'static,
    ) -> Result<MadeChange<T>, KeyChangeError> {
        let Self { log, revocations, actor, address } = self;
        let changed = tokio::spawn(async move {
            let changed = run_blocking(move || {
                change(&keys, &KeyRecorder { log: log.as_deref(), actor, address: Some(address) })
            });
            let outcome = changed.await.unwrap_or(Err(KeyChangeError::Interrupted))?;
            let now = revocations.time();
            let ended: Vec<_> = outcome.ended_keys().iter().map(|key| key.to_revocation(now)).collect();
            // Without a shared state the key file alone decides.
            let is_shared = revocations.is_shared() && !ended.is_empty();
            let publication = if is_shared { Some(revocations.revoke(&ended).await) } else { None };
            Ok(MadeChange { outcome, publication })
        });
        changed.await.unwrap_or(Err(KeyChangeError::Interrupted))
    }
}
