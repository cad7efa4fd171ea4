//! Address policy against server-side request forgery (SSRF): an endpoint from a document must not lead to this
//! machine, the cloud's metadata service or the gateway itself.

use super::AddressRange;
use crate::values::Glob;
use arc_swap::ArcSwap;
use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    path::{Component, Path},
    sync::Arc,
};

/// Cloud metadata services outside the link-local range: Oracle, Alibaba, AWS over IPv6.
const METADATA_SERVICES: [IpAddr; 3] = [
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x254)),
];

/// Decides which addresses the gateway may connect to. Denies loopback, link-local, unspecified, multicast, broadcast,
/// reserved and metadata addresses unless listed. Allows private networks unless they are closed, because agents live
/// there.
#[derive(Debug, Default)]
pub struct AddressPolicy {
    allow: Vec<AddressRange>,
    sockets: Vec<Glob>,
    own_listeners: Arc<ArcSwap<Vec<SocketAddr>>>,
    denies_private: bool,
}

impl AddressPolicy {
    /// Creates a policy that also allows `allow`.
    pub fn new(allow: Vec<AddressRange>) -> Self {
        Self { allow, ..Self::default() }
    }

    /// Allows unix sockets whose paths match one of `sockets`.
    #[must_use]
    pub fn with_unix_sockets(self, sockets: Vec<Glob>) -> Self {
        Self { sockets, ..self }
    }

    /// Derives the policy for endpoints that the operator neither wrote nor listed: it also denies private networks, and
    /// other addresses outside the internet, unless they are listed. The list of own listeners stays shared.
    #[must_use]
    pub fn without_private_networks(&self) -> Self {
        Self {
            allow: self.allow.clone(),
            sockets: self.sockets.clone(),
            own_listeners: Arc::clone(&self.own_listeners),
            denies_private: true,
        }
    }

    /// Derives the policy for addresses that callers choose: public addresses, and those of `allow`, a list of its own.
    /// What is allowed for agents is not allowed here, or callers would reach agents past their grants.
    #[must_use]
    pub fn for_callers(&self, allow: &[AddressRange]) -> Self {
        Self {
            allow: allow.to_vec(),
            sockets: Vec::new(),
            own_listeners: Arc::clone(&self.own_listeners),
            denies_private: true,
        }
    }

    /// Sets the gateway's own listeners, which are denied even if `allow` lists them.
    pub fn set_own_listeners(&self, listeners: Vec<SocketAddr>) {
        self.own_listeners.store(Arc::new(listeners));
    }

    /// Returns the gateway's own listeners, for the policy that replaces this one.
    pub fn own_listeners(&self) -> Vec<SocketAddr> {
        self.own_listeners.load().to_vec()
    }

    /// Whether this address and port may be reached.
    pub fn permits_address(&self, address: SocketAddr) -> bool {
        let is_listed = || self.allow.iter().any(|range| range.contains(address));
        (!self.denies_unlisted(address.ip()) || is_listed())
            && !self.own_listeners.load().iter().any(|own| is_own_listener(own, address))
    }

    /// Returns the gateway's own listener that a connection to `address` would reach.
    pub fn own_listener_at(&self, address: SocketAddr) -> Option<SocketAddr> {
        self.own_listeners.load().iter().find(|own| is_own_listener(own, address)).copied()
    }

    /// Whether this address may be reached at one port at least, its ports on this machine aside.
    pub(super) fn permits_some_port(&self, ip: IpAddr) -> bool {
        !self.denies_unlisted(ip) || self.allow.iter().any(|range| range.contains_ip(ip))
    }

    fn denies_unlisted(&self, ip: IpAddr) -> bool {
        is_special(ip) || self.denies_private && is_private(ip)
    }

    /// Whether the unix socket at `path` may be reached. A path with `..` matches no pattern.
    pub fn permits_unix_socket(&self, path: &Path) -> bool {
        let is_plain =
            path.components().all(|component| matches!(component, Component::RootDir | Component::Normal(_)));
        is_plain && path.to_str().is_some_and(|path| self.sockets.iter().any(|allowed| allowed.matches(path)))
    }
}

/// Whether `address` reaches the listener `own`: a listener on the unspecified address accepts on every local address.
fn is_own_listener(own: &SocketAddr, address: SocketAddr) -> bool {
    let ip = address.ip().to_canonical();
    own.port() == address.port()
        && (own.ip().to_canonical() == ip || (own.ip().is_unspecified() && is_local_address(ip)))
}

/// Whether `ip` is an address of this machine: only those can be bound to. Called only if the port matches.
fn is_local_address(ip: IpAddr) -> bool {
    ip.is_loopback() || UdpSocket::bind((ip, 0)).is_ok()
}

fn is_special(ip: IpAddr) -> bool {
    is_link_local_or_metadata(ip)
        || match ip.to_canonical() {
            IpAddr::V4(ip) => is_special_v4(ip),
            IpAddr::V6(ip) => is_special_v6(ip),
        }
}

/// Whether `ip` is link-local or a cloud's metadata service, also behind NAT64 or 6to4. Clouds hand out credentials there.
pub fn is_link_local_or_metadata(ip: IpAddr) -> bool {
    let ip = ip.to_canonical();
    METADATA_SERVICES.contains(&ip)
        || match ip {
            IpAddr::V4(ip) => ip.is_link_local(),
            IpAddr::V6(ip) => {
                ip.is_unicast_link_local()
                    || embedded_v4(ip).is_some_and(|inner| is_link_local_or_metadata(IpAddr::V4(inner)))
            }
        }
}

/// Whether `ip` is in a private network (RFC 1918, RFC 6598, RFC 4193), NAT64 and tunnels included.
fn is_private(ip: IpAddr) -> bool {
    let is_private_v4 = |ip: Ipv4Addr| {
        ip.is_private() || matches!(ip.octets(), [100, 64..128, ..] | [192, 0, 0, _] | [198, 18 | 19, ..])
    };
    match ip.to_canonical() {
        IpAddr::V4(ip) => is_private_v4(ip),
        IpAddr::V6(ip) => {
            let [first, ..] = ip.octets();
            first & 0xfe == 0xfc || is_translated(ip) || embedded_v4(ip).is_some_and(is_private_v4)
        }
    }
}

/// Whether `ip` may lead to an IPv4 address that it does not show, or is no address of the internet: local NAT64 (RFC
/// 8215), IPv4-translated (RFC 7915), Teredo (RFC 4380), site-local (RFC 3879), discard-only (RFC 6666), segment routing
/// (RFC 9602) and documentation (RFC 9637).
fn is_translated(ip: Ipv6Addr) -> bool {
    matches!(
        ip.segments(),
        [0x64, 0xff9b, 1, ..]
            | [0, 0, 0, 0, 0xffff, 0, _, _]
            | [0x2001, 0, ..]
            | [0xfec0..=0xfeff, ..]
            | [0x100, 0, 0, 0, ..]
            | [0x5f00, ..]
            | [0x3fff, 0..=0xfff, ..]
    )
}

fn is_special_v4(ip: Ipv4Addr) -> bool {
    let [first, ..] = ip.octets();
    ip.is_loopback() || ip.is_multicast() || first == 0 || first >= 240
}

fn is_special_v6(ip: Ipv6Addr) -> bool {
    ip.is_loopback() || ip.is_unspecified() || ip.is_multicast() || embedded_v4(ip).is_some_and(is_special_v4)
}

/// Returns the IPv4 address that a translator or tunnel would reach: NAT64 (RFC 6052), 6to4 (RFC 3056) and the
/// deprecated IPv4-compatible form.
fn embedded_v4(ip: Ipv6Addr) -> Option<Ipv4Addr> {
    let v4 = |high: u16, low: u16| Some(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)));
    match ip.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0, 0, 0, 0, 0, 0, high, low] => v4(high, low),
        [0x2002, high, low, ..] => v4(high, low),
        _ => None,
    }
}
