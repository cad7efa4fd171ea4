//! What the access log and the audit log say of persons: the callers' names and the clients' addresses, plain, as pseudonyms, shortened
//! or not at all (R8, R101).

use crate::values::{SecretRef, encode_hex};
use aws_lc_rs::hmac;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Minimum length of the key of pseudonyms in bytes.
const MIN_KEY_BYTES: usize = 16;
/// Number of bytes of a pseudonym: enough for a million callers without a collision.
const PSEUDONYM_BYTES: usize = 8;

/// How a log names callers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LoggedCallers {
    /// By their names.
    #[default]
    Plain,
    /// By a pseudonym: a keyed hash of the name.
    Pseudonym,
}

/// How a log gives the addresses of clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LoggedAddresses {
    /// Whole.
    #[default]
    Full,
    /// The network of the client: the first 24 bits of an IPv4 address, 48 bits of an IPv6 address.
    Truncated,
    /// A pseudonym: a keyed hash of the address.
    Pseudonym,
    /// Not at all.
    Omitted,
}

/// The address of a client as a log gives it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LoggedAddress {
    Address(IpAddr),
    Pseudonym(String),
}

/// Replaces what a log would say of persons.
#[derive(Debug)]
pub struct LogPrivacy {
    callers: LoggedCallers,
    addresses: LoggedAddresses,
    /// Present where something is replaced by a pseudonym.
    key: Option<hmac::Key>,
}

impl LogPrivacy {
    /// Loads the key of pseudonyms; without one it is random.
    ///
    /// # Errors
    /// The key cannot be loaded, is too short, or is not used.
    pub fn new(callers: LoggedCallers, addresses: LoggedAddresses, key: Option<&SecretRef>) -> Result<Self, String> {
        let has_pseudonyms = callers == LoggedCallers::Pseudonym || addresses == LoggedAddresses::Pseudonym;
        let problem = |why: &str| format!("pseudonym_key: {why}");
        let key = match (key, has_pseudonyms) {
            (None, false) => None,
            (Some(_), false) => return Err(problem("is not used (set callers or addresses to pseudonym)")),
            (None, true) => {
                let mut random = [0; 32];
                aws_lc_rs::rand::fill(&mut random).map_err(|_| problem("no random key can be made"))?;
                Some(hmac::Key::new(hmac::HMAC_SHA256, &random))
            }
            (Some(reference), true) => {
                let secret = reference.load().map_err(|why| problem(&why))?;
                if secret.expose().len() < MIN_KEY_BYTES {
                    return Err(problem(&format!("is too short (at least {MIN_KEY_BYTES} bytes)")));
                }
                Some(hmac::Key::new(hmac::HMAC_SHA256, secret.expose().as_bytes()))
            }
        };
        Ok(Self { callers, addresses, key })
    }

    /// Returns the pseudonym of a caller, or `None` where the log has the name.
    pub fn caller_pseudonym(&self, caller: &str) -> Option<String> {
        let replaced = self.callers == LoggedCallers::Pseudonym && !caller.is_empty();
        self.key.as_ref().filter(|_| replaced).map(|key| pseudonym(key, caller))
    }

    /// Returns the address of a client as the log gives it, if it does.
    pub fn address_text(&self, address: IpAddr) -> Option<String> {
        Some(match self.logged_address(address)? {
            LoggedAddress::Address(address) => address.to_string(),
            LoggedAddress::Pseudonym(pseudonym) => pseudonym,
        })
    }

    /// Returns what the log says of a client's address.
    pub(super) fn logged_address(&self, address: IpAddr) -> Option<LoggedAddress> {
        match (self.addresses, &self.key) {
            (LoggedAddresses::Full, _) => Some(LoggedAddress::Address(address)),
            (LoggedAddresses::Truncated, _) => Some(LoggedAddress::Address(truncate_address(address.to_canonical()))),
            (LoggedAddresses::Pseudonym, Some(key)) => {
                Some(LoggedAddress::Pseudonym(pseudonym(key, &address.to_canonical().to_string())))
            }
            (LoggedAddresses::Pseudonym, None) | (LoggedAddresses::Omitted, _) => None,
        }
    }
}

/// Returns the beginning of the HMAC-SHA256 of a text, in hexadecimal.
fn pseudonym(key: &hmac::Key, text: &str) -> String {
    let tag = hmac::sign(key, text.as_bytes());
    format!("pseudonym:{}", encode_hex(tag.as_ref().get(..PSEUDONYM_BYTES).unwrap_or_default()))
}

fn truncate_address(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(address) => Ipv4Addr::from_bits(address.to_bits() & !0xff).into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !(u128::MAX >> 48)).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn privacy(callers: LoggedCallers, addresses: LoggedAddresses) -> LogPrivacy {
        LogPrivacy::new(callers, addresses, None).unwrap()
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn r8_addresses_are_logged_whole_truncated_or_not_at_all() {
        let logged = |addresses, text: &str| privacy(LoggedCallers::Plain, addresses).logged_address(address(text));
        let shown = |text: &str| Some(LoggedAddress::Address(address(text)));
        assert_eq!(logged(LoggedAddresses::Full, "203.0.113.77"), shown("203.0.113.77"));
        for (text, truncated) in [
            ("203.0.113.77", "203.0.113.0"),
            ("::ffff:203.0.113.77", "203.0.113.0"),
            ("2001:db8:aaaa:bbbb:cccc:dddd:eeee:ffff", "2001:db8:aaaa::"),
        ] {
            assert_eq!(logged(LoggedAddresses::Truncated, text), shown(truncated));
            assert_eq!(logged(LoggedAddresses::Omitted, text), None);
        }
    }

    #[test]
    fn r8_a_pseudonym_is_the_same_for_one_name_and_one_key_only() {
        let privacy_a = privacy(LoggedCallers::Pseudonym, LoggedAddresses::Pseudonym);
        let privacy_b = privacy(LoggedCallers::Pseudonym, LoggedAddresses::Pseudonym);
        let name = |privacy: &LogPrivacy, caller| privacy.caller_pseudonym(caller).unwrap();
        assert_eq!(name(&privacy_a, "key:alice"), name(&privacy_a, "key:alice"));
        assert_ne!(name(&privacy_a, "key:alice"), name(&privacy_a, "key:bob"));
        assert_ne!(name(&privacy_a, "key:alice"), name(&privacy_b, "key:alice"), "the key is random");
        assert_eq!(privacy_a.caller_pseudonym(""), None);
        let Some(LoggedAddress::Pseudonym(hidden)) = privacy_a.logged_address(address("203.0.113.77")) else {
            panic!("the address is shown")
        };
        assert!(hidden.starts_with("pseudonym:") && !hidden.contains("203"), "{hidden}");
    }

    #[test]
    fn r8_the_pseudonym_of_a_name_can_be_computed_with_the_key() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "0123456789abcdef\n").unwrap();
        let reference: SecretRef = format!("file:{}", file.path().display()).parse().unwrap();
        let privacy = LogPrivacy::new(LoggedCallers::Pseudonym, LoggedAddresses::Full, Some(&reference)).unwrap();
        // printf key:alice | openssl dgst -sha256 -hmac 0123456789abcdef
        assert_eq!(privacy.caller_pseudonym("key:alice").unwrap(), "pseudonym:7e59d1724cf25a6b");
    }

    #[test]
    fn r8_a_key_that_is_short_missing_or_not_used_is_refused_by_name() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "short").unwrap();
        let reference = |path: &str| format!("file:{path}").parse::<SecretRef>().unwrap();
        let (short, missing) = (reference(&file.path().display().to_string()), reference("/nonexistent/key"));
        for (callers, key, why) in [
            (LoggedCallers::Pseudonym, &short, "at least 16 bytes"),
            (LoggedCallers::Pseudonym, &missing, "cannot be read"),
            (LoggedCallers::Plain, &short, "is not used"),
        ] {
            let problem = LogPrivacy::new(callers, LoggedAddresses::Truncated, Some(key)).unwrap_err();
            assert!(problem.starts_with("pseudonym_key: ") && problem.contains(why), "{problem}");
        }
    }
}
