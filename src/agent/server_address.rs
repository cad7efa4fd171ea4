//! One address of an agent's server, where the agent's source knows the instances behind the endpoint.

use std::net::SocketAddr;

/// One address of an agent's server. Calls connect to it, and name the host of the endpoint: in `Host`, and in the
/// certificate that they require.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ServerAddress {
    /// The address.
    pub address: SocketAddr,
    /// Whether calls go there before they go to addresses that are not preferred.
    pub is_preferred: bool,
}
