//! The metrics of the listeners: connections, TLS handshakes and responses. The label is the configured address of a
//! listener, so that the configuration bounds the number of series.

use super::{
    metric_labels::{ConnectionOutcome, ResponseProtocol, TlsHandshake},
    metric_registration::{GaugeGuard, MetricBuilder, describe, increment},
    metric_table::{CONNECTIONS, OPEN, RESPONSES, TLS_HANDSHAKES},
    series_families::SeriesFamily,
};
use parking_lot::Mutex;
use prometheus::{
    Error, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry,
    core::{Collector, Desc},
    proto,
};
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// The statuses with a label of their own: none, those of the gateway's responses, and the usual ones of agents.
pub(super) const STATUSES: [u16; 36] = [
    0, 101, 200, 201, 202, 203, 204, 205, 206, 304, 400, 401, 402, 403, 404, 405, 406, 408, 409, 410, 411, 412, 413,
    414, 415, 422, 426, 429, 431, 500, 501, 502, 503, 504, 505, 511,
];
const OTHER_STATUS: usize = STATUSES.len();
/// The first status without an index.
const STATUS_LIMIT: usize = 512;
/// The index of each status, so that counting needs no search.
#[expect(clippy::indexing_slicing, reason = "evaluated at compile time")]
static STATUS_INDEX: [u8; STATUS_LIMIT] = {
    let mut indexes = [OTHER_STATUS as u8; STATUS_LIMIT];
    let mut at = 0;
    while at < STATUSES.len() {
        indexes[STATUSES[at] as usize] = at as u8;
        at += 1;
    }
    indexes
};

type StatusCounters = [AtomicU64; STATUSES.len() + 1];

/// The metrics of one listener.
#[derive(Debug)]
pub struct ListenerMetrics {
    open: IntGauge,
    connections: Box<[IntCounter]>,
    handshakes: Box<[IntCounter]>,
    responses: [StatusCounters; ResponseProtocol::ALL.len()],
}

impl ListenerMetrics {
    /// Counts a connection as open until the returned guard is dropped.
    pub fn track_connection(&self) -> GaugeGuard {
        GaugeGuard::new(&self.open)
    }

    /// Counts the outcome of accepting a connection.
    pub fn record_connection(&self, outcome: ConnectionOutcome) {
        increment(&self.connections, outcome as usize);
    }

    /// Counts a TLS handshake.
    pub fn record_handshake(&self, handshake: TlsHandshake) {
        increment(&self.handshakes, handshake as usize);
    }

    /// Counts a response; the status 0 is none.
    pub fn record_response(&self, protocol: ResponseProtocol, status: u16) {
        let index = STATUS_INDEX.get(usize::from(status)).map_or(OTHER_STATUS, |index| usize::from(*index));
        if let Some(count) = self.responses.get(protocol as usize).and_then(|counters| counters.get(index)) {
            count.fetch_add(1, Relaxed);
        }
    }
}

/// The metrics of all listeners.
#[derive(Clone, Debug)]
pub(super) struct ListenerTable {
    open: IntGaugeVec,
    connections: IntCounterVec,
    handshakes: IntCounterVec,
    listeners: Arc<Mutex<BTreeMap<Box<str>, Arc<ListenerMetrics>>>>,
}

impl ListenerTable {
    pub(super) fn register(registry: &Registry) -> Result<Self, Error> {
        let builder = MetricBuilder(registry);
        let table = Self {
            open: builder.int_gauge_vec(OPEN)?,
            connections: builder.int_counter_vec(CONNECTIONS)?,
            handshakes: builder.int_counter_vec(TLS_HANDSHAKES)?,
            listeners: Arc::default(),
        };
        registry.register(Box::new(ResponseCollector { table: table.clone(), description: describe(&RESPONSES)? }))?;
        Ok(table)
    }

    /// Returns the metrics of a listener.
    pub(super) fn listener(&self, listener: &str) -> Arc<ListenerMetrics> {
        let mut listeners = self.listeners.lock();
        if let Some(metrics) = listeners.get(listener) {
            return Arc::clone(metrics);
        }
        let counters = |family: &IntCounterVec, values: &[&str]| {
            values.iter().map(|value| family.with_label_values(&[listener, value])).collect()
        };
        let metrics = Arc::new(ListenerMetrics {
            open: self.open.with_label_values(&[listener]),
            connections: counters(&self.connections, ConnectionOutcome::NAMES),
            handshakes: counters(&self.handshakes, TlsHandshake::NAMES),
            responses: [const { [const { AtomicU64::new(0) }; STATUSES.len() + 1] }; ResponseProtocol::ALL.len()],
        });
        listeners.insert(listener.into(), Arc::clone(&metrics));
        metrics
    }
}

/// Exposes the responses that have been counted.
struct ResponseCollector {
    table: ListenerTable,
    description: Desc,
}

impl Collector for ResponseCollector {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.description]
    }

    fn collect(&self) -> Vec<proto::MetricFamily> {
        let mut responses = SeriesFamily::new(RESPONSES);
        for (listener, metrics) in &*self.table.listeners.lock() {
            for (protocol, counters) in ResponseProtocol::NAMES.iter().zip(&metrics.responses) {
                for (at, count) in counters.iter().enumerate() {
                    let status = STATUSES.get(at).map_or_else(|| "other".to_owned(), u16::to_string);
                    responses.push_nonzero(&[listener, protocol, &status], count.load(Relaxed));
                }
            }
        }
        responses.into_family().into_iter().collect()
    }
}
