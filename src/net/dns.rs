//! DNS resolution with the address policy applied to every address. Results are cached for a few seconds and concurrent
//! lookups of a name are merged; policy decisions are not cached, so a changed policy applies at once.

use super::AddressPolicy;
use crate::values::parse_ip_literal;
use std::{
    net::{IpAddr, SocketAddr},
    sync::{Arc, LazyLock},
    time::{Duration, Instant},
};

/// Lifetime of a cached result; short, because addresses change.
const CACHE_TTL: Duration = Duration::from_secs(5);

/// Maximum number of cached names.
const MAX_CACHED_NAMES: u64 = 10_000;

/// Timeout of a lookup. The system's resolver may try for half a minute, which is too long for a caller.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);

/// How long before a connection its addresses may be looked up, if the connection makes a lookup of its own: well below
/// the lifetime of a cached result, so that both see the same addresses.
const CHECK_TTL: Duration = Duration::from_secs(2);

/// A result, and when it was looked up.
type DnsCache = moka::future::Cache<Box<str>, (Instant, Arc<[IpAddr]>)>;

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

/// Checks that the policy permits all addresses of `host` at this port, for a client that looks the host up once more
/// and does not know the port: with [`resolve_host_at_some_port`], which then has the result of this lookup.
///
/// # Errors
/// There is no address, no response within five seconds, or the policy denies one of the addresses.
pub(super) async fn check_host(host: &str, port: u16, policy: &AddressPolicy) -> Result<(), ResolveError> {
    if let Some((looked_up_at, _)) = DNS_CACHE.get(host).await
        && looked_up_at.elapsed() > CHECK_TTL
    {
        DNS_CACHE.invalidate(host).await;
    }
    let addresses = addresses_of(host, port).await?;
    match addresses.iter().find(|address| !policy.permits_address(**address)) {
        Some(address) => Err(ResolveError::Denied { host: host.to_owned(), address: *address }),
        None => Ok(()),
    }
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
    let addresses = addresses_of(host, port).await?;
    let (permitted, denied): (Vec<_>, Vec<_>) = addresses.into_iter().partition(|address| is_permitted(*address));
    match denied.first().filter(|_| permitted.is_empty()) {
        Some(address) => Err(ResolveError::Denied { host: host.to_owned(), address: *address }),
        None => Ok(permitted),
    }
}

/// Returns the addresses of `host`, at least one.
async fn addresses_of(host: &str, port: u16) -> Result<Vec<SocketAddr>, ResolveError> {
    let ips = match parse_ip_literal(host) {
        Some(ip) => Arc::from([ip]),
        None => look_up_cached(host).await?,
    };
    if ips.is_empty() {
        return Err(no_address(host, "no address"));
    }
    Ok(ips.iter().map(|ip| SocketAddr::new(*ip, port)).collect())
}

pub(super) async fn look_up_cached(host: &str) -> Result<Arc<[IpAddr]>, ResolveError> {
    if let Some((_, cached)) = DNS_CACHE.get(host).await {
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
        Ok::<_, String>((Instant::now(), ips.into()))
    };
    let found = DNS_CACHE.try_get_with(host.into(), lookup).await;
    found.map(|(_, ips)| ips).map_err(|error| no_address(host, &error))
}

fn no_address(host: &str, reason: &str) -> ResolveError {
    ResolveError::NoAddress { host: host.to_owned(), reason: reason.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes `host` have these addresses, looked up `age` ago.
    async fn set_addresses(host: &str, ips: &[&str], age: Duration) {
        let ips = ips.iter().map(|ip| ip.parse().unwrap()).collect();
        DNS_CACHE.insert(host.into(), (Instant::now().checked_sub(age).unwrap(), ips)).await;
    }

    #[tokio::test]
    async fn r41_a_name_with_a_denied_address_is_not_fetched_from() {
        let policy = AddressPolicy::new(vec!["127.0.0.2:443".parse().unwrap(), "127.0.0.1:1".parse().unwrap()]);
        set_addresses("two.invalid", &["127.0.0.2", "127.0.0.1"], Duration::ZERO).await;
        assert!(matches!(check_host("two.invalid", 443, &policy).await, Err(ResolveError::Denied { .. })));
        // A connection of the gateway's own uses the permitted ones only.
        let addresses = resolve_host("two.invalid", 443, &policy).await.unwrap();
        assert_eq!(addresses, ["127.0.0.2:443".parse().unwrap()]);
        set_addresses("one.invalid", &["127.0.0.2"], Duration::ZERO).await;
        assert!(check_host("one.invalid", 443, &policy).await.is_ok());
        policy.set_own_listeners(vec!["127.0.0.2:443".parse().unwrap()]);
        assert!(check_host("one.invalid", 443, &policy).await.is_err());
    }

    #[tokio::test]
    async fn r41_the_check_and_the_connection_see_the_same_addresses() {
        let policy = AddressPolicy::new(vec!["127.0.0.0/8".parse().unwrap()]);
        // This result could expire between the check and the connection.
        set_addresses("old.invalid", &["127.0.0.1"], CHECK_TTL + Duration::from_millis(1)).await;
        assert!(matches!(check_host("old.invalid", 443, &policy).await, Err(ResolveError::NoAddress { .. })));
    }
}
