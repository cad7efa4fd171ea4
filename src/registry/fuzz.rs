//! Entry points for fuzzing: files of documents, registries and clusters.

pub use super::{http_feed::fuzz::check_registry_page, kubernetes_feed::fuzz::check_kubernetes_events};

use super::{document_parser, feed::DocumentBody, file_document::convert_file_document};
use crate::{
    agent::Agent,
    contract::{ContractConfig, DocumentBudget, OperationContract},
    values::sha256,
};
use bytes::Bytes;
use std::path::Path;

/// Reads a file, JSON or YAML after its first byte, and compiles the schemas of its agents within the default budget.
pub fn check_documents(data: &[u8]) {
    let Some((first, text)) = data.split_first() else { return };
    let name = if first % 2 == 0 { "agents.json" } else { "agents.yaml" };
    let Ok(documents) = document_parser::parse_documents(Path::new(name), Bytes::copy_from_slice(text)) else { return };
    let config = ContractConfig::default();
    for document in documents.into_iter().map(convert_file_document) {
        let digest = sha256(text);
        if matches!(document.body, DocumentBody::Invalid(_) | DocumentBody::Unsupported(_)) {
            continue;
        }
        let Ok(value) = document_parser::parse_value(document.body) else { continue };
        let Ok(agent) = Agent::from_document(&value, digest) else { continue };
        let budget = DocumentBudget::new(config.schema_limits(), &[]);
        for operation in &agent.operations {
            let compiled = OperationContract::compile(operation, &config, &budget);
            assert!(compiled.err().is_none_or(|reasons| !reasons.is_empty()), "a schema is refused without a reason");
        }
    }
}
