//! Every agent: name and address, connection and TLS, the gateway's credential, latency, and what the agent publishes about
//! itself. Probes go the way of calls, so that the address policy and the destinations of credentials apply. They ask for
//! no work: OPTIONS and HEAD at the endpoint, GET of the card or of the list of models. Examples are sent only if the
//! operator wants it.

use super::{
    card_drift::{self, CARD_PATHS},
    certificate_analyzer::soon_expiry,
    document_places::DocumentPlaces,
    examined_config::ExaminedConfig,
    finding::{Finding, Place, SubjectKind},
    finding_codes::FindingCode,
    probe_runner::{NO_CONNECTION, Probe, STEP_TIMEOUT},
};
use crate::{
    agent::{Agent, AgentStatus, EndpointOrigin},
    gateway::{Gateway, Route},
    net::Url,
    telemetry::redact,
    transport::{ModelList, ProbeFailure, ProbeReply, ProbeRequest, TransportConfig},
    values::{Glob, json::truncate},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header, uri::PathAndQuery};
use serde_json::Value;
use std::{collections::HashMap, net::SocketAddr, sync::Arc, time::Duration};
use time::OffsetDateTime;

/// How long a reply to a request without work may take before it is a finding.
const SLOW_REPLY: Duration = Duration::from_secs(2);

/// How long the agent may take for its own example.
const EXAMPLE_TIMEOUT: Duration = Duration::from_secs(30);

/// How much of a reply is read, in bytes.
const MAX_CARD_SIZE: usize = 1 << 20;
const MAX_IGNORED_SIZE: usize = 16 << 10;

/// How many models of a server a finding names.
const MAX_SHOWN_MODELS: usize = 5;

/// Which agents are examined, and how.
#[derive(Clone, Debug, Default)]
pub struct AgentSelection {
    /// The ids of the agents; empty for all.
    pub agents: Vec<String>,
    /// Whether the agents' own examples are sent to them.
    pub call_examples: bool,
}

/// What the probes of all agents need.
pub(super) struct AgentContext<'a> {
    pub(super) examined: ExaminedConfig<'a>,
    pub(super) places: &'a DocumentPlaces<'a>,
    pub(super) selection: &'a AgentSelection,
}

/// What is done about the selected agents.
pub(super) struct AgentProbes<'a> {
    /// The probes of those that can be called.
    pub(super) probes: Vec<Probe<'a>>,
    /// Findings about ids that no agent has, and about agents that are inactive.
    pub(super) findings: Vec<Finding>,
    /// The number of agents that are inactive.
    pub(super) inactive: usize,
}

/// Returns the probes of the selected agents.
pub(super) fn agent_probes<'a>(context: &'a AgentContext<'a>, gateway: &Gateway) -> AgentProbes<'a> {
    let snapshot = gateway.catalogue.snapshot();
    let mut agents_at: HashMap<String, usize> = HashMap::new();
    for (_, route) in snapshot.iter() {
        *agents_at.entry(server_of(route.agent())).or_default() += 1;
    }
    let wanted = &context.selection.agents;
    let is_selected = |id: &str| wanted.is_empty() || wanted.iter().any(|wanted| wanted == id);
    let mut routes: Vec<&Arc<Route>> =
        snapshot.iter().filter(|(id, _)| is_selected(id.as_str())).map(|(_, route)| route).collect();
    routes.sort_by(|one, other| one.agent().id.as_str().cmp(other.agent().id.as_str()));
    let (inactive, active): (Vec<_>, Vec<_>) =
        routes.into_iter().partition(|route| route.agent().status == AgentStatus::Inactive);
    let probe = |route: &Arc<Route>| {
        let agent = Arc::clone(route.agent());
        let is_alone = agents_at.get(&server_of(&agent)).is_none_or(|count| *count == 1);
        let examined_agent = Arc::clone(&agent);
        let subject = move || context.finding(&examined_agent, FindingCode::AgentUnreachable, "", "endpoint");
        let examination = AgentExamination { context, route: Arc::clone(route), agent, is_alone };
        Probe { subject: Box::new(subject), run: Box::pin(async move { examination.run().await }) }
    };
    let unknown = wanted.iter().filter(|id| snapshot.get(id).is_none());
    let unknown = unknown.map(|id| {
        let place = context.examined.place("agents.sources");
        Finding::new(FindingCode::UnknownAgent, SubjectKind::Agent, id, "no source has an agent with this id", place)
    });
    let mut findings: Vec<Finding> = unknown.collect();
    // In an examination of all agents, the summary counts them.
    let named = inactive.iter().filter(|_| !wanted.is_empty());
    findings.extend(named.map(|route| {
        let problem = "the agent is inactive, so that it is not called and was not examined";
        context.finding(route.agent(), FindingCode::AgentInactive, problem, "status")
    }));
    AgentProbes { probes: active.into_iter().map(probe).collect(), findings, inactive: inactive.len() }
}

fn server_of(agent: &Agent) -> String {
    EndpointOrigin::from(&agent.endpoint).server().to_owned()
}

impl AgentContext<'_> {
    fn finding(&self, agent: &Agent, code: FindingCode, problem: &str, member: &str) -> Finding {
        let place = self.places.of_agent(agent, member);
        Finding::new(code, SubjectKind::Agent, agent.id.as_str(), &redact(problem), place)
    }

    /// Returns the path of the setting that applies to an agent: in the last rule that has it, or in the defaults.
    fn setting_path(&self, agent: &Agent, name: &str, is_set: impl Fn(&TransportConfig) -> bool) -> Option<String> {
        let config = &self.examined.config().agents;
        let rules = config.rules.iter().enumerate().rev();
        let mut matching = rules.filter(|(_, rule)| rule.agents.iter().any(|ids| ids.matches(agent.id.as_str())));
        let rule = matching.find(|(_, rule)| is_set(&rule.settings));
        let of_rule = rule.map(|(at, _)| format!("agents.rules[{at}].settings.{name}"));
        of_rule.or_else(|| is_set(&config.defaults).then(|| format!("agents.defaults.{name}")))
    }
}

/// Returns a reason without its hint, which the fix gives.
fn without_hint(why: &str) -> &str {
    why.split_once(" (list it under").map_or(why, |(why, _)| why)
}

/// Returns the path of the listener with this address.
fn own_listener_path(examined: ExaminedConfig<'_>, own: SocketAddr) -> String {
    let config = examined.config();
    match config.listeners.iter().position(|listener| listener.address == own) {
        Some(at) => format!("listeners[{at}].address"),
        None if config.admin.address == own => "admin.address".to_owned(),
        None => "health.address".to_owned(),
    }
}

/// The examination of one agent.
struct AgentExamination<'a> {
    context: &'a AgentContext<'a>,
    route: Arc<Route>,
    agent: Arc<Agent>,
    /// Whether no other agent is at its server.
    is_alone: bool,
}

impl AgentExamination<'_> {
    async fn run(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        let probes = self.route.upstream().probe_endpoints(STEP_TIMEOUT).await;
        let now = OffsetDateTime::now_utc();
        let is_reached = probes.first().is_some_and(|probe| probe.outcome.is_ok());
        for (index, probe) in probes.into_iter().enumerate() {
            match probe.outcome {
                Err(failure) => {
                    let finding = self.unreached_endpoint(&probe.address, failure);
                    findings.push(self.at_endpoint(finding, index));
                }
                Ok(reached) => {
                    if let Some(expiry) = reached.certificate.and_then(|validity| soon_expiry(validity, now)) {
                        let problem = format!("{}: the certificate {expiry}", probe.address);
                        let finding = self.finding(FindingCode::AgentCertificateExpiresSoon, &problem, "endpoint");
                        findings.push(self.at_endpoint(finding, index));
                    }
                }
            }
        }
        match self.route.upstream().model_list() {
            _ if !is_reached => {}
            Some(models) => findings.extend(self.examine_models(models).await),
            None => {
                findings.extend(self.examine_replies().await);
                findings.extend(self.compare_card().await);
                if self.context.selection.call_examples {
                    findings.extend(self.call_example().await);
                }
            }
        }
        findings
    }

    fn finding(&self, code: FindingCode, problem: &str, member: &str) -> Finding {
        self.context.finding(&self.agent, code, problem, member)
    }

    /// Moves a finding to the setting of an additional endpoint. The first endpoint is that of the document.
    fn at_endpoint(&self, finding: Finding, index: usize) -> Finding {
        let Some(at) = index.checked_sub(1).filter(|_| finding.place.path == "endpoint") else { return finding };
        let name = format!("additional_endpoints[{at}]");
        let path = self.context.setting_path(&self.agent, &name, |own| own.additional_endpoints.is_some());
        match path {
            Some(path) => Finding { place: self.context.examined.place(&path), ..finding },
            None => finding,
        }
    }

    fn unreached_endpoint(&self, address: &str, failure: ProbeFailure) -> Finding {
        let examined = self.context.examined;
        let network = |names: &[&str]| {
            names.iter().filter_map(|name| examined.exact_place(&format!("network.{name}"))).collect::<Vec<Place>>()
        };
        let tls = |setting: &str, is_set: fn(&TransportConfig) -> bool| {
            self.context.setting_path(&self.agent, &format!("tls.{setting}"), is_set)
        };
        // The fragment of agent+unix:// is a path in the server, which looks like a secret to the redaction.
        let address = address.split('#').next().unwrap_or_default();
        let finding = |code, why: &str| self.finding(code, &format!("{address}: {why}"), "endpoint");
        let with_setting = |finding: Finding, path: Option<String>| match path {
            Some(path) => finding.moved_to(examined.place(&path)),
            None => finding,
        };
        match failure {
            ProbeFailure::Unresolvable(why) => finding(FindingCode::NameNotResolved, &why),
            ProbeFailure::Denied(why) => {
                let settings = network(&["allowed_addresses", "allow_private_addresses"]);
                finding(FindingCode::AddressDenied, without_hint(&why)).with_related(settings)
            }
            ProbeFailure::SocketDenied(why) => finding(FindingCode::AddressDenied, without_hint(&why))
                .with_fix("list the socket in network.allowed_sockets, or correct the endpoint")
                .with_related(network(&["allowed_sockets"])),
            ProbeFailure::OwnListener(own) => {
                let path = own_listener_path(examined, own);
                finding(FindingCode::AddressDenied, &format!("this is the gateway's own listener at {path}"))
                    .with_fix("write the agent's own address into the endpoint")
                    .with_related(examined.exact_place(&path))
            }
            ProbeFailure::Unreachable(why) => finding(FindingCode::AgentUnreachable, &why),
            ProbeFailure::TimedOut => finding(FindingCode::AgentUnreachable, NO_CONNECTION),
            ProbeFailure::Untrusted(why) => {
                with_setting(finding(FindingCode::AgentTlsUntrusted, &why), tls("ca", |own| own.tls.ca.is_some()))
            }
            ProbeFailure::Expired(why) => finding(FindingCode::AgentCertificateExpired, &why),
            ProbeFailure::WrongName(why) => {
                let path = tls("server_name", |own| own.tls.server_name.is_some());
                with_setting(finding(FindingCode::AgentNameNotCovered, &why), path)
            }
            ProbeFailure::TlsFailed(why) => finding(FindingCode::AgentTlsFailed, &why),
        }
    }

    /// Sends a request that asks for no work, and judges the reply.
    async fn examine_replies(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut last = None;
        // Servers that know no OPTIONS say so before they ask for a credential.
        for method in [Method::OPTIONS, Method::HEAD] {
            match self.send(method, None, MAX_IGNORED_SIZE).await {
                None => return findings,
                Some(Err(why)) => {
                    findings.push(self.finding(FindingCode::AgentDoesNotReply, &why, "endpoint"));
                    return findings;
                }
                Some(Ok(reply)) => {
                    let is_unknown_method = matches!(reply.status.as_u16(), 404 | 405 | 501);
                    last = Some(reply);
                    if !is_unknown_method {
                        break;
                    }
                }
            }
        }
        if let Some(reply) = last {
            findings.extend(self.judge_reply(&reply));
        }
        findings
    }

    /// Judges the reply to a request that asks for no work.
    fn judge_reply(&self, reply: &ProbeReply) -> Vec<Finding> {
        let mut findings: Vec<Finding> =
            self.refused_credential(reply.status, reply.credential_sent).into_iter().collect();
        if reply.elapsed > SLOW_REPLY {
            let problem = format!("the agent took {:.1}s for a request without work", reply.elapsed.as_secs_f64());
            findings.push(self.finding(FindingCode::AgentSlow, &problem, "endpoint"));
        }
        if reply.status.is_server_error() && reply.status != StatusCode::NOT_IMPLEMENTED {
            let problem = format!("the agent replied with status {}", reply.status);
            findings.push(self.finding(FindingCode::AgentFails, &problem, "endpoint"));
        }
        findings
    }

    /// Asks a server of models which ones it has. A server without a list says nothing.
    async fn examine_models(&self, list: ModelList) -> Vec<Finding> {
        let ModelList { path, model } = list;
        let reply = match self.send(Method::GET, Some(path), MAX_CARD_SIZE).await {
            None => return Vec::new(),
            Some(Err(why)) => return vec![self.finding(FindingCode::AgentDoesNotReply, &why, "endpoint")],
            Some(Ok(reply)) => reply,
        };
        let mut findings = self.judge_reply(&reply);
        if reply.status == StatusCode::OK
            && reply.is_complete
            && let Some(names) = parse_model_names(&reply.body)
            && !names.iter().any(|name| is_model(name, &model))
        {
            let shown = names.iter().take(MAX_SHOWN_MODELS).map(|name| truncate(name, 100));
            let shown = shown.collect::<Vec<_>>().join(", ");
            let problem = format!("the server's list of models does not have '{model}' (it has {shown})");
            let finding = self.finding(FindingCode::ModelNotListed, &problem, "endpoint");
            findings.push(match self.rule_of_endpoint() {
                Some(at) => {
                    finding.moved_to(self.context.examined.place(&format!("agents.rules[{at}].endpoint.model")))
                }
                None => finding,
            });
        }
        findings
    }

    /// The number of the rule that says what the agent's server speaks: the last one that has the setting.
    fn rule_of_endpoint(&self) -> Option<usize> {
        let rules = &self.context.examined.config().agents.rules;
        let applies = |ids: &[Glob]| ids.iter().any(|ids| ids.matches(self.agent.id.as_str()));
        rules.iter().rposition(|rule| rule.endpoint.is_some() && applies(&rule.agents))
    }

    fn refused_credential(&self, status: StatusCode, was_sent: bool) -> Option<Finding> {
        if !matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            return None;
        }
        let path = self.context.setting_path(&self.agent, "credential", |own| own.credential.is_some());
        let (problem, setting) = match (was_sent, &path) {
            (true, _) => (format!("the agent refuses the gateway's credential with status {status}"), "value"),
            (false, Some(_)) => (
                format!("the agent replied with status {status}, and the credential's destinations do not include it"),
                "destinations",
            ),
            (false, None) => (format!("the agent replied with status {status}, and the gateway has no credential"), ""),
        };
        let finding = self.finding(FindingCode::CredentialRefused, &problem, "endpoint");
        Some(match path {
            Some(path) => finding.moved_to(self.context.examined.place(&format!("{path}.{setting}"))),
            None => finding,
        })
    }

    /// Compares the document with the card that the agent publishes, if it publishes one.
    async fn compare_card(&self) -> Option<Finding> {
        let endpoint = self.agent.endpoint.http_url()?;
        for path in CARD_PATHS {
            let card_path = PathAndQuery::from_static(path);
            let Some(Ok(reply)) = self.send(Method::GET, Some(card_path), MAX_CARD_SIZE).await else { return None };
            if reply.status != StatusCode::OK || !reply.is_complete {
                continue;
            }
            let scheme = if self.agent.endpoint.is_encrypted_or_local() { "https" } else { "http" };
            let scheme = endpoint.scheme_str().filter(|scheme| scheme.starts_with("http")).unwrap_or(scheme);
            let url = Url::parse(&format!("{scheme}://{}{path}", endpoint.authority()?)).ok()?;
            let Some(card) = card_drift::parse_card(&reply.body, self.agent.id.as_str(), &url) else { continue };
            let differences = card_drift::differences(&self.agent, &card, self.is_alone);
            if differences.is_empty() {
                return None;
            }
            let problem = format!("the document differs from {path} of the agent: {}", differences.join("; "));
            let member = if differences.iter().any(|difference| difference.starts_with("version")) {
                "version"
            } else if differences.iter().any(|difference| difference.starts_with("endpoint")) {
                "endpoint"
            } else {
                "operations"
            };
            return Some(self.finding(FindingCode::CardDiffers, &problem, member));
        }
        None
    }

    /// Sends the first example of the document to the agent, which executes it.
    async fn call_example(&self) -> Option<Finding> {
        let document: Value = serde_json::from_str(&self.agent.document).ok()?;
        let has_path = |at: usize| self.agent.operations.get(at).is_some_and(|operation| operation.endpoint.is_some());
        let of_operation = |(at, operation): (usize, &Value)| {
            let input = operation.get("examples")?.get(0)?.get("input")?.clone();
            (!has_path(at)).then_some((at, input))
        };
        let operations = document.get("operations").and_then(Value::as_array);
        let in_operations = operations.and_then(|all| all.iter().enumerate().find_map(of_operation));
        let (at, input) = in_operations.or_else(|| of_operation((0, &document)))?;
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        let name = self.agent.operations.get(at).and_then(|operation| HeaderValue::from_str(&operation.name).ok());
        if let Some(name) = name.filter(|name| !name.is_empty()) {
            headers.insert(HeaderName::from_static("x-operation"), name);
        }
        let body = Bytes::from(input.to_string());
        let request =
            ProbeRequest { method: Method::POST, path: None, headers, body, max_reply_size: MAX_IGNORED_SIZE };
        let problem = match self.route.upstream().send_probe(request, EXAMPLE_TIMEOUT).await? {
            Ok(reply) if reply.status.is_success() => return None,
            Ok(reply) => format!("the agent replied to its own example with status {}", reply.status),
            Err(fault) => format!("the agent did not reply to its own example: {}", fault.log_message()),
        };
        let is_implied = self.agent.operations.get(at).is_none_or(|operation| operation.name.is_empty());
        let member = if is_implied { "examples[0]".to_owned() } else { format!("operations[{at}].examples[0]") };
        Some(self.finding(FindingCode::ExampleFails, &problem, &member))
    }

    async fn send(
        &self,
        method: Method,
        path: Option<PathAndQuery>,
        max_reply_size: usize,
    ) -> Option<Result<ProbeReply, String>> {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        let request = ProbeRequest { method, path, headers, body: Bytes::new(), max_reply_size };
        let reply = self.route.upstream().send_probe(request, STEP_TIMEOUT).await?;
        Some(reply.map_err(|fault| fault.log_message().to_owned()))
    }
}

/// Returns the names of a list in the form of OpenAI's `GET /models`; `None` for another form, or without a name.
fn parse_model_names(body: &[u8]) -> Option<Vec<String>> {
    let list: Value = serde_json::from_slice(body).ok()?;
    let models = list.get("data")?.as_array()?;
    let names = models.iter().filter_map(|model| model.get("id")?.as_str()).map(str::to_owned);
    Some(names.collect()).filter(|names: &Vec<String>| !names.is_empty())
}

/// Whether a listed name is that of `model`. Some servers list a model with its tag, `qwen3:latest`, and know it without.
fn is_model(listed: &str, model: &str) -> bool {
    listed.strip_prefix(model).is_some_and(|tag| tag.is_empty() || tag.starts_with(':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_listed_with_or_without_its_tag() {
        assert!(is_model("qwen3", "qwen3") && is_model("qwen3:latest", "qwen3"));
        assert!(!is_model("qwen3", "qwen3:latest") && !is_model("qwen30", "qwen3") && !is_model("", "qwen3"));
    }

    #[test]
    fn only_a_list_with_names_is_one() {
        assert_eq!(parse_model_names(br#"{"data":[{"id":"a"},{"id":1},3]}"#), Some(vec!["a".to_owned()]));
        for other in [&b"{}"[..], b"[]", b"x", br#"{"data":{}}"#, br#"{"data":[]}"#] {
            assert_eq!(parse_model_names(other), None);
        }
    }
}
