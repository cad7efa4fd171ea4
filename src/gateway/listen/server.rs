//! The HTTP server: accept loops, the limit on open connections, draining, and the sockets to hand over.

use super::{Limits, Listener, Service, connection::Live, drive::Door, tls::Certificates};
use crate::telemetry::{Connection, Event, Metrics};
use std::{io, net::SocketAddr, os::fd::OwnedFd, sync::Arc, time::Duration};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Semaphore, watch},
    task::JoinSet,
    time::timeout,
};

/// Pause after a failed accept, for example without free file descriptors or memory; an immediate retry would spin.
const AFTER_FAILURE: Duration = Duration::from_millis(50);

/// Maximum connections accepted from the kernel's queue while a listener closes.
const LAST_ACCEPTED: usize = 4096;

/// Time for aborted calls to write their log records after the drain deadline.
const AFTER_CUT: Duration = Duration::from_secs(1);

/// A running HTTP server. Dropping it aborts every connection; [`HttpServer::drain`] closes them gracefully.
#[derive(Debug)]
pub struct Server {
    stop: watch::Sender<bool>,
    loops: JoinSet<()>,
    live: Arc<Live>,
    addresses: Vec<SocketAddr>,
    certificates: Vec<Arc<Certificates>>,
    sockets: Vec<(String, OwnedFd)>,
    metrics: Arc<Metrics>,
}

/// What was still open when a drain reached its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Connections that were aborted.
    pub connections: usize,
    /// Requests that were aborted with them.
    pub calls: usize,
}

impl Server {
    /// Starts accepting on `listeners`; requires a tokio runtime.
    ///
    /// # Errors
    /// The system's error, when a socket cannot be registered with the runtime.
    pub fn start<S: Service>(
        listeners: Vec<Listener>,
        limits: Limits,
        service: &Arc<S>,
        metrics: &Arc<Metrics>,
    ) -> io::Result<Self> {
        let (stop, watch) = watch::channel(false);
        let mut server = Self {
            stop,
            loops: JoinSet::new(),
            live: Arc::default(),
            addresses: Vec::new(),
            certificates: Vec::new(),
            sockets: Vec::new(),
            metrics: Arc::clone(metrics),
        };
        let limits = Arc::new(limits);
        for listener in listeners {
            server.addresses.push(listener.address()?);
            server.sockets.push((listener.label, listener.socket.try_clone()?.into()));
            server.certificates.extend(listener.certificates.clone());
            let door = Door {
                service: Arc::clone(service),
                limits: Arc::clone(&limits),
                certificates: listener.certificates,
                metrics: Arc::clone(metrics),
                stop: watch.clone(),
                live: Arc::clone(&server.live),
            };
            server.loops.spawn(accept(Arc::new(door), TcpListener::from_std(listener.socket)?));
        }
        Ok(server)
    }

    /// Returns the bound addresses, in the order of the configuration.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns the number of open connections.
    pub fn connections(&self) -> usize {
        self.live.connections()
    }

    /// Returns the number of requests in progress.
    pub fn calls(&self) -> usize {
        self.live.calls()
    }

    /// Duplicates the listening sockets with their labels, for a process that takes over.
    ///
    /// # Errors
    /// The system's error, when there are no free file descriptors.
    pub fn sockets(&self) -> io::Result<Vec<(String, OwnedFd)>> {
        self.sockets.iter().map(|(label, socket)| Ok((label.clone(), socket.try_clone()?))).collect()
    }

    /// Reloads the certificates whose files have changed; to be called about once a second. Returns why certificates
    /// were rejected, once per change.
    pub fn reload_if_changed(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for changed in self.certificates.iter().filter_map(|certificates| certificates.reload_if_changed()) {
            match changed {
                Ok(()) => self.metrics.count(Event::CertificatesLoaded),
                Err(more) => {
                    self.metrics.count(Event::CertificatesRefused);
                    problems.extend(more);
                }
            }
        }
        problems
    }

    /// Stops accepting, closes idle connections, lets requests finish, and aborts the remaining ones after `max_wait`.
    pub async fn drain(mut self, longest: Duration) -> Drained {
        // Closed before the accept loops stop, so that no client connects to a socket that is no longer accepted from.
        self.sockets.clear();
        self.stop.send_replace(true);
        let quiet = async {
            while self.loops.join_next().await.is_some() {}
            self.live.quiet().await;
        };
        let _ = timeout(longest, quiet).await;
        let left = Drained { connections: self.live.connections(), calls: self.live.calls() };
        self.loops.shutdown().await;
        let _ = timeout(AFTER_CUT, self.live.quiet()).await;
        left
    }
}

/// Accepts connections until shutdown, then waits for them to end. Dropping the future aborts them.
async fn accept<S: Service>(door: Arc<Door<S>>, listener: TcpListener) {
    let room = Arc::new(Semaphore::new(door.limits.max_connections.min(Semaphore::MAX_PERMITS)));
    let mut connections = JoinSet::new();
    let mut stop = door.stop.clone();
    loop {
        let accepted = tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => break,
            Some(ended) = connections.join_next() => {
                report(ended);
                continue;
            }
            accepted = listener.accept() => accepted,
        };
        let (tcp, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) if is_of_one_connection(&error) => continue,
            Err(error) => {
                door.metrics.count(Event::AcceptFailed);
                tracing::warn!(%error, "accepting a connection failed");
                tokio::time::sleep(AFTER_FAILURE).await;
                continue;
            }
        };
        let_in(&door, &room, &mut connections, (tcp, peer));
    }
    // Clients that are already connected in the kernel's queue would otherwise be reset.
    waiting(listener).for_each(|accepted| let_in(&door, &room, &mut connections, accepted));
    while let Some(ended) = connections.join_next().await {
        report(ended);
    }
}

/// Serves a connection on its own task, or closes it if the limit on connections is reached.
fn let_in<S: Service>(
    door: &Arc<Door<S>>,
    room: &Arc<Semaphore>,
    connections: &mut JoinSet<()>,
    (tcp, peer): (TcpStream, SocketAddr),
) {
    let Ok(permit) = Arc::clone(room).try_acquire_owned() else {
        return door.metrics.connection(Connection::Refused);
    };
    door.metrics.connection(Connection::Accepted);
    let counted = (door.live.connection(), door.metrics.connection_opens());
    let handler = Arc::clone(door);
    connections.spawn(async move {
        handler.serve(tcp, peer).await;
        drop((permit, counted));
    });
}

/// Accepts the connections that the kernel has completed, then closes the listening socket.
fn waiting(listener: TcpListener) -> impl Iterator<Item = (TcpStream, SocketAddr)> {
    let listener = listener.into_std();
    let next = move || loop {
        let accepted = listener.as_ref().ok()?.accept();
        match accepted {
            Ok((tcp, peer)) => {
                tcp.set_nonblocking(true).ok()?;
                return Some((TcpStream::from_std(tcp).ok()?, peer));
            }
            Err(error) if is_of_one_connection(&error) => {}
            // The queue is empty, or there are no free file descriptors.
            Err(_) => return None,
        }
    };
    std::iter::from_fn(next).take(LAST_ACCEPTED)
}

/// Whether the error only says that one peer left while its connection was being accepted.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

/// Logs a panic of a connection's task. It ends only that connection, but is a defect.
fn report(ended: Result<(), tokio::task::JoinError>) {
    if ended.is_err_and(|error| error.is_panic()) {
        tracing::error!("the task of a connection panicked");
    }
}
