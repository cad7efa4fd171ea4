//! The API of one agent, compiled when the agent's document is read: where it is, and which requests pass.

use super::{
    api_path::check_api_path,
    config::{ApiConfig, ApiSessionConfig},
    json_url_rewrite::UrlPointer,
    matched_route::{MatchedOperation, MatchedRoute},
    openapi::OpenApiSource,
    preset::{ApiPreset, PresetBase, PresetRoutes},
    route_table::ApiRouteTable,
    session_key::SessionKey,
    url_mapping::{UrlMapping, origin_of},
};
use crate::{
    agent::{AddressSyntax, Agent, AgentEndpoint, EndpointOrigin},
    fault::Fault,
    gateway::path_router::ApiRequest,
    transport::{TransportConfig, UpstreamClient, UpstreamSet, forwarded_header_problem},
    values::{ByteSize, join_path, shown_url},
};
use http::{HeaderName, Method, Uri, uri::PathAndQuery};
use std::{ops::RangeInclusive, sync::Arc};

/// The most pointers of one API.
const MAX_POINTERS: usize = 32;
/// The sizes that `max_rewrite` and `max_checked_body` may have.
const REWRITE_SIZES: RangeInclusive<usize> = 1 << 10..=16 << 20;
const CHECKED_SIZES: RangeInclusive<usize> = 1 << 10..=64 << 20;
/// The seconds that `openapi_interval` may have.
const INTERVALS: RangeInclusive<u64> = 1..=86_400;

/// The API of one agent.
#[derive(Debug)]
pub(in crate::gateway) struct AgentApi {
    pub(super) routes: ApiRouteTable,
    /// The OpenAPI document whose operations pass between the operator's routes and those of the preset.
    openapi: Option<Arc<OpenApiSource>>,
    pub(super) upstream: UpstreamSet,
    /// `https://host:port` of the API, at each of its endpoints.
    pub(super) origins: Box<[Box<str>]>,
    /// Path of the base, without a slash at its end; empty for the root.
    pub(super) base_path: Box<str>,
    pub(super) session: Option<SessionKey>,
    pub(super) url_pointers: Box<[UrlPointer]>,
    /// Whether the agent serves its card here, which must not lead past the gateway.
    pub(super) has_card: bool,
    pub(super) max_rewrite: usize,
    pub(super) max_body_size: Option<ByteSize>,
    /// Of a body that is checked.
    pub(super) max_checked_body: ByteSize,
    /// Fields of the framework that callers receive although their names look like those of an infrastructure.
    pub(super) reply_headers: Box<[HeaderName]>,
}

/// What the API of an agent is compiled from.
pub(in crate::gateway) struct AgentApiBuilder<'a> {
    pub(in crate::gateway) config: &'a ApiConfig,
    /// The document that `config` names.
    pub(in crate::gateway) openapi: Option<&'a Arc<OpenApiSource>>,
    pub(in crate::gateway) agent: &'a Agent,
    pub(in crate::gateway) transport: &'a UpstreamClient,
    pub(in crate::gateway) settings: &'a TransportConfig,
}

/// The settings of an API that do not depend on the agent.
struct ApiSettings {
    routes: ApiRouteTable,
    session: Option<SessionKey>,
    url_pointers: Box<[UrlPointer]>,
}

/// Returns every reason why a setting `api` is unusable for any agent, each prefixed with its member.
pub fn api_config_problems(config: &ApiConfig) -> Vec<String> {
    let mut problems = compile_settings(config).err().unwrap_or_default();
    let base = config.base.as_ref().map(|base| base.replace("{id}", "id"));
    problems.extend(base.and_then(|base| parse_base(&base).err()).map(|why| format!("base: {why}")));
    if !REWRITE_SIZES.contains(&config.max_rewrite.get()) {
        problems.push("max_rewrite: is not between 1KiB and 16MiB".to_owned());
    }
    if !CHECKED_SIZES.contains(&config.max_checked_body.get()) {
        problems.push("max_checked_body: is not between 1KiB and 64MiB".to_owned());
    }
    if !INTERVALS.contains(&config.openapi_interval.get().as_secs()) {
        problems.push("openapi_interval: is not between 1s and 1d".to_owned());
    }
    problems
}

fn compile_settings(config: &ApiConfig) -> Result<ApiSettings, Vec<String>> {
    let mut problems = Vec::new();
    let preset = config.preset.map(ApiPreset::routes);
    if config.routes.is_empty() && config.preset.is_none() && config.openapi.is_none() {
        problems.push("routes: there is none (list routes, name an OpenAPI document, or a preset)".to_owned());
    }
    let routes = ApiRouteTable::compile(&config.routes, config.preset).map_err(|errors| problems.extend(errors)).ok();
    // The parameters of a document may be unknown yet.
    let known_routes = routes.as_ref().filter(|_| config.openapi.is_none());
    let session = compile_session(config, preset.as_ref(), known_routes);
    let session = session.map_err(|why| problems.push(format!("session{why}"))).ok().flatten();
    let of_preset = || preset.iter().flat_map(|preset| preset.url_pointers.iter().copied()).collect();
    let texts: Vec<&str> =
        if config.rewrite.is_empty() { of_preset() } else { config.rewrite.iter().map(String::as_str).collect() };
    if texts.len() > MAX_POINTERS {
        problems.push(format!("rewrite: has more than {MAX_POINTERS} pointers"));
    }
    let mut url_pointers = Vec::with_capacity(texts.len());
    for (index, text) in texts.iter().enumerate().take(MAX_POINTERS) {
        match UrlPointer::compile(text) {
            Ok(pointer) => url_pointers.push(pointer),
            Err(why) => problems.push(format!("rewrite[{index}]: '{text}' {why}")),
        }
    }
    match routes {
        Some(routes) if problems.is_empty() => Ok(ApiSettings { routes, session, url_pointers: url_pointers.into() }),
        _ => Err(problems),
    }
}

fn compile_session(
    config: &ApiConfig,
    preset: Option<&PresetRoutes>,
    routes: Option<&ApiRouteTable>,
) -> Result<Option<SessionKey>, String> {
    let Some(ApiSessionConfig { header, query, path }) = &config.session else {
        return Ok(preset.and_then(|preset| preset.session).map(SessionKey::from));
    };
    match (header, query, path) {
        (Some(name), None, None) => {
            let problem = forwarded_header_problem(name).map(|why| format!(".header: {why}"));
            let name = name.parse().map_err(|_| format!(".header: '{name}' is not a header name"))?;
            problem.map_or(Ok(Some(SessionKey::Header(name))), Err)
        }
        (None, Some(name), None) => Ok(Some(SessionKey::Query(name.as_str().into()))),
        (None, None, Some(name)) if routes.is_none_or(|routes| routes.has_parameter(name)) => {
            Ok(Some(SessionKey::Path(name.as_str().into())))
        }
        (None, None, Some(name)) => Err(format!(".path: no route has {{{name}}}")),
        _ => Err(": set one of header, query and path".to_owned()),
    }
}

impl AgentApiBuilder<'_> {
    /// Compiles the API.
    ///
    /// # Errors
    /// Every reason why the API cannot be served for this agent.
    pub(in crate::gateway) fn build(&self) -> Result<AgentApi, Vec<String>> {
        let ApiSettings { routes, session, url_pointers } = compile_settings(self.config)?;
        let base = self.base_of(&self.agent.endpoint).map_err(|why| vec![why])?;
        let is_same_server = EndpointOrigin::from(&base) == EndpointOrigin::from(&self.agent.endpoint);
        let mut agent = self.agent.with_endpoint(base.clone());
        if is_same_server {
            agent = agent.with_addresses(self.agent.addresses.clone());
        }
        let preset = self.config.preset.map(ApiPreset::routes);
        // Requests of the API pass as they are.
        let mut settings = TransportConfig { endpoint: None, ..self.settings.clone() };
        if let Some(preset) = self.config.preset {
            settings.timeouts = settings.timeouts.with_api_preset(preset.timeouts());
        }
        if self.config.base.is_some() {
            // The operator names this server; the document's own further endpoints have no API there.
            (settings.additional_endpoints, settings.public_addresses_only) = (None, false);
        }
        let additional = self.bases_of_additional_endpoints(settings.additional_endpoints.take())?;
        let origins = std::iter::once(&base).chain(additional.iter().flatten()).map(origin_of_endpoint).collect();
        settings.additional_endpoints =
            additional.map(|endpoints| endpoints.iter().map(AgentEndpoint::to_string).collect());
        let of_preset = preset.iter().flat_map(|preset| preset.forwarded_headers.iter().map(|name| (*name).to_owned()));
        let of_session = session.iter().filter_map(SessionKey::header).map(|name| name.as_str().to_owned());
        let forwarded = settings.forwarded_headers.take().into_iter().flatten();
        settings.forwarded_headers = Some(forwarded.chain(of_preset).chain(of_session).collect());
        let upstream = self.transport.compile_upstream_set(&agent, &settings)?;
        let reply_headers = session.iter().filter_map(SessionKey::header).cloned().collect();
        Ok(AgentApi {
            routes,
            openapi: self.openapi.cloned(),
            upstream,
            origins,
            base_path: path_of(&base).path().trim_end_matches('/').into(),
            session,
            url_pointers,
            has_card: self.config.preset == Some(ApiPreset::A2a),
            max_rewrite: self.config.max_rewrite.get(),
            max_checked_body: self.config.max_checked_body,
            max_body_size: self.config.max_body_size,
            reply_headers,
        })
    }

    fn bases_of_additional_endpoints(
        &self,
        templates: Option<Vec<String>>,
    ) -> Result<Option<Vec<AgentEndpoint>>, Vec<String>> {
        let Some(templates) = templates else { return Ok(None) };
        let base = |template: String| {
            let address = template.replace("{id}", self.agent.id.as_str());
            let endpoint = address.parse::<AgentEndpoint>().map_err(|why| vec![format!("{address}: {why}")])?;
            self.base_of(&endpoint).map_err(|why| vec![why])
        };
        templates.into_iter().map(base).collect::<Result<_, _>>().map(Some)
    }

    /// Returns where the API is, for an endpoint of the agent.
    fn base_of(&self, endpoint: &AgentEndpoint) -> Result<AgentEndpoint, String> {
        if let Some(base) = &self.config.base {
            return parse_base(&base.replace("{id}", self.agent.id.as_str())).map_err(|why| format!("base: {why}"));
        }
        let place = self.config.preset.map_or(PresetBase::Root, |preset| preset.routes().base);
        let own_path = path_of(endpoint);
        let path = match place {
            PresetBase::Root => "/",
            PresetBase::Path(path) => path,
            PresetBase::Endpoint => own_path.path(),
        };
        match endpoint {
            AgentEndpoint::Url(url) if url.scheme().syntax() == AddressSyntax::HttpUrl => {
                let (scheme, authority) = (url.uri().scheme_str(), url.uri().authority());
                let (Some(scheme), Some(authority)) = (scheme, authority) else { return Err(no_http()) };
                format!("{scheme}://{authority}{path}").parse().map_err(|why| format!("base: {why}"))
            }
            AgentEndpoint::Unix { socket, .. } => {
                Ok(AgentEndpoint::Unix { socket: socket.clone(), path: path.to_owned() })
            }
            _ => Err(no_http()),
        }
    }
}

fn no_http() -> String {
    "base: the agent's endpoint is not HTTP (name the URL of the API)".to_owned()
}

/// Parses the base of an API: an http or https URL with a path and nothing else.
fn parse_base(text: &str) -> Result<AgentEndpoint, String> {
    let shown = shown_url(text);
    let uri: Uri = text.parse().map_err(|why| format!("'{shown}' is not a URL ({why})"))?;
    if origin_of(&uri).is_none() {
        return Err(format!("'{shown}' is not an http or https URL"));
    }
    if uri.query().is_some() || text.contains(['#', '@']) {
        return Err(format!("'{shown}' has more than a host and a path"));
    }
    text.parse()
}

fn path_of(endpoint: &AgentEndpoint) -> PathAndQuery {
    let path = match endpoint {
        AgentEndpoint::Url(url) => url.uri().path(),
        AgentEndpoint::Unix { path, .. } => path.split('?').next().unwrap_or_default(),
        AgentEndpoint::AgentUri(_) | AgentEndpoint::Matrix(_) | AgentEndpoint::Local(_) => "/",
    };
    path.parse().unwrap_or_else(|_| PathAndQuery::from_static("/"))
}

fn origin_of_endpoint(endpoint: &AgentEndpoint) -> Box<str> {
    let origin = endpoint.http_url().and_then(origin_of);
    // Servers behind a unix socket are called with this host.
    origin.unwrap_or_else(|| "http://localhost".to_owned()).into()
}

impl AgentApi {
    /// Returns the endpoints of the API.
    pub(in crate::gateway) fn upstream(&self) -> &UpstreamSet {
        &self.upstream
    }

    /// Returns what lets a request pass: a route of the operator, an operation of the document, or a route of the preset.
    ///
    /// # Errors
    /// 400, 404 or 405; 503 while the document is not known.
    pub(in crate::gateway) fn find_route<'a, 'p>(
        &'a self,
        method: &Method,
        request: &'p ApiRequest,
    ) -> Result<MatchedRoute<'a, 'p>, Fault> {
        check_api_path(&request.path)?;
        let path = request.path_of_route();
        let matched = self.find_exact_route(method, path)?;
        let listed = match &matched {
            MatchedRoute::Listed(route) => Some(*route),
            MatchedRoute::Operation(_) => None,
        };
        Ok(self.routes.find_near_restriction(method, path, listed).map_or(matched, MatchedRoute::Listed))
    }

    fn find_exact_route<'a, 'p>(&'a self, method: &Method, path: &'p str) -> Result<MatchedRoute<'a, 'p>, Fault> {
        if let Some(route) = self.routes.find_own(method, path) {
            return Ok(MatchedRoute::Listed(route));
        }
        let document = self.openapi.as_ref().map(|source| source.document()).transpose()?;
        let found = document.and_then(|document| document.find(method, path));
        let operation = found.as_ref().map(|found| found.operation(method)).transpose()?.flatten().map(Arc::clone);
        let found = match (found, operation) {
            (Some(path), Some(operation)) => {
                return Ok(MatchedRoute::Operation(MatchedOperation { path, operation }));
            }
            (found, _) => found,
        };
        if let Some(route) = self.routes.find_of_preset(method, path) {
            return Ok(MatchedRoute::Listed(route));
        }
        Err(self.routes.refusal(path, found.iter().flat_map(|found| found.methods().cloned())))
    }

    /// Returns the mapping of the API's URLs to those below `public`.
    pub(super) fn url_mapping<'a>(&'a self, public: &'a str) -> UrlMapping<'a> {
        UrlMapping { origins: &self.origins, base_path: &self.base_path, public }
    }

    /// Returns path and query of a request to the agent.
    pub(super) fn upstream_path(&self, path: &str, query: Option<&str>) -> Option<PathAndQuery> {
        let base = if self.base_path.is_empty() { "/" } else { &self.base_path };
        join_path(base, path, query)
    }
}
