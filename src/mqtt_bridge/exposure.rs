//! Whether an agent is offered on a broker.

use super::payload::StatusDetails;
use std::sync::Arc;

/// Whether an agent is offered on a broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exposure {
    /// Offered, with these details in its status.
    Exposed(Arc<StatusDetails>),
    /// Not offered for the moment, because the gateway stops or connects anew: the broker keeps its tasks (R161).
    Suspended,
    /// Not offered any more: the broker keeps no tasks for it.
    Withdrawn,
}

impl Exposure {
    /// Returns the details for the status of an agent that is offered.
    pub(super) fn details(&self) -> Option<&Arc<StatusDetails>> {
        match self {
            Self::Exposed(details) => Some(details),
            Self::Suspended | Self::Withdrawn => None,
        }
    }

    /// Whether the agent is offered.
    pub fn is_exposed(&self) -> bool {
        self.details().is_some()
    }
}
