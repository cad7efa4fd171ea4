//! The trusted proxies of a listener, and where they write the client's address.

use super::{
    forwarded_header::{self, ForwardedClient},
    proxy_protocol::{self, ProxyHeaderError},
};
use crate::{
    fault::{Fault, FaultCode},
    http_server::config::{ClientAddressSource, ListenerConfig},
    values::AddressRange,
};
use http::HeaderMap;
use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};
use tokio::{net::TcpStream, time::timeout};

/// The trusted proxies of a listener.
#[derive(Debug)]
pub(in crate::http_server) struct TrustedProxies {
    networks: Vec<AddressRange>,
    source: ClientAddressSource,
}

impl TrustedProxies {
    /// Returns the trusted proxies of a listener; `None` if it has none.
    pub(in crate::http_server) fn from_config(config: &ListenerConfig) -> Option<Self> {
        let has_proxies =
            !config.trusted_proxies.is_empty() && config.client_address != ClientAddressSource::Connection;
        has_proxies.then(|| Self { networks: config.trusted_proxies.clone(), source: config.client_address })
    }

    /// Whether `address` is one of the proxies.
    pub(in crate::http_server) fn contains(&self, address: IpAddr) -> bool {
        self.networks.iter().any(|network| network.contains_ip(address))
    }

    /// Whether the proxies write the client's address into the header of each request.
    pub(in crate::http_server) fn sends_header(&self) -> bool {
        matches!(self.source, ClientAddressSource::Forwarded | ClientAddressSource::XForwardedFor)
    }

    /// Returns the address of the client of a new connection: with the PROXY protocol the one that the header of a
    /// trusted proxy names, and else the peer's. Reads the header from `tcp`.
    ///
    /// # Errors
    /// A trusted proxy sends no valid header in time.
    pub(in crate::http_server) async fn read_client_address(
        &self,
        tcp: &mut TcpStream,
        peer: SocketAddr,
        max_wait: Duration,
    ) -> Result<SocketAddr, ProxyHeaderError> {
        if self.source != ClientAddressSource::ProxyProtocol || !self.contains(peer.ip()) {
            return Ok(peer);
        }
        let header = timeout(max_wait, proxy_protocol::read_proxy_header(tcp)).await;
        header.map_err(|_| ProxyHeaderError::TimedOut)?.map(|client| client.unwrap_or(peer))
    }

    /// Returns the client of a request of the trusted proxy `peer`, from the header that the proxies write.
    ///
    /// # Errors
    /// 400 if the header is not valid.
    pub(in crate::http_server) fn forwarded_client(
        &self,
        peer: IpAddr,
        headers: &HeaderMap,
    ) -> Result<ForwardedClient, Fault> {
        let is_proxy = |address| self.contains(address);
        let (client, name) = match self.source {
            ClientAddressSource::Forwarded => {
                (forwarded_header::client_from_forwarded(headers, peer, is_proxy), "Forwarded")
            }
            _ => (forwarded_header::client_from_x_forwarded_for(headers, peer, is_proxy), "X-Forwarded-For"),
        };
        client.ok_or_else(|| {
            Fault::new(FaultCode::InvalidInput, format!("The header {name} is not valid"))
                .with_detail(format_args!("{name} of the trusted proxy {peer}"))
        })
    }
}
