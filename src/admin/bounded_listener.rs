//! The admin and health listeners: HTTP/1 with limits on connections. At the limit a new connection ends an old one,
//! so that held connections keep no probe out.

use crate::values::counted_address;
use axum::{Extension, Router, extract::Request};
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
    net::{IpAddr, Ipv4Addr},
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

/// How long accepted connections may send a request after the listener closed.
const REQUEST_GRACE: Duration = Duration::from_millis(200);

/// Maximum size of a request head in bytes.
const MAX_HEAD_SIZE: usize = 16 << 10;

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

/// The address of the client, an extension of every request.
#[derive(Clone, Copy)]
pub struct ClientAddress(pub IpAddr);

impl ClientAddress {
    /// Returns the address of the client of a request, to which the listener added it.
    pub(super) fn of(request: &Request) -> IpAddr {
        request.extensions().get::<Self>().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |client| client.0)
    }
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
                    let router = router.clone().layer(Extension(ClientAddress(peer.ip().to_canonical())));
                    self.spawn_connection(stream, place, router, &responses);
                }
                Err(why) => {
                    tracing::warn!(error = %why, "admin or health listener: accepting a connection failed");
                    sleep(ACCEPT_RETRY_DELAY).await;
                }
            }
        }
        drop(self.listener);
        // A request that is on its way over an accepted connection is answered too.
        sleep(REQUEST_GRACE).await;
        responses.shutdown().await;
    }

    fn spawn_connection(&self, stream: TcpStream, place: Place, router: Router, responses: &GracefulShutdown) {
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.limits.head_timeout)
            .max_buf_size(MAX_HEAD_SIZE)
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
    table: Mutex<ConnectionTable>,
}

#[derive(Default)]
struct ConnectionTable {
    by_number: BTreeMap<u64, OpenConnection>,
    /// The number of the next connection. None is used twice: an ended connection removes its own entry only.
    next_number: u64,
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
        let mut table = self.table.lock();
        if table.by_number.len() >= max_connections {
            table.end_oldest_of_most();
        }
        let number = table.next_number;
        table.next_number += 1;
        table.by_number.insert(number, OpenConnection { address: counted_address(peer), _end: end });
        Place { ended, _registration: Registration { number, connections: Arc::clone(self) } }
    }
}

impl ConnectionTable {
    /// Ends the oldest connection of the address that has most; the oldest of all, where several have as many.
    fn end_oldest_of_most(&mut self) {
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        for connection in self.by_number.values() {
            *counts.entry(connection.address).or_default() += 1;
        }
        let most = counts.values().max().copied();
        let oldest = self.by_number.iter().find(|(_, connection)| counts.get(&connection.address).copied() == most);
        if let Some(number) = oldest.map(|(number, _)| *number) {
            self.by_number.remove(&number);
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.connections.table.lock().by_number.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_ended(place: &mut Place) -> bool {
        !matches!(place.ended.try_recv(), Err(oneshot::error::TryRecvError::Empty))
    }

    #[test]
    fn the_oldest_connection_of_the_address_with_most_ends_and_no_other() {
        let connections = Arc::<OpenConnections>::default();
        let admit = |address: [u8; 4]| connections.admit(address.into(), 4);
        let mut places: Vec<Place> = [1, 2, 3, 4].map(|number| admit([10, 0, 0, number])).into();
        // All have one: the oldest ends. When its place is dropped, the connection that replaced it stays.
        places.push(admit([10, 0, 0, 5]));
        assert!(is_ended(&mut places[0]));
        drop(places.remove(0));
        assert!(!places.iter_mut().any(is_ended));
        // One address has two: the older of the two ends.
        drop(places.remove(0));
        places.push(admit([10, 0, 0, 4]));
        places.push(admit([10, 0, 0, 6]));
        let ended: Vec<bool> = places.iter_mut().map(is_ended).collect();
        assert_eq!(ended, [false, true, false, false, false]);
    }
}
