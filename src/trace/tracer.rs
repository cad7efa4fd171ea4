//! What one configuration puts in force: the sampler, and the queue to an exporter, which outlives the configurations
//! that export alike.

use super::{
    config::TracingConfig,
    exporter::{Exporter, FlushRequest},
    otlp_client::OtlpClient,
    sampler::Sampler,
    span_queue::SpanQueue,
    span_scope::SpanScope,
    trace_context::Traceparent,
};
use crate::{
    net::NetworkConfig,
    telemetry::Metrics,
    values::{Secret, sha256},
};
use std::{sync::Arc, time::Duration};
use tokio::sync::{mpsc, oneshot};

/// Records traces as one configuration says.
#[derive(Debug)]
pub struct Tracer {
    pub(super) sampler: Sampler,
    pub(super) queue: Arc<SpanQueue>,
    export: ExportSettings,
    flush_requests: mpsc::Sender<FlushRequest>,
}

/// What an exporter is made of.
#[derive(Debug, PartialEq)]
struct ExportSettings {
    /// The section, without what concerns the sampler.
    config: TracingConfig,
    network: NetworkConfig,
    header_values: Vec<Secret>,
    /// The digests of the files of certificate authorities.
    authorities: Vec<[u8; 32]>,
}

impl ExportSettings {
    fn load(config: &TracingConfig, network: &NetworkConfig) -> Result<Self, Vec<String>> {
        let mut problems = Vec::new();
        let mut header_values = Vec::new();
        for (name, value) in &config.headers {
            match value.load() {
                Ok(secret) => header_values.push(secret),
                Err(why) => problems.push(format!("headers.{name}: {why}")),
            }
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        // A file that cannot be read is reported by the client that reads it.
        let digest = |path: &crate::values::ConfigPath| sha256(&std::fs::read(path).unwrap_or_default());
        let authorities = [&config.ca_file, &network.ca].into_iter().flatten().map(digest).collect();
        let config = TracingConfig {
            sample_ratio: 0.0,
            trust: super::config::TraceTrust::default(),
            max_trusted_per_second: std::num::NonZeroU32::MIN,
            ..config.clone()
        };
        Ok(Self { config, network: network.clone(), header_values, authorities })
    }
}

impl Tracer {
    /// Puts a configuration in force; requires a tokio runtime. The exporter of `previous` goes on if it exports alike;
    /// otherwise it sends what it has, and ends.
    ///
    /// # Errors
    /// Every unusable value, by its path within the section.
    pub fn build(
        config: &TracingConfig,
        network: &NetworkConfig,
        metrics: &Arc<Metrics>,
        previous: Option<&Self>,
    ) -> Result<Self, Vec<String>> {
        let problems = config.problems();
        if !problems.is_empty() {
            return Err(problems);
        }
        let export = ExportSettings::load(config, network)?;
        let sampler = Sampler::new(config);
        if let Some(previous) = previous.filter(|previous| previous.export == export) {
            let (queue, flush_requests) = (Arc::clone(&previous.queue), previous.flush_requests.clone());
            return Ok(Self { sampler, queue, export, flush_requests });
        }
        let client = OtlpClient::build(config, network, &export.header_values)?;
        let (queue, spans) = SpanQueue::new(config.queue_size, Arc::clone(metrics));
        let (flush_requests, requests) = mpsc::channel(1);
        let exporter = Exporter::new(config, client, Arc::clone(metrics));
        tokio::spawn(exporter.run(spans, requests));
        Ok(Self { sampler, queue: Arc::new(queue), export, flush_requests })
    }

    /// Returns the span that a stored `traceparent` names, as the parent of others.
    pub fn resume(&self, traceparent: &str) -> Option<SpanScope> {
        Traceparent::parse(traceparent.as_bytes()).map(|parent| SpanScope::resume(&self.queue, parent))
    }

    /// Sends the queued spans, and waits for at most `timeout`, and at most the timeout of an export.
    pub async fn flush(&self, timeout: Duration) {
        let (done, is_done) = oneshot::channel();
        let flushed = async {
            if self.flush_requests.send(done).await.is_ok() {
                let _ = is_done.await;
            }
        };
        let timeout = timeout.min(self.export.config.timeout.get());
        if tokio::time::timeout(timeout, flushed).await.is_err() {
            tracing::warn!(
                "spans not exported at shutdown: the receiver of traces does not answer (see tracing.endpoint)"
            );
        }
    }
}
