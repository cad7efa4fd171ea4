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

/// Lifetime of a result that is checked before a connection, which then makes a lookup of its own.
const CHECK_TTL: Duration = Duration::from_secs(2);

type DnsCache = moka::future::Cache<Box<str>, Arc<[IpAddr]>>;

/// Results for connections. Shared by all configurations of the process, because it holds only results of the resolver.
static DNS_CACHE: LazyLock<DnsCache> =
    LazyLock::new(|| DnsCache::builder().max_capacity(MAX_CACHED_NAMES).time_to_live(CACHE_TTL).build());

/// Results to check. A permitted one becomes the result for connections, for all of its lifetime there.
static CHECKED_RESULTS: LazyLock<DnsCache> =
    LazyLock::new(|| DnsCache::builder().max_capacity(MAX_CACHED_NAMES).time_to_live(CHECK_TTL).build());

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
    #[error("the socket {path} may not be reached (list it under network.allowed_sockets if it should be)")]
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
/// and does not know the port: with [`resolve_host_at_some_port`], which then has a result that was checked.
///
/// # Errors
/// There is no address, no response within five seconds, or the policy denies one of the addresses.
pub(super) async fn check_host(host: &str, port: u16, policy: &AddressPolicy) -> Result<(), ResolveError> {
    let literal = parse_ip_literal(host);
    let ips = match literal {
        Some(ip) => Arc::from([ip]),
        None => look_up_cached(&CHECKED_RESULTS, host).await?,
    };
    if let Some(address) =
        ips.iter().map(|ip| SocketAddr::new(*ip, port)).find(|address| !policy.permits_address(*address))
    {
        return Err(ResolveError::Denied { host: host.to_owned(), address });
    }
    if literal.is_none() {
        DNS_CACHE.insert(host.into(), ips).await;
    }
    Ok(())
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
        None => look_up(host).await?,
    };
    Ok(ips.iter().map(|ip| SocketAddr::new(*ip, port)).collect())
}

/// Returns the addresses of a name, at least one.
pub(super) async fn look_up(host: &str) -> Result<Arc<[IpAddr]>, ResolveError> {
    look_up_cached(&DNS_CACHE, host).await
}

async fn look_up_cached(cache: &DnsCache, host: &str) -> Result<Arc<[IpAddr]>, ResolveError> {
    if let Some(cached) = cache.get(host).await {
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
        if ips.is_empty() { Err("no address".to_owned()) } else { Ok(ips.into()) }
    };
    cache.try_get_with(host.into(), lookup).await.map_err(|error| no_address(host, &error))
}

fn no_address(host: &str, reason: &str) -> ResolveError {
    ResolveError::NoAddress { host: host.to_owned(), reason: reason.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes the next check of `host` see these addresses.
    async fn set_addresses(host: &str, ips: &[&str]) {
        CHECKED_RESULTS.insert(host.into(), ips.iter().map(|ip| ip.parse().unwrap()).collect()).await;
    }

    #[tokio::test]
    async fn r41_a_name_with_a_denied_address_is_not_fetched_from() {
        let policy = AddressPolicy::new(vec!["127.0.0.2:443".parse().unwrap(), "127.0.0.1:1".parse().unwrap()]);
        set_addresses("two.invalid", &["127.0.0.2", "127.0.0.1"]).await;
        assert!(matches!(check_host("two.invalid", 443, &policy).await, Err(ResolveError::Denied { .. })));
        // A connection of the gateway's own uses the permitted ones only.
        DNS_CACHE.insert("two.invalid".into(), CHECKED_RESULTS.get("two.invalid").await.unwrap()).await;
        let addresses = resolve_host("two.invalid", 443, &policy).await.unwrap();
        assert_eq!(addresses, ["127.0.0.2:443".parse().unwrap()]);
        set_addresses("one.invalid", &["127.0.0.2"]).await;
        assert!(check_host("one.invalid", 443, &policy).await.is_ok());
        policy.set_own_listeners(vec!["127.0.0.2:443".parse().unwrap()]);
        assert!(check_host("one.invalid", 443, &policy).await.is_err());
    }

    #[tokio::test]
    async fn r41_a_connection_sees_only_addresses_that_were_checked() {
        let policy = AddressPolicy::new(vec!["127.0.0.2:443".parse().unwrap(), "127.0.0.3:1".parse().unwrap()]);
        let connection_addresses = || resolve_host_at_some_port("rebound.invalid", &policy);
        let checked = ["127.0.0.2:0".parse().unwrap()];
        set_addresses("rebound.invalid", &["127.0.0.2"]).await;
        assert!(check_host("rebound.invalid", 443, &policy).await.is_ok());
        // The name changes between the check of one request and its connection, and another request looks it up.
        set_addresses("rebound.invalid", &["127.0.0.3"]).await;
        assert!(check_host("rebound.invalid", 443, &policy).await.is_err());
        assert_eq!(connection_addresses().await.unwrap(), checked);
    }
}
