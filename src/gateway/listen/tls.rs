//! Certificates of a listener: read, checked, put in force, and read again when their files change.
//! A pair that does not load is reported and the one in force stays.

use super::config::{Tls, Version};
use arc_swap::ArcSwap;
use rustls::{
    RootCertStore, ServerConfig,
    crypto::{CryptoProvider, aws_lc_rs},
    server::{NoServerSessionStorage, WebPkiClientVerifier, danger::ClientCertVerifier},
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use std::{
    fmt::Display,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::SystemTime,
};

/// The TLS of one listener.
#[derive(Debug)]
pub(super) struct Certificates {
    files: Tls,
    current: ArcSwap<ServerConfig>,
    stamp: Mutex<Stamp>,
}

/// By what a change of the files is noticed: time, size and identity of each.
type Stamp = Vec<Option<(SystemTime, u64, u64)>>;

impl Certificates {
    /// Reads the files.
    pub(super) fn load(files: &Tls) -> Result<Self, Vec<String>> {
        let stamp = stamp(files);
        let current = ArcSwap::from_pointee(build(files)?);
        Ok(Self { files: files.clone(), current, stamp: Mutex::new(stamp) })
    }

    /// What the next handshake uses.
    pub(super) fn current(&self) -> Arc<ServerConfig> {
        self.current.load_full()
    }

    /// Reads the files again if they have changed since the last try; `None` if they have not.
    pub(super) fn reload_if_changed(&self) -> Option<Result<(), Vec<String>>> {
        let now = stamp(&self.files);
        let mut last = self.stamp.lock().unwrap_or_else(PoisonError::into_inner);
        if *last == now {
            return None;
        }
        *last = now;
        Some(build(&self.files).map(|config| self.current.store(Arc::new(config))))
    }
}

fn stamp(files: &Tls) -> Stamp {
    use std::os::unix::fs::MetadataExt;
    let one = |path: &Path| {
        std::fs::metadata(path).ok().and_then(|meta| Some((meta.modified().ok()?, meta.len(), meta.ino())))
    };
    [Some(&files.certificate), Some(&files.key), files.client_ca.as_ref()]
        .into_iter()
        .flatten()
        .map(|path| one(path))
        .collect()
}

fn build(files: &Tls) -> Result<ServerConfig, Vec<String>> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut problems = Vec::new();
    let chain = keep(certificates(&files.certificate), "tls.certificate", &mut problems);
    let key = PrivateKeyDer::from_pem_file(&files.key)
        .map_err(|error| format!("{} cannot be read as a private key ({error})", files.key.display()));
    let key = keep(key, "tls.key", &mut problems);
    let verifier =
        files.client_ca.as_deref().map(|path| keep(client_verifier(path, &provider), "tls.client_ca", &mut problems));
    let (Some(chain), Some(key), true) = (chain, key, problems.is_empty()) else {
        return Err(problems);
    };
    let one = |error: rustls::Error| vec![format!("tls: the certificate and its key do not serve ({error})")];

    let versions: &[&rustls::SupportedProtocolVersion] = match files.min_version {
        Version::Tls12 => &[&rustls::version::TLS13, &rustls::version::TLS12],
        Version::Tls13 => &[&rustls::version::TLS13],
    };
    let builder =
        ServerConfig::builder_with_provider(Arc::clone(&provider)).with_protocol_versions(versions).map_err(one)?;
    let asks = verifier.is_some();
    let mut config = match verifier.flatten() {
        Some(verifier) => builder.with_client_cert_verifier(verifier),
        None => builder.with_no_client_auth(),
    }
    .with_single_cert(chain, key)
    .map_err(one)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    if asks {
        // A resumed session carries the certificate of an earlier handshake: it may have expired, and its
        // authority may have been removed since.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    } else {
        config.ticketer = aws_lc_rs::Ticketer::new().map_err(one)?;
    }
    Ok(config)
}

fn keep<T>(result: Result<T, String>, at: &str, problems: &mut Vec<String>) -> Option<T> {
    result.map_err(|problem| problems.push(format!("{at}: {problem}"))).ok()
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let unreadable = |error: &dyn Display| format!("{} cannot be read as certificates ({error})", path.display());
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).map_err(|error| unreadable(&error))?.collect();
    let found = found.map_err(|error| unreadable(&error))?;
    if found.is_empty() { Err(format!("{} has no certificate (PEM is required)", path.display())) } else { Ok(found) }
}

/// Certificates are asked for and not required: agents say who needs one. One that is shown must hold.
fn client_verifier(path: &Path, provider: &Arc<CryptoProvider>) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let mut roots = RootCertStore::empty();
    for authority in certificates(path)? {
        roots.add(authority).map_err(|error| format!("has a certificate that cannot be an authority ({error})"))?;
    }
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
        .allow_unauthenticated()
        .build()
        .map_err(|error| format!("cannot be used to verify clients ({error})"))
}
