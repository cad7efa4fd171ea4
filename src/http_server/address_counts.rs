//! The connections of each address at one listener, and its TLS handshakes in progress: one address does not take them
//! all.

use super::config::ConnectionLimits;
use crate::values::{CountedHold, KeyedCounts, counted_address};
use std::{net::IpAddr, sync::Arc};

/// Counts by address; IPv6 addresses count by their /64.
#[derive(Debug, Default)]
pub(super) struct AddressCounts {
    connections: Arc<KeyedCounts<IpAddr>>,
    handshakes: Arc<KeyedCounts<IpAddr>>,
}

impl AddressCounts {
    /// Counts a connection of `address` until the result is dropped; `None` if the address has its maximum.
    pub(super) fn try_count_connection(
        &self,
        address: IpAddr,
        limits: &ConnectionLimits,
    ) -> Option<CountedHold<IpAddr>> {
        let max = limits.max_connections_per_address.unwrap_or(limits.max_connections);
        self.connections.try_hold(counted_address(address), 1, max)
    }

    /// Counts a TLS handshake of `address` until the result is dropped; `None` if the address has `max`.
    pub(super) fn try_count_handshake(&self, address: IpAddr, max: usize) -> Option<CountedHold<IpAddr>> {
        self.handshakes.try_hold(counted_address(address), 1, max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::MaxShare;

    #[test]
    fn connections_of_one_ipv6_network_are_those_of_one_address() {
        let counts = AddressCounts::default();
        let limits = ConnectionLimits { max_connections_per_address: Some(2), ..ConnectionLimits::default() };
        let count = |address: &str| counts.try_count_connection(address.parse().unwrap(), &limits);
        let held = [count("2001:db8::1").unwrap(), count("2001:db8::2:0:0:1").unwrap()];
        assert!(count("2001:db8:0:0:ffff::3").is_none());
        assert!(count("2001:db8:0:1::1").is_some(), "another network");
        assert!(count("192.0.2.1").is_some());
        drop(held);
        let _mapped = [count("::ffff:192.0.2.1").unwrap(), count("192.0.2.1").unwrap()];
        assert!(count("192.0.2.1").is_none(), "both spellings are one address");
        assert!(count("2001:db8::1").is_some());
    }

    #[test]
    fn the_maximum_of_an_address_is_its_share_unless_it_is_set() {
        let share: MaxShare = serde_json::from_str("0.1").unwrap();
        let limits = ConnectionLimits { max_connections: 50, ..ConnectionLimits::default() };
        assert_eq!(limits.clone().with_share_of_address(share).max_connections_per_address, Some(5));
        let set = ConnectionLimits { max_connections_per_address: Some(40), ..limits }.with_share_of_address(share);
        assert_eq!(set.max_connections_per_address, Some(40));
        let counts = AddressCounts::default();
        let address = "192.0.2.1".parse().unwrap();
        let handshake = counts.try_count_handshake(address, 1).unwrap();
        assert!(counts.try_count_handshake(address, 1).is_none());
        drop(handshake);
        assert!(counts.try_count_handshake(address, 1).is_some());
    }
}
