//! Leases of local runtimes: registrations that expire unless they are renewed, so that dead runtimes disappear.

use super::runtime_folder::{RuntimeAddress, validate_path};
use crate::{
    agent::AgentId,
    fault::{Fault, FaultCode},
    values::ConfigDuration,
};
use parking_lot::Mutex;
use std::{collections::HashMap, path::PathBuf, time::Duration};
use tokio::time::Instant;

/// The maximum number of leases.
const MAX_LEASES: usize = 1000;

/// A request for a lease.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LeaseRequest {
    /// The socket's absolute path, at most 107 bytes.
    pub(super) socket: String,
    /// The HTTP path. Default: `/`.
    #[serde(default)]
    pub(super) path: Option<String>,
    /// How long the lease lasts unless it is renewed, at least 1s. Default: 60s.
    #[serde(default)]
    pub(super) ttl: Option<ConfigDuration>,
}

/// A granted lease.
#[derive(Clone, Copy, Debug)]
pub struct LeaseGrant {
    /// How long the lease lasts unless it is renewed.
    pub ttl: Duration,
    /// Whether the runtime had no lease before.
    pub is_new: bool,
    /// Whether the runtime had no lease before, or one with another address.
    pub has_new_address: bool,
}

/// A request for a lease that is within its bounds.
#[derive(Debug)]
pub(super) struct ValidLease {
    pub(super) address: RuntimeAddress,
    pub(super) ttl: Duration,
}

impl LeaseRequest {
    /// Validates the request; a lease lasts at most `max_lease`.
    ///
    /// # Errors
    /// `InvalidInput`, with the member that is wrong.
    pub(super) fn validate(self, max_lease: ConfigDuration) -> Result<ValidLease, Fault> {
        let refuse = |message: String| Fault::new(FaultCode::InvalidInput, message);
        let is_valid_path = self.socket.starts_with('/') && self.socket.len() <= 107 && !self.socket.contains('\0');
        if !is_valid_path || self.socket.split('/').any(|part| part == "..") {
            return Err(refuse("'socket' must be an absolute path of at most 107 bytes".to_owned()));
        }
        let path = validate_path(self.path).map_err(refuse)?;
        let max_ttl = max_lease.get();
        let ttl = self.ttl.map_or(Duration::from_secs(60).min(max_ttl), |ttl| ttl.get());
        if ttl < Duration::from_secs(1) || ttl > max_ttl {
            return Err(refuse(format!("'ttl' must be 1s to {max_lease}")));
        }
        Ok(ValidLease { address: RuntimeAddress { socket: PathBuf::from(self.socket), path }, ttl })
    }
}

/// The leases that have not expired.
#[derive(Debug, Default)]
pub(super) struct RuntimeLeases(Mutex<HashMap<AgentId, (RuntimeAddress, Instant)>>);

impl RuntimeLeases {
    pub(super) fn grant(&self, name: &AgentId, address: RuntimeAddress, ttl: Duration) -> Result<LeaseGrant, Fault> {
        let now = Instant::now();
        let mut leases = self.0.lock();
        leases.retain(|_, (_, expires_at)| *expires_at > now);
        if leases.len() >= MAX_LEASES && !leases.contains_key(name.as_str()) {
            return Err(Fault::new(FaultCode::Overloaded, "Too many runtimes are registered"));
        }
        let previous = leases.insert(name.clone(), (address.clone(), now + ttl));
        let has_new_address = previous.as_ref().is_none_or(|(former, _)| *former != address);
        Ok(LeaseGrant { ttl, is_new: previous.is_none(), has_new_address })
    }

    pub(super) fn find(&self, name: &str) -> Option<RuntimeAddress> {
        let leases = self.0.lock();
        leases.get(name).filter(|(_, expires_at)| *expires_at > Instant::now()).map(|(address, _)| address.clone())
    }

    pub(super) fn remove(&self, name: &str) -> bool {
        let mut leases = self.0.lock();
        leases.remove(name).is_some_and(|(_, expires_at)| expires_at > Instant::now())
    }
}
