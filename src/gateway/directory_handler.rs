//! Directory requests. The gateway answers them itself, with the authentication, limits, faults, access log and metrics
//! of calls.

use super::{
    admission::{LocalAccess, LocalCaller, may_see, may_see_with_grants, sources_not_read},
    call::CallResult,
    exchange::Exchange,
    gateway_state::ConfigSnapshot,
    route::Route,
};
use crate::{
    agent::Agent,
    auth::Caller,
    directory::{AgentVisibility, ChangeRecord, DirectoryCall, DirectoryRequest},
    fault::{Fault, FaultCode},
    http_server::ServeOutcome,
    registry::AgentSnapshot,
};
use bytes::Bytes;
use http::Method;
use std::{sync::Arc, time::Duration};

/// The largest body of a directory request, independent of the bounds of calls.
const MAX_BODY: usize = 1 << 20;
/// The timeout of the request body.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);

/// Handles a directory request (steps 6 to 12).
pub(super) async fn handle_directory_request(
    exchange: &mut Exchange<'_>,
    request: DirectoryRequest,
    id: &str,
) -> CallResult<ServeOutcome> {
    let Exchange { gateway, config, connection, .. } = *exchange;
    exchange.call.mark_directory_request();
    // Cloned, because the session is still read from.
    let (method, uri, headers) = {
        let head = exchange.session.head();
        (head.method.clone(), head.uri.clone(), head.headers.clone())
    };
    // Writes, and requests that query other registries, need a credential. Reads of public agents, and of agents that a
    // grant opens to callers without a credential, do not; nor do reads of the signing keys, which receivers of signed
    // documents need.
    let is_read = !request.is_write(&method) && !request.may_fetch_remotely();
    let allow_anonymous = matches!(request, DirectoryRequest::Jwks)
        || (!config.directory.public_agents().is_empty() || config.auth.grants_anonymous_discovery()) && is_read;
    let access =
        LocalAccess { allow_anonymous, is_search: request.is_search(uri.query()), changes_state: !method.is_safe() };
    let LocalCaller { caller, rate_limit_status } = exchange.authenticate_and_limit(access).await?;
    let body = if matches!(method, Method::POST | Method::PUT | Method::PATCH) {
        exchange.read_own_body(MAX_BODY, BODY_TIMEOUT).await?
    } else {
        Bytes::new()
    };
    // Before the snapshot, which then has the agents of a source that was read in between.
    let is_incomplete = gateway.catalogue.is_incomplete();
    let snapshot = gateway.catalogue.snapshot();
    let on_demand_route = match snapshot.get(id) {
        None if !id.is_empty() && !request.is_write(&method) => {
            let presented = connection.caller_context(&headers).presented_credentials();
            exchange.authorization().find_on_demand(id, &presented).await?
        }
        _ => None,
    };
    let view = CallerView { snapshot, is_incomplete, on_demand_route, config, caller: &caller };
    let base_url = exchange.base_url();
    let directory_call = DirectoryCall {
        request,
        id,
        method: &method,
        query: uri.query(),
        headers: &headers,
        body,
        caller: &caller,
        visibility: &view,
        base_url: &base_url,
        audit: ChangeRecord {
            log: gateway.audit_log.as_ref(),
            request_id: exchange.call.id(),
            address: Some(connection.client_address()),
        },
    };
    let response = config.directory.respond(directory_call).await?;
    exchange.respond_locally(response, rate_limit_status.as_ref()).await
}

/// The agents of a catalogue snapshot that a caller may see: those that a grant covers, and the public ones.
struct CallerView<'a> {
    snapshot: Arc<AgentSnapshot<Route>>,
    /// Whether a required source was never read.
    is_incomplete: bool,
    /// The requested agent, if only an on-demand registry has it.
    on_demand_route: Option<Arc<Route>>,
    config: &'a ConfigSnapshot,
    caller: &'a Caller,
}

impl CallerView<'_> {
    fn find_route(&self, id: &str) -> Option<&Arc<Route>> {
        self.snapshot.get(id).or(self.on_demand_route.as_ref().filter(|route| route.agent.id.as_str() == id))
    }
}

impl AgentVisibility for CallerView<'_> {
    fn visible_agent(&self, id: &str) -> Option<Arc<Agent>> {
        let route = self.find_route(id)?;
        may_see(self.config, self.caller, route).then(|| Arc::clone(&route.agent))
    }

    /// The faults of `AgentAuthorization::find_and_authorize`.
    fn missing_agent_fault(&self, id: &str) -> Fault {
        let fault = match self.find_route(id) {
            Some(_) => self.config.auth.ungranted_agent_fault(self.caller),
            None => self.config.auth.missing_agent_fault(self.caller),
        };
        if self.is_incomplete && fault.code() == FaultCode::NotFound { sources_not_read() } else { fault }
    }

    fn is_visible(&self, agent: &Agent) -> bool {
        match self.snapshot.get(agent.id.as_str()) {
            Some(route) if route.agent.digest == agent.digest => may_see(self.config, self.caller, route),
            // The search index has another version of the agent than this snapshot.
            _ => may_see_with_grants(self.config, self.caller, agent, &self.config.auth.grants_for_agent(agent)),
        }
    }
}
