//! The certificate of a run: self-signed, ECDSA P-256, the same for every server.

use crate::client_stream::HOST;
use std::fs;
use std::path::{Path, PathBuf};

/// The certificate's files, in PEM.
#[derive(Clone)]
pub(crate) struct TestCertificate {
    pub(crate) chain: PathBuf,
    pub(crate) key: PathBuf,
    /// The chain and the key in one file, as HAProxy reads them.
    pub(crate) chain_and_key: PathBuf,
}

impl TestCertificate {
    /// Creates a certificate and writes its files to `folder`.
    pub(crate) fn new(folder: &Path) -> anyhow::Result<Self> {
        let generated = rcgen::generate_simple_self_signed([HOST.to_owned()])?;
        let (chain, key) = (generated.cert.pem(), generated.signing_key.serialize_pem());
        let file = |name: &str, text: &str| {
            let path = folder.join(name);
            fs::write(&path, text)?;
            anyhow::Ok(path)
        };
        Ok(Self {
            chain: file("chain.pem", &chain)?,
            key: file("key.pem", &key)?,
            chain_and_key: file("both.pem", &format!("{chain}{key}"))?,
        })
    }
}
