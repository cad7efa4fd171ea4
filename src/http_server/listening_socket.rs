//! Listening sockets: bound here or taken over by listener handover; and the options of accepted sockets.

use super::{
    ConnectionLimits, ListenerConfig, client_address::TrustedProxies, listener_handover::InheritedListeners,
    tls_certificates::ReloadableTlsConfig,
};
use rustix::net::{self as rx, AddressFamily, SocketFlags, SocketType, sockopt};
use std::{
    io,
    net::{SocketAddr, TcpListener},
    sync::Arc,
    time::Duration,
};

/// Length of the kernel's queue of completed connections that wait to be accepted.
const ACCEPT_BACKLOG: i32 = 4096;

/// TCP keep-alive: an unreachable peer is detected after idle + interval × count.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
const KEEPALIVE_COUNT: u32 = 4;

/// A bound listening socket with its certificates, not yet accepting.
#[derive(Debug)]
pub struct BoundListener {
    /// The configured address, by which a listener handover identifies the socket.
    pub(super) label: String,
    pub(super) socket: TcpListener,
    pub(super) certificates: Option<Arc<ReloadableTlsConfig>>,
    pub(super) trusted_proxies: Option<TrustedProxies>,
}

impl BoundListener {
    /// Binds the address in `config`, or takes the inherited socket for it from `inherited`. A certificate that is not
    /// valid now is a problem only with `inherited`, where another process serves with a certificate of its own: a restart
    /// must not end the service.
    ///
    /// # Errors
    /// Every problem, each with its path within the listener.
    pub fn open(config: &ListenerConfig, inherited: Option<&mut InheritedListeners>) -> Result<Self, Vec<String>> {
        let mut problems = config.problems();
        let certificates = match config.tls.as_ref().map(ReloadableTlsConfig::load).transpose() {
            Ok(certificates) => certificates.map(Arc::new),
            Err(tls_problems) => {
                problems.extend(tls_problems);
                None
            }
        };
        if inherited.is_some() {
            problems.extend(certificates.as_ref().and_then(|certificates| certificates.validity_problem()));
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        let label = config.address.to_string();
        let socket = match inherited.and_then(|inherited| inherited.take_listener(&label)) {
            Some(socket) => Ok(socket),
            None => bind_socket(config.address),
        };
        let socket = socket.and_then(|socket| socket.set_nonblocking(true).map(|()| socket));
        let socket = socket.map_err(|error| vec![format!("address: {label} cannot be bound ({error})")])?;
        Ok(Self { label, socket, certificates, trusted_proxies: TrustedProxies::from_config(config) })
    }

    /// Returns the bound address, with the port that the system chose for port 0.
    ///
    /// # Errors
    /// The system's error.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }
}

/// Checks the files of every listener without opening a socket.
///
/// # Errors
/// Every problem with any of the files, as `listeners[i].…`.
pub fn check_listener_files(configs: &[ListenerConfig]) -> Result<(), Vec<String>> {
    let mut problems = Vec::new();
    for (index, config) in configs.iter().enumerate() {
        if let Some(Err(listener_problems)) = config.tls.as_ref().map(ReloadableTlsConfig::load) {
            problems.extend(listener_problems.into_iter().map(|problem| format!("listeners[{index}].{problem}")));
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

/// Opens every listener, from `inherited` where it has the address.
///
/// # Errors
/// Every problem with any of the listeners, as `listeners[i].…`.
pub fn bind_listeners(
    configs: &[ListenerConfig],
    mut inherited: Option<&mut InheritedListeners>,
) -> Result<Vec<BoundListener>, Vec<String>> {
    let mut listeners = Vec::new();
    let mut problems = Vec::new();
    for (index, config) in configs.iter().enumerate() {
        match BoundListener::open(config, inherited.as_deref_mut()) {
            Ok(listener) => listeners.push(listener),
            Err(listener_problems) => {
                problems.extend(listener_problems.into_iter().map(|problem| format!("listeners[{index}].{problem}")))
            }
        }
    }
    if problems.is_empty() { Ok(listeners) } else { Err(problems) }
}

fn bind_socket(address: SocketAddr) -> io::Result<TcpListener> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = rx::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    rx::bind(&socket, &address)?;
    rx::listen(&socket, ACCEPT_BACKLOG)?;
    Ok(socket.into())
}

/// Configures an accepted socket: no delay for small writes, TCP keep-alive and a timeout on unacknowledged data.
pub(super) fn configure_accepted_socket(socket: &tokio::net::TcpStream, limits: &ConnectionLimits) -> io::Result<()> {
    sockopt::set_tcp_nodelay(socket, true)?;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(socket, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(socket, KEEPALIVE_COUNT)?;
    // Closes a connection whose peer acknowledges nothing of a response, with any protocol.
    let timeout_ms = u32::try_from(limits.body_idle_timeout.get().as_millis()).unwrap_or(u32::MAX);
    Ok(sockopt::set_tcp_user_timeout(socket, timeout_ms)?)
}
