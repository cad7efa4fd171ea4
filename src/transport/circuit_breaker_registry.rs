//! The circuit breakers of all endpoints. They outlive the upstream sets that use them, so that an endpoint that fails
//! is not called again at once after a reload.

use super::circuit_breaker::CircuitBreaker;
use crate::agent::AgentId;
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

/// The circuit breakers by agent and address.
#[derive(Debug, Default)]
pub(super) struct BreakerRegistry(Mutex<BreakerTable>);

/// Entries that no upstream set uses are removed when the map has twice the size it had after the last cleanup.
#[derive(Debug, Default)]
struct BreakerTable {
    breakers: HashMap<Box<str>, Weak<CircuitBreaker>>,
    cleanup_at: usize,
}

impl BreakerRegistry {
    /// Returns the circuit breaker of one agent's endpoint. The key contains the agent, because another agent at the
    /// same address has other timeouts.
    pub(super) fn get_or_create(&self, agent: &AgentId, address: &str) -> Arc<CircuitBreaker> {
        let mut table = self.0.lock();
        let key = format!("{agent} {address}").into_boxed_str();
        if let Some(breaker) = table.breakers.get(&key).and_then(Weak::upgrade) {
            return breaker;
        }
        if table.breakers.len() >= table.cleanup_at {
            table.breakers.retain(|_, breaker| breaker.strong_count() > 0);
            table.cleanup_at = (table.breakers.len() * 2).max(64);
        }
        let breaker = Arc::new(CircuitBreaker::new());
        table.breakers.insert(key, Arc::downgrade(&breaker));
        breaker
    }

    /// The number of entries, those in use and those that wait for the next cleanup.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.lock().breakers.len()
    }
}
