//! Directory requests. The gateway answers them itself, with the authentication, limits, faults, access log and metrics
//! of calls.

use super::{
    CallError, ConfigSnapshot,
    call::Call,
    http_server::{CallerConnection, ServeOutcome},
    incoming_body::{BodyTimeout, IncomingBody},
    request_handler::RequestContext,
    response_writer,
    route::Route,
};
use crate::{
    agent::Agent,
    auth::{AgentAuthRequirements, Authorizer, Caller, PresentedCredentials},
    directory::{AgentVisibility, DirectoryCall, DirectoryRequest},
    registry::AgentSnapshot,
    values::Glob,
};
use bytes::Bytes;
use http::{Method, header};
use pingora_core::protocols::http::ServerSession;
use pingora_http::RequestHeader;
use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

/// The largest body of a directory request, independent of the bounds of calls.
const MAX_BODY: usize = 1 << 20;
/// The timeout of the request body.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);

impl RequestContext<'_> {
    /// Handles a directory request (steps 6 to 12).
    pub(super) async fn handle_directory_request(
        &self,
        session: &mut ServerSession,
        call: &mut Call,
        request: DirectoryRequest,
        id: &str,
    ) -> std::result::Result<ServeOutcome, CallError> {
        let Self { gateway, config, connection } = self;
        call.mark_directory_request();
        let public_agents = config.directory.public_agents();
        // Cloned, because the session is still read from.
        let head = session.req_header().clone();
        let presented =
            PresentedCredentials { headers: &head.headers, client_certificate: connection.client_identity() };
        // Writes, and requests that query other registries, need a credential. Reads of public agents do not; nor do
        // reads of the signing keys, which receivers of signed documents need.
        let is_read = !request.is_write(&head.method) && !request.may_fetch_remotely();
        let allow_anonymous = matches!(request, DirectoryRequest::Jwks) || !public_agents.is_empty() && is_read;
        let caller = config.auth.authenticate_or_anonymous(&presented, allow_anonymous).await?;
        call.set_caller(&caller);
        gateway.check_load(call, &caller)?;
        let account = gateway.rate_limit_account(&caller, connection.peer_address.ip());
        let rate_limit_status =
            gateway.limits.acquire_for_directory(&account, request.is_search(head.uri.query())).await?;
        let body_timeout = BodyTimeout { connection, deadline: call.arrived_at() + BODY_TIMEOUT };
        let body = self.read_directory_body(session, &head.method, body_timeout).await?;
        let snapshot = gateway.catalogue.snapshot();
        let on_demand_route = match snapshot.get(id) {
            None if !id.is_empty() && !request.is_write(&head.method) => {
                gateway.find_on_demand(config, id, &presented).await?
            }
            _ => None,
        };
        let view = CallerView { snapshot, on_demand_route, auth: &config.auth, caller: &caller, public_agents };
        let base_url = base_url(config, connection, &head);
        let directory_call = DirectoryCall {
            request,
            id,
            method: &head.method,
            query: head.uri.query(),
            headers: &head.headers,
            body,
            caller: &caller,
            visibility: &view,
            base_url: &base_url,
        };
        let response = config.directory.respond(directory_call).await?;
        response_writer::write_local_response(session, connection, call, response, rate_limit_status).await
    }

    async fn read_directory_body(
        &self,
        session: &mut ServerSession,
        method: &Method,
        timeout: BodyTimeout<'_>,
    ) -> std::result::Result<Bytes, CallError> {
        if !matches!(*method, Method::POST | Method::PUT | Method::PATCH) {
            return Ok(Bytes::new());
        }
        let mut incoming = IncomingBody::new(session, timeout);
        super::content_negotiation::check_json_body(incoming.headers())?;
        Ok(incoming.read_complete(MAX_BODY).await?)
    }
}

/// Returns the base URL: the configured one, else the one under which this caller reached the gateway.
fn base_url(config: &ConfigSnapshot, connection: &CallerConnection, head: &RequestHeader) -> String {
    if let Some(configured) = config.directory.base_url() {
        return configured.to_owned();
    }
    let scheme = if connection.tls.is_some() { "https" } else { "http" };
    let authority = head.uri.authority().map(|authority| authority.as_str());
    let host = authority.or_else(|| head.headers.get(header::HOST)?.to_str().ok()).unwrap_or("localhost");
    format!("{scheme}://{host}")
}

/// The agents of a catalogue snapshot that a caller may see: those that it may call, and the public ones.
struct CallerView<'a> {
    snapshot: Arc<AgentSnapshot<Route>>,
    /// The requested agent, if only an on-demand registry has it.
    on_demand_route: Option<Arc<Route>>,
    auth: &'a Authorizer,
    caller: &'a Caller,
    public_agents: &'a [Glob],
}

impl CallerView<'_> {
    fn is_visible(&self, route: &Route) -> bool {
        let agent = &route.agent;
        if self.public_agents.iter().any(|glob| glob.matches(agent.id.as_str())) {
            return true;
        }
        may_call(self.auth, self.caller, route)
    }
}

/// Returns whether the caller may call the agent.
pub(super) fn may_call(auth: &Authorizer, caller: &Caller, route: &Route) -> bool {
    // After a reload a route may still carry the grants of the previous configuration.
    let current_grants = (!auth.is_current(&route.grants)).then(|| auth.grants_for_agent(&route.agent));
    let grants = current_grants.as_ref().unwrap_or(&route.grants);
    auth.is_call_allowed(caller, &AgentAuthRequirements { authentication: &route.agent.authentication, grants })
}

impl AgentVisibility for CallerView<'_> {
    fn visible_agent(&self, id: &str) -> Option<Arc<Agent>> {
        let route =
            self.snapshot.get(id).or(self.on_demand_route.as_ref().filter(|route| route.agent.id.as_str() == id))?;
        self.is_visible(route).then(|| Arc::clone(&route.agent))
    }

    fn is_visible(&self, agent: &Agent) -> bool {
        self.snapshot.get(agent.id.as_str()).is_some_and(|route| self.is_visible(route))
    }

    fn last_changed(&self) -> SystemTime {
        self.snapshot.created_at
    }
}
