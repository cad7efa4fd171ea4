//! What all agents' slots have in common: the server, the clock, and the way to the exchanger.

use super::{lease_account::LeaseTimes, lease_server::LeaseServer};
use crate::limit::on_error::OnError;
use std::{
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering::Relaxed},
        mpsc::SyncSender,
    },
    time::Duration,
};
use tokio::{sync::mpsc::UnboundedSender, time::Instant};

/// What the exchanger is asked to do.
#[derive(Debug)]
pub(super) enum LeaseWake {
    /// Visit the account of this id not later than then.
    Visit { id: u128, at: Duration },
    /// Give back every slot that no call uses, and send `()` then.
    ReturnAll(SyncSender<()>),
}

/// The server, the clock, and what decides while the server cannot be reached.
#[derive(Debug)]
pub(super) struct LeaseContext {
    pub(super) server: Arc<dyn LeaseServer>,
    started_at: Instant,
    on_error: AtomicU8,
    /// An account has at most a few messages in it, each earlier than the one before.
    wakes: UnboundedSender<LeaseWake>,
}

impl LeaseContext {
    pub(super) fn new(server: Arc<dyn LeaseServer>, wakes: UnboundedSender<LeaseWake>) -> Self {
        Self { server, started_at: Instant::now(), on_error: AtomicU8::new(0), wakes }
    }

    /// Sets what decides while the server cannot be reached.
    pub(super) fn set_on_error(&self, on_error: OnError) {
        self.on_error.store(on_error as u8, Relaxed);
    }

    /// Returns the time since the start.
    pub(super) fn now(&self) -> Duration {
        self.started_at.elapsed()
    }

    /// Returns the circumstances of a decision now.
    pub(super) fn times(&self) -> LeaseTimes {
        let on_error = match self.on_error.load(Relaxed) {
            value if value == OnError::Open as u8 => OnError::Open,
            value if value == OnError::Closed as u8 => OnError::Closed,
            _ => OnError::Local,
        };
        LeaseTimes {
            now: self.now(),
            is_available: self.server.is_available(),
            gateways: self.server.gateway_count(),
            on_error,
        }
    }

    /// Asks the exchanger. It ends with the gateway, after which nobody waits for it.
    pub(super) fn wake(&self, wake: LeaseWake) {
        let _ = self.wakes.send(wake);
    }
}
