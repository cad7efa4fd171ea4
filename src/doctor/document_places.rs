//! Where the documents of agents stand: the file and line for those of the operator, and the source or section of the
//! configuration for the others.

use super::{document_files::DocumentFiles, examined_config::ExaminedConfig, finding::Place};
use crate::{
    agent::{Agent, DocumentWriter},
    registry::SourceConfig,
};
use std::path::Path;

/// The places of documents.
pub(super) struct DocumentPlaces<'a> {
    examined: ExaminedConfig<'a>,
    files: DocumentFiles,
}

/// Maximum bytes of files that one examination indexes.
const MAX_INDEXED_BYTES: u64 = 64 << 20;

impl<'a> DocumentPlaces<'a> {
    /// Lists the files of agents that the configuration names.
    pub(super) fn list(examined: ExaminedConfig<'a>) -> Self {
        let sources = examined.config().agents.sources.iter().filter_map(|source| match source {
            SourceConfig::Files(path) => Some(&**path),
            SourceConfig::Remote(_) => None,
        });
        Self { examined, files: DocumentFiles::list(sources, MAX_INDEXED_BYTES) }
    }

    /// Returns the place of the member at `path` of an agent's document.
    pub(super) fn of_agent(&self, agent: &Agent, path: &str) -> Place {
        match &agent.source.writer {
            DocumentWriter::Operator => self.in_files(&agent.source.name, agent.id.as_str(), path),
            DocumentWriter::RemoteSource => self.of_source(&agent.source.name, ""),
            DocumentWriter::Publisher(_) => self.examined.place("registry"),
        }
    }

    fn in_files(&self, source: &str, id: &str, path: &str) -> Place {
        let whole_source = || Place { file: self.files.show(Path::new(source)), line: None, path: path.to_owned() };
        self.files.find_member(source, id, path).unwrap_or_else(whole_source)
    }

    /// Returns the place of a member of the document at `index` of a part, which is a file or belongs to a source.
    pub(super) fn in_part(&self, part: &str, index: usize, path: &str) -> Place {
        let file = Path::new(part);
        if let Some(lines) = self.files.lines_of(file) {
            return Place {
                file: self.files.show(file),
                line: lines.line_in_document(index, path),
                path: path.to_owned(),
            };
        }
        if file.is_absolute() {
            return Place { file: self.files.show(file), line: None, path: path.to_owned() };
        }
        self.of_source(&self.source_of_part(part).unwrap_or_default(), "")
    }

    /// Returns the place of the member that a reason names: those of an operation that a document only implies stand in
    /// the document itself (R14).
    pub(super) fn of_reason(&self, part: &str, index: usize, path: &str) -> Place {
        let place = self.in_part(part, index, path);
        let implied = path.strip_prefix("operations[0].").filter(|_| place.line == self.in_part(part, index, "").line);
        implied.map_or_else(|| place.clone(), |implied| self.in_part(part, index, implied))
    }

    /// Returns the place of a file that cannot be parsed, at the line that the reason names.
    pub(super) fn of_unreadable_part(&self, part: &str, reason: &str) -> Place {
        let line = reason.split("line ").nth(1).and_then(|rest| {
            let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
            digits.parse().ok()
        });
        Place { line, ..self.in_part(part, 0, "") }
    }

    /// Returns the name of the remote source to which a part belongs: the name stands before the part's own.
    pub(super) fn source_of_part(&self, part: &str) -> Option<String> {
        let names = self.examined.config().agents.sources.iter().filter_map(|source| match source {
            SourceConfig::Remote(remote) => Some(remote.effective_name()),
            SourceConfig::Files(_) => None,
        });
        names.filter(|name| part.starts_with(name.as_str())).max_by_key(String::len)
    }

    /// Returns the place of a setting of the source with this name.
    pub(super) fn of_source(&self, name: &str, setting: &str) -> Place {
        let sources = &self.examined.config().agents.sources;
        let position = sources.iter().position(|source| match source {
            SourceConfig::Remote(remote) => remote.effective_name() == name,
            SourceConfig::Files(path) => path.to_string_lossy() == name,
        });
        match (position, setting) {
            (Some(at), "") => self.examined.place(&format!("agents.sources[{at}]")),
            (Some(at), setting) => self.examined.place(&format!("agents.sources[{at}].{setting}")),
            (None, _) => self.examined.place("registry"),
        }
    }
}
