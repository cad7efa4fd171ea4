//! Directory requests. The gateway answers them itself, with the authentication, limits, faults, access log and metrics
//! of calls.

use super::{
    admission::{BodyBound, LocalAccess, LocalCaller, may_call, may_see, may_see_with_grants, sources_not_read},
    call::{CallError, CallResult},
    exchange::Exchange,
    gateway_state::{ConfigSnapshot, Gateway},
    route::Route,
};
use crate::{
    agent::Agent,
    auth::Caller,
    directory::{
        AgentVisibility, CallLimits, ChangeRecord, DirectoryCall, DirectoryRequest, MAX_SHORT_DOCUMENT, ReadExtent,
    },
    fault::{Fault, FaultCode},
    http_server::ServeOutcome,
    registry::AgentSnapshot,
    values::poll_at_low_priority,
};
use bytes::Bytes;
use http::Method;
use parking_lot::Mutex;
use serde_json::Value;
use std::{sync::Arc, time::Duration};

/// The largest body of a directory request, independent of the bounds of calls.
const MAX_BODY: BodyBound = BodyBound::fixed(1 << 20);
/// The fuel of all checks of inputs for one request: a millisecond.
const MAX_CHECK_FUEL: u64 = 100_000;
/// The length of a list of a hundred agents, in bytes.
const TYPICAL_LIST: usize = 32 << 10;
/// The timeout of the request body.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);

/// Handles a directory request (steps 6 to 12). A 401 of a page asks browsers for a credential.
pub(super) async fn handle_directory_request(
    exchange: &mut Exchange<'_>,
    request: DirectoryRequest,
    id: &str,
) -> CallResult<ServeOutcome> {
    let outcome = answer_request(exchange, request, id).await;
    let auth = &exchange.config.auth;
    outcome.map_err(|error| match error {
        CallError::Fault(fault) if request.is_caller_page() => auth.with_basic_challenge(fault).into(),
        error => error,
    })
}

async fn answer_request(exchange: &mut Exchange<'_>, request: DirectoryRequest, id: &str) -> CallResult<ServeOutcome> {
    let Exchange { gateway, config, connection, .. } = *exchange;
    exchange.call.mark_directory_request();
    // Cloned, because the session is still read from.
    let (method, uri, mut headers) = {
        let head = exchange.session.head();
        (head.method.clone(), head.uri.clone(), head.headers.clone())
    };
    if request.is_caller_page() {
        config.auth.replace_basic_credential(&mut headers)?;
    }
    // Writes, and requests that query other registries, need a credential. Reads of public agents, and of agents that a
    // grant opens to callers without a credential, do not; nor do reads of the signing keys, which receivers of signed
    // documents need.
    let is_read =
        !request.is_write(&method) && !request.may_fetch_remotely() && !request.requires_credential(uri.query());
    let allow_anonymous = request.is_public()
        || (!config.directory.public_agents().is_empty() || config.auth.grants_anonymous_discovery()) && is_read;
    let access =
        LocalAccess { allow_anonymous, is_search: request.is_search(uri.query()), changes_state: !method.is_safe() };
    let context = connection.caller_context(&headers);
    let LocalCaller { caller, rate_limit_status } =
        exchange.admission().authenticate_and_limit(exchange.call, context, access).await?;
    let body = if matches!(method, Method::POST | Method::PUT | Method::PATCH) {
        exchange.read_own_body(MAX_BODY, BODY_TIMEOUT).await?
    } else {
        Bytes::new()
    };
    // Before the snapshot, which then has the agents of a source that was read in between.
    let is_incomplete = gateway.catalogue.is_incomplete();
    let snapshot = gateway.catalogue.snapshot();
    let on_demand_route = match snapshot.get(id) {
        None if !id.is_empty() && !request.is_write(&method) && !request.is_public() => {
            exchange.authorization().find_on_demand(id, &context.presented_credentials()).await?
        }
        _ => None,
    };
    let long_answer = match request.read_extent() {
        _ if request.is_write(&method) => None,
        ReadExtent::ManyAgents => Some(TYPICAL_LIST),
        ReadExtent::OneAgent => {
            let route = snapshot.get(id).or(on_demand_route.as_ref());
            route.map(|route| route.agent.document.len()).filter(|length| *length > MAX_SHORT_DOCUMENT)
        }
        ReadExtent::Fixed => None,
    };
    let mut turn = None;
    if let Some(length) = long_answer {
        let limits = gateway.limits.answers();
        let awaited = limits.await_turn(exchange.client(), length);
        turn = Some(exchange.wait_unless_caller_leaves(awaited).await??);
    }
    let address = connection.client_address();
    let fuel_left = Mutex::new(MAX_CHECK_FUEL);
    let view = CallerView { snapshot, is_incomplete, on_demand_route, gateway, fuel_left, config, caller: &caller };
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
        audit: ChangeRecord { log: gateway.audit_log.as_ref(), request_id: exchange.call.id(), address: Some(address) },
    };
    let response = config.directory.respond(directory_call);
    let response = if turn.is_some() { poll_at_low_priority(response).await? } else { response.await? };
    drop(turn);
    if request.is_caller_page() {
        return exchange.respond_with_page(response, rate_limit_status.as_ref()).await;
    }
    exchange.respond_locally(response, rate_limit_status.as_ref()).await
}

/// The agents of a catalogue snapshot that a caller may see: those that a grant covers, and the public ones.
struct CallerView<'a> {
    snapshot: Arc<AgentSnapshot<Route>>,
    /// Whether a required source was never read.
    is_incomplete: bool,
    /// The requested agent, if only an on-demand registry has it.
    on_demand_route: Option<Arc<Route>>,
    gateway: &'a Gateway,
    /// The fuel that is left for checks of inputs.
    fuel_left: Mutex<u64>,
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

    fn call_limits(&self, id: &str) -> Option<CallLimits> {
        let route = self.find_route(id).filter(|route| may_call(&self.config.auth, self.caller, route))?;
        // A caller without a credential has the limits of its address.
        let tier = self.caller.tier.as_deref().filter(|_| !self.caller.is_anonymous());
        let rates = self.gateway.limits.applicable_rates(&route.limits, tier);
        let timeouts = route.upstream.timeouts();
        Some(CallLimits {
            per_address: rates.per_address,
            per_caller: rates.per_caller,
            per_caller_agent: rates.per_caller_agent,
            per_agent: rates.per_agent,
            per_day: rates.quota.per_day,
            per_month: rates.quota.per_month,
            max_checked_body: BodyBound::of_checked(route, &self.config.contract).max_size,
            max_streamed_body: BodyBound::of_streamed(route, self.config.max_streamed_body_size).max_size,
            first_byte_timeout: timeouts.first_byte,
            total_timeout: timeouts.total,
        })
    }

    fn accepts_input(&self, id: &str, index: usize, input: &Value) -> bool {
        let operation = self.find_route(id).and_then(|route| route.operations.get(index));
        operation.is_some_and(|operation| operation.contract.accepts_within(input, &mut self.fuel_left.lock()))
    }
}
