//! Client certificate of a connection, parsed once at the handshake. The listener has verified its chain; this module
//! only reads its fields.

use crate::{
    auth::config::CertificateName,
    values::{encode_hex, sha256},
};
use std::sync::OnceLock;
use x509_parser::prelude::*;

/// Client certificate of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    fingerprint: [u8; 32],
    subject: String,
    common_name: Option<String>,
    dns: Option<String>,
    uri: Option<String>,
    email: Option<String>,
    not_before: i64,
    not_after: i64,
    revoked: OnceLock<()>,
}

impl ClientCertificate {
    /// Parses a certificate.
    ///
    /// # Errors
    /// `der` is not a DER certificate, or has trailing bytes.
    pub fn from_der(der: &[u8]) -> Result<Self, String> {
        let (rest, certificate) =
            X509Certificate::from_der(der).map_err(|why| format!("the certificate cannot be parsed ({why})"))?;
        if !rest.is_empty() {
            return Err("the certificate has trailing bytes".to_owned());
        }
        let names = certificate
            .subject_alternative_name()
            .map_err(|why| format!("the certificate's alternative names cannot be parsed ({why})"))?;
        let names = names.map(|names| names.value.general_names.as_slice()).unwrap_or_default();
        let first = |read: fn(&GeneralName<'_>) -> Option<String>| names.iter().find_map(read);
        let common_name = certificate.subject().iter_common_name().next().and_then(|name| name.as_str().ok());
        Ok(Self {
            fingerprint: sha256(der),
            subject: certificate.subject().to_string(),
            common_name: common_name.map(str::to_owned),
            dns: first(|name| if let GeneralName::DNSName(name) = name { Some((*name).to_owned()) } else { None }),
            uri: first(|name| if let GeneralName::URI(name) = name { Some((*name).to_owned()) } else { None }),
            email: first(|name| if let GeneralName::RFC822Name(name) = name { Some((*name).to_owned()) } else { None }),
            not_before: certificate.validity().not_before.timestamp(),
            not_after: certificate.validity().not_after.timestamp(),
            revoked: OnceLock::new(),
        })
    }

    /// Returns the SHA-256 hash of the DER encoding: `x5t#S256` (RFC 8705 §3.1) before its base64url encoding.
    pub fn fingerprint(&self) -> &[u8; 32] {
        &self.fingerprint
    }

    /// Returns the subject, for the log.
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// Records that the listener no longer accepts the certificate: its authority was removed, or the certificate was
    /// revoked, after the handshake.
    pub fn revoke(&self) {
        // A second call changes nothing.
        let _ = self.revoked.set(());
    }

    /// Returns whether [`ClientCertificate::revoke`] was called.
    pub(in crate::auth) fn is_revoked(&self) -> bool {
        self.revoked.get().is_some()
    }

    /// Returns whether `now` is within the validity period. A connection or a resumed session may outlive its
    /// certificate.
    pub fn is_valid_at(&self, now: i64) -> bool {
        (self.not_before..=self.not_after).contains(&now)
    }

    /// Returns the certificate's first name of this kind, qualified by the kind.
    pub(super) fn qualified_name(&self, kind: CertificateName) -> Option<String> {
        let name = match kind {
            CertificateName::SanDns => self.dns.as_deref(),
            CertificateName::SanUri => self.uri.as_deref(),
            CertificateName::SanEmail => self.email.as_deref(),
            CertificateName::SubjectCn => self.common_name.as_deref(),
            CertificateName::Subject => Some(self.subject.as_str()).filter(|subject| !subject.is_empty()),
            CertificateName::Fingerprint => return Some(kind.qualify(&encode_hex(&self.fingerprint))),
        };
        name.map(|name| kind.qualify(name))
    }
}
