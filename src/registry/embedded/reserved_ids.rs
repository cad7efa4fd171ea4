//! Ids of the agents of other sources, which cannot be published.

use crate::agent::AgentId;
use arc_swap::ArcSwapOption;
use std::sync::Arc;

/// Returns whether an id belongs to an agent of another source.
pub type IdReservation = dyn Fn(&AgentId) -> bool + Send + Sync;

/// The reservation in force; none until one is set.
#[derive(Default)]
pub(super) struct ReservedIds {
    /// In two `Arc`s, because `ArcSwapOption` needs a sized type.
    reservation: ArcSwapOption<Arc<IdReservation>>,
}

impl ReservedIds {
    pub(super) fn set_reservation(&self, reservation: Arc<IdReservation>) {
        self.reservation.store(Some(Arc::new(reservation)));
    }

    pub(super) fn is_reserved(&self, id: &AgentId) -> bool {
        self.reservation.load_full().is_some_and(|is_reserved| is_reserved(id))
    }
}
