//! Steps 5 and 6: finds the agent and decides whether the caller may call it. Also what follows from who the caller is:
//! the account that rate limits charge, and the owner of its tasks and idempotency keys.

use crate::{
    agent::Agent,
    auth::{
        AccessRule, AgentAuthRequirements, AuthRefusal, Authorizer, Caller, ClientCertificate, GrantSet,
        PresentedCredentials,
    },
    fault::{Fault, FaultCode, Result},
    gateway::{
        cors::PageRequest,
        gateway_state::{ConfigSnapshot, Gateway},
        route::Route,
    },
    limit::{RateLimitKey, RateLimitStatus},
};
use http::HeaderMap;
use std::{borrow::Cow, net::IpAddr, sync::Arc, time::Duration};

/// `Retry-After` of a call to an agent that may belong to a source that was not read yet.
const UNREAD_SOURCES_RETRY_AFTER: Duration = Duration::from_secs(2);

/// The part of a request that authentication and rate limits need.
#[derive(Clone, Copy)]
pub(in crate::gateway) struct CallerContext<'a> {
    pub(in crate::gateway) headers: &'a HeaderMap,
    pub(in crate::gateway) client_certificate: Option<&'a ClientCertificate>,
    pub(in crate::gateway) address: IpAddr,
    /// Whether the client reached the gateway over TLS.
    pub(in crate::gateway) is_secure: bool,
    /// The host that the client requested of a trusted proxy, if the proxy says so.
    pub(in crate::gateway) forwarded_host: Option<&'a str>,
    /// The API key that a dry run assumes.
    pub(in crate::gateway) assumed_key: Option<&'a str>,
}

impl<'a> CallerContext<'a> {
    /// Returns the credentials of the request.
    pub(in crate::gateway) fn presented_credentials(&self) -> PresentedCredentials<'a> {
        PresentedCredentials {
            headers: self.headers,
            client_certificate: self.client_certificate,
            client_address: self.address,
            assumed_key: self.assumed_key,
        }
    }
}

/// An agent, and a caller that may call it.
pub(in crate::gateway) struct RouteAndCaller {
    pub(in crate::gateway) route: Arc<Route>,
    pub(in crate::gateway) caller: Arc<Caller>,
}

/// Who may make a request that the gateway answers itself, and what it costs.
#[derive(Clone, Copy)]
pub(in crate::gateway) struct LocalAccess {
    /// Whether a request without a credential has the caller `anonymous`.
    pub(in crate::gateway) allow_anonymous: bool,
    /// Whether the request is a search, which has limits of its own.
    pub(in crate::gateway) is_search: bool,
    /// Whether the request changes something, which a page of another origin may not do with what its visitor's browser
    /// brings. Reads need no check, because the page cannot see the response.
    pub(in crate::gateway) changes_state: bool,
}

/// The authenticated caller of a request that the gateway answers itself.
pub(in crate::gateway) struct LocalCaller {
    pub(in crate::gateway) caller: Arc<Caller>,
    pub(in crate::gateway) rate_limit_status: Option<RateLimitStatus>,
}

/// Finds agents and authorises their callers.
#[derive(Clone, Copy)]
pub(in crate::gateway) struct AgentAuthorization<'a> {
    pub(in crate::gateway) gateway: &'a Gateway,
    pub(in crate::gateway) config: &'a ConfigSnapshot,
}

impl AgentAuthorization<'_> {
    /// Finds the agent and authorises its caller. A miss is answered only after authentication, so that ids cannot be
    /// probed.
    pub(in crate::gateway) async fn find_and_authorize(
        &self,
        agent: &str,
        context: &CallerContext<'_>,
    ) -> std::result::Result<RouteAndCaller, AuthRefusal> {
        let config = self.config;
        let presented = context.presented_credentials();
        // Before the look, which then finds the agents of a source that was read in between.
        let is_incomplete = self.gateway.catalogue.is_incomplete();
        let route = match self.gateway.catalogue.load().get(agent).cloned() {
            Some(route) => Some(route),
            None => Box::pin(self.find_on_demand(agent, &presented)).await.map_err(|fault| AuthRefusal {
                caller: None,
                rule: AccessRule::NoAgent,
                fault,
            })?,
        };
        let grants = route.as_deref().map(|route| current_grants(&config.auth, route));
        let requirements = route
            .as_deref()
            .zip(grants.as_deref())
            .map(|(route, grants)| AgentAuthRequirements { authentication: &route.agent.authentication, grants });
        let caller = config.auth.authorize(&presented, requirements).await.map_err(|refusal| {
            // An agent that the caller may not call is answered like a missing one, unless its document is public.
            let fault = match refusal.fault.code() {
                FaultCode::NotFound if route.as_deref().is_some_and(|route| is_public(self.config, &route.agent)) => {
                    config.auth.forbidden_agent_fault()
                }
                FaultCode::NotFound if is_incomplete => sources_not_read(),
                _ => return refusal,
            };
            AuthRefusal { fault, ..refusal }
        })?;
        match route {
            Some(route) => Ok(RouteAndCaller { route, caller }),
            None => {
                let fault = Fault::from(FaultCode::Internal)
                    .with_detail("authorisation passed for an agent that does not exist");
                Err(AuthRefusal { caller: Some(caller), rule: AccessRule::NoAgent, fault })
            }
        }
    }

    /// Queries the registries that are too large to copy for an agent that is not in the catalogue. Only callers that
    /// hold a grant trigger a query.
    pub(in crate::gateway) async fn find_on_demand(
        &self,
        agent: &str,
        presented: &PresentedCredentials<'_>,
    ) -> Result<Option<Arc<Route>>> {
        let Some(lazy) = &self.config.on_demand_registries else { return Ok(None) };
        if let Some(route) = lazy.cached_route(agent) {
            return Ok(Some(route));
        }
        let Ok(id) = agent.parse() else { return Ok(None) };
        // The authentication that follows refuses callers without a valid credential.
        match self.config.auth.authenticate_or_anonymous(presented, true).await {
            Ok(caller) if caller.grants.has_grant() => Box::pin(lazy.look_up(&id)).await,
            _ => Ok(None),
        }
    }
}

impl AgentAuthorization<'_> {
    /// Returns whether the caller may see an agent of the catalogue.
    pub(in crate::gateway) fn is_discoverable(&self, caller: &Caller, agent: &str) -> bool {
        self.gateway.catalogue.load().get(agent).is_some_and(|route| may_see(self.config, caller, route))
    }

    /// Refuses a request that a page of another origin makes with what its visitor's browser brings by itself.
    ///
    /// # Errors
    /// 403.
    pub(in crate::gateway) fn check_page(&self, context: &CallerContext<'_>, caller: &Caller) -> Result<()> {
        self.page_request(context).check_ambient_access(caller.method)
    }

    /// Refuses browsers that reach the gateway by a name of another page, where no credential of the page counts.
    ///
    /// # Errors
    /// 403.
    pub(in crate::gateway) fn check_host(&self, context: &CallerContext<'_>, caller: &Caller) -> Result<()> {
        self.page_request(context).check_host(caller.method)
    }

    /// Refuses pages that may not reach agents on this machine, if the agent is one of them.
    ///
    /// # Errors
    /// 403.
    pub(in crate::gateway) fn check_local_page(&self, context: &CallerContext<'_>, route: &Route) -> Result<()> {
        if route.upstream.is_local() { self.page_request(context).check_local_access() } else { Ok(()) }
    }

    fn page_request<'r>(&'r self, context: &CallerContext<'r>) -> PageRequest<'r> {
        PageRequest {
            cors: self.config.cors.as_ref(),
            headers: context.headers,
            is_secure: context.is_secure,
            is_on_this_machine: context.address.to_canonical().is_loopback(),
            api_hosts: &self.config.api_hosts,
            forwarded_host: context.forwarded_host,
            external_url: self.config.directory.base_url(),
        }
    }
}

/// The fault for an agent that is unknown while a required source was never read: the agent may belong to that source.
#[cold]
pub(in crate::gateway) fn sources_not_read() -> Fault {
    Fault::new(FaultCode::AgentUnavailable, "The agent is not known yet, because sources of agents were not read yet")
        .with_retry_after(UNREAD_SOURCES_RETRY_AFTER)
}

/// Returns the grant that allows the caller to call the agent, the denial that refuses it, or that there is neither.
pub(in crate::gateway) fn deciding_rule(auth: &Authorizer, caller: &Caller, route: &Route) -> AccessRule {
    let grants = &*current_grants(auth, route);
    auth.deciding_rule(caller, &AgentAuthRequirements { authentication: &route.agent.authentication, grants })
}

/// Returns whether the caller may call the agent.
pub fn may_call(auth: &Authorizer, caller: &Caller, route: &Route) -> bool {
    let grants = &*current_grants(auth, route);
    auth.is_call_allowed(caller, &AgentAuthRequirements { authentication: &route.agent.authentication, grants })
}

/// Returns whether the agent is public, or the caller may read its documents.
pub(in crate::gateway) fn may_see(config: &ConfigSnapshot, caller: &Caller, route: &Route) -> bool {
    may_see_with_grants(config, caller, &route.agent, &current_grants(&config.auth, route))
}

/// As [`may_see`], for an agent that these grants name.
pub(in crate::gateway) fn may_see_with_grants(
    config: &ConfigSnapshot,
    caller: &Caller,
    agent: &Agent,
    grants: &GrantSet,
) -> bool {
    let requirements = AgentAuthRequirements { authentication: &agent.authentication, grants };
    is_public(config, agent) || config.auth.is_discovery_allowed(caller, &requirements)
}

fn is_public(config: &ConfigSnapshot, agent: &Agent) -> bool {
    config.directory.public_agents().iter().any(|glob| glob.matches(agent.id.as_str()))
}

/// Returns the grants that name the agent. After a reload a route may still carry those of the previous configuration.
fn current_grants<'a>(auth: &Authorizer, route: &'a Route) -> Cow<'a, GrantSet> {
    if auth.is_current(&route.grants) {
        Cow::Borrowed(&route.grants)
    } else {
        Cow::Owned(auth.grants_for_agent(&route.agent))
    }
}

/// Returns the account that the rate limits charge: the caller, or the address if the caller is anonymous.
pub(in crate::gateway) fn rate_limit_account(caller: &Caller, address: IpAddr) -> RateLimitKey<'_> {
    if caller.is_anonymous() {
        RateLimitKey::for_address(address)
    } else {
        RateLimitKey::for_caller(&caller.id, caller.tier.as_deref())
    }
}

/// Returns the owner of the caller's tasks, streams and idempotency keys. Anonymous callers are distinguished by their
/// address.
pub(in crate::gateway) fn owner_key(caller: &Caller, address: IpAddr) -> Arc<str> {
    if caller.is_anonymous() { format!("{} at {address}", caller.id).into() } else { Arc::clone(&caller.owner_key) }
}
