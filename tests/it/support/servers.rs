//! Agents on a real HTTP server (HTTP/1.1 and HTTP/2, TLS, unix sockets), agents that handle raw connections, and a
//! client that resumes TLS sessions.

use super::{
    certs::{CertificateAuthority, IssuedCertificate},
    gateway::GatewayBuilder,
};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use hyper::{Request, Response, body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    client::ResolvesClientCert,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
    sign::CertifiedKey,
};
use serde_json::{Value, json};
use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream, UnixListener},
    task::JoinHandle,
};
use tokio_rustls::{TlsAcceptor, TlsConnector, client::TlsStream};

/// What a server observed: the HTTP version of each request, and the numbers of client certificates and connections.
#[derive(Clone, Debug, Default)]
pub struct ServerObservations {
    pub versions: Arc<Mutex<Vec<String>>>,
    pub certificates: Arc<AtomicUsize>,
    pub connections: Arc<AtomicUsize>,
}

/// An agent on a real server that echoes each body while it arrives. The server ends when it is dropped.
pub struct EchoServer {
    pub address: SocketAddr,
    pub observed: ServerObservations,
    task: JoinHandle<()>,
}

impl EchoServer {
    /// Starts the agent on TCP, with TLS if there is a configuration.
    pub async fn start(tls: Option<Arc<ServerConfig>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let observed = ServerObservations::default();
        let shared = observed.clone();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (observed, tls) = (shared.clone(), tls.clone());
                observed.connections.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(async move {
                    let Some(tls) = tls else { return serve_http(stream, observed).await };
                    let Ok(stream) = TlsAcceptor::from(tls).accept(stream).await else { return };
                    let certificates = stream.get_ref().1.peer_certificates().map_or(0, <[_]>::len);
                    observed.certificates.fetch_add(certificates, Ordering::SeqCst);
                    serve_http(stream, observed).await;
                });
            }
        });
        Self { address, observed, task }
    }

    /// Starts the agent on a unix socket at `path`.
    pub fn start_on_unix_socket(path: &Path) -> Self {
        let listener = UnixListener::bind(path).unwrap();
        let observed = ServerObservations::default();
        let shared = observed.clone();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve_http(stream, shared.clone()));
            }
        });
        Self { address: SocketAddr::from(([127, 0, 0, 1], 0)), observed, task }
    }

    pub fn document(&self, id: &str, scheme: &str) -> Value {
        json!({"id": id, "name": id, "endpoint": format!("{scheme}://{}/", self.address), "authentication": {"type": "api_key"}})
    }
}

impl Drop for EchoServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve_http(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, observed: ServerObservations) {
    let service = service_fn(move |request: Request<Incoming>| {
        observed.versions.lock().unwrap().push(format!("{:?}", request.version()));
        async move { Ok::<_, std::convert::Infallible>(echo_body(request)) }
    });
    let server = auto::Builder::new(TokioExecutor::new());
    let _ = server.serve_connection(TokioIo::new(stream), service).await;
}

/// A response with the body and the media type of the request; `{}` for a request without a body.
fn echo_body(request: Request<Incoming>) -> Response<BoxBody<Bytes, hyper::Error>> {
    let media_type = request.headers().get("content-type").cloned();
    let body = if hyper::body::Body::is_end_stream(request.body()) {
        Full::new(Bytes::from_static(b"{}")).map_err(|never| match never {}).boxed()
    } else {
        request.into_body().boxed()
    };
    let mut response = Response::new(body);
    if let Some(media_type) = media_type {
        response.headers_mut().insert("content-type", media_type);
    }
    response
}

/// The TLS configuration of a server. With `client_ca`, the server requires client certificates of that authority.
pub fn server_tls_config(
    server: &IssuedCertificate,
    client_ca: Option<&CertificateAuthority>,
    protocols: &[&[u8]],
) -> Arc<ServerConfig> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder =
        ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions().unwrap();
    let builder = match client_ca {
        None => builder.with_no_client_auth(),
        Some(authority) => {
            let roots = Arc::new(roots(authority));
            builder.with_client_cert_verifier(
                WebPkiClientVerifier::builder_with_provider(roots, provider).build().unwrap(),
            )
        }
    };
    let (chain, key) = chain_and_key(server);
    let mut config = builder.with_single_cert(chain, key).unwrap();
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    Arc::new(config)
}

fn chain_and_key(issued: &IssuedCertificate) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
    let certificate = CertificateDer::from_pem_slice(issued.certificate.as_bytes()).unwrap();
    (vec![certificate], PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).unwrap())
}

fn roots(authority: &CertificateAuthority) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.pem().as_bytes()).unwrap()).unwrap();
    roots
}

/// An agent that handles each connection with a function. The function gets the number of the connection too.
pub struct RawAgent {
    pub address: SocketAddr,
    task: JoinHandle<()>,
}

impl RawAgent {
    pub async fn start<F: Future<Output = ()> + Send + 'static>(
        handle: impl Fn(TcpStream, usize) -> F + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(async move {
            let mut number = 0;
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(handle(stream, number));
                number += 1;
            }
        });
        Self { address, task }
    }

    pub fn document(&self, id: &str) -> Value {
        json!({"id": id, "name": id, "endpoint": format!("http://{}/", self.address), "authentication": {"type": "api_key"}})
    }
}

impl Drop for RawAgent {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A TLS client that resumes sessions if the server allows it. Each call decides whether it presents its certificate.
pub struct ResumingTlsClient {
    config: Arc<ClientConfig>,
    present_certificate: Arc<AtomicBool>,
}

#[derive(Debug)]
struct OptionalCertificate(Arc<CertifiedKey>, Arc<AtomicBool>);

impl ResolvesClientCert for OptionalCertificate {
    fn resolve(&self, _: &[&[u8]], _: &[rustls::SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.1.load(Ordering::SeqCst).then(|| Arc::clone(&self.0))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

impl ResumingTlsClient {
    pub fn new(authority: &CertificateAuthority, client: &IssuedCertificate) -> Self {
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let (chain, key) = chain_and_key(client);
        let key = Arc::new(CertifiedKey::from_der(chain, key, &provider).unwrap());
        let present_certificate = Arc::new(AtomicBool::new(true));
        let resolver = OptionalCertificate(key, Arc::clone(&present_certificate));
        let config = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots(authority))
            .with_client_cert_resolver(Arc::new(resolver));
        Self { config: Arc::new(config), present_certificate }
    }

    /// Opens a connection.
    pub async fn connect(&self, to: SocketAddr) -> TlsStream<TcpStream> {
        let stream = TcpStream::connect(to).await.unwrap();
        TlsConnector::from(Arc::clone(&self.config)).connect("localhost".try_into().unwrap(), stream).await.unwrap()
    }

    /// Sends `request` on a new connection and reads until its end.
    pub async fn call(&self, to: SocketAddr, present_certificate: bool, request: &str) -> String {
        self.present_certificate.store(present_certificate, Ordering::SeqCst);
        let mut stream = self.connect(to).await;
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut response = Vec::new();
        let _ = stream.read_to_end(&mut response).await;
        String::from_utf8_lossy(&response).into_owned()
    }
}

/// The section of a TLS listener with a certificate of `authority`. It requests client certificates if `client_ca` is
/// a file in the folder of the configuration.
pub fn tls_listener_section(
    build: &GatewayBuilder,
    authority: &CertificateAuthority,
    client_ca: Option<&str>,
) -> String {
    let (certificate, key) = authority.server(&["localhost", "127.0.0.1"]).write(build.folder(), "server");
    let client_ca = client_ca.map(|file| format!(", client_ca: {}", build.folder().join(file).display()));
    format!(
        "listeners:\n  - {{address: 127.0.0.1:0, tls: {{certificate: {}, key: {}{}}}}}\n",
        certificate.display(),
        key.display(),
        client_ca.unwrap_or_default()
    )
}

/// A client that trusts `authority`, and presents a certificate of its own if it has one.
pub fn tls_client(authority: &CertificateAuthority, identity: Option<&IssuedCertificate>) -> reqwest::ClientBuilder {
    let root = reqwest::Certificate::from_pem(authority.pem().as_bytes()).unwrap();
    let client = reqwest::Client::builder().no_proxy().tls_certs_only([root]);
    match identity {
        Some(IssuedCertificate { certificate, key }) => {
            client.identity(reqwest::Identity::from_pem(format!("{certificate}{key}").as_bytes()).unwrap())
        }
        None => client,
    }
}

/// A client that connects from `address`.
pub fn client_at(address: Ipv4Addr) -> reqwest::ClientBuilder {
    reqwest::Client::builder().no_proxy().local_address(IpAddr::V4(address))
}
