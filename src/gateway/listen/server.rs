//! The accept loops and their end: how many connections, how they are drained, what is handed on.

use super::{Limits, Listener, Service, connection::Live, drive::Door, tls::Certificates};
use crate::telemetry::{Connection, Event, Metrics};
use std::{io, net::SocketAddr, os::fd::OwnedFd, sync::Arc, time::Duration};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Semaphore, watch},
    task::JoinSet,
    time::timeout,
};

/// Pause after an accept that failed for want of descriptors or memory: trying at once would only spin.
const AFTER_FAILURE: Duration = Duration::from_millis(50);

/// Connections that are still taken from the system's queue when a listener closes.
const LAST_ACCEPTED: usize = 4096;

/// How long calls that were cut have to leave their record.
const AFTER_CUT: Duration = Duration::from_secs(1);

/// Listeners at work. Dropping it cuts everything; [`Server::drain`] does not.
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

/// How a drain ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Connections that were cut because they did not end in time.
    pub connections: usize,
    /// Requests that were cut with them.
    pub calls: usize,
}

impl Server {
    /// Begins to accept on `listeners`; needs a tokio runtime around it.
    ///
    /// # Errors
    /// The system's, when a socket cannot be watched.
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

    /// Where it listens, in the order of the configuration.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Open connections.
    pub fn connections(&self) -> usize {
        self.live.connections()
    }

    /// Requests being served.
    pub fn calls(&self) -> usize {
        self.live.calls()
    }

    /// The listening sockets with their labels, for the process that takes over.
    ///
    /// # Errors
    /// The system's, when descriptors run out.
    pub fn sockets(&self) -> io::Result<Vec<(String, OwnedFd)>> {
        self.sockets.iter().map(|(label, socket)| Ok((label.clone(), socket.try_clone()?))).collect()
    }

    /// Reads certificates again whose files have changed; to be called every second or so. Returns what is
    /// wrong with those that were refused, once per change.
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

    /// Stops accepting, closes idle connections, lets requests finish, and cuts what is left at `longest`.
    pub async fn drain(mut self, longest: Duration) -> Drained {
        // Closed before the loops notice: nobody is to connect to a socket that nobody accepts from.
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

/// Accepts until told to stop, then waits for the connections. Being dropped cuts them.
async fn accept<S: Service>(door: Arc<Door<S>>, listener: TcpListener) {
    let room = Arc::new(Semaphore::new(door.limits.connections.min(Semaphore::MAX_PERMITS)));
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
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(AFTER_FAILURE).await;
                continue;
            }
        };
        let_in(&door, &room, &mut connections, (tcp, peer));
    }
    // Who has connected is not reset because nobody had asked the system for it yet.
    waiting(listener).for_each(|accepted| let_in(&door, &room, &mut connections, accepted));
    while let Some(ended) = connections.join_next().await {
        report(ended);
    }
}

/// Serves a connection on a task of its own, unless there are too many.
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
    let door = Arc::clone(door);
    connections.spawn(async move {
        door.serve(tcp, peer).await;
        drop((permit, counted));
    });
}

/// The connections that the system has completed and nobody has accepted; then the socket closes.
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
            // The queue is empty, or descriptors have run out.
            Err(_) => return None,
        }
    };
    std::iter::from_fn(next).take(LAST_ACCEPTED)
}

/// Errors that say only that one peer left while it was being accepted.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

/// A panic ends its connection and nothing else, and is a defect that somebody should hear of.
fn report(ended: Result<(), tokio::task::JoinError>) {
    if ended.is_err_and(|error| error.is_panic()) {
        tracing::error!("a connection's task panicked");
    }
}
