//! Steps 5 to 9: who calls, whether they may, how much, and the proof that all of it was asked.

use super::{
    Gateway, World, asks,
    call::Call,
    cors,
    delegation::Hop,
    route::{Prepared, Route},
    versions::Ready,
};
use crate::{
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
    version: Option<Arc<Ready>>,
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

    /// The same, to be kept.
    pub(super) fn shared(&self) -> &Arc<Route> {
        &self.route
    }

    /// When its time is over.
    pub(super) fn until(&self) -> tokio::time::Instant {
        self.deadline.into()
    }

    /// The operation that was asked for.
    pub(super) fn operation(&self) -> &Prepared {
        self.route.operation(self.operation)
    }

    /// The version that it is for, where the agent has versions.
    pub(super) fn version(&self) -> Option<&Ready> {
        self.version.as_deref()
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
    pub(super) known: Known,
    permit: Permit,
}

impl Entry {
    /// Step 9, once the input has been checked.
    pub(super) fn admit(self, operation: usize, deadline: Instant) -> Admitted {
        let Known { route, session, chain, version, .. } = self.known;
        Admitted { route, operation, version, deadline, session, chain, _permit: self.permit }
    }
}

/// A caller who may call this agent, and has no place among its calls yet.
pub(super) struct Known {
    pub(super) route: Arc<Route>,
    pub(super) caller: Arc<Caller>,
    pub(super) standing: Option<Standing>,
    /// The version that is called; the latest until another is chosen.
    pub(super) version: Option<Arc<Ready>>,
    /// What stands for the caller's session.
    pub(super) session: Option<u64>,
    chain: Option<HeaderValue>,
}

impl Known {
    /// With a place.
    pub(super) fn with(self, permit: Permit) -> Entry {
        Entry { known: self, permit }
    }
}

/// An agent, and a caller who may call it.
pub(super) type Identified = (Arc<Route>, Arc<Caller>);

/// What a request shows of its caller.
#[derive(Clone, Copy)]
pub(super) struct Shown<'a> {
    pub(super) headers: &'a HeaderMap,
    pub(super) peer: Option<&'a Peer>,
    pub(super) address: IpAddr,
}

impl Gateway {
    /// Steps 5 to 7: finds the agent, authenticates, authorises, limits. A miss is answered only after
    /// authentication, so that ids cannot be probed.
    pub(super) async fn enter(&self, world: &World, call: &mut Call, agent: &str, shown: Shown<'_>) -> Result<Entry> {
        let known = self.known(world, call, agent, shown).await?;
        let permit = self.limits.enter(&known.route.limits).await?;
        Ok(known.with(permit))
    }

    /// As [`Gateway::enter`], without a place among the agent's calls.
    pub(super) async fn known(&self, world: &World, call: &mut Call, agent: &str, shown: Shown<'_>) -> Result<Known> {
        let (route, caller) = self.identify(world, call, agent, shown).await?;
        call.is_for(&route);
        cors::guard(world.cors.as_ref(), route.way.is_near(), shown.headers, shown.address)?;
        route.served()?;
        let account = self.account(&caller, shown.address);
        let standing = self.limits.admit(&route.limits, &account, NonZeroU32::MIN)?;
        let session = asks::session(shown.headers, &caller)?;
        let hop = Hop { caller: &caller.id, agent: route.agent.id.as_str(), call: call.id() };
        let chain = world.delegation.as_ref().map(|chains| chains.extend(shown.headers, &hop)).transpose()?;
        Ok(Known { route, caller, standing, version: None, session, chain })
    }

    /// Steps 5 and 6: the agent, for a caller who may call it.
    pub(super) async fn identify(
        &self,
        world: &World,
        call: &mut Call,
        agent: &str,
        shown: Shown<'_>,
    ) -> Result<Identified> {
        let identified = self.look(world, agent, &shown).await;
        let caller = match &identified {
            Ok((_, caller)) => Some(caller),
            Err((caller, _)) => caller.as_ref(),
        };
        if let Some(caller) = caller {
            call.is_from(caller);
        }
        identified.map_err(|(_, fault)| fault)
    }

    /// The same for whoever has no call to record it in: a refusal says who was refused, where that is known.
    pub(super) async fn look(
        &self,
        world: &World,
        agent: &str,
        shown: &Shown<'_>,
    ) -> std::result::Result<Identified, (Option<Arc<Caller>>, Fault)> {
        let presented = Presented { headers: shown.headers, peer: shown.peer };
        let found = match self.catalogue.load().get(agent).cloned() {
            Some(route) => Some(route),
            None => Box::pin(self.seek(world, agent, &presented)).await.map_err(|fault| (None, fault))?,
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
        let caller = world.auth.authorise(&presented, asked).await;
        let caller = caller.map_err(|refusal| (refusal.caller, refusal.fault))?;
        match found {
            Some(route) => Ok((route, caller)),
            None => {
                let fault = Fault::new(Code::Internal, "the gateway failed");
                Err((Some(caller), fault.detail("a caller was let in to no agent")))
            }
        }
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
