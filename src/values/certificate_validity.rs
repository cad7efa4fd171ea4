//! The time for which a certificate is valid (RFC 5280 §4.1.2.5).

use rustls_pki_types::{CertificateDer, pem::PemObject as _};
use std::path::Path;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// The time for which a certificate is valid, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CertificateValidity {
    /// First second.
    pub not_before: i64,
    /// Last second.
    pub not_after: i64,
}

impl CertificateValidity {
    /// Reads the validity of a certificate in DER.
    ///
    /// # Errors
    /// Why the certificate cannot be parsed.
    pub fn from_der(der: &[u8]) -> Result<Self, String> {
        let (_, certificate) =
            X509Certificate::from_der(der).map_err(|_| "the certificate cannot be parsed".to_owned())?;
        let validity = certificate.validity();
        Ok(Self { not_before: validity.not_before.timestamp(), not_after: validity.not_after.timestamp() })
    }

    /// Reads the validity of the first certificate in a PEM file; `None` where it cannot be read, which those report that
    /// load the file.
    pub fn of_file(path: &Path) -> Option<Self> {
        let leaf = CertificateDer::pem_file_iter(path).ok()?.next()?.ok()?;
        Self::from_der(&leaf).ok()
    }

    /// Returns the last second of the certificate in a PEM file that ends first; `None` without a readable one.
    pub fn earliest_end_in(path: &Path) -> Option<i64> {
        let certificates = CertificateDer::pem_file_iter(path).ok()?.filter_map(Result::ok);
        certificates
            .filter_map(|certificate| Self::from_der(&certificate).ok())
            .map(|validity| validity.not_after)
            .min()
    }

    /// Returns why the certificate is not valid at `now`, if it is not.
    pub fn problem_at(&self, now: OffsetDateTime) -> Option<String> {
        let format = |seconds| OffsetDateTime::from_unix_timestamp(seconds).ok()?.format(&Rfc3339).ok();
        let time = |seconds| format(seconds).unwrap_or_else(|| "an unknown time".to_owned());
        let now = now.unix_timestamp();
        if now > self.not_after {
            return Some(format!("the certificate expired at {}", time(self.not_after)));
        }
        (now < self.not_before).then(|| format!("the certificate is not valid before {}", time(self.not_before)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_valid_from_its_first_to_its_last_second() {
        let validity = CertificateValidity { not_before: 1_000, not_after: 2_000 };
        let problem_at = |seconds| validity.problem_at(OffsetDateTime::from_unix_timestamp(seconds).unwrap());
        assert_eq!(problem_at(1_000), None);
        assert_eq!(problem_at(2_000), None);
        assert_eq!(problem_at(999).unwrap(), "the certificate is not valid before 1970-01-01T00:16:40Z");
        assert_eq!(problem_at(2_001).unwrap(), "the certificate expired at 1970-01-01T00:33:20Z");
    }

    #[test]
    fn text_that_is_no_certificate_has_no_validity() {
        assert!(CertificateValidity::from_der(b"text").unwrap_err().contains("cannot be parsed"));
        assert_eq!(CertificateValidity::of_file(Path::new("/nowhere")), None);
    }
}
