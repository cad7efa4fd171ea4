//! Steps 5 to 9: authentication, authorisation, limits, and the proof that all of them passed.

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
    limit::{Account, Permit, Question, Standing},
    transport::{self, Admission},
};
use http::{HeaderMap, HeaderValue};
use std::{net::IpAddr, num::NonZeroU32, sync::Arc, time::Instant};

/// The proof that a call may be forwarded. Its fields are private and only [`PermittedCall::admit`] builds one, so a
/// call that was not admitted cannot reach an agent.
pub(super) struct Admitted {
    route: Arc<Route>,
    operation: usize,
    version: Option<Arc<Ready>>,
    deadline: Instant,
    session: Option<u64>,
    chain: Option<HeaderValue>,
    permit: Permit,
}

impl Admitted {
    /// Returns the route of the agent.
    pub(super) fn agent(&self) -> &Route {
        &self.route
    }

    /// Returns the shared route of the agent.
    pub(super) fn shared(&self) -> &Arc<Route> {
        &self.route
    }

    /// Returns the deadline of the call.
    pub(super) fn until(&self) -> tokio::time::Instant {
        self.deadline.into()
    }

    /// Returns the operation that is called.
    pub(super) fn operation(&self) -> &Prepared {
        self.route.operation(self.operation)
    }

    /// Returns the version that is called, if the agent has versions.
    pub(super) fn version(&self) -> Option<&Ready> {
        self.version.as_deref()
    }

    /// Starts a latency sample as the call is sent to the agent.
    pub(super) fn asks(&self) -> Question<'_> {
        self.permit.asks()
    }

    /// Stops counting the call as waiting for a response, while it keeps its concurrency permit: an open WebSocket.
    pub(super) fn rests(&self) {
        self.permit.rests();
    }

    /// Returns the delegation chain that the agent receives.
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

/// An authorised call that holds a concurrency permit; its input has not been read yet.
pub(super) struct Entry {
    pub(super) known: Known,
    permit: Permit,
}

impl Entry {
    /// Builds the proof (step 9), once the input has been validated.
    pub(super) fn admit(self, operation: usize, deadline: Instant) -> Admitted {
        let Known { route, session, chain, version, .. } = self.known;
        Admitted { route, operation, version, deadline, session, chain, permit: self.permit }
    }
}

/// A call whose caller is authenticated, authorised and within its rate limits; it holds no concurrency permit yet.
pub(super) struct Known {
    pub(super) route: Arc<Route>,
    pub(super) caller: Arc<Caller>,
    pub(super) standing: Option<Standing>,
    /// The version that is called; the latest until another one is selected.
    pub(super) version: Option<Arc<Ready>>,
    /// The hash of the caller's session, for session affinity.
    pub(super) session: Option<u64>,
    chain: Option<HeaderValue>,
}

impl Known {
    /// Adds the concurrency permit.
    pub(super) fn with(self, permit: Permit) -> Entry {
        Entry { known: self, permit }
    }
}

/// An agent, and a caller that may call it.
pub(super) type Identified = (Arc<Route>, Arc<Caller>);

/// The part of a request that authentication and limits read.
#[derive(Clone, Copy)]
pub(super) struct Shown<'a> {
    pub(super) headers: &'a HeaderMap,
    pub(super) peer: Option<&'a Peer>,
    pub(super) address: IpAddr,
}

impl Gateway {
    /// Finds the agent, authenticates, authorises and limits (steps 5 to 7), then acquires a concurrency permit. A miss
    /// is answered only after authentication, so that ids cannot be probed.
    pub(super) async fn enter(&self, world: &World, call: &mut Call, agent: &str, shown: Shown<'_>) -> Result<Entry> {
        let known = self.known(world, call, agent, shown).await?;
        let permit = self.limits.enter(&known.route.limits).await?;
        Ok(known.with(permit))
    }

    /// Authorises and limits as [`Gateway::authorize_and_acquire_permit`], without the concurrency permit.
    pub(super) async fn known(&self, world: &World, call: &mut Call, agent: &str, shown: Shown<'_>) -> Result<Known> {
        let (route, caller) = self.identify(world, call, agent, shown).await?;
        call.is_for(&route);
        self.let_in(call, &caller)?;
        cors::guard(world.cors.as_ref(), route.way.is_near(), shown.headers, shown.address)?;
        route.served()?;
        let account = self.account(&caller, shown.address);
        let standing = self.limits.admit(&route.limits, &account, NonZeroU32::MIN)?;
        let session = asks::session(shown.headers, &caller)?;
        let hop = Hop { caller: &caller.id, agent: route.agent.id.as_str(), call: call.id() };
        let chain = world.delegation.as_ref().map(|chains| chains.extend(shown.headers, &hop)).transpose()?;
        Ok(Known { route, caller, standing, version: None, session, chain })
    }

    /// Finds the agent and authorises its caller (steps 5 and 6). Records the caller in `call`, also when it is
    /// refused.
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

    /// Finds and authorises without a `Call`. A refusal carries the caller, if it was authenticated.
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
        // After a reload a route may still carry the grants of the previous configuration.
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
                let fault = Fault::new(Code::Internal, "The gateway failed");
                Err((Some(caller), fault.detail("authorisation passed for an agent that does not exist")))
            }
        }
    }

    /// Queries the registries that are too large to copy for an agent that is not in the catalogue. Only callers that
    /// hold a grant trigger a query.
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
        // The authentication that follows refuses callers without a valid credential.
        match world.auth.visit(presented, true).await {
            Ok(caller) if !caller.grants.is_empty() => Box::pin(lazy.find(&id)).await,
            _ => Ok(None),
        }
    }

    /// Returns the account that the rate limits charge: the caller, or the address if the caller is anonymous.
    pub(super) fn account<'a>(&self, caller: &'a Caller, address: IpAddr) -> Account<'a> {
        match caller.kind {
            CallerKind::Anonymous => self.limits.visitor(address),
            _ => self.limits.account(&caller.id, caller.tier.as_deref()),
        }
    }
}
