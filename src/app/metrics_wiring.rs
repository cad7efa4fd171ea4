//! Connects the metrics with values that are read only when the metrics are: endpoints of agents, and the runtime.

use crate::{gateway::Gateway, telemetry::Metrics};
use std::{sync::Arc, time::Duration};
use tokio::runtime::Handle;

/// Lets the metrics of a gateway read its state. Runs on the runtime that serves calls.
pub(super) fn connect_samplers(gateway: &Arc<Gateway>) {
    let state = Arc::downgrade(gateway);
    gateway.metrics.set_sampler("endpoints", move |metrics| {
        let Some(gateway) = state.upgrade() else { return };
        let snapshot = gateway.catalogue.snapshot();
        metrics.set_endpoints(snapshot.iter().map(|(_, route)| route.endpoint_counts()));
    });
    let runtime = Handle::current();
    gateway.metrics.set_sampler("runtime", move |metrics| record_runtime(metrics, &runtime));
}

fn record_runtime(metrics: &Metrics, runtime: &Handle) {
    let runtime = runtime.metrics();
    let busy: Duration = (0..runtime.num_workers()).map(|worker| runtime.worker_total_busy_duration(worker)).sum();
    metrics.set_runtime(runtime.num_workers(), busy);
}
