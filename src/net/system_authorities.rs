//! The system's certificate authorities, loaded once for all clients of a configuration, and not before the first
//! certificate is verified: most gateways fetch nothing over TLS, and the system's bundle takes longer to parse than the
//! rest of the start.

use parking_lot::Mutex;
use rustls::{
    DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use std::sync::{Arc, OnceLock};

/// The authorities, once they are loaded. The lock is held while they load, so that they are loaded once.
static LOADED: Mutex<Option<Arc<RootCertStore>>> = Mutex::new(None);

/// Returns the system's certificate authorities, which the first call loads. Reads files.
pub(super) fn load_system_authorities() -> Arc<RootCertStore> {
    let mut loaded = LOADED.lock();
    let load = || {
        let mut roots = RootCertStore::empty();
        // Some systems have certificates that the verifier cannot parse; they are skipped.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        Arc::new(roots)
    };
    Arc::clone(loaded.get_or_insert_with(load))
}

/// Has the next configuration load the system's authorities again, which may have changed. Clients that have loaded them
/// keep theirs.
pub fn forget_system_authorities() {
    LOADED.lock().take();
}

/// Verifies the certificates of servers against the system's authorities and further ones.
#[derive(Debug)]
pub struct SystemVerifier {
    further: RootCertStore,
    provider: Arc<CryptoProvider>,
    verifier: OnceLock<Arc<WebPkiServerVerifier>>,
}

impl SystemVerifier {
    /// Creates a verifier that trusts the system's authorities and `further` ones. Reads no file.
    pub fn new(further: RootCertStore) -> Arc<Self> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        Arc::new(Self { further, provider, verifier: OnceLock::new() })
    }

    fn verifier(&self) -> Result<&WebPkiServerVerifier, Error> {
        if let Some(verifier) = self.verifier.get() {
            return Ok(verifier);
        }
        let mut roots = load_system_authorities();
        if !self.further.is_empty() {
            Arc::make_mut(&mut roots).extend(self.further.roots.iter().cloned());
        }
        if roots.is_empty() {
            let reason = "the system has no certificate authorities (install ca-certificates, or set ca)";
            return Err(Error::General(reason.to_owned()));
        }
        let built = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&self.provider)).build();
        let built = built.map_err(|error| Error::General(error.to_string()))?;
        Ok(self.verifier.get_or_init(|| built))
    }
}

impl ServerCertVerifier for SystemVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.verifier()?.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verifier_loads_the_systems_authorities_when_it_verifies_the_first_certificate() {
        let verifier = SystemVerifier::new(RootCertStore::empty());
        assert!(!verifier.supported_verify_schemes().is_empty());
        assert!(verifier.verifier.get().is_none(), "nothing is loaded before a certificate arrives");
        let certificate = CertificateDer::from(vec![0x30, 0x00]);
        let name = ServerName::try_from("example.com").unwrap();
        assert!(verifier.verify_server_cert(&certificate, &[], &name, &[], UnixTime::now()).is_err());
        let is_loaded = verifier.verifier.get().is_some();
        assert_eq!(is_loaded, !load_system_authorities().is_empty(), "loaded, if the system has any");
    }

    #[test]
    fn the_systems_authorities_are_loaded_once_and_again_after_they_were_forgotten() {
        let first = load_system_authorities();
        forget_system_authorities();
        let second = load_system_authorities();
        assert_eq!(first.len(), second.len());
        assert!(!Arc::ptr_eq(&first, &second));
    }
}
