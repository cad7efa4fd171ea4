//! Client side of an HTTP/2 connection, and the runtime that drives it.

use crate::client_stream::{ClientProtocol, server_name, tls_config};
use crate::http1_client::{PreparedRequest, RESPONSE_TIMEOUT};
use anyhow::Context as _;
use bytes::Bytes;
use h2::client::SendRequest;
use rustls::client::Resumption;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// A handle of a connection, for one call at a time. Clones make concurrent calls over the same connection.
#[derive(Clone)]
pub(super) struct Http2Connection {
    sender: SendRequest<Bytes>,
}

impl Http2Connection {
    pub(super) async fn connect(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).await.context("connect")?;
        stream.set_nodelay(true)?;
        let tls = TlsConnector::from(Arc::new(tls_config(ClientProtocol::Http2Tls, Resumption::disabled())?));
        let stream = timeout(RESPONSE_TIMEOUT, tls.connect(server_name()?, stream)).await??;
        let (sender, connection) = h2::client::handshake(stream).await?;
        // The calls over the connection see its error.
        tokio::spawn(async move { drop(connection.await) });
        Ok(Self { sender })
    }

    /// Makes one call, reads the complete response, and returns its status.
    pub(super) async fn call(self, request: &PreparedRequest) -> anyhow::Result<u16> {
        let exchange = async {
            let mut sender = self.sender.ready().await?;
            let body = request.body.clone();
            let (response, mut stream) = sender.send_request(request.head.clone(), body.is_empty())?;
            if !body.is_empty() {
                stream.send_data(body, true)?;
            }
            let (head, mut body) = response.await?.into_parts();
            while let Some(part) = body.data().await {
                body.flow_control().release_capacity(part?.len())?;
            }
            anyhow::Ok(head.status.as_u16())
        };
        timeout(RESPONSE_TIMEOUT, exchange).await?
    }
}

/// Builds the runtime of a load over HTTP/2, which has one thread.
pub(super) fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}
