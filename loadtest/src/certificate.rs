//! The certificate of a run: ECDSA P-256, signed by itself, the same for every server.

use crate::wire::HOST;
use std::fs;
use std::path::{Path, PathBuf};

/// Its files, in PEM.
#[derive(Clone)]
pub(crate) struct Certificate {
    pub(crate) chain: PathBuf,
    pub(crate) key: PathBuf,
    /// Both in one, as HAProxy wants them.
    pub(crate) both: PathBuf,
}

impl Certificate {
    /// Makes one in `folder`.
    pub(crate) fn new(folder: &Path) -> anyhow::Result<Self> {
        let made = rcgen::generate_simple_self_signed([HOST.to_owned()])?;
        let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        let file = |name: &str, text: &str| {
            let path = folder.join(name);
            fs::write(&path, text)?;
            anyhow::Ok(path)
        };
        Ok(Self {
            chain: file("chain.pem", &chain)?,
            key: file("key.pem", &key)?,
            both: file("both.pem", &format!("{chain}{key}"))?,
        })
    }
}
