//! Pingora with nothing added: each call goes to the one agent. A yardstick, built from the
//! crate versions that the gateway itself is built from.

use crate::proxy::Told;
use anyhow::Context as _;
use async_trait::async_trait;
use pingora_core::listeners::tls::TlsSettings;
use pingora_core::server::Server;
use pingora_core::server::configuration::ServerConf;
use pingora_core::upstreams::peer::HttpPeer;
use pingora_proxy::{ProxyHttp, Session, http_proxy_service};
use std::net::SocketAddr;

struct Pass {
    upstream: SocketAddr,
}

#[async_trait]
impl ProxyHttp for Pass {
    type CTX = ();

    fn new_ctx(&self) -> Self::CTX {}

    #[expect(clippy::disallowed_methods, reason = "the address is resolved already")]
    async fn upstream_peer(&self, _session: &mut Session, _ctx: &mut Self::CTX) -> pingora_core::Result<Box<HttpPeer>> {
        Ok(Box::new(HttpPeer::new(self.upstream, false, String::new())))
    }
}

/// Serves until killed.
pub(crate) fn serve(told: &Told) -> anyhow::Result<()> {
    // One worker: `run` gives it one core, as it does for every proxy beside it.
    let conf = ServerConf { threads: 1, ..ServerConf::default() };
    let mut server = Server::new_with_opt_and_conf(None, conf);
    server.bootstrap();
    let mut service = http_proxy_service(&server.configuration, Pass { upstream: told.upstream });
    service.add_tcp(&told.plain.to_string());
    let (chain, key) = (told.chain.to_str().context("a path in UTF-8")?, told.key.to_str().context("a path in UTF-8")?);
    let mut tls = TlsSettings::intermediate(chain, key)?;
    tls.enable_h2();
    service.add_tls_with_settings(&told.tls.to_string(), None, tls);
    server.add_service(service);
    server.run_forever()
}
