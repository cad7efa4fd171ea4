//! Shared parts of the HTTP server's tests: an echo handler and a raw client.

mod client_certificates;
mod connection_age;
mod drain_and_handover;
mod http1;
mod http2;
mod malformed_requests;
mod tls;
mod trusted_proxies;

use super::*;
use crate::{
    fault::{ErrorFormat, Fault, FaultCode},
    telemetry::{ExpositionFormat, Metrics},
    values::ConfigDuration,
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    sync::Notify,
    time::{Instant, timeout},
};

/// Longer than any step of these tests takes.
const TEST_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Default)]
struct EchoHandler {
    served: AtomicUsize,
    refused: AtomicUsize,
    gone: AtomicUsize,
    waiting: AtomicUsize,
    release: Notify,
}

impl EchoHandler {
    async fn respond(
        session: &mut HttpSession,
        connection: &TestConnection,
        status: u16,
        body: Vec<u8>,
    ) -> ServeOutcome {
        session.prepare_keep_alive(connection).await;
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_LENGTH, body.len().into());
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let written =
            match session.write_head(ResponseHead { status: StatusCode::from_u16(status).unwrap(), headers }).await {
                Ok(()) => session.write_body(Bytes::from(body), true).await,
                Err(error) => Err(error),
            };
        if written.is_ok() { ServeOutcome::Complete } else { ServeOutcome::Aborted }
    }

    async fn respond_with_fault(session: &mut HttpSession, connection: &TestConnection, fault: Fault) -> ServeOutcome {
        Self::respond(session, connection, fault.http_status(), fault.to_body(ErrorFormat::Error, "r")).await
    }

    async fn read(session: &mut HttpSession) -> Result<usize, Fault> {
        let deadline = Instant::now() + Duration::from_secs(5);
        session.send_continue_if_expected().await;
        let mut length = 0;
        while let Some(chunk) = session.read_body_chunk(deadline).await? {
            length += chunk.len();
        }
        Ok(length)
    }

    async fn wait_for_release(&self, session: &mut HttpSession) -> bool {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        tokio::select! {
            () = self.release.notified() => true,
            () = session.wait_for_disconnect() => { self.gone.fetch_add(1, Ordering::SeqCst); false }
        }
    }

    async fn stream(&self, session: &mut HttpSession, completes: bool) -> ServeOutcome {
        let mut headers = HeaderMap::new();
        if !session.is_http2() {
            headers.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        session.write_head(ResponseHead { status: StatusCode::OK, headers }).await.unwrap();
        session.write_body(Bytes::from_static(b"first"), false).await.unwrap();
        if !completes || !self.wait_for_release(session).await {
            return ServeOutcome::Aborted;
        }
        session.write_body(Bytes::from_static(b"second"), true).await.unwrap();
        ServeOutcome::Complete
    }
}

/// A connection without state of the service.
struct TestConnection(HttpConnection);

impl std::ops::Deref for TestConnection {
    type Target = HttpConnection;

    fn deref(&self) -> &HttpConnection {
        &self.0
    }
}

impl HttpService for EchoHandler {
    type Connection = TestConnection;

    fn open_connection(&self, connection: HttpConnection) -> TestConnection {
        TestConnection(connection)
    }

    async fn serve_request(
        self: &Arc<Self>,
        session: &mut HttpSession,
        connection: &Arc<TestConnection>,
    ) -> ServeOutcome {
        self.served.fetch_add(1, Ordering::SeqCst);
        let path = session.head().uri.path().to_owned();
        match path.as_str() {
            "/refuse" => Self::respond_with_fault(session, connection, Fault::new(FaultCode::Unauthorized, "no")).await,
            "/wait" if self.wait_for_release(session).await => {
                Self::respond(session, connection, 200, b"{}".to_vec()).await
            }
            "/wait" => ServeOutcome::Aborted,
            "/stream" => self.stream(session, true).await,
            "/abort" => self.stream(session, false).await,
            "/panic" => panic!("a defect"),
            "/facts" => {
                let tls = connection.tls.as_ref();
                let facts = serde_json::json!({
                    "certificates": tls.map(|tls| tls.client_certificates.len()), "name": tls.and_then(|tls| tls.server_name.clone()),
                    "trusted": tls.map(TlsInfo::is_client_trusted),
                    "version": tls.map(|tls| tls.version), "h2": tls.map(|tls| tls.is_http2), "peer": connection.client_address.to_string(),
                });
                Self::respond(session, connection, 200, facts.to_string().into_bytes()).await
            }
            _ => match Self::read(session).await {
                Ok(length) => {
                    Self::respond(
                        session,
                        connection,
                        200,
                        format!("{{\"length\":{length},\"path\":\"{path}\"}}").into_bytes(),
                    )
                    .await
                }
                Err(fault) => Self::respond_with_fault(session, connection, fault).await,
            },
        }
    }

    async fn refuse_request(
        self: &Arc<Self>,
        session: &mut HttpSession,
        connection: &Arc<TestConnection>,
        refused: RefusedRequest,
    ) {
        self.refused.fetch_add(1, Ordering::SeqCst);
        Self::respond_with_fault(session, connection, refused.fault).await;
    }
}

struct TestServer {
    http_server: HttpServer,
    echo: Arc<EchoHandler>,
    metrics: Arc<Metrics>,
    address: SocketAddr,
}

fn plain_listener() -> ListenerConfig {
    ListenerConfig {
        address: "127.0.0.1:0".parse().unwrap(),
        tls: None,
        allow_plaintext: false,
        trusted_proxies: Vec::new(),
        client_address: ClientAddressSource::Connection,
    }
}

/// Short limits, so that tests reach them quickly.
fn short_timeouts() -> ConnectionLimits {
    ConnectionLimits {
        header_timeout: ConfigDuration::from_millis(300),
        idle_timeout: ConfigDuration::from_millis(600),
        body_idle_timeout: ConfigDuration::from_millis(300),
        tls_handshake_timeout: ConfigDuration::from_millis(300),
        ..ConnectionLimits::default()
    }
}

fn start_server(config: &ListenerConfig, limits: ConnectionLimits) -> TestServer {
    let metrics = Metrics::new().unwrap();
    let echo = Arc::new(EchoHandler::default());
    let listeners = bind_listeners(std::slice::from_ref(config), None).unwrap();
    let http_server = HttpServer::start(listeners, limits, &echo, &metrics).unwrap();
    let address = http_server.addresses()[0];
    TestServer { http_server, echo, metrics, address }
}

impl TestServer {
    async fn connect(&self) -> RawClient<TcpStream> {
        let tcp = TcpStream::connect(self.address).await.unwrap();
        tcp.set_nodelay(true).unwrap();
        RawClient(tcp)
    }

    /// Reloads certificates; returns why they were rejected.
    fn reload_certificates(&self) -> Vec<String> {
        self.http_server.reload_changed_certificates().into_iter().flat_map(|reload| reload.problems).collect()
    }

    fn metric_sum(&self, event: &str) -> u64 {
        let text = self.metrics.render(ExpositionFormat::Text);
        let lines = text.lines().filter(|line| line.contains(&format!("\"{event}\"")));
        lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum::<f64>() as u64
    }
}

/// A client that sends and reads raw bytes.
struct RawClient<T>(T);

/// A response as read from the connection.
#[derive(Debug)]
struct RawResponse {
    status: u16,
    head: String,
    body: String,
}

impl<T: AsyncRead + AsyncWrite + Unpin> RawClient<T> {
    async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        // A server that refused the request may have closed the connection already.
        let _ = self.0.write_all(bytes.as_ref()).await;
        let _ = self.0.flush().await;
    }

    /// Reads one response; `None` if the connection ended instead.
    async fn read_response(&mut self) -> Option<RawResponse> {
        let head = self.read_until("\r\n\r\n").await?;
        let status = head.get(9..12)?.parse().ok()?;
        let lower = head.to_ascii_lowercase();
        let length = lower.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok()).unwrap_or(0);
        let mut body = vec![0; if status == 100 { 0 } else { length }];
        timeout(TEST_TIMEOUT, self.0.read_exact(&mut body)).await.unwrap().ok()?;
        Some(RawResponse { status, head: lower, body: String::from_utf8(body).unwrap() })
    }

    async fn read_until(&mut self, end: &str) -> Option<String> {
        let mut text = Vec::new();
        while !text.ends_with(end.as_bytes()) {
            let mut byte = [0];
            match timeout(TEST_TIMEOUT, self.0.read(&mut byte)).await.expect("the server responds in time") {
                Ok(1) => text.push(byte[0]),
                _ => return None,
            }
        }
        Some(String::from_utf8_lossy(&text).into_owned())
    }

    /// Reads the bytes that are left until the server closes.
    async fn read_to_end(&mut self) -> String {
        let mut rest = Vec::new();
        // A reset ends the stream like a close.
        let _ = timeout(TEST_TIMEOUT, self.0.read_to_end(&mut rest)).await.expect("the server closes");
        String::from_utf8_lossy(&rest).into_owned()
    }
}

/// Polls until `holds` returns true; `what` names the condition.
async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + TEST_TIMEOUT;
    while !condition() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

const GET: &str = "GET /after HTTP/1.1\r\nHost: a\r\n\r\n";

fn post_head(path: &str, length: usize) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n")
}
