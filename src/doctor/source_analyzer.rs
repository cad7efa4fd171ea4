//! Sources of agents: what their first poll brought.

use super::{
    document_places::DocumentPlaces,
    finding::{Finding, SubjectKind},
    finding_codes::FindingCode,
};
use crate::{
    gateway::{Gateway, Route},
    registry::{AgentSnapshot, SourceHealth},
    telemetry::redact,
};

/// Returns the findings about the remote sources that were polled.
pub(super) fn source_findings(gateway: &Gateway, places: &DocumentPlaces<'_>) -> Vec<Finding> {
    let snapshot = gateway.catalogue.snapshot();
    let sources = gateway.catalogue.source_health();
    // Files are read without a poll over the network, and findings about them name the file.
    let polled = sources.iter().filter(|source| !matches!(source.kind, "files" | "registry"));
    let mut findings: Vec<Finding> = empty_folders(&sources, &snapshot, places);
    for source in polled {
        let parts = snapshot.unreadable_parts.iter();
        let own_part =
            parts.filter(|(part, _)| places.source_of_part(part).as_deref() == Some(&*source.name)).map(|(_, why)| why);
        let error = source.error.as_ref().or_else(|| own_part.into_iter().next());
        findings.extend(match error {
            // The broker itself is probed as well, with the reason.
            Some(_) if source.kind == "mqtt" => None,
            Some(why) => Some(failed_poll(source, why, places)),
            None if !source.is_read => Some(failed_poll(source, "no answer within 5s", places)),
            None => empty_source(source, &snapshot, places),
        });
    }
    findings
}

/// Returns the files and folders of the operator that have no document.
fn empty_folders(
    sources: &[SourceHealth],
    snapshot: &AgentSnapshot<Route>,
    places: &DocumentPlaces<'_>,
) -> Vec<Finding> {
    let is_empty = |source: &&SourceHealth| {
        let has_refused = || not_served(snapshot).any(|part| part.starts_with(&*source.name));
        source.kind == "files" && source.agents == 0 && !has_refused()
    };
    let finding = |source: &SourceHealth| {
        let place = places.of_source(&source.name, "");
        let problem = "no document of an agent is there";
        Finding::new(FindingCode::FolderEmpty, SubjectKind::Source, &*source.name, problem, place)
    };
    sources.iter().filter(is_empty).map(finding).collect()
}

fn failed_poll(source: &SourceHealth, why: &str, places: &DocumentPlaces<'_>) -> Finding {
    let says = |words: &[&str]| words.iter().any(|word| why.contains(word));
    let (code, setting) = if says(&["status 401", "status 403"]) {
        (FindingCode::SourceRefused, "credential")
    } else if says(&["JSON", "keys", "is neither", "is not a list", "none of the", "must be", "is compressed"]) {
        (FindingCode::SourceUnreadable, "url")
    } else {
        (FindingCode::SourceUnreachable, "url")
    };
    let place = places.of_source(&source.name, setting);
    Finding::new(code, SubjectKind::Source, &*source.name, &redact(why), place)
}

/// Returns the part of each document that is not served, which is a finding of its own.
fn not_served(snapshot: &AgentSnapshot<Route>) -> impl Iterator<Item = &str> {
    snapshot.rejected.iter().chain(&snapshot.unsupported).map(|document| &*document.part)
}

fn empty_source(
    source: &SourceHealth,
    snapshot: &AgentSnapshot<Route>,
    places: &DocumentPlaces<'_>,
) -> Option<Finding> {
    // A broker's or cluster's agents come and go; documents that are refused are findings of their own.
    let may_be_empty = matches!(source.kind, "mqtt" | "kubernetes");
    let has_refused = not_served(snapshot).any(|part| places.source_of_part(part).as_deref() == Some(&*source.name));
    (source.agents == 0 && !may_be_empty && !has_refused).then(|| {
        let place = places.of_source(&source.name, "url");
        Finding::new(FindingCode::SourceEmpty, SubjectKind::Source, &*source.name, "the source lists no agent", place)
    })
}
