//! Finds the documents of agents for explanations: the file and line of those of the operator, and the source of others.

use crate::{
    agent::DocumentWriter,
    console::ConfigInForce,
    doctor::DocumentFiles,
    explain::{DocumentPlace, LocateDocument, RejectionPlace},
    gateway::Gateway,
    registry::{DocumentRejection, SourceConfig},
    telemetry::redact_agent_text,
};
use parking_lot::Mutex;
use std::{cell::OnceCell, sync::Arc};

/// Maximum bytes of files that are indexed for one answer: some hundred milliseconds of one core. A file that is named like
/// its agent is read first.
const MAX_INDEXED_BYTES: u64 = 2 << 20;

/// Held by the answer that indexes files. Others say no line meanwhile, so that operators who ask at once do not multiply
/// the work.
static INDEXING: Mutex<()> = Mutex::new(());

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
        DocumentFiles::list(sources, MAX_INDEXED_BYTES)
    }
}

impl LocateDocument for DocumentSearch {
    fn locate_document(&self, agent: &str, member: &str) -> Option<DocumentPlace> {
        let snapshot = self.gateway.catalogue.snapshot();
        let agent = snapshot.get(agent)?.agent();
        match &agent.source.writer {
            DocumentWriter::Operator => {
                let _turn = INDEXING.try_lock()?;
                let files = self.files.get_or_init(|| self.list_files());
                let place = files.find_member(&agent.source.name, agent.id.as_str(), member)?;
                Some(DocumentPlace::Line(place.to_string()))
            }
            DocumentWriter::RemoteSource => Some(DocumentPlace::Source(format!("the source '{}'", agent.source.name))),
            DocumentWriter::Publisher(_) => Some(DocumentPlace::Source("the built-in registry".to_owned())),
        }
    }

    fn locate_rejection(&self, agent: &str) -> Option<RejectionPlace> {
        let snapshot = self.gateway.catalogue.snapshot();
        let has_id = |document: &&DocumentRejection| document.id.as_deref() == Some(agent);
        let rejection = snapshot.rejected.iter().chain(&snapshot.unsupported).find(has_id)?;
        let reason = redact_agent_text(&rejection.reasons.join("; ")).into_owned();
        // A reason begins with the member that it is about.
        let member =
            rejection.reasons.first().and_then(|reason| reason.split_once(':')).map_or("", |(member, _)| member);
        let place = INDEXING.try_lock().and_then(|_turn| {
            let files = self.files.get_or_init(|| self.list_files());
            files.find_member(&rejection.part, agent, member)
        });
        let document = place.as_ref().map_or_else(|| rejection.part.to_string(), |place| place.file.clone());
        Some(RejectionPlace { document, reason, line: place.map(|place| place.to_string()) })
    }
}
