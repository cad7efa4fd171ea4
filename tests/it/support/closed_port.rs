//! A port of loopback that refuses connections. The unit tests include this file too.

use std::net::{Ipv4Addr, SocketAddr};
use tokio::net::{TcpListener, TcpSocket};

/// A port that refuses connections because its socket does not listen. No other socket gets the port while this exists.
pub(crate) struct ClosedPort {
    pub(crate) address: SocketAddr,
    socket: TcpSocket,
}

impl ClosedPort {
    pub(crate) fn new() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        Self { address: socket.local_addr().unwrap(), socket }
    }

    /// Accepts connections at the port from now on.
    pub(crate) fn open(self) -> TcpListener {
        self.socket.listen(128).unwrap()
    }
}
