//! The list of checks. Its stages are types, each made only by the one before: [`AuthorizedCall`] (steps 5 to 7, and
//! what the head says of step 8), [`CheckedCall`] (step 8) and [`Admitted`] (step 10). A check that is added here holds
//! for every front end.

use super::{
    admission_recorder::AdmissionRecorder,
    admission_request::{AdmissionRequest, CallSource, InputSource},
    agent_authorization::{
        AgentAuthorization, CallerContext, LocalAccess, LocalCaller, RouteAndCaller, rate_limit_account,
    },
    body_bound::BodyBound,
    call_stages::{AuthorizedCall, CheckedCall},
    incoming_body::IncomingBody,
    input_validation::{CallInput, InputReader, named_operation},
    shadow_rules::ShadowedCall,
};
use crate::{
    auth::Caller,
    explain::DecisionStep,
    fault::Result,
    gateway::{
        call_parameters::{CallDeadline, call_deadline, call_fields, input_from_query, session_hash},
        caller_identity::ToldCall,
        content_negotiation,
        delegation::ChainHop,
        gateway_state::{ConfigSnapshot, Gateway},
        requested_version::{CompiledVersion, RequestedVersion, declares_version_input},
        response::ReadErrors,
        route::{CompiledOperation, Route},
    },
    limit::{LatencySample, Permit, RateLimitStatus, ShadowHolds},
    telemetry::ShadowDenials,
    trace::CallPhase,
    transport::{self, Admission, CallTimeout},
    values::{ClientKey, StoreAnswer},
};
use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use memchr::memmem::Finder;
use std::{
    net::IpAddr,
    num::NonZeroU32,
    sync::{Arc, LazyLock, OnceLock},
};

/// The admission of the calls of one configuration.
#[derive(Clone, Copy)]
pub(in crate::gateway) struct AdmissionPipeline<'a> {
    pub(in crate::gateway) gateway: &'a Gateway,
    pub(in crate::gateway) config: &'a ConfigSnapshot,
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
    deadline: CallDeadline,
    session_hash: Option<u64>,
    delegation_chain: Option<HeaderValue>,
    caller_headers: Vec<(HeaderName, HeaderValue)>,
    permit: Permit,
    /// Whether the input is a request of JSON-RPC, or consists of messages.
    reads_json_rpc: bool,
    /// What is called instead of the agent's endpoints.
    upstream: Option<transport::UpstreamSet>,
    /// The call in the concurrency limits in shadow mode.
    _shadow: Option<Box<ShadowHolds>>,
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
        record.begin_step(DecisionStep::Authentication);
        let found = authorization.find_and_authorize(target.agent, &request.caller).await;
        let caller = match &found {
            Ok(found) => Some(&found.caller),
            Err(refusal) => refusal.caller.as_ref(),
        };
        // The caller is recorded also when it is refused.
        if let Some(caller) = caller {
            record.record_caller(caller);
        }
        let RouteAndCaller { route, caller } = found.map_err(|refusal| {
            record.record_access_refusal(refusal.rule, target.agent);
            refusal.fault
        })?;
        record.record_route(&route);
        record.begin_step(DecisionStep::LoadShedding);
        self.check_load(record, &caller)?;
        record.begin_step(DecisionStep::WebPage);
        // The origins of WebSockets are checked in their handshakes, and those of pipelines once for all steps.
        if request.source.may_be_page() {
            authorization.check_page(&request.caller, &caller)?;
        } else {
            authorization.check_host(&request.caller, &caller)?;
        }
        authorization.check_local_page(&request.caller, &route)?;
        record.begin_step(DecisionStep::AgentStatus);
        route.ensure_active()?;
        record.begin_step(DecisionStep::RateLimits);
        let account = rate_limit_account(&caller, address);
        let client = account.client();
        let rate_limit_status = if record.is_dry_run() {
            let inspection =
                Box::pin(gateway.limits.inspect_for_calls(&route.limits, &account, request.calls).into_future());
            record.record_limits(inspection.await)?
        } else {
            gateway.limits.acquire_for_calls(&route.limits, &account, request.calls).await?
        };
        if let Some(shadow) = config.shadow.as_ref().filter(|_| !record.is_dry_run()) {
            let call = ShadowedCall { route: &route, caller: &caller, account: &account, calls: request.calls };
            record.record_shadow_denials(shadow.judge(&call));
        }
        record.begin_step(DecisionStep::RequestFields);
        let fields = call_fields(headers);
        let session_hash = session_hash(fields, request.query, &caller)?;
        let hop = ChainHop { caller: &caller.id, agent: route.agent.id.as_str(), call: record.call_id() };
        let delegation_chain = request.extend_delegation_chain(config, &hop)?;
        let told = ToldCall {
            caller: &caller,
            agent: route.agent.id.as_str(),
            call_id: record.call_id(),
            signer: config.caller_tokens.as_deref(),
        };
        let caller_headers = request.caller_headers(&route, &told)?;
        let idempotency_key = request.idempotency_key(config)?;
        record.begin_step(DecisionStep::Operation);
        let has_operation = request.source.has_operation();
        let named_operation =
            if has_operation { named_operation(&route, target.operation_of(&route.agent), fields)? } else { None };
        let declares_version =
            has_operation && request.query.is_some() && declares_version_input(&route.agent, named_operation);
        record.begin_step(DecisionStep::Version);
        let query = request.query.filter(|_| has_operation);
        let requested = RequestedVersion::from_request(target.version, query, fields, declares_version)?;
        let version = route.versions.select(&requested)?;
        let requested_version =
            version.as_ref().filter(|_| requested.is_specified()).and_then(|version| version.label.clone());
        record.begin_step(DecisionStep::ResponseFormat);
        if request.source == CallSource::HttpRequest
            && let Some(at) = named_operation
            && let Some(operation) = route.operations.get(at).filter(|operation| operation.declares_output)
        {
            let checked = content_negotiation::check_accept(headers, &operation.formats);
            checked.inspect_err(|_| record.record_operation(at))?;
        }
        record.begin_step(DecisionStep::Deadline);
        let deadline = call_deadline(record.arrived_at(), route.upstream.timeouts(), fields)?;
        record.record_deadline(deadline.source);
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
            caller_headers,
            idempotency_key,
            upstream: None,
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
        let timeout = authorized.deadline.timeout;
        self.read_and_check_input(record, authorized, source).await.map_err(|fault| timeout.name_in(fault))
    }

    async fn read_and_check_input(
        &self,
        record: &mut impl AdmissionRecorder,
        authorized: AuthorizedCall,
        source: InputSource<'_>,
    ) -> Result<CheckedCall> {
        record.enter_phase(Some(CallPhase::Contract));
        record.begin_step(DecisionStep::Input);
        let reader = InputReader {
            unenforced_violations: record.unenforced_violations(),
            ..self.input_reader(&authorized, record.buffered_input())
        };
        let (operation, input) = match source {
            InputSource::Body(request) => {
                let mut incoming = IncomingBody::new(request, authorized.deadline());
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

    /// Lets the input of a request to an agent's API pass unchecked.
    pub(in crate::gateway) fn pass_input(&self, authorized: AuthorizedCall, input: CallInput) -> CheckedCall {
        CheckedCall { authorized, operation: 0, input }
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
        record.begin_step(DecisionStep::Concurrency);
        let CheckedCall { authorized, operation, input } = checked;
        let permit = self.gateway.limits.acquire_permit(&authorized.route.limits, authorized.client).await?;
        let shadow = self.config.shadow.as_ref().and_then(|shadow| {
            let mut denials = ShadowDenials::default();
            let holds = shadow.hold(&authorized.route, authorized.client, &mut denials);
            record.record_shadow_denials(denials);
            holds
        });
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
            caller_headers: authorized.caller_headers,
            permit,
            reads_json_rpc: may_be_json_rpc(&input),
            upstream: authorized.upstream,
            _shadow: shadow,
        };
        record.enter_phase(None);
        record.begin_step(DecisionStep::Agent);
        Ok(AdmittedCall { admitted, input })
    }

    /// Decides as [`AdmissionPipeline::admit`] would now, and admits nothing. Returns the setting for which the
    /// call would wait for its permit, if it would.
    ///
    /// # Errors
    /// As [`AdmissionPipeline::admit`].
    pub(in crate::gateway) fn inspect_admission(
        &self,
        record: &mut impl AdmissionRecorder,
        checked: &CheckedCall,
    ) -> Result<Option<&'static str>> {
        record.begin_step(DecisionStep::Concurrency);
        let AuthorizedCall { route, client, .. } = &checked.authorized;
        self.gateway.limits.inspect_permit(&route.limits, *client)
    }

    /// Charges the rate limits for one more call of an admitted batch.
    ///
    /// # Errors
    /// 429.
    pub(in crate::gateway) fn charge_batch_item<'a>(&'a self, admitted: &'a Admitted) -> StoreAnswer<'a, Result<()>> {
        let limits = &self.gateway.limits;
        let account = rate_limit_account(&admitted.caller, admitted.peer);
        if let Some(shadow) = &self.config.shadow {
            let (route, caller) = (&admitted.route, &admitted.caller);
            // The item has no entry of its own in the access log.
            let _ = shadow.judge(&ShadowedCall { route, caller, account: &account, calls: NonZeroU32::MIN });
        }
        limits.acquire_for_calls(&admitted.route.limits, &account, NonZeroU32::MIN).map(|result| result.map(drop))
    }

    /// Checks a call of this caller against load shedding, before it is counted or its body is read.
    ///
    /// # Errors
    /// 503 when the call is shed.
    pub(in crate::gateway) fn check_load(&self, record: &mut impl AdmissionRecorder, caller: &Caller) -> Result<()> {
        if record.is_exempt_from_shedding() {
            return Ok(());
        }
        if record.is_dry_run() {
            return record.record_shed_share(self.gateway.limits.inspect_shedding(caller.tier.as_deref()));
        }
        self.gateway.limits.shed_by_tier(caller.tier.as_deref())
    }

    /// Refuses a caller whose rate or quota is exhausted already, whatever it calls. Charges nothing.
    ///
    /// # Errors
    /// 429.
    pub(in crate::gateway) async fn check_caller_limits(
        &self,
        record: &mut impl AdmissionRecorder,
        caller: &Caller,
        address: IpAddr,
    ) -> Result<()> {
        let (limits, account) = (&self.gateway.limits, rate_limit_account(caller, address));
        if !record.is_dry_run() {
            return limits.check_caller(&account).await;
        }
        let inspection = limits.inspect_for_caller(&account).await;
        // The limits of a caller that passes are recorded with those of the agent.
        if inspection.result.is_err() { record.record_limits(inspection).map(drop) } else { Ok(()) }
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
        record.begin_step(DecisionStep::Authentication);
        let caller = auth.authenticate_or_anonymous(&context.presented_credentials(), access.allow_anonymous).await?;
        record.record_caller(&caller);
        record.begin_step(DecisionStep::LoadShedding);
        self.check_load(record, &caller)?;
        record.begin_step(DecisionStep::WebPage);
        let authorization = AgentAuthorization { gateway: self.gateway, config: self.config };
        if access.changes_state {
            authorization.check_page(&context, &caller)?;
        } else {
            authorization.check_host(&context, &caller)?;
        }
        let limits = &self.gateway.limits;
        record.begin_step(DecisionStep::RateLimits);
        let account = rate_limit_account(&caller, context.address);
        let rate_limit_status = limits.acquire_for_directory(&account, access.is_search).await?;
        record.begin_step(DecisionStep::OwnResource);
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
            streamed_bound: BodyBound::of_streamed(&authorized.route, self.config.max_streamed_body_size),
            client: authorized.client,
            named_operation: authorized.named_operation,
            deadline: authorized.deadline(),
            buffered_input,
            unenforced_violations: None,
        }
    }
}

/// Returns whether an input is a request of JSON-RPC, as far as it was read, or consists of messages that follow.
fn may_be_json_rpc(input: &CallInput) -> bool {
    static MEMBER: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"jsonrpc\""));
    match input {
        // The handshake of a WebSocket.
        CallInput::Complete(bytes) if bytes.is_empty() => true,
        CallInput::Complete(bytes) | CallInput::Streamed(bytes) => MEMBER.find(bytes).is_some(),
        CallInput::Batch(items) => items.iter().any(|(item, _)| MEMBER.find(item).is_some()),
    }
}

/// An admitted call, and its input.
pub(in crate::gateway) struct AdmittedCall {
    pub(in crate::gateway) admitted: Admitted,
    pub(in crate::gateway) input: CallInput,
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

    /// Returns which protocols' errors the caller reads itself at this agent.
    pub(in crate::gateway) fn read_errors(&self) -> ReadErrors {
        ReadErrors { json_rpc: self.reads_json_rpc, a2a: self.route.has_agent_card }
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

    /// Returns what bounds the time of the call.
    pub(in crate::gateway) fn deadline_timeout(&self) -> CallTimeout {
        self.deadline.timeout
    }

    /// Returns the fields that tell the agent who calls.
    pub(in crate::gateway) fn caller_headers(&self) -> &[(HeaderName, HeaderValue)] {
        &self.caller_headers
    }
}

impl Admission for Admitted {
    fn upstream_set(&self) -> &transport::UpstreamSet {
        self.upstream.as_ref().unwrap_or(&self.route.upstream)
    }

    fn deadline(&self) -> tokio::time::Instant {
        self.deadline.at.into()
    }

    fn session_hash(&self) -> Option<u64> {
        self.session_hash
    }
}
