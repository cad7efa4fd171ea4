//! The settings of a source that the catalogue uses, and what follows from its kind.

use super::{
    config::{RemoteSourceConfig, SourceKind},
    loss_guard::LossGuardPolicy,
};
use crate::{
    agent::{AgentSource, DocumentWriter},
    values::ConfigDuration,
};
use std::{sync::Arc, time::Duration};
use tokio::sync::Notify;

/// Settings of a source that the catalogue uses.
#[derive(Clone, Debug)]
pub struct SourceSpec {
    /// Name, unique among the sources.
    pub name: Arc<str>,
    /// Protocol of the source.
    pub kind: &'static str,
    /// Location. A source at another location is a different source, even with the same name.
    pub location: Arc<str>,
    /// The loss guard; `None` accepts every loss at once.
    pub loss_guard: Option<LossGuardPolicy>,
    /// Time without a successful poll after which the source's agents are removed.
    pub max_staleness: Option<Duration>,
    /// Maximum number of agents.
    pub max_agents: usize,
    /// Whether the gateway is not ready before the source was read once.
    pub is_required: bool,
    /// Ends the delay before the next poll of the source.
    pub refresh: Arc<Notify>,
}

impl SourceSpec {
    /// The kind of files and folders, which the operator writes.
    pub(super) const FILES_KIND: &'static str = "files";

    /// Returns the settings of a local source, which has no loss guard.
    pub(super) fn local(name: Arc<str>, kind: &'static str) -> Self {
        // MAX_AGENTS alone bounds a local source.
        Self {
            location: Arc::clone(&name),
            name,
            kind,
            loss_guard: None,
            max_staleness: None,
            max_agents: usize::MAX,
            is_required: true,
            refresh: Arc::default(),
        }
    }

    /// Returns the settings of a remote source.
    pub(super) fn remote(config: &RemoteSourceConfig, location: &str) -> Self {
        Self {
            name: config.effective_name().into(),
            kind: config.kind.as_str(),
            location: location.into(),
            loss_guard: Some(LossGuardPolicy {
                threshold: config.loss_guard.threshold,
                confirm_after: config.loss_guard.confirm_after.get(),
            }),
            max_staleness: config.max_staleness.map(ConfigDuration::get),
            max_agents: config.max_agents,
            is_required: config.required,
            refresh: Arc::default(),
        }
    }

    /// Returns whether the parts of the source are lists, such as nested catalogues, one of which precedes another. The
    /// parts of other sources are files, topics or objects of one list.
    pub(super) fn has_lists(&self) -> bool {
        let kinds_of_objects =
            [Self::FILES_KIND, AgentSource::REGISTRY, SourceKind::Mqtt.as_str(), SourceKind::Kubernetes.as_str()];
        !kinds_of_objects.contains(&self.kind)
    }

    /// Returns the source of a document, published by `publisher` if this is the built-in registry.
    pub(super) fn agent_source(&self, publisher: Option<Arc<str>>) -> AgentSource {
        let writer = match (self.kind, publisher) {
            (Self::FILES_KIND, _) => DocumentWriter::Operator,
            (AgentSource::REGISTRY, publisher) => DocumentWriter::Publisher(publisher.unwrap_or_default()),
            _ => DocumentWriter::RemoteSource,
        };
        AgentSource { name: Arc::clone(&self.name), writer }
    }

    /// Returns the identity of the source across configurations.
    pub(super) fn identity(&self) -> (Arc<str>, &'static str, Arc<str>) {
        (Arc::clone(&self.name), self.kind, Arc::clone(&self.location))
    }
}
