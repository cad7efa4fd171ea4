//! TLS profiles: whom the gateway believes and which certificate it shows. Agents with equal settings
//! share one profile; changed files are taken up while the gateway runs, a broken file is not.

use crate::{transport::settings::Tls, unit::FilePath};
use arc_swap::ArcSwap;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};
use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::SystemTime,
};

/// Numbers every configuration ever made, so that no two are taken for each other.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// A configuration in force, and the state of the files it came from.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) config: Arc<ClientConfig>,
    /// A connection made under another generation is not used again.
    pub(super) generation: u64,
    stamps: Vec<Stamp>,
}

type Stamp = Option<(SystemTime, u64)>;

/// One way of speaking TLS.
#[derive(Debug)]
pub(super) struct Profile {
    settings: Tls,
    live: ArcSwap<Live>,
}

impl Profile {
    pub(super) fn load(settings: &Tls) -> Result<Arc<Self>, Vec<String>> {
        let live = read(settings)?;
        Ok(Arc::new(Self { settings: settings.clone(), live: ArcSwap::from_pointee(live) }))
    }

    pub(super) fn live(&self) -> Arc<Live> {
        self.live.load_full()
    }

    pub(super) fn generation(&self) -> u64 {
        self.live.load().generation
    }

    /// Reads the files again if one has changed. Files that do not hold together leave the last good
    /// configuration in force. Blocks on the file system.
    pub(super) fn refresh(&self) {
        if stamps(&self.settings) == self.live.load().stamps {
            return;
        }
        match read(&self.settings) {
            Ok(live) => self.live.store(Arc::new(live)),
            Err(problems) => {
                tracing::warn!(?problems, "changed TLS files for agents are not usable; the last good ones stay")
            }
        }
    }
}

/// The name to verify: the one configured, or the endpoint's host.
pub(super) fn server_name(settings: &Tls, host: &str) -> Result<ServerName<'static>, String> {
    let name = settings.server_name.as_deref().unwrap_or(host);
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    ServerName::try_from(bare.to_owned())
        .map_err(|_| format!("tls.server_name: '{bare}' is neither a DNS name nor an address"))
}

fn read(settings: &Tls) -> Result<Live, Vec<String>> {
    // Stamped first: a change while reading is then seen as a change.
    let stamps = stamps(settings);
    let mut problems = Vec::new();
    let roots = settings.ca.as_deref().map_or_else(system_roots, own_roots);
    let roots = roots.map_err(|why| problems.push(why)).ok();
    let identity = identity(settings).map_err(|why| problems.push(why)).ok();
    let (Some(roots), Some(identity)) = (roots, identity) else {
        return Err(problems);
    };
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|why| vec![format!("tls: {why}")])?
        .with_root_certificates(roots);
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some((chain, key)) => builder
            .with_client_auth_cert(chain, key)
            .map_err(|why| vec![format!("tls.key: does not fit tls.certificate ({why})")])?,
    };
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Live { config: Arc::new(config), generation: NEXT.fetch_add(1, Ordering::Relaxed), stamps })
}

type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn identity(settings: &Tls) -> Result<Option<Identity>, String> {
    let (certificate, key) = match (&settings.certificate, &settings.key) {
        (None, None) => return Ok(None),
        (Some(_), None) => {
            return Err("tls.key: is required where tls.certificate is set".to_owned());
        }
        (None, Some(_)) => {
            return Err("tls.certificate: is required where tls.key is set".to_owned());
        }
        (Some(certificate), Some(key)) => (certificate, key),
    };
    let chain = certificates("tls.certificate", certificate)?;
    let key = PrivateKeyDer::from_pem_file(key)
        .map_err(|why| format!("tls.key: {} holds no private key in PEM ({why})", key.display()))?;
    Ok(Some((chain, key)))
}

fn own_roots(path: &Path) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates("tls.ca", path)? {
        roots.add(certificate).map_err(|why| format!("tls.ca: {} cannot be used ({why})", path.display()))?;
    }
    Ok(roots)
}

fn system_roots() -> Result<RootCertStore, String> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // Some systems carry certificates that no verifier takes; the others count.
    roots.add_parsable_certificates(found.certs);
    match roots.is_empty() {
        true => {
            Err("tls.ca: the system has no certificate authorities (install ca-certificates, or name a file)"
                .to_owned())
        }
        false => Ok(roots),
    }
}

fn certificates(field: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let unusable = |why: &dyn std::fmt::Display| format!("{field}: {} cannot be read ({why})", path.display());
    let found = CertificateDer::pem_file_iter(path).map_err(|why| unusable(&why))?;
    let found = found.collect::<Result<Vec<_>, _>>().map_err(|why| unusable(&why))?;
    match found.is_empty() {
        true => Err(unusable(&"it holds no certificate in PEM")),
        false => Ok(found),
    }
}

fn stamps(settings: &Tls) -> Vec<Stamp> {
    let files = [&settings.ca, &settings.certificate, &settings.key];
    let stamp = |path: &FilePath| {
        let about = std::fs::metadata(path).ok()?;
        Some((about.modified().ok()?, about.len()))
    };
    files.into_iter().flatten().map(stamp).collect()
}
