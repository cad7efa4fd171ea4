//! Agents on a real server (HTTP/1.1 and HTTP/2, TLS, unix sockets), agents that are a function of their
//! connection, and a client that resumes TLS sessions.

use super::{
    certs::{Authority, Issued},
    gateway::Build,
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
    net::SocketAddr,
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
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// What a real server was asked: the version of HTTP, and the subject of the certificate it was shown.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub versions: Arc<Mutex<Vec<String>>>,
    pub certificates: Arc<AtomicUsize>,
    pub connections: Arc<AtomicUsize>,
}

/// An agent on a real server that answers with the body it gets, as it gets it; gone when dropped.
pub struct Served {
    pub address: SocketAddr,
    pub seen: Seen,
    task: JoinHandle<()>,
}

impl Served {
    /// Over TCP, with TLS where a configuration is given.
    pub async fn echo(tls: Option<Arc<ServerConfig>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Seen::default();
        let shared = seen.clone();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (seen, tls) = (shared.clone(), tls.clone());
                seen.connections.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(async move {
                    let Some(tls) = tls else { return speak(stream, seen).await };
                    let Ok(stream) = TlsAcceptor::from(tls).accept(stream).await else { return };
                    let shown = stream.get_ref().1.peer_certificates().map_or(0, <[_]>::len);
                    seen.certificates.fetch_add(shown, Ordering::SeqCst);
                    speak(stream, seen).await;
                });
            }
        });
        Self { address, seen, task }
    }

    /// Over a unix socket at `path`.
    pub fn unix(path: &Path) -> Self {
        let listener = UnixListener::bind(path).unwrap();
        let seen = Seen::default();
        let shared = seen.clone();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(speak(stream, shared.clone()));
            }
        });
        Self { address: SocketAddr::from(([127, 0, 0, 1], 0)), seen, task }
    }

    pub fn document(&self, id: &str, scheme: &str) -> Value {
        json!({"id": id, "name": id, "endpoint": format!("{scheme}://{}/", self.address), "authentication": {"type": "api_key"}})
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn speak(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, seen: Seen) {
    let service = service_fn(move |request: Request<Incoming>| {
        seen.versions.lock().unwrap().push(format!("{:?}", request.version()));
        async move { Ok::<_, std::convert::Infallible>(reply(request)) }
    });
    let server = auto::Builder::new(TokioExecutor::new());
    let _ = server.serve_connection(TokioIo::new(stream), service).await;
}

/// The body as it comes, with its media type; a whole one for a request without a body.
fn reply(request: Request<Incoming>) -> Response<BoxBody<Bytes, hyper::Error>> {
    let media = request.headers().get("content-type").cloned();
    let body = match hyper::body::Body::is_end_stream(request.body()) {
        true => Full::new(Bytes::from_static(b"{}")).map_err(|never| match never {}).boxed(),
        false => request.into_body().boxed(),
    };
    let mut response = Response::new(body);
    if let Some(media) = media {
        response.headers_mut().insert("content-type", media);
    }
    response
}

/// A server's TLS, which asks for certificates of `clients` where there is such an authority.
pub fn tls(server: &Issued, clients: Option<&Authority>, protocols: &[&[u8]]) -> Arc<ServerConfig> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder =
        ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions().unwrap();
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(authority) => {
            let roots = Arc::new(roots(authority));
            builder.with_client_cert_verifier(
                WebPkiClientVerifier::builder_with_provider(roots, provider).build().unwrap(),
            )
        }
    };
    let (chain, key) = pair(server);
    let mut config = builder.with_single_cert(chain, key).unwrap();
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    Arc::new(config)
}

fn pair(issued: &Issued) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
    let certificate = CertificateDer::from_pem_slice(issued.certificate.as_bytes()).unwrap();
    (vec![certificate], PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).unwrap())
}

fn roots(authority: &Authority) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.pem().as_bytes()).unwrap()).unwrap();
    roots
}

/// An agent that is a function of its connection and the connection's number.
pub struct Raw {
    pub address: SocketAddr,
    task: JoinHandle<()>,
}

impl Raw {
    pub async fn new<F: Future<Output = ()> + Send + 'static>(
        talk: impl Fn(TcpStream, usize) -> F + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(async move {
            let mut number = 0;
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(talk(stream, number));
                number += 1;
            }
        });
        Self { address, task }
    }

    pub fn document(&self, id: &str) -> Value {
        json!({"id": id, "name": id, "endpoint": format!("http://{}/", self.address), "authentication": {"type": "api_key"}})
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A TLS client that resumes sessions wherever the server lets it, and shows its certificate when told to.
pub struct Resuming {
    config: Arc<ClientConfig>,
    shows: Arc<AtomicBool>,
}

#[derive(Debug)]
struct Shows(Arc<CertifiedKey>, Arc<AtomicBool>);

impl ResolvesClientCert for Shows {
    fn resolve(&self, _: &[&[u8]], _: &[rustls::SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.1.load(Ordering::SeqCst).then(|| Arc::clone(&self.0))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

impl Resuming {
    pub fn new(authority: &Authority, client: &Issued) -> Self {
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let (chain, key) = pair(client);
        let key = Arc::new(CertifiedKey::from_der(chain, key, &provider).unwrap());
        let shows = Arc::new(AtomicBool::new(true));
        let config = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots(authority))
            .with_client_cert_resolver(Arc::new(Shows(key, Arc::clone(&shows))));
        Self { config: Arc::new(config), shows }
    }

    /// Sends `request` on a new connection and reads until its end.
    pub async fn call(&self, to: SocketAddr, shows: bool, request: &str) -> String {
        self.shows.store(shows, Ordering::SeqCst);
        let stream = TcpStream::connect(to).await.unwrap();
        let name = "localhost".try_into().unwrap();
        let mut stream = TlsConnector::from(Arc::clone(&self.config)).connect(name, stream).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8_lossy(&answer).into_owned()
    }
}

/// A TLS listener with a certificate of `authority`, which asks for clients' certificates where `client_ca` names
/// a file in the folder.
pub fn tls_listener(build: &Build, authority: &Authority, client_ca: Option<&str>) -> String {
    let (certificate, key) = authority.server(&["localhost", "127.0.0.1"]).write(build.folder(), "server");
    let asks = client_ca.map(|file| format!(", client_ca: {}", build.folder().join(file).display()));
    format!(
        "listen:\n  - {{address: 127.0.0.1:0, tls: {{certificate: {}, key: {}{}}}}}\n",
        certificate.display(),
        key.display(),
        asks.unwrap_or_default()
    )
}
