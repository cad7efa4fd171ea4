//! Ports of loopback for servers that must know their port before they start. No other test gets the same port while
//! the handle exists.

use std::{
    net::{Ipv4Addr, TcpListener},
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr as UnixSocketAddr, UnixListener},
    },
};

/// Below the ports that the kernel gives to sockets without a port of their own.
const RESERVABLE: std::ops::Range<u16> = 20_000..32_000;

/// A port for a server of another program, which may be restarted on it. A server of the test itself binds port 0.
pub struct ReservedPort {
    number: u16,
    _reservation: UnixListener,
}

impl ReservedPort {
    /// Reserves a port.
    ///
    /// An abstract unix socket is the reservation: like the port, it belongs to the network namespace, and it ends with
    /// this process.
    pub fn new() -> Self {
        let start = usize::try_from(std::process::id()).unwrap() * 31;
        for number in RESERVABLE.cycle().skip(start % RESERVABLE.len()).take(RESERVABLE.len()) {
            let name = UnixSocketAddr::from_abstract_name(format!("gatepost-test-port-{number}")).unwrap();
            let Ok(reservation) = UnixListener::bind_addr(&name) else { continue };
            // A program that is no test may listen on the port.
            if TcpListener::bind((Ipv4Addr::LOCALHOST, number)).is_ok() {
                return Self { number, _reservation: reservation };
            }
        }
        panic!("no port can be reserved");
    }

    pub fn number(&self) -> u16 {
        self.number
    }
}
