//! Steps 5 to 9: who calls, whether they may, how much, and the proof that all of it was asked.

use super::{
    Gateway, World, asks,
    call::Call,
    delegation::Hop,
    route::{Prepared, Route},
};
use crate::{
    agent::Status,
    auth::{Asked, Caller, CallerKind, Peer, Presented},
    fault::{Code, Fault, Result},
    limit::{Account, Permit, Standing},
    transport::{self, Admission},
};
use http::{HeaderMap, HeaderValue};
use std::{net::IpAddr, num::NonZeroU32, sync::Arc, time::Instant};

/// The proof that a call may be forwarded. Its fields are private and only [`Entry::admit`] makes one:
/// what was not admitted cannot reach an agent.
pub(super) struct Admitted {
    route: Arc<Route>,
    operation: usize,
    deadline: Instant,
    session: Option<u64>,
    chain: Option<HeaderValue>,
    _permit: Permit,
}

impl Admitted {
    /// The agent it is for.
    pub(super) fn agent(&self) -> &Route {
        &self.route
    }

    /// The operation that was asked for.
    pub(super) fn operation(&self) -> &Prepared {
        self.route.operation(self.operation)
    }

    /// What the agent is told of who called whom before.
    pub(super) fn chain(&self) -> Option<&HeaderValue> {
        self.chain.as_ref()
    }
}

impl Admission for Admitted {
    fn route(&self) -> &transport::Route {
        &self.route.way
    }

    fn deadline(&self) -> tokio::time::Instant {
        self.deadline.into()
    }

    fn session(&self) -> Option<u64> {
        self.session
    }
}

/// A caller who may call this agent now; the input is still unread.
pub(super) struct Entry {
    pub(super) route: Arc<Route>,
    pub(super) caller: Arc<Caller>,
    pub(super) standing: Option<Standing>,
    /// What stands for the caller's session.
    pub(super) session: Option<u64>,
    chain: Option<HeaderValue>,
    permit: Permit,
}

impl Entry {
    /// Step 9, once the input has been checked.
    pub(super) fn admit(self, operation: usize, deadline: Instant) -> Admitted {
        let Self { route, session, chain, permit, .. } = self;
        Admitted { route, operation, deadline, session, chain, _permit: permit }
    }
}

/// What a request shows of its caller.
pub(super) struct Shown<'a> {
    pub(super) headers: &'a HeaderMap,
    pub(super) peer: Option<&'a Peer>,
    pub(super) address: IpAddr,
}

impl Gateway {
    /// Steps 5 to 7: finds the agent, authenticates, authorises, limits. A miss is answered only after
    /// authentication, so that ids cannot be probed.
    pub(super) async fn enter(&self, world: &World, call: &mut Call, agent: &str, shown: Shown<'_>) -> Result<Entry> {
        let presented = Presented { headers: shown.headers, peer: shown.peer };
        let found = match self.catalogue.load().get(agent).cloned() {
            Some(route) => Some(route),
            None => self.seek(world, agent, &presented).await?,
        };
        // Between two configurations a route may still carry the grants of the one before.
        let fresh = found
            .as_ref()
            .filter(|route| !world.auth.is_current(&route.grants))
            .map(|route| world.auth.grants_of(&route.agent));
        let asked = found.as_ref().map(|route| Asked {
            authentication: &route.agent.authentication,
            grants: fresh.as_ref().unwrap_or(&route.grants),
        });
        let caller = match world.auth.authorise(&presented, asked).await {
            Ok(caller) => caller,
            Err(refusal) => {
                if let Some(caller) = &refusal.caller {
                    call.is_from(caller);
                }
                return Err(refusal.fault);
            }
        };
        call.is_from(&caller);
        let Some(route) = found else {
            return Err(Fault::new(Code::Internal, "the gateway failed").detail("a caller was let in to no agent"));
        };
        call.is_for(&route);
        if route.agent.status == Status::Inactive {
            return Err(Fault::new(Code::AgentUnavailable, "the agent is not active"));
        }
        let account = self.account(&caller, shown.address);
        let standing = self.limits.admit(&route.limits, &account, NonZeroU32::MIN)?;
        let session = asks::session(presented.headers, &caller)?;
        let hop = Hop { caller: &caller.id, agent: route.agent.id.as_str(), call: call.id() };
        let chain = world.delegation.as_ref().map(|chains| chains.extend(presented.headers, &hop)).transpose()?;
        let permit = self.limits.enter(&route.limits).await?;
        Ok(Entry { route, caller, standing, session, chain, permit })
    }

    /// Asks the registries that are too large to copy for an agent that is not in the catalogue; only on behalf of
    /// somebody who might call it, so that nobody else makes the gateway ask.
    pub(super) async fn seek(
        &self,
        world: &World,
        agent: &str,
        presented: &Presented<'_>,
    ) -> Result<Option<Arc<Route>>> {
        let Some(lazy) = &world.lazy else { return Ok(None) };
        if let Some(route) = lazy.known(agent) {
            return Ok(Some(route));
        }
        let Ok(id) = agent.parse() else { return Ok(None) };
        // Whoever shows nothing that holds is told so by the authentication that follows.
        match world.auth.visit(presented, true).await {
            Ok(caller) if !caller.grants.is_empty() => Box::pin(lazy.find(&id)).await,
            _ => Ok(None),
        }
    }

    /// Whose budget it is; where nobody had to say who they are, the address stands for the caller.
    pub(super) fn account<'a>(&self, caller: &'a Caller, address: IpAddr) -> Account<'a> {
        match caller.kind {
            CallerKind::Anonymous => self.limits.visitor(address),
            _ => self.limits.account(&caller.id, caller.tier.as_deref()),
        }
    }
}
