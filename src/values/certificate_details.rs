//! What a certificate says of itself, for people who look for a mistake. Verification is left to rustls.

use super::CertificateValidity;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, pem::PemObject as _};
use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    path::Path,
};
use x509_parser::{
    extensions::GeneralName,
    prelude::{FromDer as _, X509Certificate, X509Version},
    revocation_list::CertificateRevocationList,
};

/// Maximum number of certificates that are read from one file.
const MAX_CERTIFICATES: usize = 1_000;

/// One certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateDetails {
    /// The subject, as text.
    pub subject: String,
    /// The issuer, as text.
    pub issuer: String,
    /// When it is valid.
    pub validity: CertificateValidity,
    /// Whether it says that it is an authority's; certificates of version 1 cannot, and count as such.
    pub is_authority: bool,
    dns_names: Vec<String>,
    addresses: Vec<IpAddr>,
}

impl CertificateDetails {
    /// Reads the certificates of a PEM file in their order; those that cannot be parsed are left out.
    pub fn read_file(path: &Path) -> Vec<Self> {
        let Ok(certificates) = CertificateDer::pem_file_iter(path) else { return Vec::new() };
        certificates.take(MAX_CERTIFICATES).filter_map(|der| Self::from_der(&der.ok()?)).collect()
    }

    fn from_der(der: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let names = certificate.subject_alternative_name().ok().flatten();
        let names = names.map(|extension| extension.value.general_names.as_slice()).unwrap_or_default();
        let dns = |name: &GeneralName<'_>| match name {
            GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
            _ => None,
        };
        let address = |name: &GeneralName<'_>| match name {
            GeneralName::IPAddress(bytes) => parse_address(bytes),
            _ => None,
        };
        let constraints = certificate.basic_constraints().ok().flatten();
        let is_authority =
            constraints.map_or_else(|| certificate.version() == X509Version::V1, |constraints| constraints.value.ca);
        Some(Self {
            subject: certificate.subject().to_string(),
            issuer: certificate.issuer().to_string(),
            validity: CertificateValidity::from_der(der).ok()?,
            is_authority,
            dns_names: names.iter().filter_map(dns).collect(),
            addresses: names.iter().filter_map(address).collect(),
        })
    }

    /// Returns whether the certificate is for this host (RFC 9525 §6.3): a `*` stands for one whole label.
    pub fn covers_host(&self, host: &str) -> bool {
        if let Ok(address) = host.parse::<IpAddr>() {
            return self.addresses.contains(&address);
        }
        let host = host.to_ascii_lowercase();
        let covers = |name: &String| match name.strip_prefix("*.") {
            Some(domain) => host.split_once('.').is_some_and(|(label, rest)| !label.is_empty() && rest == domain),
            None => *name == host,
        };
        self.dns_names.iter().any(covers)
    }

    /// Returns whether the certificate names itself as its issuer.
    pub fn is_self_issued(&self) -> bool {
        self.subject == self.issuer
    }
}

/// Returns the last second of the revocation list in a PEM file that ends first; `None` without a readable one.
pub fn earliest_revocation_list_end(path: &Path) -> Option<i64> {
    let lists = CertificateRevocationListDer::pem_file_iter(path).ok()?.take(MAX_CERTIFICATES).filter_map(Result::ok);
    let end = |der: CertificateRevocationListDer<'_>| {
        let (_, list) = CertificateRevocationList::from_der(&der).ok()?;
        list.next_update().map(|at| at.timestamp())
    };
    lists.filter_map(end).min()
}

fn parse_address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(|octets| IpAddr::V4(Ipv4Addr::from(octets)));
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(|octets| IpAddr::V6(Ipv6Addr::from(octets)))).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn details(names: &[&str]) -> CertificateDetails {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
        CertificateDetails::from_der(certificate.der()).unwrap()
    }

    #[test]
    fn a_certificate_covers_its_names_and_one_label_for_a_star() {
        let certificate = details(&["agents.example.com", "*.apps.example.com", "10.0.0.7"]);
        for covered in ["agents.example.com", "AGENTS.example.com", "one.apps.example.com", "10.0.0.7"] {
            assert!(certificate.covers_host(covered), "{covered}");
        }
        for other in ["example.com", "apps.example.com", "a.b.apps.example.com", ".apps.example.com", "10.0.0.8"] {
            assert!(!certificate.covers_host(other), "{other}");
        }
        assert!(certificate.is_self_issued());
    }

    #[test]
    fn a_file_that_has_no_certificate_has_no_details() {
        assert_eq!(CertificateDetails::read_file(Path::new("/nowhere")), []);
    }
}
