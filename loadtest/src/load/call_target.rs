//! Call target: the destination and the request of calls.

use super::h2_connection::{self, Http2Connection};
use crate::client_stream::ClientProtocol;
use crate::http1_client::{Http1Connection, PreparedRequest};
use anyhow::ensure;
use std::net::SocketAddr;

/// The destination and the request of calls.
#[derive(Clone)]
pub(crate) struct CallTarget {
    pub(crate) address: SocketAddr,
    pub(crate) protocol: ClientProtocol,
    pub(crate) request: PreparedRequest,
}

impl CallTarget {
    /// Calls over plain HTTP/1.1.
    pub(crate) fn plain(address: SocketAddr, request: PreparedRequest) -> Self {
        Self { address, protocol: ClientProtocol::Http1, request }
    }

    /// The same calls over another protocol, which has its own listener.
    pub(crate) fn over(&self, protocol: ClientProtocol, address: SocketAddr) -> Self {
        Self { address, protocol, request: self.request.clone() }
    }

    pub(super) fn connect_all(&self, connections: u64) -> anyhow::Result<Vec<Http1Connection>> {
        (0..connections).map(|_| self.connect()).collect()
    }

    pub(super) fn connect(&self) -> anyhow::Result<Http1Connection> {
        Http1Connection::connect(self.protocol, self.address)
    }

    /// Makes one call and fails with the response's text unless the status is 200. Shows before a measurement that it
    /// measures the right thing.
    pub(crate) fn try_once(&self) -> anyhow::Result<()> {
        if self.protocol == ClientProtocol::Http2Tls {
            return self.try_once_over_http2();
        }
        let mut connection = self.connect()?;
        let (status, response) = connection.call_and_read(&self.request)?;
        let response = String::from_utf8_lossy(response);
        ensure!(status == 200, "the first call failed:\n{response}");
        Ok(())
    }

    fn try_once_over_http2(&self) -> anyhow::Result<()> {
        h2_connection::runtime()?.block_on(async {
            let status = Http2Connection::connect(self.address).await?.call(&self.request).await?;
            ensure!(status == 200, "the first call failed with status {status}");
            Ok(())
        })
    }
}
