//! Entry points of the fuzz targets in `tests/fuzz`, one for each parser of bytes from elsewhere. Each takes any bytes
//! and panics where a property does not hold. Compiled for fuzzing, and for the test that runs every file of the
//! corpora.

#[cfg(test)]
mod tests;

use crate::{
    agent::{AgentUri, Operation, query_expression},
    config::LoadedConfig,
    contract::{ContractConfig, DocumentBudget, JsonBounds, OperationContract, Tape, parse_json},
    values::json,
};
use serde_json::Value;
use std::{path::Path, sync::Arc};

pub use crate::{
    auth::fuzz::check_bearer_token,
    gateway::fuzz::{
        check_agent_responses, check_event_boundaries, check_explain_request, check_messages, check_target_path,
    },
    http_server::fuzz::{check_forwarded_headers, check_proxy_header, check_request_head},
    mqtt_bridge::fuzz::check_task_envelope,
    registry::fuzz::{check_documents, check_kubernetes_events, check_registry_page},
    resolver::fuzz::check_signed_documents,
    task::fuzz::check_resumable_events,
    transport::fuzz::{check_mqtt_messages, check_websocket_replies},
};

/// A target by the name of its program and of the folder of its corpus.
pub type Target = (&'static str, fn(&[u8]));

/// Every target.
pub const TARGETS: &[Target] = &[
    ("agent_responses", check_agent_responses),
    ("agent_uri", check_agent_uri),
    ("bearer_token", check_bearer_token),
    ("config", check_config),
    ("documents", check_documents),
    ("event_boundaries", check_event_boundaries),
    ("explain_request", check_explain_request),
    ("forwarded_headers", check_forwarded_headers),
    ("input_contract", check_input_contract),
    ("kubernetes_events", check_kubernetes_events),
    ("mqtt_messages", check_mqtt_messages),
    ("proxy_header", check_proxy_header),
    ("registry_page", check_registry_page),
    ("request_head", check_request_head),
    ("resumable_events", check_resumable_events),
    ("signed_documents", check_signed_documents),
    ("target_path", check_target_path),
    ("task_envelope", check_task_envelope),
    ("websocket_messages", check_messages),
    ("websocket_replies", check_websocket_replies),
];

/// Parses a name: what is written from it is the same name. A template ends with the expression for its query.
pub fn check_agent_uri(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let expression = query_expression(text);
    assert!(expression.is_none_or(|end| text.ends_with(end) && end.starts_with("{?")), "no expression for a query");
    let Ok(uri) = AgentUri::parse(text) else { return };
    assert_eq!(AgentUri::parse(&uri.to_string()).ok().as_ref(), Some(&uri), "the name changed");
    let input = uri.query_input();
    assert!(uri.query().is_some() || input.is_ok_and(|input| input.is_empty()), "an input without a query");
}

/// Parses a configuration file; one that is refused has a problem. Files that it names are not read.
pub fn check_config(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let refused = LoadedConfig::parse(text, Path::new("/nonexistent"), std::iter::empty()).err();
    assert!(refused.is_none_or(|problems| !problems.0.is_empty()), "a configuration is refused without a problem");
}

/// Compiles the schema on the first line and checks the body on the others against it. A parsed body is the value that
/// another parser reads, within the bound on nesting.
pub fn check_input_contract(data: &[u8]) {
    let Some(end) = data.iter().position(|byte| *byte == b'\n') else { return };
    let (schema, body) = data.split_at(end);
    let bounds = JsonBounds::default();
    let Ok(tape) = parse_json(body.to_vec(), bounds) else { return };
    let input = tape.to_value(Tape::ROOT);
    assert_eq!(serde_json::from_slice::<Value>(body).ok().as_ref(), Some(&input), "another parser disagrees");
    assert!(!json::is_deeper_than(&input, usize::from(bounds.max_depth)), "the body is nested too deep");
    let Ok(schema) = serde_json::from_slice::<Value>(schema) else { return };
    let config = ContractConfig::default();
    let operation = Operation {
        name: "test".into(),
        description: "".into(),
        inputs: Some(Arc::new(schema)),
        outputs: None,
        formats: Default::default(),
        endpoint: None,
    };
    let budget = DocumentBudget::new(config.schema_limits(), &[]);
    let Ok(contract) = OperationContract::compile(&operation, &config, &budget) else { return };
    contract.accepts_within(&input, &mut config.fuel.of_body(body.len()));
}
