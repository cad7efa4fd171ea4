//! Finds the documents of agents for explanations: the file and line of those of the operator, and the source of others.

use crate::{
    agent::DocumentWriter,
    console::ConfigInForce,
    doctor::DocumentFiles,
    explain::{DocumentPlace, LocateDocument},
    gateway::Gateway,
    registry::SourceConfig,
};
use std::{cell::OnceCell, sync::Arc};

/// The documents of the agents that are served now. Reads files when a line is wanted, so it belongs on a thread that
/// may block.
pub(super) struct DocumentSearch {
    gateway: Arc<Gateway>,
    config: Arc<ConfigInForce>,
    files: OnceCell<DocumentFiles>,
}

impl DocumentSearch {
    pub(super) fn new(gateway: Arc<Gateway>, config: Arc<ConfigInForce>) -> Self {
        Self { gateway, config, files: OnceCell::new() }
    }

    fn list_files(&self) -> DocumentFiles {
        let sources = self.config.config.agents.sources.iter().filter_map(|source| match source {
            SourceConfig::Files(path) => Some(&**path),
            SourceConfig::Remote(_) => None,
        });
        DocumentFiles::list(sources)
    }
}

impl LocateDocument for DocumentSearch {
    fn locate_document(&self, agent: &str, member: &str) -> Option<DocumentPlace> {
        let snapshot = self.gateway.catalogue.snapshot();
        let agent = snapshot.get(agent)?.agent();
        match &agent.source.writer {
            DocumentWriter::Operator => {
                let files = self.files.get_or_init(|| self.list_files());
                let place = files.find_member(&agent.source.name, agent.id.as_str(), member)?;
                Some(DocumentPlace::Line(place.to_string()))
            }
            DocumentWriter::RemoteSource => Some(DocumentPlace::Source(format!("the source '{}'", agent.source.name))),
            DocumentWriter::Publisher(_) => Some(DocumentPlace::Source("the built-in registry".to_owned())),
        }
    }
}
