//! Reservations exclude each other and leave the port free.

use super::ReservedPort;
use std::net::TcpListener;

#[test]
fn a_reserved_port_is_free_and_is_not_reserved_twice() {
    let (one, other) = (ReservedPort::new().unwrap(), ReservedPort::new().unwrap());
    assert_ne!(one.address(), other.address());
    // A program that was restarted listens on the port a second time.
    for _ in 0..2 {
        TcpListener::bind(one.address()).unwrap();
    }
}
