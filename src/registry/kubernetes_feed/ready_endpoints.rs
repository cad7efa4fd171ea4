//! The ready endpoints of a Service at one of its ports, and which of them are for the gateway's zone.

use super::api_objects::{EndpointSlice, ServicePort};
use crate::agent::ServerAddress;
use std::{collections::BTreeMap, net::SocketAddr, sync::Arc};

/// Maximum number of endpoints that calls are distributed to. A Service with more is called at its own address, where
/// the cluster distributes connections.
pub(super) const MAX_ADDRESSES: usize = 64;

/// The ready endpoints of a Service.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ReadyEndpoints {
    /// Whether any endpoint is ready.
    pub(super) any: bool,
    /// The addresses; empty where they are too many.
    pub(super) addresses: Vec<ServerAddress>,
}

impl ReadyEndpoints {
    /// Selects the endpoints at `port` of a Service whose first IP family is `family`. A Service with two families has
    /// each pod in slices of both, of which one counts.
    pub(super) fn select(
        slices: &[Arc<EndpointSlice>],
        port: &ServicePort,
        family: Option<&str>,
        zone: Option<&str>,
    ) -> Self {
        let families = [family.unwrap_or("IPv4"), "IPv4", "IPv6"];
        let of_family =
            |family: &str| addresses_of(slices.iter().filter(|slice| slice.address_type == family), port, zone);
        let addresses = families.into_iter().map(of_family).find(|addresses| !addresses.is_empty()).unwrap_or_default();
        let any = !addresses.is_empty();
        if addresses.len() > MAX_ADDRESSES {
            return Self { any, addresses: Vec::new() };
        }
        let any_preferred = addresses.values().any(|is_preferred| *is_preferred);
        let addresses = addresses.into_iter().map(|(address, is_preferred)| ServerAddress {
            address,
            // Without an endpoint for the zone, all are equal.
            is_preferred: is_preferred || !any_preferred,
        });
        Self { any, addresses: addresses.collect() }
    }
}

/// Returns the addresses in order, each with whether it is for `zone`. An endpoint may be in two slices for a moment.
fn addresses_of<'a>(
    slices: impl Iterator<Item = &'a Arc<EndpointSlice>>,
    port: &ServicePort,
    zone: Option<&str>,
) -> BTreeMap<SocketAddr, bool> {
    let mut addresses = BTreeMap::new();
    for slice in slices {
        let slice_port =
            slice.ports.iter().find(|slice_port| slice_port.name.as_deref().unwrap_or_default() == port.name);
        let Some(number) = slice_port.and_then(|slice_port| slice_port.port) else { continue };
        for endpoint in &slice.ready {
            let is_preferred = zone.is_none_or(|zone| endpoint.zones.iter().any(|name| **name == *zone));
            *addresses.entry(SocketAddr::new(endpoint.address, number)).or_default() |= is_preferred;
        }
    }
    addresses
}
