//! The endpoints of agents by state, which are read from the routes when the metrics are read.

use super::{
    call_metrics::AgentMetrics, metric_labels::EndpointState, metric_registration::describe, metric_table::ENDPOINTS,
    series_families::SeriesFamily,
};
use parking_lot::Mutex;
use prometheus::{
    Error, Registry,
    core::{Collector, Desc},
    proto,
};
use std::{collections::BTreeMap, sync::Arc};

/// How many endpoints of an agent there are in each state.
pub type EndpointCounts = [usize; EndpointState::ALL.len()];

/// The endpoints of the agents that were called, by the label of the agent.
#[derive(Clone, Debug, Default)]
pub(super) struct EndpointMetrics(Arc<Mutex<BTreeMap<Arc<str>, EndpointCounts>>>);

impl EndpointMetrics {
    pub(super) fn register(registry: &Registry) -> Result<Self, Error> {
        let metrics = Self::default();
        registry
            .register(Box::new(EndpointCollector { metrics: metrics.clone(), description: describe(&ENDPOINTS)? }))?;
        Ok(metrics)
    }

    /// Replaces the counts. Agents that were never called have no series.
    pub(super) fn replace<'a>(&self, agents: impl Iterator<Item = (&'a AgentMetrics, EndpointCounts)>) {
        let mut by_label: BTreeMap<Arc<str>, EndpointCounts> = BTreeMap::new();
        for (agent, counts) in agents {
            let Some(label) = agent.counted_label() else { continue };
            for (sum, count) in by_label.entry(label).or_default().iter_mut().zip(counts) {
                *sum += count;
            }
        }
        *self.0.lock() = by_label;
    }
}

struct EndpointCollector {
    metrics: EndpointMetrics,
    description: Desc,
}

impl Collector for EndpointCollector {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.description]
    }

    fn collect(&self) -> Vec<proto::MetricFamily> {
        let mut endpoints = SeriesFamily::new(ENDPOINTS);
        for (label, counts) in &*self.metrics.0.lock() {
            for (state, count) in EndpointState::NAMES.iter().zip(counts) {
                endpoints.push(&[label, state], *count as f64);
            }
        }
        endpoints.into_family().into_iter().collect()
    }
}
