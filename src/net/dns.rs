//! DNS resolution with the address policy applied to every address. Results are cached for a few seconds and concurrent
//! lookups of a name are merged; policy decisions are not cached, so a changed policy applies at once.

use super::AddressPolicy;
use crate::values::parse_ip_literal;
use std::{
    net::{IpAddr, SocketAddr},
    sync::{Arc, LazyLock},
    time::Duration,
};

/// Lifetime of a cached result; short, because addresses change.
const CACHE_TTL: Duration = Duration::from_secs(5);

/// Maximum number of cached names.
const MAX_CACHED_NAMES: u64 = 10_000;

/// Timeout of a lookup. The system's resolver may try for half a minute, which is too long for a caller.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);

type DnsCache = moka::future::Cache<Box<str>, Arc<[IpAddr]>>;

/// Shared by all configurations of the process, because it holds only results of the resolver.
static DNS_CACHE: LazyLock<DnsCache> =
    LazyLock::new(|| DnsCache::builder().max_capacity(MAX_CACHED_NAMES).time_to_live(CACHE_TTL).build());

/// Why a host cannot be reached. The text names addresses and is for the log.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    /// The name has no address, or the resolver does not respond.
    #[error("{host} cannot be resolved ({reason})")]
    NoAddress {
        /// The name.
        host: String,
        /// The resolver's error.
        reason: String,
    },
    /// The policy denies all addresses of the host.
    #[error(
        "{host} is at {address}, which may not be reached (list it under network.allowed_addresses if it should be)"
    )]
    Denied {
        /// The name.
        host: String,
        /// The first denied address.
        address: SocketAddr,
    },
    /// The unix socket is not listed.
    #[error("the socket {path} may not be reached (list it under allowed_sockets if it should be)")]
    SocketDenied {
        /// Path of the socket.
        path: String,
    },
}

/// Returns the addresses of `host` that the policy permits, at least one, in the resolver's order.
///
/// # Errors
/// There is no address, no response within five seconds, or the policy denies all addresses.
pub async fn resolve_host(host: &str, port: u16, policy: &AddressPolicy) -> Result<Vec<SocketAddr>, ResolveError> {
    filter_addresses(host, port, |address| policy.permits_address(address)).await
}

/// Returns the addresses of `host`, with port 0, that the policy permits at one port at least.
///
/// # Errors
/// As [`resolve_host`].
pub(super) async fn resolve_host_at_some_port(
    host: &str,
    policy: &AddressPolicy,
) -> Result<Vec<SocketAddr>, ResolveError> {
    filter_addresses(host, 0, |address| policy.permits_some_port(address.ip())).await
}

async fn filter_addresses(
    host: &str,
    port: u16,
    is_permitted: impl Fn(SocketAddr) -> bool,
) -> Result<Vec<SocketAddr>, ResolveError> {
    let ips = match parse_ip_literal(host) {
        Some(ip) => Arc::from([ip]),
        None => look_up_cached(host).await?,
    };
    let addresses = ips.iter().map(|ip| SocketAddr::new(*ip, port));
    let (permitted, denied): (Vec<_>, Vec<_>) = addresses.partition(|address| is_permitted(*address));
    match (permitted.is_empty(), denied.first()) {
        (false, _) => Ok(permitted),
        (true, Some(address)) => Err(ResolveError::Denied { host: host.to_owned(), address: *address }),
        (true, None) => Err(no_address(host, "no address")),
    }
}

pub(super) async fn look_up_cached(host: &str) -> Result<Arc<[IpAddr]>, ResolveError> {
    if let Some(cached) = DNS_CACHE.get(host).await {
        return Ok(cached);
    }
    let lookup = async {
        let addresses = tokio::time::timeout(LOOKUP_TIMEOUT, tokio::net::lookup_host((host, 0))).await;
        let addresses = addresses.map_err(|_| "timed out".to_owned())?.map_err(|error| error.to_string())?;
        let mut ips: Vec<IpAddr> = Vec::new();
        for address in addresses {
            if !ips.contains(&address.ip()) {
                ips.push(address.ip());
            }
        }
        Ok::<Arc<[IpAddr]>, String>(ips.into())
    };
    DNS_CACHE.try_get_with(host.into(), lookup).await.map_err(|error| no_address(host, &error))
}

fn no_address(host: &str, reason: &str) -> ResolveError {
    ResolveError::NoAddress { host: host.to_owned(), reason: reason.to_owned() }
}
