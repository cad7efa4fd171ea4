//! Requirements on the signatures of a source's documents (R100).

use super::config::RemoteSourceConfig;
use crate::signing::TrustedKeys;
use std::sync::Arc;

/// Requirements on the signatures of a source's documents.
#[derive(Clone, Debug, Default)]
pub(super) struct SignaturePolicy {
    /// Trusted publishers: a document whose signature is not valid under one of their keys is rejected.
    pub(super) trusted_keys: Option<Arc<TrustedKeys>>,
    /// Whether the trusted keys are those that the source's host publishes, which each poll reads.
    pub(super) reads_domain_keys: bool,
    /// Whether a document without a signature is rejected too.
    pub(super) require_signature: bool,
}

impl SignaturePolicy {
    /// Reads the keys that a source names.
    ///
    /// # Errors
    /// The file cannot be read, or is not a JWK Set.
    pub(super) fn load(remote: &RemoteSourceConfig) -> Result<Self, String> {
        let (require_signature, reads_domain_keys) = (remote.require_signature, remote.domain_jwks);
        let trusted_keys = remote.publisher_jwks.as_deref().map(TrustedKeys::from_file).transpose()?.map(Arc::new);
        Ok(Self { trusted_keys, reads_domain_keys, require_signature })
    }
}
