//! Ports of loopback for programs that must know their port before they start, or that are restarted on it. A program
//! that reports its address listens on port 0 instead.

use anyhow::bail;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::Range;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixSocketAddr, UnixListener};

/// Below the ports that the kernel gives to sockets without a port of their own.
const RESERVABLE: Range<u16> = 20_000..32_000;

/// A port that no other load test and no test of the gateway gets while the reservation exists.
pub(crate) struct ReservedPort {
    number: u16,
    _reservation: UnixListener,
}

impl ReservedPort {
    /// Reserves a port.
    ///
    /// An abstract unix socket is the reservation: like the port, it belongs to the network namespace, and it ends with
    /// this process. The tests of the gateway reserve ports under the same names (`tests/it/support/ports.rs`).
    pub(crate) fn new() -> anyhow::Result<Self> {
        let start = usize::try_from(std::process::id())? * 31;
        for number in RESERVABLE.cycle().skip(start % RESERVABLE.len()).take(RESERVABLE.len()) {
            let name = UnixSocketAddr::from_abstract_name(format!("gatepost-test-port-{number}"))?;
            let Ok(reservation) = UnixListener::bind_addr(&name) else { continue };
            // A program that reserves no port may listen on it.
            if TcpListener::bind((Ipv4Addr::LOCALHOST, number)).is_ok() {
                return Ok(Self { number, _reservation: reservation });
            }
        }
        bail!("no port of {RESERVABLE:?} can be reserved")
    }

    /// Returns the loopback address with this port.
    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.number))
    }
}

#[cfg(test)]
mod tests;
