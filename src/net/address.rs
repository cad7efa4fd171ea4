//! Which addresses may be reached (SSRF): a document names an endpoint, and must not thereby reach
//! this machine, the cloud's metadata or the gateway itself.

use super::Cidr;
use crate::unit::Glob;
use arc_swap::ArcSwap;
use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    path::{Component, Path},
    sync::Arc,
};

/// Metadata services of clouds that lie outside the link-local range: Oracle, Alibaba, AWS over IPv6.
const METADATA: [IpAddr; 3] = [
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x254)),
];

/// Loopback, link-local, unspecified, multicast, broadcast, reserved and metadata addresses are refused
/// unless listed. Private networks are where agents live, and pass.
#[derive(Debug, Default)]
pub struct AddressPolicy {
    allow: Vec<Cidr>,
    sockets: Vec<Glob>,
    own: Arc<ArcSwap<Vec<SocketAddr>>>,
    public: bool,
}

impl AddressPolicy {
    /// A policy that also lets `allow` pass.
    pub fn new(allow: Vec<Cidr>) -> Self {
        Self { allow, ..Self::default() }
    }

    /// The same policy, under which unix sockets whose paths fit one of `sockets` may be reached.
    #[must_use]
    pub fn with_sockets(self, sockets: Vec<Glob>) -> Self {
        Self { sockets, ..self }
    }

    /// The same policy for addresses that callers choose: private networks are refused as well unless they are listed,
    /// and so is whatever else is not on the internet. The own listeners stay shared.
    #[must_use]
    pub fn public_only(&self) -> Self {
        Self { allow: self.allow.clone(), sockets: Vec::new(), own: Arc::clone(&self.own), public: true }
    }

    /// Tells the gateway's own listeners: they are refused even where `allow` lists them.
    pub fn refuse_own(&self, listeners: Vec<SocketAddr>) {
        self.own.store(Arc::new(listeners));
    }

    /// The gateway's own listeners, for the policy that follows this one.
    pub fn own(&self) -> Vec<SocketAddr> {
        self.own.load().to_vec()
    }

    /// Whether `ip` may be reached at some port.
    pub fn permits(&self, ip: IpAddr) -> bool {
        self.allow.iter().any(|range| range.contains(ip)) || !(is_special(ip) || self.public && is_private(ip))
    }

    /// Whether this very address may be reached.
    pub fn permits_socket(&self, at: SocketAddr) -> bool {
        self.permits(at.ip()) && !self.own.load().iter().any(|own| is_same(own, at))
    }

    /// Whether the unix socket at `path` may be reached. A path that climbs (`..`) fits no pattern.
    pub fn permits_path(&self, path: &Path) -> bool {
        let plain = path.components().all(|step| matches!(step, Component::RootDir | Component::Normal(_)));
        plain && path.to_str().is_some_and(|path| self.sockets.iter().any(|allowed| allowed.matches(path)))
    }
}

/// A listener on the unspecified address answers at every address of this machine.
fn is_same(own: &SocketAddr, at: SocketAddr) -> bool {
    let ip = at.ip().to_canonical();
    own.port() == at.port() && (own.ip().to_canonical() == ip || (own.ip().is_unspecified() && is_local(ip)))
}

/// Only an address of this machine can be bound to; asked only where the port already fits.
fn is_local(ip: IpAddr) -> bool {
    ip.is_loopback() || UdpSocket::bind((ip, 0)).is_ok()
}

fn is_special(ip: IpAddr) -> bool {
    let ip = ip.to_canonical();
    METADATA.contains(&ip)
        || match ip {
            IpAddr::V4(ip) => is_special_v4(ip),
            IpAddr::V6(ip) => is_special_v6(ip),
        }
}

/// Networks that are somebody's own (RFC 1918, RFC 6598, RFC 4193), also behind a translator.
fn is_private(ip: IpAddr) -> bool {
    let own = |ip: Ipv4Addr| {
        ip.is_private() || matches!(ip.octets(), [100, 64..128, ..] | [192, 0, 0, _] | [198, 18 | 19, ..])
    };
    match ip.to_canonical() {
        IpAddr::V4(ip) => own(ip),
        IpAddr::V6(ip) => {
            let [first, ..] = ip.octets();
            first & 0xfe == 0xfc || embedded_v4(ip).is_some_and(own)
        }
    }
}

fn is_special_v4(ip: Ipv4Addr) -> bool {
    let [first, ..] = ip.octets();
    ip.is_loopback() || ip.is_link_local() || ip.is_multicast() || first == 0 || first >= 240
}

fn is_special_v6(ip: Ipv6Addr) -> bool {
    ip.is_loopback()
        || ip.is_unspecified()
        || ip.is_multicast()
        || ip.is_unicast_link_local()
        || embedded_v4(ip).is_some_and(|inner| is_special_v4(inner) || METADATA.contains(&IpAddr::V4(inner)))
}

/// The IPv4 address that a translator or tunnel would reach: NAT64 (RFC 6052), 6to4 (RFC 3056) and the
/// old IPv4-compatible form.
fn embedded_v4(ip: Ipv6Addr) -> Option<Ipv4Addr> {
    let v4 = |high: u16, low: u16| Some(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)));
    match ip.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0, 0, 0, 0, 0, 0, high, low] => v4(high, low),
        [0x2002, high, low, ..] => v4(high, low),
        _ => None,
    }
}
