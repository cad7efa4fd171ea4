//! Steps 5 to 9: authentication, authorisation, limits, and the proof that all of them passed.

use super::{
    ConfigSnapshot, Gateway,
    call::Call,
    cors,
    delegation::ChainHop,
    request_head,
    requested_version::CompiledVersion,
    route::{CompiledOperation, Route},
};
use crate::{
    auth::{AgentAuthRequirements, Caller, ClientCertificate, PresentedCredentials},
    fault::{Fault, FaultCode, Result},
    limit::{LatencySample, Permit, RateLimitKey, RateLimitStatus},
    transport::{self, Admission},
};
use http::{HeaderMap, HeaderValue};
use std::{net::IpAddr, num::NonZeroU32, sync::Arc, time::Instant};

/// The proof that a call may be forwarded. Its fields are private and only [`PermittedCall::admit`] builds one, so a
/// call that was not admitted cannot reach an agent.
pub(super) struct Admitted {
    route: Arc<Route>,
    operation: usize,
    version: Option<Arc<CompiledVersion>>,
    deadline: Instant,
    session_hash: Option<u64>,
    delegation_chain: Option<HeaderValue>,
    permit: Permit,
}

impl Admitted {
    /// Returns the route of the agent.
    pub(super) fn agent_route(&self) -> &Route {
        &self.route
    }

    /// Returns the shared route of the agent.
    pub(super) fn shared_route(&self) -> &Arc<Route> {
        &self.route
    }

    /// Returns the operation that is called.
    pub(super) fn operation(&self) -> &CompiledOperation {
        self.route.operation(self.operation)
    }

    /// Returns the version that is called, if the agent has versions.
    pub(super) fn version(&self) -> Option<&CompiledVersion> {
        self.version.as_deref()
    }

    /// Starts a latency sample as the call is sent to the agent.
    pub(super) fn start_latency_sample(&self) -> LatencySample<'_> {
        self.permit.start_latency_sample()
    }

    /// Stops counting the call as one that awaits a response; it keeps its concurrency permit. For open WebSockets.
    pub(super) fn stop_latency_tracking(&self) {
        self.permit.stop_awaiting_response();
    }

    /// Returns the delegation chain that the agent receives.
    pub(super) fn delegation_chain(&self) -> Option<&HeaderValue> {
        self.delegation_chain.as_ref()
    }
}

impl Admission for Admitted {
    fn upstream_set(&self) -> &transport::UpstreamSet {
        &self.route.upstream
    }

    fn deadline(&self) -> tokio::time::Instant {
        self.deadline.into()
    }

    fn session_hash(&self) -> Option<u64> {
        self.session_hash
    }
}

/// An authorised call that holds a concurrency permit; its input has not been read yet.
pub(super) struct PermittedCall {
    pub(super) authorized: AuthorizedCall,
    permit: Permit,
}

impl PermittedCall {
    /// Builds the proof (step 9), once the input has been validated.
    pub(super) fn admit(self, operation: usize, deadline: Instant) -> Admitted {
        let AuthorizedCall { route, session_hash, delegation_chain, version, .. } = self.authorized;
        Admitted { route, operation, version, deadline, session_hash, delegation_chain, permit: self.permit }
    }
}

/// A call whose caller is authenticated, authorised and within its rate limits; it holds no concurrency permit yet.
pub(super) struct AuthorizedCall {
    pub(super) route: Arc<Route>,
    pub(super) caller: Arc<Caller>,
    pub(super) rate_limit_status: Option<RateLimitStatus>,
    /// The version that is called; the latest until another one is selected.
    pub(super) version: Option<Arc<CompiledVersion>>,
    /// The hash of the caller's session, for session affinity.
    pub(super) session_hash: Option<u64>,
    delegation_chain: Option<HeaderValue>,
}

impl AuthorizedCall {
    /// Adds the concurrency permit.
    pub(super) fn with_permit(self, permit: Permit) -> PermittedCall {
        PermittedCall { authorized: self, permit }
    }
}

/// An agent, and a caller that may call it.
pub(super) type RouteAndCaller = (Arc<Route>, Arc<Caller>);

/// The part of a request that authentication and rate limits need.
#[derive(Clone, Copy)]
pub(super) struct CallerContext<'a> {
    pub(super) headers: &'a HeaderMap,
    pub(super) client_certificate: Option<&'a ClientCertificate>,
    pub(super) address: IpAddr,
}

impl Gateway {
    /// Finds the agent, authenticates, authorises and limits (steps 5 to 7), then acquires a concurrency permit. A miss
    /// is answered only after authentication, so that ids cannot be probed.
    pub(super) async fn authorize_and_acquire_permit(
        &self,
        config: &ConfigSnapshot,
        call: &mut Call,
        agent: &str,
        context: CallerContext<'_>,
    ) -> Result<PermittedCall> {
        let authorized = self.authorize_and_limit(config, call, agent, context).await?;
        let permit = self.limits.acquire_permit(&authorized.route.limits).await?;
        Ok(authorized.with_permit(permit))
    }

    /// Authorises and limits as [`Gateway::authorize_and_acquire_permit`], without the concurrency permit.
    pub(super) async fn authorize_and_limit(
        &self,
        config: &ConfigSnapshot,
        call: &mut Call,
        agent: &str,
        context: CallerContext<'_>,
    ) -> Result<AuthorizedCall> {
        let (route, caller) = self.find_and_authorize(config, call, agent, context).await?;
        call.set_route(&route);
        self.check_load(call, &caller)?;
        cors::check_page_access(config.cors.as_ref(), route.upstream.is_local(), context.headers, context.address)?;
        route.ensure_active()?;
        let account = self.rate_limit_account(&caller, context.address);
        let rate_limit_status = self.limits.acquire_for_calls(&route.limits, &account, NonZeroU32::MIN)?;
        let session_hash = request_head::session_hash(context.headers, &caller)?;
        let hop = ChainHop { caller: &caller.id, agent: route.agent.id.as_str(), call: call.id() };
        let delegation_chain =
            config.delegation.as_ref().map(|policy| policy.extend_chain(context.headers, &hop)).transpose()?;
        Ok(AuthorizedCall { route, caller, rate_limit_status, version: None, session_hash, delegation_chain })
    }

    /// Finds the agent and authorises its caller (steps 5 and 6). Records the caller in `call`, also when it is
    /// refused.
    pub(super) async fn find_and_authorize(
        &self,
        config: &ConfigSnapshot,
        call: &mut Call,
        agent: &str,
        context: CallerContext<'_>,
    ) -> Result<RouteAndCaller> {
        let result = self.authorize_unrecorded(config, agent, &context).await;
        let caller = match &result {
            Ok((_, caller)) => Some(caller),
            Err((caller, _)) => caller.as_ref(),
        };
        if let Some(caller) = caller {
            call.set_caller(caller);
        }
        result.map_err(|(_, fault)| fault)
    }

    /// Finds and authorises without a `Call`. A refusal carries the caller, if it was authenticated.
    pub(super) async fn authorize_unrecorded(
        &self,
        config: &ConfigSnapshot,
        agent: &str,
        context: &CallerContext<'_>,
    ) -> std::result::Result<RouteAndCaller, (Option<Arc<Caller>>, Fault)> {
        let presented =
            PresentedCredentials { headers: context.headers, client_certificate: context.client_certificate };
        let route = match self.catalogue.load().get(agent).cloned() {
            Some(route) => Some(route),
            None => Box::pin(self.find_on_demand(config, agent, &presented)).await.map_err(|fault| (None, fault))?,
        };
        // After a reload a route may still carry the grants of the previous configuration.
        let current_grants = route
            .as_ref()
            .filter(|route| !config.auth.is_current(&route.grants))
            .map(|route| config.auth.grants_for_agent(&route.agent));
        let requirements = route.as_ref().map(|route| AgentAuthRequirements {
            authentication: &route.agent.authentication,
            grants: current_grants.as_ref().unwrap_or(&route.grants),
        });
        let caller = config.auth.authorize(&presented, requirements).await;
        let caller = caller.map_err(|refusal| (refusal.caller, refusal.fault))?;
        match route {
            Some(route) => Ok((route, caller)),
            None => {
                let fault = Fault::from(FaultCode::Internal);
                Err((Some(caller), fault.with_detail("authorisation passed for an agent that does not exist")))
            }
        }
    }

    /// Queries the registries that are too large to copy for an agent that is not in the catalogue. Only callers that
    /// hold a grant trigger a query.
    pub(super) async fn find_on_demand(
        &self,
        config: &ConfigSnapshot,
        agent: &str,
        presented: &PresentedCredentials<'_>,
    ) -> Result<Option<Arc<Route>>> {
        let Some(lazy) = &config.on_demand_registries else { return Ok(None) };
        if let Some(route) = lazy.cached_route(agent) {
            return Ok(Some(route));
        }
        let Ok(id) = agent.parse() else { return Ok(None) };
        // The authentication that follows refuses callers without a valid credential.
        match config.auth.authenticate_or_anonymous(presented, true).await {
            Ok(caller) if !caller.grants.is_empty() => Box::pin(lazy.look_up(&id)).await,
            _ => Ok(None),
        }
    }

    /// Returns the account that the rate limits charge: the caller, or the address if the caller is anonymous.
    pub(super) fn rate_limit_account<'a>(&self, caller: &'a Caller, address: IpAddr) -> RateLimitKey<'a> {
        if caller.is_anonymous() {
            self.limits.anonymous_key(address)
        } else {
            self.limits.caller_key(&caller.id, caller.tier.as_deref())
        }
    }
}
