//! Implementations of Pingora's stream traits for [`ConnectionStream`]: ALPN protocol and socket descriptor. The digest
//! traits return nothing, because [`super::HttpConnection`] holds those facts.

use super::connection_stream::ConnectionStream;
use async_trait::async_trait;
use pingora_core::protocols::{
    ALPN, GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, SocketDigest, Ssl, TimingDigest, UniqueID,
    UniqueIDType, raw_connect::ProxyDigest,
};
use std::{os::fd::AsRawFd, sync::Arc};
use tokio::io::AsyncWriteExt;

#[async_trait]
impl Shutdown for ConnectionStream {
    async fn shutdown(&mut self) {
        // The connection ends whether or not this succeeds.
        let _ = AsyncWriteExt::shutdown(self).await;
    }
}

impl UniqueID for ConnectionStream {
    fn id(&self) -> UniqueIDType {
        self.tcp().as_raw_fd()
    }
}

impl Ssl for ConnectionStream {
    fn selected_alpn_proto(&self) -> Option<ALPN> {
        Some(if self.is_http2() { ALPN::H2 } else { ALPN::H1 })
    }
}

#[async_trait]
impl Peek for ConnectionStream {}

impl GetTimingDigest for ConnectionStream {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        Vec::new()
    }
}

impl GetProxyDigest for ConnectionStream {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        None
    }
}

impl GetSocketDigest for ConnectionStream {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        None
    }
}
