//! The source of an agent's document, and who wrote the document. What a document may ask of the gateway, such as a
//! credential or an endpoint in a private network, depends on its writer.

use std::sync::Arc;

/// Who wrote a document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DocumentWriter {
    /// The operator of the gateway, in a file.
    #[default]
    Operator,
    /// Another registry, a domain or an agent on a broker.
    RemoteSource,
    /// The caller of this id, who published the document here; empty where the id is not known yet.
    Publisher(Arc<str>),
}

/// The source of a document. Two documents have the same owner if their sources are equal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentSource {
    /// The name of the source; empty for a document that is in no source.
    pub name: Arc<str>,
    /// Who wrote the document.
    pub writer: DocumentWriter,
}

impl AgentSource {
    /// The name under which the configuration refers to all files of the operator together.
    pub const FILES: &'static str = "files";
    /// The name of the built-in registry.
    pub const REGISTRY: &'static str = "registry";

    /// Returns whether the operator wrote the document, so that it may name every endpoint.
    pub fn is_operator(&self) -> bool {
        self.writer == DocumentWriter::Operator
    }

    /// Returns the id of the caller who published the document.
    pub fn publisher(&self) -> Option<&Arc<str>> {
        match &self.writer {
            DocumentWriter::Publisher(id) => Some(id),
            DocumentWriter::Operator | DocumentWriter::RemoteSource => None,
        }
    }
}
