//! Bare hyper as a yardstick: a proxy of hyper's server, hyper's client, and a list of idle connections between them,
//! on one thread. Shows the cost of Rust's usual HTTP crates before anything is added to them.

use crate::proxy::BareProxyArgs;
use anyhow::Context as _;
use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::http1::{self as client, SendRequest};
use hyper::header::{CONNECTION, HOST, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, Uri, server};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

type UpstreamSender = SendRequest<Incoming>;

/// The address of the agent, and the idle connections to it.
#[derive(Clone)]
struct ConnectionPool {
    upstream: SocketAddr,
    idle: Arc<Mutex<Vec<UpstreamSender>>>,
}

impl ConnectionPool {
    /// Returns an idle connection, or opens one.
    async fn acquire(&self) -> anyhow::Result<UpstreamSender> {
        loop {
            let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let Some(mut sender) = idle else { break };
            if sender.ready().await.is_ok() {
                return Ok(sender);
            }
        }
        let stream = TcpStream::connect(self.upstream).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = client::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(sender)
    }
}

/// Serves until killed.
pub(crate) fn serve(args: &BareProxyArgs) -> anyhow::Result<()> {
    let chain = CertificateDer::pem_file_iter(&args.chain)?.collect::<Result<Vec<_>, _>>()?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let mut config = builder.with_no_client_auth().with_single_cert(chain, PrivateKeyDer::from_pem_file(&args.key)?)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let pool = ConnectionPool { upstream: args.upstream, idle: Arc::default() };
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let (plain, tls) = (TcpListener::bind(args.plain).await?, TcpListener::bind(args.tls).await?);
        tokio::spawn(accept_tls(tls, acceptor, pool.clone()));
        loop {
            let (stream, _) = plain.accept().await?;
            stream.set_nodelay(true)?;
            tokio::spawn(serve_connection(stream, false, pool.clone()));
        }
    })
}

async fn accept_tls(listener: TcpListener, acceptor: TlsAcceptor, pool: ConnectionPool) -> anyhow::Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let (acceptor, pool) = (acceptor.clone(), pool.clone());
        tokio::spawn(async move {
            if let Ok(stream) = acceptor.accept(stream).await {
                let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                serve_connection(stream, is_http2, pool).await;
            }
        });
    }
}

async fn serve_connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    is_http2: bool,
    pool: ConnectionPool,
) {
    let service = service_fn(move |request| forward(request, pool.clone()));
    // An error ends the connection and has no recipient: the client has left.
    if is_http2 {
        let builder = server::conn::http2::Builder::new(TokioExecutor::new());
        drop(builder.serve_connection(TokioIo::new(stream), service).await);
    } else {
        drop(server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
    }
}

async fn forward(mut request: Request<Incoming>, pool: ConnectionPool) -> anyhow::Result<Response<PooledBody>> {
    let path = request.uri().path_and_query().context("a request without a path")?.as_str().parse::<Uri>()?;
    // Over HTTP/2 the URI contains the host.
    if let Some(host) = request.uri().authority() {
        let host = HeaderValue::from_str(host.as_str())?;
        request.headers_mut().insert(HOST, host);
    }
    *request.uri_mut() = path;
    *request.version_mut() = hyper::Version::HTTP_11;
    request.headers_mut().remove(CONNECTION);
    let mut sender = pool.acquire().await?;
    let mut response = sender.send_request(request).await?;
    response.headers_mut().remove(CONNECTION);
    let sender_and_pool = Some((sender, Arc::clone(&pool.idle)));
    Ok(response.map(|body| PooledBody { body, sender_and_pool }))
}

/// The body of a response. At its end, the connection returns to the pool.
struct PooledBody {
    body: Incoming,
    sender_and_pool: Option<(UpstreamSender, Arc<Mutex<Vec<UpstreamSender>>>)>,
}

impl PooledBody {
    fn return_connection(&mut self) {
        if let Some((sender, idle)) = self.sender_and_pool.take() {
            idle.lock().unwrap_or_else(PoisonError::into_inner).push(sender);
        }
    }
}

impl Body for PooledBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if frame.is_none() || self.body.is_end_stream() {
            self.return_connection();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
