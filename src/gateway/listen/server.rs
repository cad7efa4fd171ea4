//! The accept loops and their end: how many connections, how they are drained, what is handed on.

use super::{Limits, Listener, Service, connection::Live, drive::Door, tls::Certificates};
use crate::telemetry::{Event, Metrics};
use std::{io, net::SocketAddr, os::fd::OwnedFd, sync::Arc, time::Duration};
use tokio::{
    net::TcpListener,
    sync::{Semaphore, watch},
    task::JoinSet,
    time::timeout,
};

/// Pause after an accept that failed for want of descriptors or memory: trying at once would only spin.
const AFTER_FAILURE: Duration = Duration::from_millis(50);

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
        let Ok(permit) = Arc::clone(&room).try_acquire_owned() else {
            door.metrics.count(Event::ConnectionRefused);
            continue;
        };
        door.metrics.count(Event::ConnectionAccepted);
        let counted = door.live.connection();
        let door = Arc::clone(&door);
        connections.spawn(async move {
            door.serve(tcp, peer).await;
            drop((permit, counted));
        });
    }
    drop(listener);
    while let Some(ended) = connections.join_next().await {
        report(ended);
    }
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
