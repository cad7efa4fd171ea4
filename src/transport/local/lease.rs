//! Leases of local runtimes: registrations that expire unless they are renewed, so that dead runtimes disappear.

use super::{
    LocalConfig,
    folder::{Place, checked},
};
use crate::{
    agent::AgentId,
    fault::{Code, Fault},
    unit::Span,
};
use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Mutex, PoisonError},
    time::Duration,
};
use tokio::time::Instant;

/// The maximum number of leases.
const MOST: usize = 1000;

/// A request for a lease.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewLease {
    /// The socket's absolute path, at most 107 bytes.
    pub(super) socket: String,
    /// The HTTP path. Default: `/`.
    #[serde(default)]
    pub(super) path: Option<String>,
    /// How long the lease lasts unless it is renewed, at least 1s. Default: 60s.
    #[serde(default)]
    pub(super) ttl: Option<Span>,
}

/// A granted lease.
#[derive(Clone, Copy, Debug)]
pub struct Leased {
    /// How long the lease lasts unless it is renewed.
    pub holds: Duration,
    /// Whether the runtime had no lease before.
    pub new: bool,
}

impl NewLease {
    pub(super) fn checked(self, config: &LocalConfig) -> Result<(Place, Duration), Fault> {
        let refuse = |why: String| Fault::new(Code::InvalidInput, why);
        let whole = self.socket.starts_with('/') && self.socket.len() <= 107 && !self.socket.contains('\0');
        if !whole || self.socket.split('/').any(|part| part == "..") {
            return Err(refuse("'socket' must be an absolute path of at most 107 bytes".to_owned()));
        }
        let path = checked(self.path).map_err(refuse)?;
        let longest = config.longest_lease.get();
        let span = self.ttl.map_or(Duration::from_secs(60).min(longest), |span| span.get());
        if span < Duration::from_secs(1) || span > longest {
            return Err(refuse(format!("'ttl' must be 1s to {}", config.longest_lease)));
        }
        Ok((Place { socket: PathBuf::from(self.socket), path }, span))
    }
}

/// The leases that have not expired.
#[derive(Debug, Default)]
pub(super) struct Leases(Mutex<HashMap<AgentId, (Place, Instant)>>);

impl Leases {
    pub(super) fn put(&self, name: &AgentId, place: Place, span: Duration) -> Result<Leased, Fault> {
        let now = Instant::now();
        let mut leases = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        leases.retain(|_, (_, ends)| *ends > now);
        if leases.len() >= MOST && !leases.contains_key(name.as_str()) {
            return Err(Fault::new(Code::Overloaded, "Too many runtimes are registered"));
        }
        let before = leases.insert(name.clone(), (place, now + span));
        Ok(Leased { holds: span, new: before.is_none() })
    }

    pub(super) fn find(&self, name: &str) -> Option<Place> {
        let leases = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        leases.get(name).filter(|(_, ends)| *ends > Instant::now()).map(|(place, _)| place.clone())
    }

    pub(super) fn end(&self, name: &str) -> bool {
        let mut leases = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        leases.remove(name).is_some_and(|(_, ends)| ends > Instant::now())
    }
}
