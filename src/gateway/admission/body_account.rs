//! Whose share of the memory for bodies a body and its parsed form use.

use crate::{
    contract::{MemoryAccount, MemoryAccounts},
    fault::Result,
    limit::{CallLimiter, MemoryReservation},
    values::{ClientKey, MaxShare},
};

/// Whose share of the memory for bodies a buffered body uses.
#[derive(Clone, Copy)]
pub(in crate::gateway) struct BodyAccount<'a> {
    pub(in crate::gateway) limits: &'a CallLimiter,
    pub(in crate::gateway) client: ClientKey,
}

impl MemoryAccounts for BodyAccount<'_> {
    fn open(&self) -> Box<dyn MemoryAccount> {
        Box::new(self.limits.reserve_body(self.client))
    }

    fn max_share(&self) -> MaxShare {
        self.limits.max_share()
    }
}

impl MemoryAccount for MemoryReservation {
    fn grow_to(&mut self, bytes: usize) -> Result<()> {
        Self::grow_to(self, bytes)
    }
}
