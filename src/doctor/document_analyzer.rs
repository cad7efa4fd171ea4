//! Agents' documents: those that are not served, examples that their own schemas refuse, agents that no caller can call.
//! The registry and the routes find all of this when they compile the documents.

use super::{
    document_places::DocumentPlaces,
    finding::{Finding, Place, SubjectKind},
    finding_codes::FindingCode,
};
use crate::{
    agent::{Agent, AuthenticationMethod},
    gateway::{Gateway, Route},
    registry::DocumentRejection,
};

/// Maximum number of findings about documents. A source with thousands of broken documents has one cause.
const MAX_DOCUMENT_FINDINGS: usize = 1_000;

/// Returns the findings about the documents of all agents.
pub(super) fn document_findings(gateway: &Gateway, places: &DocumentPlaces<'_>) -> Vec<Finding> {
    let snapshot = gateway.catalogue.snapshot();
    let mut findings: Vec<Finding> =
        snapshot.rejected.iter().flat_map(|rejection| rejection_findings(rejection, places)).collect();
    findings.extend(snapshot.unsupported.iter().flat_map(|document| unsupported_findings(document, places)));
    for (part, reason) in &snapshot.unreadable_parts {
        // What a remote source answers is a finding about the source.
        if places.source_of_part(part).is_none() {
            let place = places.of_unreadable_part(part, reason);
            let name = place.file.clone();
            findings.push(Finding::new(FindingCode::FileUnreadable, SubjectKind::Source, name, reason, place));
        }
    }
    let accepted = gateway.config.load().auth.accepted_credentials();
    let is_accepted = |method: AuthenticationMethod| {
        method == AuthenticationMethod::Anonymous || accepted.iter().any(|credential| credential.method == method)
    };
    for (_, route) in snapshot.iter() {
        findings.extend(route_findings(route, places));
        let agent = route.agent();
        if !is_accepted(agent.authentication.method) {
            findings.push(not_callable(agent, places));
        }
    }
    findings.truncate(MAX_DOCUMENT_FINDINGS);
    findings
}

/// Returns the code of a document that is not served: that of its first reason.
pub fn code_of_rejection(rejection: &DocumentRejection) -> FindingCode {
    rejection.reasons.first().and_then(|reason| code_of_reason(reason)).unwrap_or(FindingCode::DocumentRefused)
}

fn unsupported_findings(document: &DocumentRejection, places: &DocumentPlaces<'_>) -> Vec<Finding> {
    let name = name_of(document);
    let finding = |reason: &String| {
        let place = places.of_reason(&document.part, document.index, path_of(reason));
        Finding::new(FindingCode::DocumentUnsupported, SubjectKind::Agent, name.clone(), reason, place)
    };
    document.reasons.iter().map(finding).collect()
}

fn name_of(rejection: &DocumentRejection) -> String {
    match &rejection.id {
        Some(id) => id.clone(),
        None => format!("{}[{}]", rejection.part, rejection.index),
    }
}

fn rejection_findings(rejection: &DocumentRejection, places: &DocumentPlaces<'_>) -> Vec<Finding> {
    let name = name_of(rejection);
    let finding = |reason: &String| {
        let code = code_of_reason(reason).unwrap_or(FindingCode::DocumentRefused);
        let place = match places.source_of_part(&rejection.part) {
            Some(source) if code == FindingCode::SignatureRefused => places.of_source(&source, "require_signature"),
            Some(source) if code == FindingCode::EndpointNotAllowed => places.of_source(&source, "endpoints"),
            _ if code == FindingCode::SchemaUnusable => {
                let path = format!("{}{}", path_of(reason), path_in_schema(reason));
                places.of_reason(&rejection.part, rejection.index, &path)
            }
            _ => places.of_reason(&rejection.part, rejection.index, path_of(reason)),
        };
        Finding::new(code, SubjectKind::Agent, name.clone(), reason, place)
    };
    rejection.reasons.iter().map(finding).collect()
}

fn route_findings(route: &Route, places: &DocumentPlaces<'_>) -> Vec<Finding> {
    let agent = route.agent();
    let finding = |warning: &String| {
        let code = code_of_reason(warning)
            .filter(|code| matches!(code, FindingCode::ExampleRefused | FindingCode::SchemaMissing));
        // What the gateway does not call of a document that other clients use is no mistake in it.
        let is_unsupported = agent.conversion_notes.contains(warning);
        let other = if is_unsupported { FindingCode::DocumentUnsupported } else { FindingCode::DocumentNote };
        let place = places.of_agent(agent, path_of(warning));
        Finding::new(code.unwrap_or(other), SubjectKind::Agent, agent.id.as_str(), warning, place)
    };
    route.document_warnings().iter().map(finding).collect()
}

fn not_callable(agent: &Agent, places: &DocumentPlaces<'_>) -> Finding {
    let problem = format!(
        "the document requires {}, which no method of auth accepts, so that no caller can call the agent",
        agent.authentication.method.phrase()
    );
    let place: Place = places.of_agent(agent, "authentication");
    Finding::new(FindingCode::AgentNotCallable, SubjectKind::Agent, agent.id.as_str(), &problem, place)
}

/// Returns the path in the document that a reason begins with; empty where there is none.
fn path_of(reason: &str) -> &str {
    reason.split_once(": ").map(|(path, _)| path).filter(|path| !path.contains([' ', '\''])).unwrap_or_default()
}

/// Returns the path within a schema to which the pointer of a reason leads; empty where there is none.
fn path_in_schema(reason: &str) -> String {
    let pointer = reason.split_once(": at /").and_then(|(_, rest)| rest.split(": ").next());
    let steps = pointer.iter().flat_map(|pointer| pointer.split('/'));
    let step = |step: &str| match step.parse::<usize>() {
        Ok(at) => format!("[{at}]"),
        Err(_) => format!(".{}", step.replace("~1", "/").replace("~0", "~")),
    };
    steps.map(step).collect()
}

/// Returns the code of the reason for which a document is refused, or has a warning. The first word of a reason is the
/// member that it is about.
fn code_of_reason(reason: &str) -> Option<FindingCode> {
    let path = path_of(reason);
    let says = |words: &str| reason.contains(words);
    let member = match path.strip_prefix("operations[").and_then(|rest| rest.split_once("].")) {
        Some((_, member)) => member,
        None => path,
    };
    if path == "signatures" || says("signatures: ") {
        return Some(FindingCode::SignatureRefused);
    }
    if path == "id" && (says("belongs to source") || says("has the same id")) {
        return Some(FindingCode::IdTaken);
    }
    if path == "endpoint" && says("is not encrypted beyond this machine") {
        return Some(FindingCode::EndpointInPlaintext);
    }
    if path == "endpoint" && (says("owner") || says("operator may")) {
        return Some(FindingCode::EndpointNotAllowed);
    }
    if member.starts_with("examples[") {
        return Some(FindingCode::ExampleRefused);
    }
    let is_schema = ["inputs", "outputs"].iter().any(|name| member.starts_with(name));
    if is_schema && says("is missing (a JSON Schema)") {
        return Some(FindingCode::SchemaMissing);
    }
    is_schema.then_some(FindingCode::SchemaUnusable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_member_of_a_reason_decides_its_code() {
        let cases = [
            ("operations[0].examples[1].input: does not match the schema (x)", Some(FindingCode::ExampleRefused)),
            ("examples[0].output: does not match the schema (x)", Some(FindingCode::ExampleRefused)),
            ("operations[2].inputs: is missing (a JSON Schema)", Some(FindingCode::SchemaMissing)),
            ("operations[2].inputs: is not a schema", Some(FindingCode::SchemaUnusable)),
            ("outputs.properties: is not a schema", Some(FindingCode::SchemaUnusable)),
            ("id: belongs to source a, which has precedence", Some(FindingCode::IdTaken)),
            (
                "'one': signatures: the document is not signed (require_signature is set)",
                Some(FindingCode::SignatureRefused),
            ),
            ("endpoint: is at the server of another owner's agent", Some(FindingCode::EndpointNotAllowed)),
            ("endpoint: is not encrypted beyond this machine", Some(FindingCode::EndpointInPlaintext)),
            ("name: is missing", None),
        ];
        for (reason, code) in cases {
            assert_eq!(code_of_reason(reason), code, "{reason}");
        }
        assert_eq!(path_of("'one': signatures: x"), "");
        let reason = "operations[0].inputs: the schema is not valid: at /anyOf/1/a~1b/minimum: must be a number";
        assert_eq!(path_in_schema(reason), ".anyOf[1].a/b.minimum");
        assert_eq!(path_in_schema("inputs: at /items/$ref: the reference 'x' has no target"), ".items.$ref");
        assert_eq!(path_in_schema("inputs: a schema must be an object, true or false"), "");
        assert_eq!(path_of("operations[0].examples[1].input: x"), "operations[0].examples[1].input");
    }
}
