//! Probes of HTTP endpoints: name, addresses, connection and TLS as for a call, with the reason of a failure; and
//! requests that are no calls.

use super::{
    HttpTarget,
    call_with_retry::call_with_retry,
    connection_pool::{ConnectAddress, PoolTls},
};
use crate::{
    fault::Fault,
    net::{self, ResolveError, error_chain},
    transport::{
        endpoint_probe::{ProbeFailure, ProbeReply, ProbeRequest, ReachedEndpoint},
        headers::HeaderMutations,
        upstream_body::RequestBody,
        upstream_transport::UpstreamCall,
    },
    values::CertificateValidity,
};
use rustls::{CertificateError, Error as TlsError};
use std::{io, sync::Arc, time::Duration};
use tokio::{
    net::{TcpStream, UnixStream},
    time::{Instant, timeout_at},
};
use tokio_rustls::TlsConnector;

/// How long before the deadline of a probe its TLS handshake must be complete.
const HANDSHAKE_MARGIN: Duration = Duration::from_millis(200);

/// Connects to the endpoint, with TLS where it has TLS, and closes the connection.
pub(in crate::transport) async fn probe_connection(
    target: &HttpTarget,
    deadline: Instant,
) -> Result<ReachedEndpoint, ProbeFailure> {
    timeout_at(deadline, connect_once(target, deadline)).await.unwrap_or(Err(ProbeFailure::TimedOut))
}

async fn connect_once(target: &HttpTarget, deadline: Instant) -> Result<ReachedEndpoint, ProbeFailure> {
    let (pool, policy) = (&target.pool, target.address_policy());
    let unreachable = |error: &io::Error| ProbeFailure::Unreachable(format!("{}: {error}", pool.key.address));
    let (host, port) = match &pool.key.address {
        ConnectAddress::Unix(path) if !policy.permits_unix_socket(path) => {
            let denied = ResolveError::SocketDenied { path: path.display().to_string() };
            return Err(ProbeFailure::SocketDenied(denied.to_string()));
        }
        ConnectAddress::Unix(path) => {
            let connected = UnixStream::connect(path).await;
            return connected.map(|_| ReachedEndpoint::default()).map_err(|error| unreachable(&error));
        }
        ConnectAddress::Tcp { host, port } => (host, *port),
    };
    let addresses = net::resolve_host(host, port, &policy).await.map_err(|error| match error {
        ResolveError::NoAddress { .. } => ProbeFailure::Unresolvable(error.to_string()),
        ResolveError::SocketDenied { .. } => ProbeFailure::SocketDenied(error.to_string()),
        ResolveError::Denied { address, .. } => match policy.own_listener_at(address) {
            Some(own) => ProbeFailure::OwnListener(own),
            None => ProbeFailure::Denied(error.to_string()),
        },
    })?;
    let mut failure = ProbeFailure::TimedOut;
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(socket) => {
                return match &pool.tls {
                    None => Ok(ReachedEndpoint::default()),
                    Some(tls) => handshake(tls, socket, deadline).await,
                };
            }
            Err(error) => failure = ProbeFailure::Unreachable(format!("{address}: {error}")),
        }
    }
    Err(failure)
}

async fn handshake(tls: &PoolTls, socket: TcpStream, deadline: Instant) -> Result<ReachedEndpoint, ProbeFailure> {
    let connector = TlsConnector::from(Arc::clone(&tls.profile.loaded().config));
    // Ends a moment before the probe, so that a server without TLS is told apart from one that accepts no connection.
    let until = deadline.checked_sub(HANDSHAKE_MARGIN).unwrap_or(deadline);
    let stream = timeout_at(until, connector.connect(tls.server_name.clone(), socket)).await;
    let late = |_| ProbeFailure::TlsFailed("the server did not complete a handshake in time".to_owned());
    let stream = stream.map_err(late)?.map_err(|error| tls_failure(&error))?;
    let (_, connection) = stream.get_ref();
    let leaf = connection.peer_certificates().and_then(<[_]>::first);
    Ok(ReachedEndpoint { certificate: leaf.and_then(|leaf| CertificateValidity::from_der(leaf).ok()) })
}

fn tls_failure(error: &io::Error) -> ProbeFailure {
    let text = error_chain(error);
    let cause = error.get_ref().and_then(|error| error.downcast_ref::<TlsError>());
    let Some(TlsError::InvalidCertificate(problem)) = cause else { return ProbeFailure::TlsFailed(text) };
    match problem {
        CertificateError::Expired
        | CertificateError::ExpiredContext { .. }
        | CertificateError::NotValidYet
        | CertificateError::NotValidYetContext { .. } => ProbeFailure::Expired(text),
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            ProbeFailure::WrongName(text)
        }
        _ => ProbeFailure::Untrusted(text),
    }
}

/// Sends a request to the server of the endpoint, with the credential that calls have, and reads the beginning of the
/// reply.
pub(in crate::transport) async fn send_probe(
    target: &Arc<HttpTarget>,
    request: ProbeRequest,
    deadline: Instant,
) -> Result<ProbeReply, Fault> {
    let body = if request.body.is_empty() { RequestBody::Empty } else { RequestBody::Whole(request.body) };
    let call = UpstreamCall {
        id: "",
        operation: "",
        method: request.method,
        path: request.path,
        query: None,
        headers: &request.headers,
        body,
        header_mutations: HeaderMutations::default(),
        instruction: None,
        metrics: None,
        attempts: None,
        trace: None,
    };
    let began = Instant::now();
    let mut reply = call_with_retry(target, call, deadline).await?;
    let elapsed = began.elapsed();
    // A body that ends early is no concern of a probe.
    let prefix = timeout_at(deadline, reply.body.peek(request.max_reply_size)).await.ok().and_then(Result::ok);
    let (bytes, is_complete) = prefix.map(|prefix| (prefix.bytes, prefix.complete)).unwrap_or_default();
    Ok(ProbeReply { status: reply.status, body: bytes, is_complete, credential_sent: reply.credential_sent, elapsed })
}
