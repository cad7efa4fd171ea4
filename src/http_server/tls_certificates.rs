//! TLS certificates of a listener: loading, validation, and reloading when their files change.
//! If a changed certificate does not load, the problem is reported and the previous certificate stays in use.

use super::{
    client_trust::{ClientTrust, CurrentVerifier},
    client_verifier::ClientVerifier,
    config::{ListenerTlsConfig, TlsVersion},
};
use crate::values::{CertificateValidity, ConfigPath, FileStamp, PemContent, read_pem_file, read_private_key, sha256};
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rustls::{
    RootCertStore, ServerConfig,
    crypto::{CryptoProvider, aws_lc_rs},
    server::NoServerSessionStorage,
};
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer};
use std::{path::Path, sync::Arc};
use time::OffsetDateTime;
use tokio::sync::watch;

/// The TLS configuration of one listener, reloaded when its files change.
#[derive(Debug)]
pub(super) struct ReloadableTlsConfig {
    files: ListenerTlsConfig,
    current: ArcSwap<ServerConfig>,
    /// The verifier of `current`, for open connections.
    client_verifier: watch::Sender<CurrentVerifier>,
    /// The certificate of `current`.
    leaf: Mutex<LeafCertificate>,
    last_attempt: Mutex<LoadAttempt>,
}

/// The listener's own certificate, without the rest of its chain.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LeafCertificate {
    der: CertificateDer<'static>,
    validity: CertificateValidity,
}

/// The last attempt to load the files.
#[derive(Debug)]
struct LoadAttempt {
    file_stamps: Vec<Option<FileStamp>>,
    /// When to try again although no file changed: the first second of a certificate that is not valid yet.
    retry_at: Option<i64>,
}

impl ReloadableTlsConfig {
    /// Loads the files.
    pub(super) fn load(files: &ListenerTlsConfig) -> Result<Self, Vec<String>> {
        let file_stamps = file_stamps(files);
        let LoadedTls { config, verifier, leaf } = build_server_config(files)?;
        let (client_verifier, _) = watch::channel(CurrentVerifier { generation: 0, verifier });
        Ok(Self {
            files: files.clone(),
            current: ArcSwap::from_pointee(config),
            client_verifier,
            leaf: Mutex::new(leaf),
            last_attempt: Mutex::new(LoadAttempt { file_stamps, retry_at: None }),
        })
    }

    /// Returns the SHA-256 of the certificate in use, without the rest of its chain.
    pub(super) fn fingerprint(&self) -> [u8; 32] {
        sha256(&self.leaf.lock().der)
    }

    /// Returns the validity of the certificate in use.
    pub(super) fn validity(&self) -> CertificateValidity {
        self.leaf.lock().validity
    }

    /// Returns why the certificate in use is not valid now, if it is not.
    pub(super) fn validity_problem(&self) -> Option<String> {
        let problem = self.validity().problem_at(OffsetDateTime::now_utc())?;
        Some(format!("tls.certificate: {}: {problem}", self.files.certificate.display()))
    }

    /// Returns the configuration for the next handshake.
    pub(super) fn current(&self) -> Arc<ServerConfig> {
        self.current.load_full()
    }

    /// Returns the trust in the certificate of a new connection.
    pub(super) fn client_trust(&self) -> ClientTrust {
        ClientTrust::new(self.client_verifier.subscribe())
    }

    /// Reloads the files if they have changed since the last attempt; `None` if they have not. Another certificate that
    /// is not valid now does not replace the one in use; one that is not valid yet is tried again when it is.
    pub(super) fn reload_changed(&self) -> Option<Result<(), Vec<String>>> {
        let stamps = file_stamps(&self.files);
        let now = OffsetDateTime::now_utc();
        let mut last = self.last_attempt.lock();
        let is_retry_due = last.retry_at.is_some_and(|retry_at| retry_at <= now.unix_timestamp());
        if last.file_stamps == stamps && !is_retry_due {
            return None;
        }
        *last = LoadAttempt { file_stamps: stamps, retry_at: None };
        let loaded = build_server_config(&self.files).and_then(|loaded| {
            // The same certificate stays in use also when it has expired, so that other files are reloaded.
            match loaded.leaf.validity.problem_at(now).filter(|_| loaded.leaf != *self.leaf.lock()) {
                None => Ok(loaded),
                Some(problem) => {
                    let starts_at = loaded.leaf.validity.not_before;
                    last.retry_at = (starts_at > now.unix_timestamp()).then_some(starts_at);
                    Err(vec![format!("tls.certificate: {}: {problem}", self.files.certificate.display())])
                }
            }
        });
        Some(loaded.map(|LoadedTls { config, verifier, leaf }| {
            self.current.store(Arc::new(config));
            *self.leaf.lock() = leaf;
            // After the configuration, so that a handshake with the previous one is verified once more.
            self.client_verifier.send_modify(|current| {
                *current = CurrentVerifier { generation: current.generation + 1, verifier };
            });
        }))
    }
}

/// What the files of a listener yield.
struct LoadedTls {
    config: ServerConfig,
    verifier: Option<Arc<ClientVerifier>>,
    leaf: LeafCertificate,
}

fn file_stamps(files: &ListenerTlsConfig) -> Vec<Option<FileStamp>> {
    let single = [Some(&files.certificate), Some(&files.key), files.client_ca.as_ref()];
    single.into_iter().flatten().chain(&files.client_crl).map(|path| FileStamp::read(path)).collect()
}

fn build_server_config(files: &ListenerTlsConfig) -> Result<LoadedTls, Vec<String>> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut problems = Vec::new();
    let chain = ok_or_record(read_chain(&files.certificate), "tls.certificate", &mut problems);
    let key = ok_or_record(read_private_key(&files.key), "tls.key", &mut problems);
    let revocation_lists = read_all_revocation_lists(&files.client_crl, &mut problems);
    let verifier = files.client_ca.as_deref().and_then(|path| {
        ok_or_record(build_client_verifier(path, revocation_lists, &provider), "tls.client_ca", &mut problems)
    });
    let (Some(CertificateChain { certificates: chain, leaf }), Some(key), true) = (chain, key, problems.is_empty())
    else {
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
    let verifier = verifier.map(Arc::new);
    let requests_client_certificates = verifier.is_some();
    let mut config = match verifier.clone() {
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
    Ok(LoadedTls { config, verifier, leaf })
}

fn ok_or_record<T>(result: Result<T, String>, key: &str, problems: &mut Vec<String>) -> Option<T> {
    result.map_err(|problem| problems.push(format!("{key}: {problem}"))).ok()
}

/// Reads the revocation lists of all files.
fn read_all_revocation_lists(
    paths: &[ConfigPath],
    problems: &mut Vec<String>,
) -> Vec<CertificateRevocationListDer<'static>> {
    let mut lists = Vec::new();
    for (at, path) in paths.iter().enumerate() {
        let read = read_pem_file(path, PemContent::RevocationLists);
        let read = ok_or_record(read, &format!("tls.client_crl[{at}]"), problems);
        lists.extend(read.into_iter().flatten());
    }
    lists
}

/// A certificate with its chain.
struct CertificateChain {
    certificates: Vec<CertificateDer<'static>>,
    leaf: LeafCertificate,
}

fn read_chain(path: &Path) -> Result<CertificateChain, String> {
    let certificates = read_certificates(path)?;
    let der = certificates.first().cloned().ok_or_else(|| format!("{} has no certificate", path.display()))?;
    let validity = CertificateValidity::from_der(&der).map_err(|why| format!("{}: {why}", path.display()))?;
    Ok(CertificateChain { certificates, leaf: LeafCertificate { der, validity } })
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    read_pem_file(path, PemContent::Certificates)
}

fn build_client_verifier(
    path: &Path,
    revocation_lists: Vec<CertificateRevocationListDer<'static>>,
    provider: &Arc<CryptoProvider>,
) -> Result<ClientVerifier, String> {
    let mut roots = RootCertStore::empty();
    for authority in read_certificates(path)? {
        roots.add(authority).map_err(|error| format!("has a certificate that is not a valid authority ({error})"))?;
    }
    ClientVerifier::build(roots, revocation_lists, provider)
}
