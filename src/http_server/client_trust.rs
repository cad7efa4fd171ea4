//! Whether the certificate of an open connection is still accepted. A reload may remove its authority or revoke it;
//! then the connection gets no further requests.

use super::client_verifier::ClientVerifier;
use rustls::server::danger::ClientCertVerifier as _;
use rustls_pki_types::{CertificateDer, UnixTime};
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};
use tokio::sync::watch;

/// The verifier in force, and its number: each reload has the next.
#[derive(Clone, Debug)]
pub(super) struct CurrentVerifier {
    pub(super) generation: u64,
    /// `None` if the listener asks for no certificates.
    pub(super) verifier: Option<Arc<ClientVerifier>>,
}

/// The trust in one connection's certificate.
#[derive(Debug)]
pub(super) struct ClientTrust {
    current: watch::Receiver<CurrentVerifier>,
    /// Generation of the verifier that accepted the certificate last.
    accepted_by: AtomicU64,
    is_revoked: AtomicBool,
}

impl ClientTrust {
    /// Starts without trust in any generation, because a reload may have happened during the handshake.
    pub(super) fn new(current: watch::Receiver<CurrentVerifier>) -> Self {
        Self { current, accepted_by: AtomicU64::new(u64::MAX), is_revoked: AtomicBool::new(false) }
    }

    /// Returns whether the verifier in force accepts the chain (leaf first); verifies it once after each reload. A
    /// connection whose chain was refused stays refused.
    pub(super) fn is_trusted(&self, chain: &[CertificateDer<'_>]) -> bool {
        if self.is_revoked.load(Ordering::Acquire) {
            return false;
        }
        if self.current.borrow().generation == self.accepted_by.load(Ordering::Acquire) {
            return true;
        }
        let current = self.current.borrow().clone();
        let accepted = current.verifier.zip(chain.split_first()).is_some_and(|(verifier, (leaf, intermediates))| {
            verifier.verify_client_cert(leaf, intermediates, UnixTime::now()).is_ok()
        });
        if accepted {
            self.accepted_by.store(current.generation, Ordering::Release);
        } else {
            self.is_revoked.store(true, Ordering::Release);
        }
        accepted
    }

    /// Resolves when the chain is no longer accepted.
    pub(super) async fn wait_until_untrusted(&self, chain: &[CertificateDer<'_>]) {
        let mut current = self.current.clone();
        while self.is_trusted(chain) {
            if current.changed().await.is_err() {
                // The server is gone; it shuts its connections down.
                return std::future::pending().await;
            }
        }
    }
}
