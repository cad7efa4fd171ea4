//! Kubernetes feed: labelled Services are agents, and the ready endpoints of their EndpointSlices are where they are
//! called. Watches keep a table up to date; a poll reports the Services that changed, and only the first poll waits for
//! the API server. The feed changes nothing in the cluster and calls no agent.
//!
//! The API is read with the gateway's own HTTP client: a list and a watch are two GET requests, and the lines of a watch
//! and the bodies of refusals are bounded here, which the kube crate (5.0) does not do.

mod api_objects;
mod cluster_access;
mod cluster_table;
mod config;
#[cfg(any(test, fuzzing))]
pub(super) mod fuzz;
mod namespace_state;
mod object_watch;
mod ready_endpoints;
mod service_document;
mod watch_scope;

pub use config::KubernetesSourceConfig;

use super::{
    config::RemoteSourceConfig,
    feed::{Feed, FeedPart, PartUpdate, PollResult},
    http_feed::run_classification,
    signature_policy::SignaturePolicy,
    table_task::{FIRST_POLL_TIMEOUT, TableTask},
};
use crate::{
    net::{FetchLimits, NetworkConfig},
    values::ConfigDuration,
};
use cluster_access::ClusterAccess;
use cluster_table::{ClusterReport, ClusterTable, MAX_TOTAL_SIZE, TableBounds};
use service_document::DocumentBuilder;
use std::sync::Arc;

/// Feed of the agents of one cluster.
#[derive(Debug)]
pub struct KubernetesFeed {
    access: Arc<ClusterAccess>,
    table: Arc<ClusterTable>,
    builder: DocumentBuilder,
    watches: TableTask,
}

impl KubernetesFeed {
    /// Creates the feed of a source. It connects at its first poll.
    ///
    /// # Errors
    /// Every value that cannot be used, by its path within the source.
    pub(super) fn new(remote: &RemoteSourceConfig, network: &NetworkConfig) -> Result<Self, Vec<String>> {
        let settings = remote.kubernetes.clone().unwrap_or_default();
        let limits = FetchLimits { size: remote.max_response_size, time: remote.fetch_timeout };
        let access = ClusterAccess::new(&remote.url, &settings, remote.credential.as_ref(), limits, network)?;
        let signature_policy = SignaturePolicy::load(remote).map_err(|why| vec![format!("publisher_jwks: {why}")])?;
        let bounds = TableBounds {
            max_services: remote.max_agents,
            max_bytes: MAX_TOTAL_SIZE,
            max_staleness: remote.max_staleness.map(ConfigDuration::get),
        };
        Ok(Self {
            access: Arc::new(access),
            table: Arc::new(ClusterTable::new(bounds)),
            builder: DocumentBuilder { signature_policy, zone: settings.zone.as_deref().map(Into::into) },
            watches: TableTask::new("Kubernetes watch"),
        })
    }
}

#[async_trait::async_trait]
impl Feed for KubernetesFeed {
    async fn poll(&mut self) -> PollResult {
        let (access, table) = (Arc::clone(&self.access), Arc::clone(&self.table));
        if self.watches.start(async move { access.run(&table).await }) {
            self.table.wait_until_listed(FIRST_POLL_TIMEOUT).await;
        }
        let (report, builder) = (self.table.take_report(), self.builder.clone());
        run_classification(move || build_parts(report, &builder)).await.unwrap_or_else(|why| {
            self.table.discard_report();
            PollResult::failed(why)
        })
    }

    async fn wait_for_update(&mut self) {
        self.table.wait_for_update().await;
    }

    fn acknowledge(&mut self) {
        self.table.acknowledge();
    }

    fn reset(&mut self) {
        self.table.discard_report();
    }

    fn refresh(&mut self) {
        self.reset();
        // The next poll lists again, with the credential and the authorities as they are now.
        self.watches.stop();
    }
}

fn build_parts(report: ClusterReport, builder: &DocumentBuilder) -> PollResult {
    let ClusterReport { mut result, services } = report;
    result.parts.extend(services.into_iter().map(|(key, objects)| {
        let update = match &objects {
            Some(objects) => PartUpdate::Replaced(vec![builder.build(objects)]),
            None => PartUpdate::Removed,
        };
        FeedPart { name: format!("{}/{}", key.namespace, key.name).into(), update }
    }));
    result
}

#[cfg(test)]
mod tests;
