//! All kinds of transport, and which of them serves a scheme.

use super::{
    agent_uri_transport::AgentUriTransports,
    config::TransportConfig,
    endpoint_transport::EndpointTransport,
    http::HttpUpstreamClient,
    local::{LocalRuntimes, LocalTransports},
    matrix::MatrixAccounts,
    mqtt::MqttConnections,
    openai::OpenAiTransport,
    transport_kind::{TransportBuilder, TransportKind},
    websocket::WebSocketTransports,
};
use crate::{
    agent::{Agent, EndpointAccess, EndpointScheme},
    net::AddressPolicy,
    resolver::UriResolver,
    telemetry::Metrics,
};
use arc_swap::ArcSwapOption;
use std::sync::{Arc, Weak};

/// All kinds of transport.
#[derive(Debug)]
pub(super) struct TransportKinds {
    pub(super) http: Arc<HttpUpstreamClient>,
    websocket: WebSocketTransports,
    mqtt: MqttConnections,
    matrix: MatrixAccounts,
    local: LocalTransports,
    agent_uri: AgentUriTransports,
}

impl TransportKinds {
    /// Creates all kinds. `resolver` is shared with the owner, who sets it. Requires a tokio runtime.
    pub(super) fn new(policy: &Arc<AddressPolicy>, resolver: &Arc<ArcSwapOption<UriResolver>>) -> Arc<Self> {
        let http = HttpUpstreamClient::new(Arc::clone(policy));
        Arc::new_cyclic(|kinds: &Weak<Self>| Self {
            websocket: WebSocketTransports::new(&http),
            http,
            mqtt: MqttConnections::new(Arc::clone(policy)),
            matrix: MatrixAccounts::default(),
            local: LocalTransports::new(),
            agent_uri: AgentUriTransports::new(Weak::clone(kinds) as Weak<dyn TransportBuilder>, Arc::clone(resolver)),
        })
    }

    /// Returns the kind that serves a scheme. The only place that decides this.
    fn kind_of(&self, scheme: EndpointScheme) -> &dyn TransportKind {
        match scheme {
            EndpointScheme::Https | EndpointScheme::Http | EndpointScheme::Unix => &*self.http,
            EndpointScheme::Wss | EndpointScheme::Ws => &self.websocket,
            EndpointScheme::Mqtts | EndpointScheme::Mqtt => &self.mqtt,
            EndpointScheme::Matrix => &self.matrix,
            EndpointScheme::Local => &self.local,
            EndpointScheme::AgentUri => &self.agent_uri,
        }
    }

    /// Returns every kind. A kind that is missing here is an unused variable, which the lints refuse.
    fn all(&self) -> [&dyn TransportKind; 6] {
        let Self { http, websocket, mqtt, matrix, local, agent_uri } = self;
        [&**http, websocket, mqtt, matrix, local, agent_uri]
    }

    pub(super) fn set_address_policy(&self, policy: &Arc<AddressPolicy>) {
        self.all().into_iter().for_each(|kind| kind.set_address_policy(policy));
    }

    /// Sets the metrics of what the kinds share.
    pub(super) fn set_metrics(&self, metrics: &Arc<Metrics>) {
        self.mqtt.set_metrics(metrics);
    }

    /// The number of idle connections.
    pub(super) fn idle_connections(&self) -> usize {
        self.http.idle_connections() + self.local.idle_connections()
    }

    /// The runtimes that registered on this machine.
    pub(super) fn local_runtimes(&self) -> &LocalRuntimes {
        self.local.runtimes()
    }
}

impl TransportBuilder for TransportKinds {
    fn problems(&self, settings: &TransportConfig) -> Vec<String> {
        let of_kinds = self.all().into_iter().flat_map(|kind| kind.problems(settings));
        of_kinds.chain(settings.destination_problems()).chain(settings.header_problems()).collect()
    }

    fn build_transport(&self, agent: &Agent, settings: &TransportConfig) -> Result<EndpointTransport, Vec<String>> {
        let scheme = agent.endpoint.scheme();
        let settings = if scheme.access() == EndpointAccess::Resolution {
            settings.for_name(agent)
        } else {
            settings.for_endpoint(agent)
        };
        let transport = self.kind_of(scheme).build_transport(agent, &settings)?;
        match (settings.endpoint, transport) {
            // The endpoint to which a name resolves is built here too.
            (Some(config), EndpointTransport::Http(target)) => {
                Ok(EndpointTransport::Other(Arc::new(OpenAiTransport::new(target, agent, config))))
            }
            (Some(_), _) if scheme.access() != EndpointAccess::Resolution => Err(vec![format!(
                "endpoint: is not at an address of HTTP ({}), which the rule's endpoint.kind needs (https, http or \
                 agent+unix)",
                scheme.as_str()
            )]),
            (_, transport) => Ok(transport),
        }
    }
}
