//! The services that the configuration names: issuers of tokens, MQTT brokers, sources that are queried on demand, OpenAPI
//! documents of agents' APIs.

use super::{
    examined_config::ExaminedConfig,
    finding::{Finding, SubjectKind},
    finding_codes::FindingCode,
    probe_runner::{NO_CONNECTION, Probe, STEP_TIMEOUT},
};
use crate::{
    auth::{
        IntrospectionConfig, IntrospectionProblem, IssuerConfig, KeyFetchError, inspect_introspection, inspect_issuer,
    },
    config::AgentRule,
    gateway::{Gateway, OpenApiLocation, OpenApiSource},
    mqtt_client::{self, BrokerAddress, BrokerSettings},
    net::{ConnectTarget, FetchClient, FetchError, FetchLimits, SourceClient, Url, UrlTrust},
    registry::{RemoteSourceConfig, SourceConfig, SourceKind},
    telemetry::redact,
    values::{ByteSize, ConfigDuration, shown_url},
};
use http::HeaderMap;
use serde_json::Value;
use std::{borrow::Cow, collections::HashSet, sync::Arc};

/// Bounds of the metadata of an authorization server.
const METADATA_LIMITS: FetchLimits = FetchLimits { size: ByteSize::from_kib(512), time: ConfigDuration::from_secs(5) };

/// A service that is probed.
struct ProbedService<'a> {
    examined: ExaminedConfig<'a>,
    kind: SubjectKind,
    name: Cow<'a, str>,
}

impl ProbedService<'_> {
    /// Returns a finding about the service; `path` is the setting to change.
    fn finding(&self, code: FindingCode, path: &str, why: &str) -> Finding {
        Finding::new(code, self.kind, &*self.name, &redact(why), self.examined.place(path))
    }
}

/// Returns the probes of all services.
pub(super) fn service_probes(examined: ExaminedConfig<'_>) -> Vec<Probe<'_>> {
    let config = examined.config();
    let mut probes = Vec::new();
    // Problems of the network settings are findings already.
    let client = FetchClient::build(&config.network, Arc::new(config.network.policy())).ok();
    if let (Some(bearer), Some(client)) = (&config.auth.bearer, &client) {
        for (at, issuer) in bearer.issuers.iter().enumerate() {
            probes.push(issuer_probe(examined, at, issuer, client.clone()));
        }
        probes.extend(
            bearer.introspection.iter().map(|endpoint| introspection_probe(examined, endpoint, client.clone())),
        );
    }
    for (at, bridge) in config.mqtt_bridge.iter().enumerate() {
        let section = format!("mqtt_bridge[{at}]");
        probes.extend(broker_probe(examined, section, &bridge.url, bridge.mqtt.clone()));
    }
    for (at, source) in config.agents.sources.iter().enumerate() {
        let SourceConfig::Remote(remote) = source else { continue };
        let section = format!("agents.sources[{at}]");
        if remote.kind == SourceKind::Mqtt {
            let settings = remote.mqtt.clone().unwrap_or_default().client_settings();
            probes.extend(broker_probe(examined, section, &remote.url, settings));
        } else if let (true, Some(client)) = (remote.on_demand, &client) {
            probes.push(on_demand_probe(examined, section, remote, client.clone()));
        }
    }
    probes.extend(config.tracing.iter().filter_map(|tracing| tracing_probe(examined, &tracing.endpoint)));
    probes
}

/// Returns the probes of the OpenAPI documents at URLs. Files are read with the configuration.
pub(super) fn api_document_probes<'a>(examined: ExaminedConfig<'a>, gateway: &Gateway) -> Vec<Probe<'a>> {
    let documents = gateway.config.load().openapi.clone();
    let mut probed = HashSet::new();
    let of_rule = |(at, rule): (usize, &'a AgentRule)| {
        let OpenApiLocation::Url(url) = rule.api.as_ref()?.openapi.as_ref()? else { return None };
        let document = probed.insert(url).then(|| documents.of_rule(at))??;
        Some(api_document_probe(examined, ApiDocument { at, url, document }))
    };
    examined.config().agents.rules.iter().enumerate().filter_map(of_rule).collect()
}

/// The OpenAPI document that a rule names.
struct ApiDocument<'a> {
    /// The number of the rule.
    at: usize,
    url: &'a str,
    document: Arc<OpenApiSource>,
}

/// Fetches a document, and says what of it cannot be used.
fn api_document_probe<'a>(examined: ExaminedConfig<'a>, api: ApiDocument<'a>) -> Probe<'a> {
    let ApiDocument { at, url, document } = api;
    let path = format!("agents.rules[{at}].api.openapi");
    let subject = examined.finding(FindingCode::ApiDocumentUnusable, SubjectKind::Setting, &path, "");
    let service = ProbedService { examined, kind: SubjectKind::Setting, name: shown_url(url) };
    let run = async move {
        let (code, problems) = match document.inspect().await {
            Ok(unusable) => (FindingCode::ApiOperationUnusable, unusable),
            Err(problems) => (FindingCode::ApiDocumentUnusable, problems),
        };
        problems.iter().map(|why| service.finding(code, &path, why)).collect()
    };
    Probe::new(subject, run)
}

/// Probes the receiver of traces: whether it accepts connections. No span is sent.
fn tracing_probe<'a>(examined: ExaminedConfig<'a>, endpoint: &'a str) -> Option<Probe<'a>> {
    let path = "tracing.endpoint";
    let subject = examined.finding(FindingCode::TracingUnreachable, SubjectKind::Setting, path, "");
    let service = ProbedService { examined, kind: SubjectKind::Setting, name: shown_url(endpoint) };
    // Another text is a problem of the configuration.
    let url = Url::parse(endpoint).ok()?;
    let port = url.port_or_known_default()?;
    let run = async move {
        let host = url.host_str().unwrap_or_default();
        let target =
            ConnectTarget { host, port, tls: None, server_name: None, policy: None, acknowledges_at_once: false };
        let connected = tokio::time::timeout(STEP_TIMEOUT, target.connect()).await;
        let why = match connected {
            Ok(Ok(_)) => return Vec::new(),
            Ok(Err(why)) => why,
            Err(_) => NO_CONNECTION.to_owned(),
        };
        vec![service.finding(FindingCode::TracingUnreachable, path, &why)]
    };
    Some(Probe::new(subject, run))
}

fn issuer_probe<'a>(
    examined: ExaminedConfig<'a>,
    at: usize,
    issuer: &'a IssuerConfig,
    client: FetchClient,
) -> Probe<'a> {
    let section = format!("auth.bearer.issuers[{at}]");
    let setting = match (&issuer.jwks_url, &issuer.discovery_url) {
        (Some(_), _) => "jwks_url",
        (None, Some(_)) => "discovery_url",
        (None, None) => "issuer",
    };
    let path = format!("{section}.{setting}");
    let subject = examined.finding(FindingCode::IssuerUnreachable, SubjectKind::Issuer, &path, "");
    let service = ProbedService { examined, kind: SubjectKind::Issuer, name: issuer.issuer.as_str().into() };
    let run = async move {
        match inspect_issuer(issuer, &client).await {
            Ok(_) => {
                let audience = unlisted_audience(issuer, &client).await;
                let path = format!("{section}.audience");
                audience.map(|why| service.finding(FindingCode::AudienceSuspicious, &path, &why)).into_iter().collect()
            }
            Err(KeyFetchError::Unreadable(why)) => {
                vec![service.finding(FindingCode::IssuerUnreachable, &path, &why)]
            }
            Err(KeyFetchError::OtherIssuer(why)) => {
                vec![service.finding(FindingCode::IssuerMismatch, &format!("{section}.issuer"), &why)]
            }
            Err(KeyFetchError::NoUsableKey(why)) => {
                let algorithms = format!("{section}.algorithms");
                // An issuer with keys is the right one.
                let has_no_key = why.contains("has no usable key");
                let (own, other) = if has_no_key { (&path, &algorithms) } else { (&algorithms, &path) };
                let related = examined.exact_place(other);
                vec![service.finding(FindingCode::NoUsableKey, own, &why).with_related(related)]
            }
        }
    };
    Probe::new(subject, run)
}

/// Returns why the audiences cannot be right, where the issuer's metadata lists the resources that it issues tokens for
/// (`protected_resources`, RFC 9728 §4).
async fn unlisted_audience(issuer: &IssuerConfig, client: &FetchClient) -> Option<String> {
    let base = issuer.issuer.trim_end_matches('/');
    let url = match &issuer.discovery_url {
        Some(url) => url.clone(),
        None => format!("{base}/.well-known/openid-configuration"),
    };
    let metadata: Value = client.fetch_json(&url, UrlTrust::Operator, METADATA_LIMITS).await.ok()?;
    let resources: Vec<&str> =
        metadata.get("protected_resources")?.as_array()?.iter().filter_map(Value::as_str).collect();
    let is_listed = |audience: &String| resources.iter().any(|resource| resource == audience);
    (!resources.is_empty() && !issuer.audience.iter().any(is_listed)).then(|| {
        format!("the issuer issues tokens for {}, and for none of {}", resources.join(", "), issuer.audience.join(", "))
    })
}

fn introspection_probe<'a>(
    examined: ExaminedConfig<'a>,
    endpoint: &'a IntrospectionConfig,
    client: FetchClient,
) -> Probe<'a> {
    let path = "auth.bearer.introspection.endpoint";
    let subject = examined.finding(FindingCode::IntrospectionUnreachable, SubjectKind::Issuer, path, "");
    let service = ProbedService { examined, kind: SubjectKind::Issuer, name: endpoint.endpoint.as_str().into() };
    let run = async move {
        let (code, path, why) = match inspect_introspection(endpoint, &client).await {
            Ok(()) => return Vec::new(),
            Err(IntrospectionProblem::Unusable(why)) => (FindingCode::IntrospectionUnreachable, path, why),
            Err(IntrospectionProblem::Refused(why)) => {
                (FindingCode::IntrospectionRefused, "auth.bearer.introspection.client_id", why)
            }
        };
        vec![service.finding(code, path, &why)]
    };
    Probe::new(subject, run)
}

/// Returns the probe of a broker; `None` with settings that cannot be used, which are findings themselves.
fn broker_probe<'a>(
    examined: ExaminedConfig<'a>,
    section: String,
    url: &'a str,
    settings: BrokerSettings,
) -> Option<Probe<'a>> {
    if !settings.problems(url).is_empty() {
        return None;
    }
    let path = format!("{section}.url");
    let subject = examined.finding(FindingCode::BrokerUnreachable, SubjectKind::Broker, &path, "");
    let service = ProbedService { examined, kind: SubjectKind::Broker, name: url.into() };
    let run = async move {
        // Another address is a problem of the configuration.
        let Ok(address) = BrokerAddress::parse(url) else { return Vec::new() };
        let connected = async {
            let options = settings.connect_options(&address, STEP_TIMEOUT).await?;
            mqtt_client::connect(&options).await
        };
        let finding = |code, path: &str, why: &str| vec![service.finding(code, path, why)];
        match connected.await {
            Ok((sender, receiver)) => {
                let is_version_5 = sender.is_version_5();
                drop((sender, receiver));
                let problem = "the broker knows MQTT 3.1.1 only";
                if is_version_5 { Vec::new() } else { finding(FindingCode::BrokerSpeaksMqtt311, &path, problem) }
            }
            Err(why) if why.contains("refuses the user name") => {
                finding(FindingCode::BrokerRefused, &format!("{section}.mqtt.username"), &why)
            }
            Err(why) => finding(FindingCode::BrokerUnreachable, &path, &why),
        }
    };
    Some(Probe::new(subject, run))
}

/// Probes a source that is never read as a whole: whether its server answers, and accepts the credential.
fn on_demand_probe<'a>(
    examined: ExaminedConfig<'a>,
    section: String,
    remote: &'a RemoteSourceConfig,
    client: FetchClient,
) -> Probe<'a> {
    let path = format!("{section}.url");
    let subject = examined.finding(FindingCode::SourceUnreachable, SubjectKind::Source, &path, "");
    let service = ProbedService { examined, kind: SubjectKind::Source, name: remote.effective_name().into() };
    let run = async move {
        let limits =
            FetchLimits { size: remote.max_response_size, time: ConfigDuration::from_secs(STEP_TIMEOUT.as_secs()) };
        let network = &examined.config().network;
        let source = SourceClient::build(network, &client, &remote.url, remote.credential.as_ref(), limits);
        let Ok(source) = source else { return Vec::new() };
        match source.get(source.url(), &HeaderMap::new()).await {
            Ok(reply) if matches!(reply.status, 401 | 403) => {
                let why = format!("{}: responded with status {}", reply.url, reply.status);
                vec![service.finding(FindingCode::SourceRefused, &format!("{section}.credential"), &why)]
            }
            // A list longer than the bound is an answer.
            Ok(_) | Err(FetchError::TooLarge { .. }) => Vec::new(),
            Err(why) => vec![service.finding(FindingCode::SourceUnreachable, &path, &why.to_string())],
        }
    };
    Probe::new(subject, run)
}
