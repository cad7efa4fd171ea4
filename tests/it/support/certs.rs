//! Certificates of a test: an authority, and the server and client certificates that it issues.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyIdMethod, KeyPair, KeyUsagePurpose, SerialNumber,
};
use rustls_pki_types::{CertificateDer, pem::PemObject};
use std::path::{Path, PathBuf};
use time::OffsetDateTime;

/// A certificate authority.
pub struct CertificateAuthority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its private key, in PEM.
#[derive(Clone)]
pub struct IssuedCertificate {
    pub certificate: String,
    pub key: String,
}

impl CertificateAuthority {
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub fn pem(&self) -> String {
        self.0.pem()
    }

    pub fn server(&self, names: &[&str]) -> IssuedCertificate {
        self.issue(names, "server", ExtendedKeyUsagePurpose::ServerAuth)
    }

    pub fn client(&self, name: &str) -> IssuedCertificate {
        self.issue(&[name], name, ExtendedKeyUsagePurpose::ClientAuth)
    }

    /// A revocation list without entries, in PEM, that should have been replaced at `next`.
    pub fn revocation_list(&self, next: OffsetDateTime) -> String {
        let params = CertificateRevocationListParams {
            this_update: next - time::Duration::days(7),
            next_update: next,
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: Vec::new(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.0).unwrap().pem().unwrap()
    }

    /// A server certificate that is valid between these times.
    pub fn server_between(&self, names: &[&str], from: OffsetDateTime, to: OffsetDateTime) -> IssuedCertificate {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
        (params.not_before, params.not_after) = (from, to);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        IssuedCertificate { certificate: certificate.pem(), key: key.serialize_pem() }
    }

    fn issue(&self, names: &[&str], common_name: &str, purpose: ExtendedKeyUsagePurpose) -> IssuedCertificate {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name.push(DnType::CommonName, common_name);
        params.extended_key_usages.push(purpose);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        IssuedCertificate { certificate: certificate.pem(), key: key.serialize_pem() }
    }
}

impl IssuedCertificate {
    /// The `x5t#S256` of the certificate (RFC 8705).
    pub fn thumbprint(&self) -> String {
        let der = CertificateDer::from_pem_slice(self.certificate.as_bytes()).unwrap();
        URL_SAFE_NO_PAD.encode(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &der))
    }

    /// Writes the certificate to `name.pem` and the key to `name.key`.
    pub fn write(&self, folder: &Path, name: &str) -> (PathBuf, PathBuf) {
        let (certificate, key) = (folder.join(format!("{name}.pem")), folder.join(format!("{name}.key")));
        std::fs::write(&certificate, &self.certificate).unwrap();
        std::fs::write(&key, &self.key).unwrap();
        (certificate, key)
    }
}
