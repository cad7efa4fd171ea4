//! CIDR ranges of IP addresses: `10.0.0.0/8`, `fd00::/8`, or a single address.

use std::{fmt, net::IpAddr, str::FromStr};

/// A range of IP addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cidr {
    network: IpAddr,
    prefix_length: u8,
}

impl Cidr {
    /// Whether the range contains `ip`. An IPv4-mapped IPv6 address (`::ffff:a.b.c.d`) counts as IPv4.
    pub fn contains(&self, ip: IpAddr) -> bool {
        match (self.network, ip.to_canonical()) {
            (IpAddr::V4(base), IpAddr::V4(ip)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.prefix_length)).unwrap_or(0);
                base.to_bits() & mask == ip.to_bits() & mask
            }
            (IpAddr::V6(base), IpAddr::V6(ip)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.prefix_length)).unwrap_or(0);
                base.to_bits() & mask == ip.to_bits() & mask
            }
            _ => false,
        }
    }
}

impl FromStr for Cidr {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let invalid = || format!("'{text}' is not an address range (write 10.0.0.0/8, fd00::/8 or one address)");
        let (base, prefix_length) = match text.split_once('/') {
            Some((base, prefix_length)) => (base, Some(prefix_length)),
            None => (text, None),
        };
        let base: IpAddr = base.parse().map_err(|_| invalid())?;
        let max_prefix_length = if base.is_ipv4() { 32 } else { 128 };
        let prefix_length = match prefix_length {
            None => max_prefix_length,
            Some(text) if text.bytes().all(|b| b.is_ascii_digit()) => text.parse().map_err(|_| invalid())?,
            Some(_) => return Err(invalid()),
        };
        if prefix_length > max_prefix_length {
            return Err(invalid());
        }
        Ok(Self { network: base, prefix_length })
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}/{}", self.network, self.prefix_length)
    }
}

impl serde::Serialize for Cidr {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Cidr {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl schemars::JsonSchema for Cidr {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Cidr".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "pattern": r"^[0-9A-Fa-f:.]+(/\d{1,3})?$",
            "description": "A range of IP addresses, such as 10.0.0.0/8 or fd00::/8, or one address.",
        })
    }
}
