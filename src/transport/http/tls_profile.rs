//! TLS profiles: which authorities the gateway trusts, and which client certificate it presents. Agents with equal
//! settings share a profile. Changed files are reloaded while the gateway runs, unless they are invalid.

use crate::{
    net::SystemVerifier,
    transport::config::UpstreamTlsConfig,
    values::{CertificateValidity, FileStamp, PemContent, read_pem_file, read_private_key, strip_brackets},
};
use arc_swap::ArcSwap;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName},
};
use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};
use time::OffsetDateTime;

/// Numbers every TLS configuration, so that no two have the same generation.
static NEXT_GENERATION: AtomicU64 = AtomicU64::new(1);

/// The TLS configuration in force, and the state of the files that it was loaded from.
#[derive(Debug)]
pub(super) struct LoadedTls {
    pub(super) config: Arc<ClientConfig>,
    /// A connection that was opened under another generation is not used again.
    pub(super) generation: u64,
    file_stamps: Vec<Option<FileStamp>>,
    /// The gateway's client certificate, without its chain.
    leaf: Option<CertificateDer<'static>>,
}

/// One set of TLS settings.
#[derive(Debug)]
pub(super) struct TlsProfile {
    settings: UpstreamTlsConfig,
    loaded: ArcSwap<LoadedTls>,
}

impl TlsProfile {
    pub(super) fn load(settings: &UpstreamTlsConfig) -> Result<Arc<Self>, Vec<String>> {
        let loaded = load_tls(settings)?;
        Ok(Arc::new(Self { settings: settings.clone(), loaded: ArcSwap::from_pointee(loaded) }))
    }

    pub(super) fn loaded(&self) -> Arc<LoadedTls> {
        self.loaded.load_full()
    }

    pub(super) fn generation(&self) -> u64 {
        self.loaded.load().generation
    }

    /// Refuses another client certificate that has expired or is not valid yet. The certificate in force stays in force
    /// when it expires, so that the other files are still reloaded.
    fn require_valid_certificate(&self, loaded: LoadedTls) -> Result<LoadedTls, Vec<String>> {
        let changed = loaded.leaf.as_deref().filter(|_| loaded.leaf != self.loaded.load().leaf);
        let problem = changed.and_then(|leaf| match CertificateValidity::from_der(leaf) {
            Ok(validity) => validity.problem_at(OffsetDateTime::now_utc()),
            Err(why) => Some(why),
        });
        problem.map_or(Ok(loaded), |why| Err(vec![format!("tls.certificate: {why}")]))
    }

    /// Reloads the files if one has changed. If they are invalid, the last valid configuration stays in force. Blocks
    /// on the file system.
    pub(super) fn reload_if_changed(&self) {
        if file_stamps(&self.settings) == self.loaded.load().file_stamps {
            return;
        }
        match load_tls(&self.settings).and_then(|loaded| self.require_valid_certificate(loaded)) {
            Ok(loaded) => self.loaded.store(Arc::new(loaded)),
            Err(problems) => {
                tracing::warn!(?problems, "changed TLS files for agents are invalid: the previous ones stay in force")
            }
        }
    }
}

/// Builds the TLS configuration of `settings`, for transports that negotiate no protocol (ALPN). Reads files.
pub(in crate::transport) fn build_tls_config(settings: &UpstreamTlsConfig) -> Result<ClientConfig, Vec<String>> {
    let mut config = (*TlsProfile::load(settings)?.loaded().config).clone();
    config.alpn_protocols.clear();
    Ok(config)
}

/// Returns the name to verify: the configured one, or the endpoint's host.
pub(super) fn parse_server_name(settings: &UpstreamTlsConfig, host: &str) -> Result<ServerName<'static>, String> {
    let name = settings.server_name.as_deref().unwrap_or(host);
    let bare = strip_brackets(name);
    ServerName::try_from(bare.to_owned())
        .map_err(|_| format!("tls.server_name: '{bare}' is not valid (must be a DNS name or an IP address)"))
}

fn load_tls(settings: &UpstreamTlsConfig) -> Result<LoadedTls, Vec<String>> {
    // The stamps are read first, so that the next check detects a change during the load.
    let file_stamps = file_stamps(settings);
    let mut problems = Vec::new();
    let roots = settings.ca.as_deref().map(load_ca_file).transpose();
    let roots = roots.map_err(|problem| problems.push(problem)).ok();
    let identity = load_client_identity(settings).map_err(|problem| problems.push(problem)).ok();
    let (Some(roots), Some(identity)) = (roots, identity) else {
        return Err(problems);
    };
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| vec![format!("tls: {error}")])?;
    let builder = match roots {
        Some(roots) => builder.with_root_certificates(roots),
        None => {
            let verifier = SystemVerifier::new(RootCertStore::empty());
            builder.dangerous().with_custom_certificate_verifier(verifier)
        }
    };
    let leaf = identity.as_ref().and_then(|(chain, _)| chain.first().cloned());
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some((chain, key)) => builder
            .with_client_auth_cert(chain, key)
            .map_err(|error| vec![format!("tls.key: does not match tls.certificate ({error})")])?,
    };
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let generation = NEXT_GENERATION.fetch_add(1, Ordering::Relaxed);
    Ok(LoadedTls { config: Arc::new(config), generation, file_stamps, leaf })
}

type ClientIdentity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn load_client_identity(settings: &UpstreamTlsConfig) -> Result<Option<ClientIdentity>, String> {
    let (certificate, key) = match (&settings.certificate, &settings.key) {
        (None, None) => return Ok(None),
        (Some(_), None) => {
            return Err("tls.key: is missing (required with tls.certificate)".to_owned());
        }
        (None, Some(_)) => {
            return Err("tls.certificate: is missing (required with tls.key)".to_owned());
        }
        (Some(certificate), Some(key)) => (certificate, key),
    };
    let chain = read_certificates("tls.certificate", certificate)?;
    let key = read_private_key(key).map_err(|problem| format!("tls.key: {problem}"))?;
    Ok(Some((chain, key)))
}

fn load_ca_file(path: &Path) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in read_certificates("tls.ca", path)? {
        roots.add(certificate).map_err(|error| format!("tls.ca: {} cannot be used ({error})", path.display()))?;
    }
    Ok(roots)
}

fn read_certificates(field: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    read_pem_file(path, PemContent::Certificates).map_err(|problem| format!("{field}: {problem}"))
}

fn file_stamps(settings: &UpstreamTlsConfig) -> Vec<Option<FileStamp>> {
    let files = [&settings.ca, &settings.certificate, &settings.key];
    files.into_iter().flatten().map(|path| FileStamp::read(path)).collect()
}
