//! From what each source has to the one snapshot: the earlier source wins an id, and the other's document is reported
//! with the winner's name. Two documents of one id within a source are both refused: nobody guesses which is meant.

use super::{Refusal, Snapshot, settle::Held, source::SourceState};
use crate::{
    agent::{AgentId, Status},
    telemetry::AgentState,
};
use foldhash::fast::RandomState;
use std::{collections::HashMap, sync::Arc, time::SystemTime};

/// How many agents are in which state.
pub(super) type States = [(AgentState, usize); 3];

/// Who has an id: the first source that does, and how often.
#[derive(Clone, Copy)]
struct Claim {
    source: usize,
    times: u32,
}

type Claims<'a> = HashMap<&'a AgentId, Claim, RandomState>;

/// The next snapshot.
pub(super) fn merge<R>(sources: &[SourceState<R>]) -> (Snapshot<R>, States) {
    let count = sources.iter().map(SourceState::len).sum();
    let mut claims: Claims<'_> = HashMap::with_capacity_and_hasher(count, RandomState::default());
    for (source, agent) in documents(sources).filter_map(|(at, _, _, held)| Some((at, held.agent.as_deref()?))) {
        let claim = claims.entry(&agent.id).or_insert(Claim { source, times: 0 });
        claim.times += u32::from(claim.source == source);
    }
    let mut routes = HashMap::with_capacity_and_hasher(count, RandomState::default());
    let (mut served, mut inactive, mut deprecated) = (0, 0, 0);
    let mut refused = Vec::new();
    for (at, part, index, held) in documents(sources) {
        let agent = held.agent.as_deref();
        let claim = agent.and_then(|agent| claims.get(&agent.id));
        let reasons = match (claim, &held.route, agent) {
            (Some(claim), _, _) if claim.source != at => {
                let winner = sources.get(claim.source).map_or("", |source| &source.origin.name);
                vec![format!("id: belongs to {winner}, which comes first")]
            }
            (Some(claim), _, _) if claim.times > 1 => {
                vec!["id: another document has the same id; neither is served".to_owned()]
            }
            (_, Ok(route), Some(agent)) => {
                routes.insert(agent.id.clone(), Arc::clone(route));
                *match agent.status {
                    Status::Active => &mut served,
                    Status::Inactive => &mut inactive,
                    Status::Deprecated(_) => &mut deprecated,
                } += 1;
                continue;
            }
            (_, Err(reasons), _) => reasons.clone(),
            // A route without an agent is never made.
            (_, Ok(_), None) => continue,
        };
        let id = agent.map(|agent| agent.id.to_string()).or_else(|| held.id.as_deref().map(str::to_owned));
        refused.push(Refusal { source: Arc::clone(part), index, id, reasons });
    }
    let parts = sources.iter().flat_map(|source| &source.parts);
    let troubles = parts.filter_map(|(name, entries)| Some((Arc::clone(name), entries.trouble.clone()?))).collect();
    let states = [(AgentState::Served, served), (AgentState::Inactive, inactive), (AgentState::Deprecated, deprecated)];
    (Snapshot { routes, refused, troubles, at: SystemTime::now() }, states)
}

/// Every document that counts: its source's place, its part, its place there, and what became of it.
fn documents<R>(sources: &[SourceState<R>]) -> impl Iterator<Item = (usize, &Arc<str>, usize, &Arc<Held<R>>)> {
    let sources = sources.iter().enumerate().filter(|(_, source)| !source.stale);
    sources.flat_map(|(at, source)| {
        source.parts.iter().flat_map(move |(name, entries)| {
            entries.held.iter().enumerate().map(move |(index, held)| (at, name, index, held))
        })
    })
}
