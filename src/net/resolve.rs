//! Names to addresses, every one vetted. Answers are kept for a few seconds and asked for once at a time;
//! the vetting is never kept, so a changed policy holds at once.

use super::AddressPolicy;
use std::{
    net::{IpAddr, SocketAddr},
    sync::{Arc, LazyLock},
    time::Duration,
};

/// How long an answer is used. Names move, and calls are many.
const KEPT: Duration = Duration::from_secs(5);

/// Names kept at most.
const MOST: u64 = 10_000;

/// The system's resolver may try for half a minute; no caller waits that long.
const AT_MOST: Duration = Duration::from_secs(5);

type Names = moka::future::Cache<Box<str>, Arc<[IpAddr]>>;

/// Shared by every configuration in the process: it holds what the resolver said, and nothing else.
static NAMES: LazyLock<Names> = LazyLock::new(|| Names::builder().max_capacity(MOST).time_to_live(KEPT).build());

/// Why a host cannot be reached. For the log: it names addresses.
#[derive(Debug, thiserror::Error)]
pub enum Unreachable {
    /// The name has no address, or the resolver does not answer.
    #[error("{host} cannot be resolved ({why})")]
    Unknown {
        /// The name that was asked for.
        host: String,
        /// What the resolver said.
        why: String,
    },
    /// There are addresses, and none may be reached.
    #[error("{host} is at {at}, which may not be reached (list it under `allow` if it should be)")]
    Refused {
        /// The name that was asked for.
        host: String,
        /// The first address refused.
        at: SocketAddr,
    },
    /// It is a unix socket that is not listed.
    #[error("the socket {at} may not be reached (list it under `allow_sockets` if it should be)")]
    Socket {
        /// Its path.
        at: String,
    },
}

/// The addresses of `host` that may be reached, in the resolver's order, never none.
///
/// # Errors
/// No address, no answer in five seconds, or only addresses that `policy` refuses.
pub async fn resolve(host: &str, port: u16, policy: &AddressPolicy) -> Result<Vec<SocketAddr>, Unreachable> {
    match literal(host) {
        Some(ip) => vet(host, port, &[ip], policy),
        None => vet(host, port, &look_up(host).await?, policy),
    }
}

/// `host` as an address: `192.0.2.1`, `2001:db8::1`, or the latter in brackets.
pub(super) fn literal(host: &str) -> Option<IpAddr> {
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    inner.unwrap_or(host).parse().ok()
}

fn vet(host: &str, port: u16, ips: &[IpAddr], policy: &AddressPolicy) -> Result<Vec<SocketAddr>, Unreachable> {
    let mut refused = None;
    let mut permitted = Vec::with_capacity(ips.len());
    for ip in ips {
        let at = SocketAddr::new(*ip, port);
        match policy.permits_socket(at) {
            true => permitted.push(at),
            false => refused = refused.or(Some(at)),
        }
    }
    match (permitted.is_empty(), refused) {
        (false, _) => Ok(permitted),
        (true, Some(at)) => Err(Unreachable::Refused { host: host.to_owned(), at }),
        (true, None) => Err(unknown(host, "no address")),
    }
}

pub(super) async fn look_up(host: &str) -> Result<Arc<[IpAddr]>, Unreachable> {
    if let Some(known) = NAMES.get(host).await {
        return Ok(known);
    }
    let ask = async {
        let found = tokio::time::timeout(AT_MOST, tokio::net::lookup_host((host, 0))).await;
        let found = found.map_err(|_| "no answer in time".to_owned())?.map_err(|why| why.to_string())?;
        let mut ips: Vec<IpAddr> = Vec::new();
        for at in found {
            if !ips.contains(&at.ip()) {
                ips.push(at.ip());
            }
        }
        Ok::<Arc<[IpAddr]>, String>(ips.into())
    };
    NAMES.try_get_with(host.into(), ask).await.map_err(|why| unknown(host, &why))
}

fn unknown(host: &str, why: &str) -> Unreachable {
    Unreachable::Unknown { host: host.to_owned(), why: why.to_owned() }
}
