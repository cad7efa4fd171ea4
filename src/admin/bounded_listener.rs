//! The admin and health listeners: HTTP/1 with limits on connections. At the limit a new connection ends an old one,
//! so that held connections keep no probe out.

use crate::values::counted_address;
use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
    service::TowerToHyperService,
};
use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, HashMap},
    convert::Infallible,
    net::IpAddr,
    pin::pin,
    sync::Arc,
    time::Duration,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::oneshot,
    time::sleep,
};

/// Pause after a failed accept, for example with too many open files.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Limits on the connections of a listener.
#[derive(Clone, Copy)]
pub(super) struct ListenerLimits {
    /// Connections in total.
    pub(super) max_connections: usize,
    /// How long a connection may wait for the next complete request head.
    pub(super) head_timeout: Duration,
    /// How long a connection may exist, whatever it sends.
    pub(super) max_age: Duration,
}

/// A TCP listener with limits on its connections.
pub(super) struct BoundedListener {
    pub(super) listener: TcpListener,
    pub(super) limits: ListenerLimits,
}

impl BoundedListener {
    /// Serves `router` until `shutdown` ends, and completes the responses in progress.
    pub(super) async fn serve(self, router: Router, shutdown: impl Future<Output = ()>) {
        let (connections, responses) = (Arc::<OpenConnections>::default(), GracefulShutdown::new());
        let mut shutdown = pin!(shutdown);
        loop {
            let accepted = tokio::select! {
                () = &mut shutdown => break,
                accepted = self.listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, peer)) => {
                    let place = connections.admit(peer.ip(), self.limits.max_connections);
                    self.spawn_connection(stream, place, router.clone(), &responses);
                }
                Err(why) => {
                    tracing::warn!(error = %why, "admin or health listener: accepting a connection failed");
                    sleep(ACCEPT_RETRY_DELAY).await;
                }
            }
        }
        drop(self.listener);
        responses.shutdown().await;
    }

    fn spawn_connection(&self, stream: TcpStream, place: Place, router: Router, responses: &GracefulShutdown) {
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.limits.head_timeout)
            .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
        let (connection, max_age) = (responses.watch(connection), self.limits.max_age);
        tokio::spawn(async move {
            let Place { ended, _registration } = place;
            // How a connection ends concerns its client only.
            tokio::select! {
                _ = connection => {}
                _ = ended => {}
                () = sleep(max_age) => {}
            }
        });
    }
}

/// The open connections in the order of their acceptance.
#[derive(Default)]
struct OpenConnections {
    by_number: Mutex<BTreeMap<u64, OpenConnection>>,
}

struct OpenConnection {
    address: IpAddr,
    /// Ends the connection when dropped.
    _end: oneshot::Sender<Infallible>,
}

/// The place of a connection.
struct Place {
    /// Completes when the connection has to end.
    ended: oneshot::Receiver<Infallible>,
    _registration: Registration,
}

/// Removes the connection from the open ones when dropped.
struct Registration {
    number: u64,
    connections: Arc<OpenConnections>,
}

impl OpenConnections {
    /// Returns a place. At the limit, the oldest connection of the address that has most of them ends.
    fn admit(self: &Arc<Self>, peer: IpAddr, max_connections: usize) -> Place {
        let (end, ended) = oneshot::channel();
        let mut open = self.by_number.lock();
        if open.len() >= max_connections {
            let mut counts: HashMap<IpAddr, usize> = HashMap::new();
            for connection in open.values() {
                *counts.entry(connection.address).or_default() += 1;
            }
            let most = counts.into_iter().max_by_key(|(_, count)| *count).map(|(address, _)| address);
            let oldest = open.iter().find(|(_, connection)| Some(connection.address) == most);
            if let Some(number) = oldest.map(|(number, _)| *number) {
                open.remove(&number);
            }
        }
        let number = open.last_key_value().map_or(0, |(number, _)| number + 1);
        open.insert(number, OpenConnection { address: counted_address(peer), _end: end });
        Place { ended, _registration: Registration { number, connections: Arc::clone(self) } }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.connections.by_number.lock().remove(&self.number);
    }
}
