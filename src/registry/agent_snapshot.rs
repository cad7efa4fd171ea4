//! Snapshot of the catalogue: the agents at one moment, and the documents that are rejected. Immutable.

use super::{endpoint_rules::OnDemandServers, route_compilation::ServerClaim};
use crate::{
    agent::{AgentEndpoint, AgentId, AgentSource, EndpointOrigin},
    telemetry::redact,
};
use foldhash::fast::RandomState;
use std::{collections::HashMap, fmt, sync::Arc};

/// The agents at one moment.
#[derive(Debug)]
pub struct AgentSnapshot<R> {
    pub(super) routes: HashMap<AgentId, Arc<R>, RandomState>,
    /// The owner of each server that an agent is at, by the digest of the server.
    pub(super) servers: HashMap<u128, Arc<AgentSource>, RandomState>,
    /// The servers of agents that are looked up on demand.
    pub(super) on_demand_servers: OnDemandServers,
    /// Documents that are not served, with the reasons.
    pub rejected: Vec<DocumentRejection>,
    /// Documents of what the gateway does not call, such as an agent of a protocol that it does not speak, with the
    /// reasons. They are no mistakes.
    pub unsupported: Vec<DocumentRejection>,
    /// Parts of feeds that cannot be read, with the reason; their previous content is still served.
    pub unreadable_parts: Vec<(Arc<str>, String)>,
}

impl<R> AgentSnapshot<R> {
    /// Returns the route to the agent called `id`.
    pub fn get(&self, id: &str) -> Option<&Arc<R>> {
        self.routes.get(id)
    }

    /// Returns every route, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&AgentId, &Arc<R>)> {
        self.routes.iter()
    }

    /// Returns the owner of the agents at the server of `endpoint`.
    pub fn endpoint_owner(&self, endpoint: &AgentEndpoint) -> Option<&Arc<AgentSource>> {
        let origin = EndpointOrigin::from(endpoint);
        self.server_owner(ServerClaim::server_digest(&origin)).or_else(|| self.on_demand_servers.owner(&origin))
    }

    pub(super) fn server_owner(&self, server: u128) -> Option<&Arc<AgentSource>> {
        self.servers.get(&server)
    }

    /// Returns the number of agents that are served.
    pub fn len(&self) -> usize {
        self.routes.len()
    }

    /// Returns whether no agent is served.
    pub fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }
}

/// A document that is not served.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DocumentRejection {
    /// The file or other part of a feed that has the document.
    pub part: Arc<str>,
    /// Index of the document in its part, from 0.
    pub index: usize,
    /// The document's id, where it could be read.
    pub id: Option<String>,
    /// Every reason.
    pub reasons: Vec<String>,
}

impl fmt::Display for DocumentRejection {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The part may be a URL.
        write!(to, "{}[{}]", redact(&self.part), self.index)?;
        if let Some(id) = &self.id {
            write!(to, " ({id:?})")?;
        }
        write!(to, ": {}", self.reasons.join("; "))
    }
}
