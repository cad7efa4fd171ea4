//! A route: everything about an agent that is compiled before calls arrive: contracts, limits, upstream, grants and
//! metrics.

use super::{
    a2a_config::A2aConfig,
    api::{AgentApi, AgentApiBuilder, protocol_without_api},
    caller_identity::CallerHeaders,
    content_negotiation,
    deprecation_headers::deprecation_headers,
    openai::OpenAiConfig,
    operation_path::OperationPath,
    path_router::RESERVED_SEGMENTS,
    requested_version::VersionTable,
    response::ErrorDetails,
    route_rule::{QueryPolicy, RouteRule},
};
use crate::{
    agent::{Agent, AgentEndpoint, AgentStatus, DeclaredFormats, DeclaredMembers, EndpointOrigin, media_types},
    auth::{Authorizer, GrantSet},
    contract::{self, AgentSuspendedChecks, DocumentBudget, DocumentChecks, OperationContract, SchemaLimits},
    fault::{Blame, Fault, FaultCode},
    limit::{self, AgentLimits, CallLimiter},
    registry::{CompileRoute, EndpointRules, EndpointTrust, OnDemandServers},
    telemetry::{AgentMetrics, EndpointCounts, EndpointState, LimitKind, Metrics, ShadowDenials},
    transport::{self, BreakerState, TransportConfig, UpstreamClient},
    values::ByteSize,
};
use http::{HeaderName, HeaderValue};
use std::sync::Arc;

/// Maximum number of warnings about one document.
const MAX_DOCUMENT_WARNINGS: usize = 20;

/// An agent, compiled for calls.
#[derive(Debug)]
pub struct Route {
    pub(super) agent: Arc<Agent>,
    pub(super) operations: Vec<CompiledOperation>,
    pub(super) grants: GrantSet,
    pub(super) limits: Arc<AgentLimits>,
    pub(super) upstream: transport::UpstreamSet,
    pub(super) versions: VersionTable,
    pub(super) metrics: Arc<AgentMetrics>,
    endpoint_trust: EndpointTrust,
    /// What operators should know about the document.
    document_warnings: Vec<String>,
    /// The checks of inputs and outputs that take long.
    pub(super) suspended_checks: AgentSuspendedChecks,
    /// Headers of every response, such as `Deprecation`.
    pub(super) response_headers: Vec<(HeaderName, HeaderValue)>,
    /// Whether calls of the agent become tasks, where tasks are configured.
    pub(super) runs_as_task: bool,
    /// Whether the agent can be called with `GET`.
    pub(super) allows_get: bool,
    /// Whether the agent's document has a card of A2A.
    pub(super) has_agent_card: bool,
    /// The bound of bodies for an agent with such a card, where it is set.
    pub(super) a2a_max_body_size: Option<ByteSize>,
    /// What happens with the query of a `POST`.
    pub(super) query_policy: QueryPolicy,
    /// Which parts of the agent's errors callers read.
    pub(super) error_details: ErrorDetails,
    /// Whether the log has the bodies of the agent's errors.
    pub(super) logs_error_bodies: bool,
    /// The fields that tell the agent who calls; `None` for most agents.
    pub(super) caller_headers: Option<CallerHeaders>,
    /// The agent's own API, if requests to it pass.
    pub(super) api: Option<Arc<AgentApi>>,
    /// How clients of OpenAI's API call the agent, where a rule says it.
    pub(super) openai: Option<Arc<OpenAiConfig>>,
}

/// An operation, compiled for calls.
#[derive(Debug)]
pub(super) struct CompiledOperation {
    pub(super) name: Arc<str>,
    pub(super) name_header: Option<HeaderValue>,
    pub(super) contract: OperationContract,
    /// The operation's own path, if it has one.
    pub(super) path: Option<OperationPath>,
    /// Whether the document says that the operation is at another server than the agent. It is not called.
    is_at_other_server: bool,
    /// Whether the input schema declares a member `operation`, which is then data.
    pub(super) declares_operation: bool,
    /// Whether the input schema declares a member `instruction`.
    pub(super) declares_instruction: bool,
    /// Whether callers can know the media types of the output.
    pub(super) declares_output: bool,
    /// Members of the output that would otherwise report a failure, and are data.
    pub(super) declared_members: DeclaredMembers,
    /// The formats that the operation declares.
    pub(super) formats: DeclaredFormats,
    /// The formats to which a body is restricted; empty for no restriction but that of the schema.
    pub(super) required_inputs: Arc<[Box<str>]>,
}

impl CompiledOperation {
    /// Returns whether a reply with this media type is in a declared format that is not JSON, to which the output schema
    /// does not apply.
    pub(super) fn is_other_output(&self, media: Option<&HeaderValue>) -> bool {
        let Some(media) = media.and_then(|media| media.to_str().ok()) else { return false };
        if self.formats.outputs.is_empty() || content_negotiation::is_json_media_type(media) {
            return false;
        }
        let essence = media.split(';').next().unwrap_or_default().trim();
        media_types(&self.formats.outputs).any(|format| format.eq_ignore_ascii_case(essence))
    }
}

/// Compiles routes; one for each configuration.
#[derive(Debug)]
pub struct AgentRouteCompiler {
    /// How bodies are validated.
    pub contract: contract::ContractConfig,
    /// The default transport settings.
    pub defaults: TransportConfig,
    /// Bounds for calls to agents with an A2A card.
    pub a2a: A2aConfig,
    /// The settings for matching agents.
    pub rules: Vec<RouteRule>,
    /// Authentication and authorisation.
    pub auth: Arc<Authorizer>,
    /// Whether the log has the bodies of agents' errors.
    pub logs_error_bodies: bool,
    /// The limits, which outlive configurations.
    pub limits: Arc<CallLimiter>,
    /// The transport to the agents.
    pub transport: UpstreamClient,
    /// The metrics.
    pub metrics: Arc<Metrics>,
    /// The endpoints that documents may name.
    pub endpoint_rules: EndpointRules,
    /// The endpoints to which the operator's map of names leads.
    pub named_endpoints: Vec<AgentEndpoint>,
}

impl CompileRoute for AgentRouteCompiler {
    type Route = Route;

    fn compile(&self, agent: Arc<Agent>, budget: &DocumentBudget<'_>) -> Result<Route, Vec<String>> {
        let mut problems = Vec::new();
        let endpoint = self.rules_for(&agent).filter_map(|rule| rule.endpoint.clone()).last();
        let agent = match &endpoint {
            Some(endpoint) => transport::with_default_contract(agent, endpoint),
            None => agent,
        };
        let mut operations = Vec::with_capacity(agent.operations.len());
        let mut document_warnings = [&agent.ignored_members, &*agent.conversion_notes].concat();
        let contract_config =
            self.contract.with_rules(self.rules_for(&agent).filter_map(|rule| rule.contract.as_ref()));
        for (index, operation) in agent.operations.iter().enumerate() {
            let path = operation.endpoint.as_deref().map(|address| OperationPath::compile(&agent.endpoint, address));
            let path = path.transpose().map_err(|why| format!("operations[{index}].{why}"));
            let is_at_other_server = path.is_err();
            // Publishers are told at once. A source may have the member for a purpose of its own, and documents of an
            // earlier version may be stored.
            let path = path.unwrap_or_else(|why| {
                document_warnings.push(format!("{why}; the operation cannot be called"));
                None
            });
            match OperationContract::compile(operation, &contract_config, budget) {
                Ok(contract) => operations.push(CompiledOperation {
                    name: Arc::clone(&operation.name),
                    name_header: HeaderValue::from_str(&operation.name).ok().filter(|name| !name.is_empty()),
                    declares_output: operation.formats.determine_output(contract.output.is_some()),
                    contract,
                    path,
                    is_at_other_server,
                    declares_operation: declares_property(operation.inputs.as_deref(), "operation"),
                    declares_instruction: declares_property(operation.inputs.as_deref(), "instruction"),
                    declared_members: operation.declared_members(),
                    formats: operation.formats.clone(),
                    required_inputs: operation.required_inputs(),
                }),
                Err(errors) => problems.extend(errors.into_iter().map(|why| format!("operations[{index}].{why}"))),
            }
        }
        for (index, operation) in operations.iter().enumerate() {
            let reports = operation.contract.unsupported().iter();
            document_warnings.extend(reports.map(|why| format!("operations[{index}].{why}")));
        }
        for name in RESERVED_SEGMENTS.into_iter().filter(|name| agent.operation(name).is_some()) {
            document_warnings.push(format!("the operation {name} is called at /agents/{}/invoke/{name}", agent.id));
        }
        let findings = contract_config.document_checks().check(&agent, |index| {
            operations.get(index).map(|operation| operation.contract.schemas()).unwrap_or_default()
        });
        problems.extend(findings.refusals);
        document_warnings.extend(findings.warnings);
        document_warnings.truncate(MAX_DOCUMENT_WARNINGS);
        let mut settings = self.defaults.clone();
        let (mut rate, mut concurrency, mut shared_concurrency, mut adaptive) = (None, None, None, None);
        let mut runs_as_task = None;
        let mut allows_get = true;
        let (mut authentication, mut query_policy, mut error_details) = (None, None, None);
        let (mut api, mut openai, mut a2a) = (None, None, &self.a2a);
        for rule in self.rules_for(&agent) {
            settings = rule.settings.with_fallback(&settings);
            rate = rule.rate_limit.or(rate);
            concurrency = rule.max_concurrency.or(concurrency);
            shared_concurrency = rule.shared_max_concurrency.or(shared_concurrency);
            adaptive = rule.adaptive_concurrency.or(adaptive);
            runs_as_task = rule.runs_as_task.or(runs_as_task);
            allows_get = rule.allows_get.unwrap_or(allows_get);
            authentication = rule.authentication.or(authentication);
            query_policy = rule.query.or(query_policy);
            error_details = rule.error_details.as_ref().or(error_details);
            api = rule.api.as_deref().map(|config| (config, rule.openapi.as_ref())).or(api);
            openai = rule.openai.as_ref().or(openai);
            a2a = rule.a2a.as_ref().unwrap_or(a2a);
        }
        settings.endpoint = endpoint;
        let agent = authentication.unwrap_or_default().apply(agent);
        let endpoint_trust = self.endpoint_rules.check(&agent).unwrap_or_else(|why| {
            problems.push(why);
            EndpointTrust::Unlisted
        });
        settings.public_addresses_only = endpoint_trust == EndpointTrust::Unlisted;
        let upstream = match self.transport.compile_upstream_set(&agent, &settings) {
            Ok(upstream) if problems.is_empty() => upstream,
            Ok(_) => return Err(problems),
            Err(errors) => {
                problems.extend(errors);
                return Err(problems);
            }
        };
        let api = api.map(|(config, openapi)| {
            let (agent, transport, settings) = (&*agent, &self.transport, &settings);
            AgentApiBuilder { config, openapi, agent, transport, settings }.build()
        });
        let api = api.transpose().or_else(|why| {
            let mut why: Vec<String> = why.iter().map(|why| format!("the API does not pass: {why}")).collect();
            // There is no other way to call an agent of a protocol.
            if agent.protocol.is_some() {
                return Err(why);
            }
            document_warnings.append(&mut why);
            Ok(None)
        })?;
        let concurrency = concurrency.or(upstream.max_concurrency());
        let metrics = self.metrics.for_agent(&agent);
        upstream.set_metrics(&metrics);
        let limit_settings = limit::AgentLimitSettings {
            declared_rates: agent.rate_limits.clone(),
            rate_limit: rate,
            max_concurrency: concurrency,
            shared_max_concurrency: shared_concurrency,
            adaptive_concurrency: adaptive,
        };
        let limits = self.limits.register_agent(&agent.id, limit_settings);
        limits.set_metrics(&metrics);
        Ok(Route {
            grants: self.auth.grants_for_agent(&agent),
            limits,
            metrics,
            response_headers: deprecation_headers(&agent),
            versions: VersionTable::from_agent(&agent),
            endpoint_trust,
            document_warnings,
            suspended_checks: AgentSuspendedChecks::default(),
            runs_as_task: runs_as_task.unwrap_or(false),
            allows_get,
            has_agent_card: agent.has_agent_card,
            a2a_max_body_size: a2a.max_body_size,
            query_policy: query_policy.unwrap_or_default(),
            error_details: error_details.cloned().unwrap_or_default(),
            logs_error_bodies: self.logs_error_bodies,
            operations,
            caller_headers: CallerHeaders::compile(settings.caller_headers.as_ref()),
            api: api.map(Arc::new),
            openai: openai.cloned(),
            upstream,
            agent,
        })
    }

    fn additional_servers(&self, route: &Route) -> Vec<EndpointOrigin> {
        let own = EndpointOrigin::from(&route.agent.endpoint);
        let upstreams = std::iter::once(&route.upstream).chain(route.api.iter().map(|api| api.upstream()));
        let addresses = upstreams.flat_map(|upstream| upstream.breaker_states());
        let endpoints = addresses.filter_map(|(address, _)| address.parse::<AgentEndpoint>().ok());
        endpoints.map(|endpoint| EndpointOrigin::from(&endpoint)).filter(|server| *server != own).collect()
    }

    fn operator_servers(&self) -> Vec<EndpointOrigin> {
        self.named_endpoints.iter().map(EndpointOrigin::from).collect()
    }

    fn on_demand_servers(&self) -> OnDemandServers {
        self.endpoint_rules.on_demand_servers().clone()
    }

    fn endpoint_trust(&self, route: &Route) -> EndpointTrust {
        route.endpoint_trust
    }

    fn unsupported_reason(&self, agent: &Agent) -> Option<String> {
        let protocol = agent.protocol?;
        let rules = self.rules.iter().filter(|rule| rule.agents.iter().any(|glob| glob.matches(agent.id.as_str())));
        let api = rules.filter_map(|rule| rule.api.as_deref()).next_back();
        (!api.is_some_and(|api| api.passes(protocol))).then(|| protocol_without_api(protocol))
    }

    fn schema_limits(&self) -> SchemaLimits {
        self.contract.schema_limits()
    }

    fn document_checks(&self) -> DocumentChecks {
        self.contract.document_checks()
    }

    fn document_warnings<'r>(&self, route: &'r Route) -> &'r [String] {
        &route.document_warnings
    }

    fn is_partly_checked(&self, route: &Route) -> bool {
        route.operations.iter().any(|operation| !operation.contract.unsupported().is_empty())
    }
}

impl AgentRouteCompiler {
    /// Returns the rules that match an agent, in their order.
    fn rules_for<'r>(&'r self, agent: &Agent) -> impl Iterator<Item = &'r RouteRule> {
        let id = agent.id.clone();
        self.rules.iter().filter(move |rule| rule.agents.iter().any(|glob| glob.matches(id.as_str())))
    }
}

impl Route {
    /// Returns the agent.
    pub fn agent(&self) -> &Arc<Agent> {
        &self.agent
    }

    /// Counts a call that rules in shadow mode would have refused.
    pub(super) fn record_shadow_denials(&self, denials: ShadowDenials) {
        denials.rules().for_each(|rule| self.metrics.record_shadow_denial(rule));
    }

    /// Returns what operators should know about the agent's document.
    pub fn document_warnings(&self) -> &[String] {
        &self.document_warnings
    }

    /// Returns the agent's endpoints.
    pub fn upstream(&self) -> &transport::UpstreamSet {
        &self.upstream
    }

    /// Counts a long check that was refused because its caller has its share.
    #[cold]
    pub(super) fn record_refused_check(&self, fault: &Fault) {
        if fault.code() == FaultCode::RateLimited {
            self.metrics.record_limited_request(LimitKind::ConcurrencyShare);
        }
    }

    /// Returns the agent's limits.
    pub fn limits(&self) -> &AgentLimits {
        &self.limits
    }

    /// Returns the agent's metrics.
    pub fn metrics(&self) -> &AgentMetrics {
        &self.metrics
    }

    /// Returns the number of calls that the agent is processing.
    pub fn in_flight(&self) -> u32 {
        self.limits.in_flight()
    }

    /// Checks that the agent accepts calls.
    ///
    /// # Errors
    /// The agent is inactive. One that was made inactive fails no call: the caller should not call it.
    pub(super) fn ensure_active(&self) -> Result<(), Fault> {
        if self.agent.status != AgentStatus::Inactive {
            return Ok(());
        }
        let fault = Fault::new(FaultCode::AgentUnavailable, "The agent is not active");
        Err(if self.agent.is_unavailable { fault } else { fault.with_blame(Blame::Caller) })
    }

    /// Returns the agent's endpoints with the state of their circuit breakers, the agent's own endpoint first.
    pub fn endpoints(&self) -> impl Iterator<Item = (&str, BreakerState)> {
        self.upstream.breaker_states()
    }

    /// Returns the metrics of the agent, and how many of its endpoints are up and down.
    pub fn endpoint_counts(&self) -> (&AgentMetrics, EndpointCounts) {
        let mut counts = EndpointCounts::default();
        for (_, breaker) in self.endpoints() {
            let state = if breaker == BreakerState::Closed { EndpointState::Up } else { EndpointState::Down };
            if let Some(count) = counts.get_mut(state as usize) {
                *count += 1;
            }
        }
        (&self.metrics, counts)
    }

    /// Returns the operation at `at`, an index that was found in this route.
    pub(super) fn operation(&self, index: usize) -> &CompiledOperation {
        self.operations.get(index).unwrap_or_else(|| unreachable!("the index was found in this route"))
    }

    /// Returns the only operation, if there is exactly one.
    pub(super) fn only_operation(&self) -> Option<&CompiledOperation> {
        match self.operations.as_slice() {
            [only] => Some(only),
            _ => None,
        }
    }

    /// Returns whether the operation at `index` has a name: an agent with one operation needs none.
    pub(super) fn has_named_operation(&self, index: usize) -> bool {
        self.operations.get(index).is_some_and(|operation| !operation.name.is_empty())
    }

    /// Returns the index of the operation whose contract refuses an input: `operation` where the call named it, or the
    /// only one of the agent. `None` if the operation has no name: the document has its contract at the top then.
    pub(super) fn refusing_operation(&self, operation: Option<usize>) -> Option<usize> {
        let only = (self.operations.len() == 1).then_some(0);
        operation.or(only).filter(|index| self.has_named_operation(*index))
    }

    /// Returns the index of the operation called `name`, if it can be called.
    pub(super) fn operation_index(&self, name: &str) -> Option<usize> {
        let index = self.operations.iter().position(|operation| !name.is_empty() && &*operation.name == name);
        index.filter(|index| self.callable_operation(*index).is_ok())
    }

    /// Returns `index` if the operation there is at the agent's server.
    ///
    /// # Errors
    /// The document says that the operation is elsewhere.
    pub(super) fn callable_operation(&self, index: usize) -> Result<usize, Fault> {
        if self.operations.get(index).is_some_and(|operation| operation.is_at_other_server) {
            let message = "The operation is at another server than the agent, and cannot be called";
            return Err(Fault::new(FaultCode::CapabilityNotFound, message));
        }
        Ok(index)
    }

    /// Returns the names of the operations, for a caller that may call the agent.
    pub(super) fn operation_names(&self) -> String {
        let callable = self.operations.iter().filter(|operation| !operation.is_at_other_server);
        let names: Vec<&str> = callable.map(|operation| &*operation.name).take(20).collect();
        names.join(", ")
    }
}

fn declares_property(schema: Option<&serde_json::Value>, name: &str) -> bool {
    schema.and_then(|schema| schema.get("properties")).is_some_and(|properties| properties.get(name).is_some())
}

/// Returns whether a body with this media type is parsed as JSON.
pub(super) fn is_json_content(media: Option<&HeaderValue>) -> bool {
    media.and_then(|media| media.to_str().ok()).is_some_and(content_negotiation::is_json_media_type)
}
