//! The trait of a kind of transport, which builds the transports of all agents that are reached in this way, and the
//! trait of the table of all kinds.

use super::{config::TransportConfig, endpoint_transport::EndpointTransport};
use crate::{
    agent::{Agent, AgentEndpoint},
    net::AddressPolicy,
};
use std::{fmt, sync::Arc};

/// A kind of transport. It lives as long as the process, and owns what the transports of its agents share, such as
/// connections.
pub(super) trait TransportKind: fmt::Debug + Send + Sync {
    /// Returns every value of `settings` that cannot be used, for any agent. Reads the files and secrets named there.
    fn problems(&self, _settings: &TransportConfig) -> Vec<String> {
        Vec::new()
    }

    /// Builds the transport to the endpoint of `agent`, whose scheme is one of this kind.
    ///
    /// # Errors
    /// Every reason why the agent cannot be called as configured, each prefixed with its field.
    fn build_transport(&self, agent: &Agent, settings: &TransportConfig) -> Result<EndpointTransport, Vec<String>>;

    /// Replaces the address policy. Connections that were opened under the old policy serve no further call.
    fn set_address_policy(&self, _policy: &Arc<AddressPolicy>) {}
}

/// Builds transports of every kind, for the kind whose endpoints lead to endpoints of other kinds.
pub(super) trait TransportBuilder: fmt::Debug + Send + Sync {
    /// As [`TransportKind::problems`], for all kinds.
    fn problems(&self, settings: &TransportConfig) -> Vec<String>;

    /// As [`TransportKind::build_transport`], for the kind that the endpoint's scheme selects.
    ///
    /// # Errors
    /// As [`TransportKind::build_transport`].
    fn build_transport(&self, agent: &Agent, settings: &TransportConfig) -> Result<EndpointTransport, Vec<String>>;
}

/// The error for an endpoint whose address does not have the form that the transport needs.
pub(super) fn unsuitable_endpoint(endpoint: &AgentEndpoint) -> Vec<String> {
    vec![format!("endpoint: cannot be called ({} is not an address of this transport)", endpoint.scheme().as_str())]
}
