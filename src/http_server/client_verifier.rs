//! Verification of client certificates: authorities, revocation lists, and the key usage that rustls does not check
//! (RFC 5280 §4.2.1.3).

use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    crypto::CryptoProvider,
    server::{
        WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
};
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, UnixTime};
use std::sync::Arc;
use x509_parser::prelude::{FromDer, KeyUsage, X509Certificate};

/// Verifies the certificates that clients present. A certificate is requested and not required, because each agent
/// decides that; a certificate that is presented must be valid.
#[derive(Debug)]
pub(super) struct ClientVerifier(Arc<dyn ClientCertVerifier>);

impl ClientVerifier {
    /// Builds the verifier. With revocation lists, every certificate of a chain needs the current list of its authority:
    /// an unknown status and an expired list refuse the certificate.
    pub(super) fn build(
        roots: RootCertStore,
        revocation_lists: Vec<CertificateRevocationListDer<'static>>,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, String> {
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
            .with_crls(revocation_lists)
            .enforce_revocation_expiration()
            .allow_unauthenticated()
            .build()
            .map(Self)
            .map_err(|error| format!("cannot be used to verify clients ({error})"))
    }
}

impl ClientCertVerifier for ClientVerifier {
    fn offer_client_auth(&self) -> bool {
        self.0.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.0.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    /// Verifies the chain. rustls checks validity, authorities, revocation and the extended key usage (clientAuth, where
    /// the extension is present). The key usage, where present, must have digitalSignature for the client (RFC 8446
    /// §4.4.2.4) and keyCertSign for issuers: an issuer without it is left out of the path.
    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        if !allows_usage(end_entity, KeyUsage::digital_signature) {
            return Err(CertificateError::InvalidPurpose.into());
        }
        let may_issue = |certificate: &&CertificateDer<'_>| allows_usage(certificate, KeyUsage::key_cert_sign);
        let issuers: Vec<CertificateDer<'_>> = intermediates.iter().filter(may_issue).cloned().collect();
        self.0.verify_client_cert(end_entity, &issuers, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// Returns whether the certificate's key usage allows `usage`. A certificate without the extension allows every usage; an
/// extension that cannot be parsed allows none.
fn allows_usage(der: &[u8], usage: fn(&KeyUsage) -> bool) -> bool {
    let Ok((_, certificate)) = X509Certificate::from_der(der) else { return false };
    certificate.key_usage().is_ok_and(|extension| extension.is_none_or(|extension| usage(extension.value)))
}
