//! TLS certificates of a listener: loading, validation, and reloading when their files change.
//! If a changed certificate does not load, the problem is reported and the previous certificate stays in use.

use super::config::{ListenerTlsConfig, TlsVersion};
use crate::values::FileStamp;
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rustls::{
    RootCertStore, ServerConfig,
    crypto::{CryptoProvider, aws_lc_rs},
    server::{NoServerSessionStorage, WebPkiClientVerifier, danger::ClientCertVerifier},
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use std::{fmt::Display, path::Path, sync::Arc};

/// The TLS configuration of one listener, reloaded when its files change.
#[derive(Debug)]
pub(super) struct ReloadableTlsConfig {
    files: ListenerTlsConfig,
    current: ArcSwap<ServerConfig>,
    file_stamps: Mutex<Vec<Option<FileStamp>>>,
}

impl ReloadableTlsConfig {
    /// Loads the files.
    pub(super) fn load(files: &ListenerTlsConfig) -> Result<Self, Vec<String>> {
        let file_stamps = file_stamps(files);
        let current = ArcSwap::from_pointee(build_server_config(files)?);
        Ok(Self { files: files.clone(), current, file_stamps: Mutex::new(file_stamps) })
    }

    /// Returns the configuration for the next handshake.
    pub(super) fn current(&self) -> Arc<ServerConfig> {
        self.current.load_full()
    }

    /// Reloads the files if they have changed since the last attempt; `None` if they have not.
    pub(super) fn reload_changed(&self) -> Option<Result<(), Vec<String>>> {
        let now = file_stamps(&self.files);
        let mut last = self.file_stamps.lock();
        if *last == now {
            return None;
        }
        *last = now;
        Some(build_server_config(&self.files).map(|config| self.current.store(Arc::new(config))))
    }
}

fn file_stamps(files: &ListenerTlsConfig) -> Vec<Option<FileStamp>> {
    let files = [Some(&files.certificate), Some(&files.key), files.client_ca.as_ref()];
    files.into_iter().flatten().map(|path| FileStamp::read(path)).collect()
}

fn build_server_config(files: &ListenerTlsConfig) -> Result<ServerConfig, Vec<String>> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut problems = Vec::new();
    let chain = ok_or_record(read_certificates(&files.certificate), "tls.certificate", &mut problems);
    let key = PrivateKeyDer::from_pem_file(&files.key)
        .map_err(|error| format!("{} cannot be read as a private key ({error})", files.key.display()));
    let key = ok_or_record(key, "tls.key", &mut problems);
    let verifier = files
        .client_ca
        .as_deref()
        .map(|path| ok_or_record(build_client_verifier(path, &provider), "tls.client_ca", &mut problems));
    let (Some(chain), Some(key), true) = (chain, key, problems.is_empty()) else {
        return Err(problems);
    };
    let tls_problem =
        |error: rustls::Error| vec![format!("tls: certificate and key cannot be used together ({error})")];

    let versions: &[&rustls::SupportedProtocolVersion] = match files.min_version {
        TlsVersion::Tls12 => &[&rustls::version::TLS13, &rustls::version::TLS12],
        TlsVersion::Tls13 => &[&rustls::version::TLS13],
    };
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(versions)
        .map_err(tls_problem)?;
    let requests_client_certificates = verifier.is_some();
    let mut config = match verifier.flatten() {
        Some(verifier) => builder.with_client_cert_verifier(verifier),
        None => builder.with_no_client_auth(),
    }
    .with_single_cert(chain, key)
    .map_err(tls_problem)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    if requests_client_certificates {
        // A resumed session carries the certificate of an earlier handshake. That certificate may have expired since,
        // and its authority may have been removed.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    } else {
        config.ticketer = aws_lc_rs::Ticketer::new().map_err(tls_problem)?;
    }
    Ok(config)
}

fn ok_or_record<T>(result: Result<T, String>, key: &str, problems: &mut Vec<String>) -> Option<T> {
    result.map_err(|problem| problems.push(format!("{key}: {problem}"))).ok()
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let unreadable = |error: &dyn Display| format!("{} cannot be read as certificates ({error})", path.display());
    let certificates: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(path).map_err(|error| unreadable(&error))?.collect();
    let certificates = certificates.map_err(|error| unreadable(&error))?;
    if certificates.is_empty() {
        Err(format!("{} has no certificate (PEM is required)", path.display()))
    } else {
        Ok(certificates)
    }
}

/// Builds the verifier of client certificates. It requests a certificate without requiring one, because each agent
/// decides that; a certificate that is presented must be valid.
fn build_client_verifier(path: &Path, provider: &Arc<CryptoProvider>) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let mut roots = RootCertStore::empty();
    for authority in read_certificates(path)? {
        roots.add(authority).map_err(|error| format!("has a certificate that is not a valid authority ({error})"))?;
    }
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
        .allow_unauthenticated()
        .build()
        .map_err(|error| format!("cannot be used to verify clients ({error})"))
}
