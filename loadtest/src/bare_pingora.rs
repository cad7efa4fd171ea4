//! Bare Pingora as a yardstick: a proxy that forwards each call to the one agent, built from the crate versions that
//! the gateway is built from.

use crate::proxy::BareProxyArgs;
use anyhow::Context as _;
use async_trait::async_trait;
use pingora_core::listeners::tls::TlsSettings;
use pingora_core::server::Server;
use pingora_core::server::configuration::ServerConf;
use pingora_core::upstreams::peer::HttpPeer;
use pingora_proxy::{ProxyHttp, Session, http_proxy_service};
use std::net::SocketAddr;

struct PassThroughProxy {
    upstream: SocketAddr,
}

#[async_trait]
impl ProxyHttp for PassThroughProxy {
    type CTX = ();

    fn new_ctx(&self) -> Self::CTX {}

    #[expect(clippy::disallowed_methods, reason = "the address is resolved already")]
    async fn upstream_peer(&self, _session: &mut Session, _ctx: &mut Self::CTX) -> pingora_core::Result<Box<HttpPeer>> {
        Ok(Box::new(HttpPeer::new(self.upstream, false, String::new())))
    }
}

/// Serves until killed.
pub(crate) fn serve(args: &BareProxyArgs) -> anyhow::Result<()> {
    // One worker, because `run` pins every proxy to one core.
    let conf = ServerConf { threads: 1, ..ServerConf::default() };
    let mut server = Server::new_with_opt_and_conf(None, conf);
    server.bootstrap();
    let mut service = http_proxy_service(&server.configuration, PassThroughProxy { upstream: args.upstream });
    service.add_tcp(&args.plain.to_string());
    let chain = args.chain.to_str().context("the path of the certificate is not UTF-8")?;
    let key = args.key.to_str().context("the path of the key is not UTF-8")?;
    let mut tls = TlsSettings::intermediate(chain, key)?;
    tls.enable_h2();
    service.add_tls_with_settings(&args.tls.to_string(), None, tls);
    server.add_service(service);
    server.run_forever()
}
