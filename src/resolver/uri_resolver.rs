//! The resolver, and the order of its steps (R53, R63): the operator's map, an explicit transport, documents of the
//! domain, DID documents, WebFinger, and https at the name's own host and path.

use super::{
    config::{MapTarget, ResolverConfig},
    did, did_web,
    document_cache::DocumentCache,
    domain_documents,
    operator_map::{MapMatch, match_operator_map, resolve_explicit_transport},
    resolution_limiter::ResolutionLimiter,
    resolution_step::{AgentLocation, ResolutionRequest, ResolutionStep},
    resolution_trace::{ResolutionTrace, StepOutcome},
    resolved_agent::ResolvedAgent,
    signature_status::{SignaturePolicy, SignatureSettings},
    webfinger,
};
use crate::{
    agent::{AgentUri, AgentUriAuthority, EndpointAccess, EndpointScheme},
    fault::{Fault, FaultCode, NamedTimeout, Result, TimeoutSource},
    net::{self, AddressPolicy, FetchClient, Url},
};
use std::{sync::Arc, time::Instant};

/// Maximum number of names that lead to another name.
const MAX_ALIASES: usize = 5;

/// The setting that bounds the resolution of one name.
const RESOLUTION_TIMEOUT: &str = "resolver.resolution_timeout";

/// Resolves names. There is one for each configuration, with a document cache of its own.
#[derive(Debug)]
pub struct UriResolver {
    config: ResolverConfig,
    network: net::NetworkConfig,
    map: Vec<(AgentUri, MapTarget)>,
    documents: DocumentCache,
    /// Separate limiters, so that callers and agents cannot exhaust each other's permits.
    caller_limiter: ResolutionLimiter,
    agent_limiter: ResolutionLimiter,
}

impl UriResolver {
    /// Creates a resolver that fetches from public addresses, and from those that its configuration lists.
    ///
    /// # Errors
    /// Returns every invalid setting, by its key in the section `resolver`, or those of `network`.
    pub fn new(
        config: &ResolverConfig,
        network: &net::NetworkConfig,
        policy: &AddressPolicy,
    ) -> std::result::Result<Self, Vec<String>> {
        let problems = config.problems();
        if !problems.is_empty() {
            return Err(problems);
        }
        let publisher_keys = config.load_publisher_keys().map_err(|why| vec![why])?;
        let signatures = SignatureSettings::new(config.signatures, publisher_keys.map(Arc::new));
        let client = FetchClient::build(network, Arc::new(policy.for_callers(&config.allowed_addresses)))?;
        Ok(Self {
            map: config.parse_map()?,
            documents: DocumentCache::new(config, client, signatures),
            caller_limiter: ResolutionLimiter::new(config.max_concurrency),
            agent_limiter: ResolutionLimiter::new(config.max_concurrency),
            config: config.clone(),
            network: network.clone(),
        })
    }

    /// Returns whether the resolver was created with this configuration. A file of keys may have changed since.
    pub fn has_config(&self, config: &ResolverConfig, network: &net::NetworkConfig) -> bool {
        self.config == *config && self.network == *network && config.publisher_jwks.is_none()
    }

    /// Resolves `uri`, in `version` if one is requested. `caller` identifies the caller for the concurrency limit.
    ///
    /// # Errors
    /// `NotFound` if there is no agent, `AgentUnavailable` if a source could not be read, `Timeout`, `AgentError` if
    /// names form a loop, `NotAcceptable` if the agent lacks the version, `Overloaded`, `InvalidInput`.
    pub async fn resolve(&self, uri: &AgentUri, version: Option<&str>, caller: &str) -> Result<ResolvedAgent> {
        self.resolve_within_timeout(&self.caller_limiter, caller, uri, version).await
    }

    /// Resolves the endpoint `uri` of an agent.
    ///
    /// # Errors
    /// As [`UriResolver::resolve`].
    pub async fn resolve_agent_endpoint(&self, uri: &AgentUri) -> Result<ResolvedAgent> {
        self.resolve_within_timeout(&self.agent_limiter, &uri.to_string(), uri, None).await
    }

    async fn resolve_within_timeout(
        &self,
        limiter: &ResolutionLimiter,
        caller: &str,
        uri: &AgentUri,
        version: Option<&str>,
    ) -> Result<ResolvedAgent> {
        let mut trace = ResolutionTrace::for_caller(caller);
        let resolution = async {
            let _permit = limiter.acquire(caller).await?;
            self.follow_aliases(uri, version, &mut trace).await
        };
        let timeout = self.config.resolution_timeout;
        let resolved = tokio::time::timeout(timeout.get(), resolution).await.unwrap_or_else(|_| {
            // The message does not say which step was slow: that is internal.
            let fault = Fault::new(FaultCode::Timeout, format!("The name could not be resolved within {timeout}"));
            let source = TimeoutSource::Setting(RESOLUTION_TIMEOUT.to_owned());
            let named = NamedTimeout { name: RESOLUTION_TIMEOUT, after: Some(timeout.to_string()), source };
            Err(fault.with_named_timeout(&named).with_setting(RESOLUTION_TIMEOUT))
        });
        match resolved {
            Ok(location) => Ok(ResolvedAgent::new(uri, location, trace)),
            Err(fault) => {
                let trace_line = trace.to_log_line();
                Err(if trace_line.is_empty() { fault } else { fault.with_detail(trace_line) })
            }
        }
    }

    /// Follows names until one resolves to an endpoint.
    async fn follow_aliases(
        &self,
        uri: &AgentUri,
        version: Option<&str>,
        trace: &mut ResolutionTrace,
    ) -> Result<AgentLocation> {
        let mut visited = vec![uri.without_query_and_fragment()];
        let mut request = ResolutionRequest::new(uri, version);
        let has_earlier_steps = |trace: &ResolutionTrace| trace.steps().len() > 1;
        loop {
            let step = self.resolve_step(&request, trace).await?;
            let next = match step {
                ResolutionStep::Location(location) => return Ok(*location),
                ResolutionStep::Alias(next) => next,
            };
            trace.begin_next_name();
            let name = next.without_query_and_fragment();
            if visited.contains(&name) || visited.len() > MAX_ALIASES {
                let why = if visited.contains(&name) { "the names form a loop" } else { "more than 5 names in a row" };
                trace.record_with_reason("name", &name, StepOutcome::Unusable, Some(why.to_owned()));
                return Err(Fault::new(
                    FaultCode::AgentError,
                    "The name resolves through a loop or too many other names",
                ));
            }
            if next.transport().is_some_and(|transport| !may_be_chosen_by_documents(transport))
                && has_earlier_steps(trace)
            {
                trace.record("name", &name, StepOutcome::Unusable);
                return Err(Fault::new(
                    FaultCode::AgentError,
                    "The name resolves to a transport that documents may not choose",
                ));
            }
            trace.record("name", &name, StepOutcome::Found);
            visited.push(name);
            let (version, requires_version) = (request.version.take(), request.requires_version);
            request = ResolutionRequest::new(&next, None);
            (request.version, request.requires_version) = (version.or(request.version), requires_version);
        }
    }

    /// Refuses the result of documents without a verified descriptor, where signatures are required.
    fn check_signature_required(&self, trace: &ResolutionTrace) -> Result<()> {
        let is_required = self.documents.signatures().policy == SignaturePolicy::Require;
        if !is_required || trace.is_name_verified() {
            return Ok(());
        }
        let message = "The name leads to no signed descriptor, and a signature is required here";
        Err(Fault::new(FaultCode::AgentError, message))
    }

    /// Resolves one name by one step. An endpoint or a name in the operator's map, and an explicit transport, need no
    /// signature.
    async fn resolve_step(&self, request: &ResolutionRequest, trace: &mut ResolutionTrace) -> Result<ResolutionStep> {
        let step = match match_operator_map(&self.map, request, trace)? {
            Some(MapMatch::Step(step)) => return Ok(step),
            Some(MapMatch::Descriptor(url, prefix_len)) => {
                let step =
                    domain_documents::resolve_descriptor(&self.documents, &url, request, prefix_len, trace).await?;
                // The operator's entry is final: no other step is tried.
                step.ok_or_else(|| unresolved_fault(trace))?
            }
            None => match request.uri.transport() {
                Some(protocol) => return resolve_explicit_transport(&request.uri, protocol, trace),
                None => self.resolve_by_publications(request, trace).await?,
            },
        };
        self.check_signature_required(trace)?;
        Ok(step)
    }

    /// Resolves a name by what its authority publishes, or falls back to https.
    async fn resolve_by_publications(
        &self,
        request: &ResolutionRequest,
        trace: &mut ResolutionTrace,
    ) -> Result<ResolutionStep> {
        let documents = &self.documents;
        let root = match request.uri.authority() {
            AgentUriAuthority::Did(text) => {
                if let Some(step) = did::resolve_did(documents, text, request, trace).await? {
                    return Ok(step);
                }
                did_web::document_root(text)
            }
            authority => {
                let root = authority.host_and_port().and_then(|host| Url::parse(&format!("https://{host}/")).ok());
                let root =
                    root.ok_or_else(|| Fault::new(FaultCode::InvalidInput, "The name's host is not valid in a URL"))?;
                if let Some(step) = domain_documents::resolve_agents_json(documents, &root, request, trace).await? {
                    return Ok(step);
                }
                Some(did_web::DocumentRoot { origin: root, path: Vec::new() })
            }
        };
        let Some(root) = root else { return Err(unresolved_fault(trace)) };
        // The path of a DID is a prefix of the name's path.
        let mut full_request = request.clone();
        full_request.segments = root.path.iter().chain(&request.segments).cloned().collect();
        if let Some(step) = domain_documents::resolve_descriptors(documents, &root.origin, &full_request, trace).await?
        {
            return Ok(step);
        }
        if let Some(step) = webfinger::resolve_webfinger(documents, &root.origin, request, trace).await? {
            return Ok(step);
        }
        self.fall_back_to_https(&root.origin, &full_request, trace)
    }

    /// Falls back to https at the name's own host and path, if nothing is published (R54).
    fn fall_back_to_https(
        &self,
        root: &Url,
        request: &ResolutionRequest,
        trace: &mut ResolutionTrace,
    ) -> Result<ResolutionStep> {
        // R95: the host has agents, and the name does not say which.
        if let Some(candidates) = trace.candidates() {
            let message = format!("The name leads to several agents (add one to its path: {})", candidates.join(", "));
            return Err(Fault::new(FaultCode::AmbiguousResponse, message));
        }
        if !self.config.https_fallback || trace.is_inconclusive() {
            return Err(unresolved_fault(trace));
        }
        let root = root.as_str().trim_end_matches('/');
        // The path is kept as written, including its version: the agent's server may read it.
        let endpoint = match request.uri.authority() {
            AgentUriAuthority::Host { .. } => format!("{root}{}", request.uri.path_and_query()),
            _ => request.append_rest(root, 0).map_err(|why| unresolved_fault(trace).with_detail(why))?,
        };
        trace.record("https", root, StepOutcome::Found);
        if request.requires_version {
            return Err(Fault::new(FaultCode::NotAcceptable, "The agent does not list its versions"));
        }
        Ok(ResolutionStep::Location(Box::new(AgentLocation { endpoint, ..AgentLocation::default() })))
    }

    /// Returns the expiry of a result for which no document was fetched.
    pub fn default_expiry(&self) -> Instant {
        Instant::now() + self.config.cache.default_ttl.get()
    }
}

/// Whether a document may lead to a name with this transport: to an encrypted address in the network.
fn may_be_chosen_by_documents(transport: &str) -> bool {
    EndpointScheme::from_name_transport(transport).is_some_and(|scheme| match scheme.access() {
        EndpointAccess::Network => scheme.is_encrypted_or_local(),
        EndpointAccess::MessageBroker
        | EndpointAccess::GatewayAccount
        | EndpointAccess::ThisMachine
        | EndpointAccess::Resolution => false,
    })
}

/// Returns the fault for a name without a result. It distinguishes "no agent" from "a source could not be read".
#[cold]
fn unresolved_fault(trace: &ResolutionTrace) -> Fault {
    if trace.is_inconclusive() {
        return Fault::new(FaultCode::AgentUnavailable, "The name cannot be resolved now: a source did not respond");
    }
    Fault::new(FaultCode::NotFound, "The name does not resolve to an agent")
}
