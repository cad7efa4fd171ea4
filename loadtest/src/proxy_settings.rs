//! What a proxy is to do, and the addresses and files that it gets: the parameters of every proxy's configuration.

use crate::certificate::TestCertificate;
use anyhow::Context as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// The settings that the proxies of a run share.
pub(crate) struct ProxySettings {
    pub(crate) folder: PathBuf,
    pub(crate) agent: SocketAddr,
    pub(crate) certificate: TestCertificate,
    /// The maximum of concurrent connections from callers.
    pub(crate) connections: u64,
    /// Envoy's program, where it is not on the PATH.
    pub(crate) envoy: Option<PathBuf>,
}

/// What a proxy does with a call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProxyMode {
    /// Forwards it.
    PassThrough,
    /// Forwards it, and events without buffering, where that takes a setting.
    Unbuffered,
    /// Looks up the API key, applies a rate limit to it, rewrites the path, and writes an access log line.
    Checked,
}

/// The API key that proxies with [`ProxyMode::Checked`] accept.
pub(crate) const API_KEY: &str = "loadtest-0123456789abcdef";
/// The path that these proxies rewrite to `/invoke`.
pub(crate) const CHECKED_PATH: &str = "/agents/keyed/invoke";
/// Calls a second that these proxies allow for one key: more than any of them can serve.
pub(crate) const RATE_LIMIT: u32 = 1_000_000;

/// The addresses on which a proxy is to listen.
#[derive(Clone, Copy)]
pub(crate) struct ListenAddresses {
    pub(crate) plain: SocketAddr,
    pub(crate) tls: SocketAddr,
}

/// Writes a file for a proxy and returns its path.
pub(crate) fn write_file(folder: &Path, name: &str, text: &str) -> anyhow::Result<PathBuf> {
    let file = folder.join(name);
    std::fs::write(&file, text).with_context(|| file.display().to_string())?;
    Ok(file)
}
