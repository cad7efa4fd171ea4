//! Merges the sources into one snapshot. The earlier source wins an id, and within a source the earlier list, because nested
//! catalogues have other publishers; the other document is rejected and the winner named. Equal documents in several lists
//! of a source are one. Two documents of one list with the same id are both rejected, because either could be the intended
//! one.

use super::{
    AgentSnapshot, DocumentRejection,
    endpoint_rules::{EndpointTrust, SERVER_OF_OTHER_OWNER},
    route_compilation::{CompiledDocument, DocumentIdentity, ServerClaim, SharedCompiler},
    source_state::{RankedPart, SourceState},
};
use crate::{
    agent::{AgentId, AgentSource, AgentStatus, DocumentWriter, EndpointOrigin},
    telemetry::AgentDocumentState,
};
use foldhash::fast::RandomState;
use std::{collections::HashMap, sync::Arc};

/// Number of agents.
pub(super) struct AgentCounts {
    /// In each state.
    pub(super) states: [(AgentDocumentState, usize); 5],
    /// Those that are served without keywords of their schemas.
    pub(super) partly_checked: usize,
}

/// Claim to an id: the first list of the first source that has it, and how often that list has it.
struct IdClaim<'a> {
    source: usize,
    list: usize,
    part: &'a Arc<str>,
    identity: &'a DocumentIdentity,
    times: u32,
}

impl IdClaim<'_> {
    /// Returns why a document with the id is not served; `None` where it is.
    fn rejection<R>(&self, document: &DocumentInForce<'_, R>, sources: &[SourceState<R>]) -> Option<String> {
        if self.source != document.source {
            let winner = sources.get(self.source).map_or("", |source| &source.spec.name);
            return Some(format!("id: belongs to source {winner}, which has precedence"));
        }
        if self.list != document.list {
            return Some(format!("id: belongs to the list {}, which has precedence", self.part));
        }
        (self.times > 1).then(|| "id: another document has the same id; neither is served".to_owned())
    }

    /// Returns whether an earlier list of the source has an equal document.
    fn is_equal_in_earlier_list<R>(&self, document: &DocumentInForce<'_, R>) -> bool {
        self.source == document.source && self.list != document.list && *self.identity == document.compiled.identity
    }
}

type IdClaims<'a> = HashMap<&'a AgentId, IdClaim<'a>, RandomState>;

/// A document in force, and where it is.
struct DocumentInForce<'a, R> {
    source: usize,
    list: usize,
    part: &'a Arc<str>,
    /// Its index in the part.
    index: usize,
    compiled: &'a Arc<CompiledDocument<R>>,
}

/// Builds the next snapshot.
pub(super) fn merge_sources<R: Send + Sync + 'static>(
    sources: &[SourceState<R>],
    compiler: &SharedCompiler<R>,
) -> (AgentSnapshot<R>, AgentCounts) {
    let count = sources.iter().map(SourceState::len).sum();
    let mut claims: IdClaims<'_> = HashMap::with_capacity_and_hasher(count, RandomState::default());
    for document in documents_in_force(sources) {
        let Some(agent) = document.compiled.agent.as_deref() else { continue };
        let DocumentInForce { source, list, part, compiled, .. } = document;
        let new = || IdClaim { source, list, part, identity: &compiled.identity, times: 0 };
        let claim = claims.entry(&agent.id).or_insert_with(new);
        claim.times += u32::from(claim.source == source && claim.list == list);
    }
    let servers = claim_servers(sources, &claims, &compiler.operator_servers());
    let mut routes = HashMap::with_capacity_and_hasher(count, RandomState::default());
    let (mut served, mut inactive, mut deprecated, mut partly_checked) = (0, 0, 0, 0);
    let (mut rejected, mut unsupported) = (Vec::new(), Vec::new());
    for document in documents_in_force(sources) {
        let DocumentInForce { part, index, compiled, .. } = document;
        let agent = compiled.agent.as_deref();
        let mut not_served = &mut rejected;
        let claim = agent.and_then(|agent| claims.get(&agent.id));
        if claim.is_some_and(|claim| claim.is_equal_in_earlier_list(&document)) {
            continue;
        }
        let reasons = match (claim.and_then(|claim| claim.rejection(&document, sources)), &compiled.route, agent) {
            (Some(why), _, _) => vec![why],
            (_, Ok(_), Some(agent)) if is_at_server_of_other_owner(&servers, compiled, &agent.source) => {
                vec![format!("endpoint: {SERVER_OF_OTHER_OWNER}")]
            }
            (_, Ok(route), Some(agent)) => {
                routes.insert(agent.id.clone(), Arc::clone(route));
                partly_checked += usize::from(compiled.is_partly_checked);
                *match agent.status {
                    AgentStatus::Active => &mut served,
                    AgentStatus::Inactive => &mut inactive,
                    AgentStatus::Deprecated(_) => &mut deprecated,
                } += 1;
                continue;
            }
            (_, Err(reasons), _) => {
                if compiled.is_unsupported {
                    not_served = &mut unsupported;
                }
                reasons.clone()
            }
            // Unreachable: every route has an agent.
            (_, Ok(_), None) => continue,
        };
        let id = agent.map(|agent| agent.id.to_string()).or_else(|| compiled.id.as_deref().map(str::to_owned));
        not_served.push(DocumentRejection { part: Arc::clone(part), index, id, reasons });
    }
    let parts = sources.iter().flat_map(|source| &source.parts);
    let unreadable_parts =
        parts.filter_map(|(name, entries)| Some((Arc::clone(name), entries.error.clone()?))).collect();
    let states = [
        (AgentDocumentState::Served, served),
        (AgentDocumentState::Inactive, inactive),
        (AgentDocumentState::Deprecated, deprecated),
        (AgentDocumentState::Rejected, rejected.len()),
        (AgentDocumentState::Unsupported, unsupported.len()),
    ];
    let on_demand_servers = compiler.on_demand_servers();
    let counts = AgentCounts { states, partly_checked };
    (AgentSnapshot { routes, servers, on_demand_servers, rejected, unsupported, unreadable_parts }, counts)
}

/// Returns the owner of each server. The operator decides first, by documents and lists; then come remote sources, in
/// their order, and then publishers, so that no publisher takes a server by being faster.
fn claim_servers<R>(
    sources: &[SourceState<R>],
    ids: &IdClaims<'_>,
    operator_servers: &[EndpointOrigin],
) -> HashMap<u128, Arc<AgentSource>, RandomState> {
    let rank = |compiled: &CompiledDocument<R>| {
        let (claim, agent) = (compiled.claim?, compiled.agent.as_deref()?);
        Some(match (claim.trust, &agent.source.writer) {
            (_, DocumentWriter::Operator) => 0,
            (EndpointTrust::Listed, _) => 1,
            (EndpointTrust::Unlisted, DocumentWriter::RemoteSource) => 2,
            (EndpointTrust::Unlisted, DocumentWriter::Publisher(_)) => 3,
        })
    };
    let operator: Arc<AgentSource> = Arc::default();
    let of_operator =
        operator_servers.iter().map(|origin| (ServerClaim::server_digest(origin), (0, Arc::clone(&operator))));
    let mut ranks: HashMap<u128, (u8, Arc<AgentSource>), RandomState> = of_operator.collect();
    for document in documents_in_force(sources) {
        let compiled = document.compiled;
        let (Some(rank), Some(claim), Some(agent)) = (rank(compiled), compiled.claim, compiled.agent.as_deref()) else {
            continue;
        };
        // A document that is not served because of its id takes no server.
        if ids.get(&agent.id).is_none_or(|id| id.rejection(&document, sources).is_some()) {
            continue;
        }
        // The operator's settings name the additional servers.
        let additional = compiled.additional_servers.iter().map(|server| (*server, 0));
        for (server, rank) in additional.chain([(claim.server, rank)]) {
            let owner = ranks.entry(server).or_insert_with(|| (rank, Arc::clone(&agent.source)));
            if rank < owner.0 {
                *owner = (rank, Arc::clone(&agent.source));
            }
        }
    }
    ranks.into_iter().map(|(server, (_, owner))| (server, owner)).collect()
}

fn is_at_server_of_other_owner<R>(
    servers: &HashMap<u128, Arc<AgentSource>, RandomState>,
    compiled: &CompiledDocument<R>,
    source: &AgentSource,
) -> bool {
    compiled
        .claim
        .filter(|claim| claim.trust == EndpointTrust::Unlisted)
        .is_some_and(|claim| servers.get(&claim.server).is_some_and(|owner| **owner != *source))
}

/// Returns every document in force, in order of precedence.
fn documents_in_force<R>(sources: &[SourceState<R>]) -> impl Iterator<Item = DocumentInForce<'_, R>> {
    let sources = sources.iter().enumerate().filter(|(_, source)| !source.stale);
    sources.flat_map(|(source, state)| {
        state.parts_by_precedence().into_iter().flat_map(move |RankedPart { list, name, content }| {
            let documents = content.documents.iter().enumerate();
            documents.map(move |(index, compiled)| DocumentInForce { source, list, part: name, index, compiled })
        })
    })
}
