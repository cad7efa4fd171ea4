//! Metrics of the connections to MQTT brokers. Agents' endpoints name brokers, so the number of series has a bound.

use super::{metric_registration::MetricBuilder, metric_table::BROKER_CONNECTED};
use parking_lot::Mutex;
use prometheus::{Error, IntGaugeVec, Registry};
use std::{
    collections::HashMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

/// Maximum number of brokers with a label of their own; the others share `other`.
pub(super) const MAX_BROKERS: usize = 100;
const OTHER_LABEL: &str = "other";

/// The brokers that are in use.
#[derive(Clone, Debug)]
pub struct BrokerTable {
    connected: IntGaugeVec,
    brokers: Arc<Mutex<HashMap<Arc<str>, Weak<BrokerMetrics>>>>,
}

impl BrokerTable {
    pub(super) fn register(registry: &Registry) -> Result<Self, Error> {
        let connected = MetricBuilder(registry).int_gauge_vec(BROKER_CONNECTED)?;
        Ok(Self { connected, brokers: Arc::default() })
    }

    /// Returns the metrics of a broker, whose series exists as long as they do.
    pub fn broker(&self, name: &str) -> Arc<BrokerMetrics> {
        let mut brokers = self.brokers.lock();
        let is_known = brokers.contains_key(name);
        let name = if is_known || brokers.len() < MAX_BROKERS { name } else { OTHER_LABEL };
        if let Some(broker) = brokers.get(name).and_then(Weak::upgrade) {
            return broker;
        }
        let name: Arc<str> = name.into();
        self.connected.with_label_values(&[&*name]).set(0);
        let broker =
            Arc::new(BrokerMetrics { name: Arc::clone(&name), table: self.clone(), connections: AtomicUsize::new(0) });
        brokers.insert(name, Arc::downgrade(&broker));
        broker
    }
}

/// The connections to one broker.
#[derive(Debug)]
pub struct BrokerMetrics {
    name: Arc<str>,
    table: BrokerTable,
    connections: AtomicUsize,
}

impl BrokerMetrics {
    /// Counts a connection as open until the returned guard is dropped.
    pub fn track_connection(self: &Arc<Self>) -> BrokerConnectionGuard {
        if self.connections.fetch_add(1, SeqCst) == 0 {
            self.update();
        }
        BrokerConnectionGuard(Arc::clone(self))
    }

    /// Sets the gauge under the lock of the table, so that the last change is the one that stays.
    fn update(&self) {
        let _brokers = self.table.brokers.lock();
        let is_connected = self.connections.load(SeqCst) > 0;
        self.table.connected.with_label_values(&[&*self.name]).set(is_connected.into());
    }
}

impl Drop for BrokerMetrics {
    fn drop(&mut self) {
        let mut brokers = self.table.brokers.lock();
        // Another user may have come meanwhile.
        if brokers.get(&self.name).is_some_and(|broker| broker.strong_count() == 0) {
            brokers.remove(&self.name);
            // An error means that there is no such series.
            drop(self.table.connected.remove_label_values(&[&*self.name]));
        }
    }
}

/// An open connection to a broker.
#[derive(Debug)]
pub struct BrokerConnectionGuard(Arc<BrokerMetrics>);

impl Drop for BrokerConnectionGuard {
    fn drop(&mut self) {
        if self.0.connections.fetch_sub(1, SeqCst) == 1 {
            self.0.update();
        }
    }
}
