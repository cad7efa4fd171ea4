//! The agents at one moment, and the documents that are not served. Immutable: a change makes another.

use crate::agent::AgentId;
use foldhash::fast::RandomState;
use std::{collections::HashMap, fmt, sync::Arc, time::SystemTime};

/// The agents at one moment.
#[derive(Debug)]
pub struct Snapshot<R> {
    pub(super) routes: HashMap<AgentId, Arc<R>, RandomState>,
    /// Documents that are not served, and why.
    pub refused: Vec<Refusal>,
    /// Parts of feeds that cannot be read, and why; what they held before is still served.
    pub troubles: Vec<(Arc<str>, String)>,
    /// When it was made.
    pub at: SystemTime,
}

impl<R> Snapshot<R> {
    /// The route to the agent called `id`.
    pub fn get(&self, id: &str) -> Option<&Arc<R>> {
        self.routes.get(id)
    }

    /// Every route, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&AgentId, &Arc<R>)> {
        self.routes.iter()
    }

    /// How many agents are served.
    pub fn len(&self) -> usize {
        self.routes.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }
}

/// A document that is not served.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Refusal {
    /// The file or other part of a feed in which it stands.
    pub source: Arc<str>,
    /// Which document of that part, from 0.
    pub index: usize,
    /// Its id, where that could be read.
    pub id: Option<String>,
    /// Every reason.
    pub reasons: Vec<String>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}[{}]", self.source, self.index)?;
        if let Some(id) = &self.id {
            write!(to, " ({id:?})")?;
        }
        write!(to, ": {}", self.reasons.join("; "))
    }
}
