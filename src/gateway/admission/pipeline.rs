//! The list of checks. Its stages are types, each made only by the one before: [`AuthorizedCall`] (steps 5 to 7, and
//! what the head says of step 8), [`CheckedCall`] (step 8) and [`Admitted`] (step 10). A check that is added here holds
//! for every front end.

use super::{
    admission_recorder::AdmissionRecorder,
    agent_authorization::{
        AgentAuthorization, CallerContext, LocalAccess, LocalCaller, RouteAndCaller, rate_limit_account,
    },
    incoming_body::IncomingBody,
    input_validation::{CallInput, InputReader, named_operation},
};
use crate::{
    auth::Caller,
    fault::Result,
    gateway::{
        call_parameters::{call_deadline, input_from_query, session_hash},
        content_negotiation,
        delegation::ChainHop,
        gateway_state::{ConfigSnapshot, Gateway},
        path_router::CallTarget,
        requested_version::{CompiledVersion, RequestedVersion, declares_version_input},
        route::{CompiledOperation, Route},
    },
    http_server::HttpSession,
    idempotency,
    limit::{LatencySample, Permit, RateLimitStatus},
    trace::CallPhase,
    transport::{self, Admission},
    values::{ClientKey, StoreAnswer},
};
use bytes::Bytes;
use http::HeaderValue;
use std::{
    net::IpAddr,
    num::NonZeroU32,
    sync::{Arc, OnceLock},
    time::Instant,
};

/// Where a call comes from, as far as its admission differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gateway) enum CallSource {
    /// A request to an agent's path.
    HttpRequest,
    /// A handshake, which has no input and whose messages are calls of their own.
    WebSocketHandshake,
    /// A message that is relayed over an admitted WebSocket.
    RelayedMessage,
    /// A call that the gateway makes for a pipeline step, a WebSocket message or an MQTT task.
    Subrequest,
}

/// A call that asks for admission: the head of its request, its credentials and its target.
#[derive(Clone, Copy)]
pub(in crate::gateway) struct AdmissionRequest<'a> {
    pub(in crate::gateway) source: CallSource,
    pub(in crate::gateway) caller: CallerContext<'a>,
    pub(in crate::gateway) target: CallTarget<'a>,
    /// The query of the request.
    pub(in crate::gateway) query: Option<&'a str>,
    /// How many calls the rate limits charge.
    pub(in crate::gateway) calls: NonZeroU32,
}

/// The input of a call that is not read yet.
pub(in crate::gateway) enum InputSource<'a> {
    /// The request's body.
    Body(&'a mut HttpSession),
    /// The request's query (R49).
    Query(&'a str),
    /// An input that is complete.
    Complete(Bytes),
    /// An input that is complete, with an instruction that belongs to it.
    Instructed { input: Bytes, instruction: &'a str },
    /// No input: a WebSocket handshake.
    None,
}

/// The admission of the calls of one configuration.
#[derive(Clone, Copy)]
pub(in crate::gateway) struct AdmissionPipeline<'a> {
    pub(in crate::gateway) gateway: &'a Gateway,
    pub(in crate::gateway) config: &'a ConfigSnapshot,
}

/// A call whose caller is authenticated, authorised and within its rate limits, and whose head is valid. Its input has
/// not been read, and it holds no concurrency permit.
pub(in crate::gateway) struct AuthorizedCall {
    route: Arc<Route>,
    caller: Arc<Caller>,
    /// The client whose shares the call counts against.
    client: ClientKey,
    peer: IpAddr,
    rate_limit_status: Option<RateLimitStatus>,
    named_operation: Option<usize>,
    /// Whether the query parameter `version` is input of the agent. Known only if there is a query.
    declares_version: bool,
    version: Option<Arc<CompiledVersion>>,
    /// The version, if the caller named one.
    requested_version: Option<HeaderValue>,
    deadline: Instant,
    session_hash: Option<u64>,
    delegation_chain: Option<HeaderValue>,
    idempotency_key: Option<String>,
}

/// A call with a valid input. It holds no concurrency permit: a caller that sends its body slowly, or waits for the
/// answer of another call with its idempotency key, keeps no other caller from the agent.
pub(in crate::gateway) struct CheckedCall {
    authorized: AuthorizedCall,
    operation: usize,
    pub(in crate::gateway) input: CallInput,
}

/// The proof that a call may be forwarded. Its fields are private and only [`AdmissionPipeline::admit`] builds one, so
/// a call that was not admitted cannot reach an agent.
pub(in crate::gateway) struct Admitted {
    route: Arc<Route>,
    caller: Arc<Caller>,
    /// The client whose shares the call counts against.
    client: ClientKey,
    peer: IpAddr,
    rate_limit_status: Option<RateLimitStatus>,
    operation: usize,
    version: Option<Arc<CompiledVersion>>,
    deadline: Instant,
    session_hash: Option<u64>,
    delegation_chain: Option<HeaderValue>,
    permit: Permit,
}

impl AdmissionPipeline<'_> {
    /// Charges the address of a request or message (step 3), before any credential is looked at.
    ///
    /// # Errors
    /// 429.
    pub(in crate::gateway) fn charge_address(&self, address: IpAddr) -> StoreAnswer<'_, Result<()>> {
        self.gateway.limits.acquire_for_address(address)
    }

    /// Judges the head of a call: finds the agent, authenticates, authorises and limits the caller (steps 5 to 7), and
    /// selects operation, version and deadline.
    ///
    /// # Errors
    /// The fault with which the call is refused.
    pub(in crate::gateway) async fn authorize(
        &self,
        record: &mut impl AdmissionRecorder,
        request: &AdmissionRequest<'_>,
    ) -> Result<AuthorizedCall> {
        let Self { gateway, config } = *self;
        let CallerContext { headers, address, .. } = request.caller;
        let target = &request.target;
        let authorization = AgentAuthorization { gateway, config };
        let found = authorization.find_and_authorize(target.agent, &request.caller).await;
        let caller = match &found {
            Ok(found) => Some(&found.caller),
            Err(refusal) => refusal.caller.as_ref(),
        };
        // The caller is recorded also when it is refused.
        if let Some(caller) = caller {
            record.record_caller(caller);
        }
        let RouteAndCaller { route, caller } = found.map_err(|refusal| refusal.fault)?;
        record.record_route(&route);
        self.check_load(record, &caller)?;
        // The origins of WebSockets are checked in their handshakes, and those of pipelines once for all steps.
        if request.source == CallSource::HttpRequest {
            authorization.check_page(&request.caller, &caller)?;
        }
        authorization.check_local_page(&request.caller, &route)?;
        route.ensure_active()?;
        let account = rate_limit_account(&caller, address);
        let client = account.client();
        let rate_limit_status = gateway.limits.acquire_for_calls(&route.limits, &account, request.calls).await?;
        let session_hash = session_hash(headers, request.query, &caller)?;
        let delegation_chain = self.extend_delegation_chain(record, request, &route, &caller)?;
        let idempotency_key = self.idempotency_key(request)?;
        let named_operation = named_operation(&route, target.operation_of(&route.agent), headers)?;
        // Schemas are only read if there is a query.
        let declares_version = request.query.is_some() && declares_version_input(&route.agent, named_operation);
        let requested = RequestedVersion::from_request(target.version, request.query, headers, declares_version)?;
        let version = route.versions.select(&requested)?;
        let requested_version =
            version.as_ref().filter(|_| requested.is_specified()).and_then(|version| version.label.clone());
        if request.source == CallSource::HttpRequest
            && let Some(operation) = named_operation.and_then(|at| route.operations.get(at))
            && operation.declares_output
        {
            content_negotiation::check_accept(headers, &operation.formats)?;
        }
        let deadline = call_deadline(record.arrived_at(), route.upstream.timeouts().total, headers)?;
        Ok(AuthorizedCall {
            route,
            caller,
            client,
            peer: address,
            rate_limit_status,
            named_operation,
            declares_version,
            version,
            requested_version,
            deadline,
            session_hash,
            delegation_chain,
            idempotency_key,
        })
    }

    /// Reads and checks the input (step 8). Of an input that is not checked, only the first bytes are read.
    ///
    /// # Errors
    /// The fault with which the call is refused.
    pub(in crate::gateway) async fn check_input(
        &self,
        record: &mut impl AdmissionRecorder,
        authorized: AuthorizedCall,
        source: InputSource<'_>,
    ) -> Result<CheckedCall> {
        record.enter_phase(Some(CallPhase::Contract));
        let reader = self.input_reader(&authorized, record.buffered_input());
        let (operation, input) = match source {
            InputSource::Body(session) => {
                let mut incoming = IncomingBody::new(session, authorized.deadline);
                reader.read_body(&mut incoming).await?
            }
            InputSource::Query(query) => {
                let input = input_from_query(query, &authorized.route, authorized.named_operation)?;
                reader.check_complete(input).await?
            }
            InputSource::Complete(input) => reader.check_complete(input).await?,
            InputSource::Instructed { input, instruction } => reader.check_instructed(input, instruction).await?,
            InputSource::None => {
                // The messages name their operations; the handshake is recorded with the one that it names.
                authorized.named_operation.into_iter().for_each(|operation| record.record_operation(operation));
                let operation = authorized.named_operation.unwrap_or_default();
                return Ok(CheckedCall { authorized, operation, input: CallInput::Complete(Bytes::new()) });
            }
        };
        record.record_operation(operation);
        Ok(CheckedCall { authorized, operation, input })
    }

    /// Acquires the concurrency permit and builds the proof (step 10).
    ///
    /// # Errors
    /// 503 when the agent has no free slot, 429 when the caller has its share.
    pub(in crate::gateway) async fn admit(
        &self,
        record: &mut impl AdmissionRecorder,
        checked: CheckedCall,
    ) -> Result<AdmittedCall> {
        record.enter_phase(Some(CallPhase::Concurrency));
        let CheckedCall { authorized, operation, input } = checked;
        let permit = self.gateway.limits.acquire_permit(&authorized.route.limits, authorized.client).await?;
        let admitted = Admitted {
            route: authorized.route,
            caller: authorized.caller,
            client: authorized.client,
            peer: authorized.peer,
            rate_limit_status: authorized.rate_limit_status,
            operation,
            version: authorized.version,
            deadline: authorized.deadline,
            session_hash: authorized.session_hash,
            delegation_chain: authorized.delegation_chain,
            permit,
        };
        record.enter_phase(None);
        Ok(AdmittedCall { admitted, input })
    }

    /// Charges the rate limits for one more call of an admitted batch.
    ///
    /// # Errors
    /// 429.
    pub(in crate::gateway) fn charge_batch_item<'a>(&'a self, admitted: &'a Admitted) -> StoreAnswer<'a, Result<()>> {
        let limits = &self.gateway.limits;
        let account = rate_limit_account(&admitted.caller, admitted.peer);
        limits.acquire_for_calls(&admitted.route.limits, &account, NonZeroU32::MIN).map(|result| result.map(drop))
    }

    /// Checks a call of this caller against load shedding, before it is counted or its body is read.
    ///
    /// # Errors
    /// 503 when the call is shed.
    fn check_load(&self, record: &impl AdmissionRecorder, caller: &Caller) -> Result<()> {
        if record.is_exempt_from_shedding() {
            return Ok(());
        }
        self.gateway.limits.shed_by_tier(caller.tier.as_deref())
    }

    /// Authenticates and limits the caller of a request that the gateway answers itself (steps 6 and 7).
    ///
    /// # Errors
    /// The fault with which the request is refused.
    pub(in crate::gateway) async fn authenticate_and_limit(
        &self,
        record: &mut impl AdmissionRecorder,
        context: CallerContext<'_>,
        access: LocalAccess,
    ) -> Result<LocalCaller> {
        let auth = &self.config.auth;
        let caller = auth.authenticate_or_anonymous(&context.presented_credentials(), access.allow_anonymous).await?;
        record.record_caller(&caller);
        self.check_load(record, &caller)?;
        if access.changes_state {
            AgentAuthorization { gateway: self.gateway, config: self.config }.check_page(&context, &caller)?;
        }
        let limits = &self.gateway.limits;
        let account = rate_limit_account(&caller, context.address);
        let rate_limit_status = limits.acquire_for_directory(&account, access.is_search).await?;
        Ok(LocalCaller { caller, rate_limit_status })
    }

    /// Returns the reader of the input of an authorised call.
    pub(in crate::gateway) fn input_reader<'r>(
        &'r self,
        authorized: &'r AuthorizedCall,
        buffered_input: &'r OnceLock<Bytes>,
    ) -> InputReader<'r> {
        InputReader {
            gateway: self.gateway,
            route: &authorized.route,
            contract_config: &self.config.contract,
            max_streamed_body_size: self.config.max_streamed_body_size.get(),
            client: authorized.client,
            named_operation: authorized.named_operation,
            deadline: authorized.deadline,
            buffered_input,
        }
    }

    /// Returns the delegation chain with this call; a relayed message belongs to the chain of its handshake.
    fn extend_delegation_chain(
        &self,
        record: &impl AdmissionRecorder,
        request: &AdmissionRequest<'_>,
        route: &Route,
        caller: &Caller,
    ) -> Result<Option<HeaderValue>> {
        let Some(policy) = &self.config.delegation else { return Ok(None) };
        if request.source == CallSource::RelayedMessage {
            return Ok(None);
        }
        let hop = ChainHop { caller: &caller.id, agent: route.agent.id.as_str(), call: record.call_id() };
        policy.extend_chain(request.caller.headers, &hop).map(Some)
    }

    /// Returns the idempotency key of a request; the keys of subrequests belong to the request that they are a part of.
    fn idempotency_key(&self, request: &AdmissionRequest<'_>) -> Result<Option<String>> {
        let headers = request.caller.headers;
        if request.source != CallSource::HttpRequest
            || !headers.contains_key(idempotency::IDEMPOTENCY_KEY)
            || !self.config.idempotency.is_enabled()
        {
            return Ok(None);
        }
        Ok(idempotency::parse_key(headers)?.map(str::to_owned))
    }
}

/// An admitted call, and its input.
pub(in crate::gateway) struct AdmittedCall {
    pub(in crate::gateway) admitted: Admitted,
    pub(in crate::gateway) input: CallInput,
}

impl AuthorizedCall {
    /// Returns the route of the agent.
    pub(in crate::gateway) fn route(&self) -> &Route {
        &self.route
    }

    /// Returns the operation that the path or the headers name, or the only one.
    pub(in crate::gateway) fn named_operation(&self) -> Option<usize> {
        self.named_operation
    }

    /// Returns the version that the caller named.
    pub(in crate::gateway) fn requested_version(&self) -> Option<&HeaderValue> {
        self.requested_version.as_ref()
    }

    /// Ends the call at `deadline`, if it would end later.
    pub(in crate::gateway) fn shorten_deadline(&mut self, deadline: Instant) {
        self.deadline = self.deadline.min(deadline);
    }
}

impl CheckedCall {
    /// Returns whether the query parameter `version` is input of the agent.
    pub(in crate::gateway) fn declares_version(&self) -> bool {
        self.authorized.declares_version
    }

    /// Returns the route of the agent.
    pub(in crate::gateway) fn route(&self) -> &Route {
        &self.authorized.route
    }

    /// Returns the caller.
    pub(in crate::gateway) fn caller(&self) -> &Caller {
        &self.authorized.caller
    }

    /// Returns the client whose shares the call counts against.
    pub(in crate::gateway) fn client(&self) -> ClientKey {
        self.authorized.client
    }

    /// Returns the rate limit that the call is closest to.
    pub(in crate::gateway) fn rate_limit_status(&self) -> Option<&RateLimitStatus> {
        self.authorized.rate_limit_status.as_ref()
    }

    /// Returns the operation that is called.
    pub(in crate::gateway) fn operation(&self) -> &CompiledOperation {
        self.authorized.route.operation(self.operation)
    }

    /// Returns when the call must end.
    pub(in crate::gateway) fn deadline(&self) -> Instant {
        self.authorized.deadline
    }

    /// Returns the idempotency key of the call.
    pub(in crate::gateway) fn idempotency_key(&self) -> Option<&str> {
        self.authorized.idempotency_key.as_deref()
    }
}

impl Admitted {
    /// Returns the route of the agent.
    pub(in crate::gateway) fn agent_route(&self) -> &Arc<Route> {
        &self.route
    }

    /// Returns the caller.
    pub(in crate::gateway) fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Returns the client whose shares the call counts against.
    pub(in crate::gateway) fn client(&self) -> ClientKey {
        self.client
    }

    /// Returns the address of the caller.
    pub(in crate::gateway) fn peer(&self) -> IpAddr {
        self.peer
    }

    /// Returns the rate limit that the call is closest to.
    pub(in crate::gateway) fn rate_limit_status(&self) -> Option<&RateLimitStatus> {
        self.rate_limit_status.as_ref()
    }

    /// Returns the operation that is called.
    pub(in crate::gateway) fn operation(&self) -> &CompiledOperation {
        self.route.operation(self.operation)
    }

    /// Returns the version that is called, if the agent has versions.
    pub(in crate::gateway) fn version(&self) -> Option<&CompiledVersion> {
        self.version.as_deref()
    }

    /// Starts a latency sample as the call is sent to the agent.
    pub(in crate::gateway) fn start_latency_sample(&self) -> LatencySample<'_> {
        self.permit.start_latency_sample()
    }

    /// Stops counting the call as one that awaits a response; it keeps its concurrency permit. For open WebSockets.
    pub(in crate::gateway) fn stop_latency_tracking(&self) {
        self.permit.stop_awaiting_response();
    }

    /// Returns the delegation chain that the agent receives.
    pub(in crate::gateway) fn delegation_chain(&self) -> Option<&HeaderValue> {
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
