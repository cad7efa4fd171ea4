//! One fetch with limits on size and time: what the HTTP clients of this module have in common.

use super::{
    AddressPolicy, FetchError, NetworkConfig, dns::resolve_host_at_some_port, install_crypto_provider,
    system_authorities::SystemVerifier,
};
use crate::values::{ByteSize, ConfigDuration, PemContent, is_loopback_host, read_pem_file};
use reqwest::{Url, dns, header, redirect};
use rustls::{ClientConfig, RootCertStore, pki_types::CertificateDer};
use std::{path::Path, sync::Arc};

/// Limits of one fetch.
#[derive(Clone, Copy, Debug)]
pub struct FetchLimits {
    /// Maximum size of the body.
    pub size: ByteSize,
    /// Maximum time from the DNS lookup to the last byte of the body.
    pub time: ConfigDuration,
}

/// Returns the settings that all clients have in common. Such a client trusts the system's authorities, which it loads
/// at once.
pub(super) fn base_builder() -> reqwest::ClientBuilder {
    reqwest::Client::builder()
        .no_proxy()
        .referer(false)
        .redirect(redirect::Policy::none())
        .user_agent(concat!("gatepost/", env!("CARGO_PKG_VERSION")))
}

/// Returns a builder of clients that trust the authorities of `config` besides the system's, which they load when they
/// first verify a certificate.
///
/// # Errors
/// The file of certificate authorities cannot be read.
pub(super) fn builder_with_authorities(config: &NetworkConfig) -> Result<reqwest::ClientBuilder, Vec<String>> {
    let mut further = RootCertStore::empty();
    if let Some(path) = &config.ca {
        add_authorities(&mut further, "ca", path).map_err(|problem| vec![problem])?;
    }
    Ok(base_builder().tls_backend_preconfigured(tls_config(further, &[b"h2", b"http/1.1"])))
}

/// Has a client that loads the system's authorities at once trust those of `config` as well.
///
/// # Errors
/// The file of certificate authorities cannot be read.
pub(super) fn merge_authorities(
    builder: reqwest::ClientBuilder,
    config: &NetworkConfig,
) -> Result<reqwest::ClientBuilder, Vec<String>> {
    let Some(path) = &config.ca else { return Ok(builder) };
    let certificates = read_pem_file::<CertificateDer<'_>>(path, PemContent::Certificates);
    let unusable =
        |_| vec![format!("ca: {} cannot be used (it has a certificate that cannot be read)", path.display())];
    let certificates = certificates.map_err(|problem| vec![format!("ca: {problem}")])?;
    let authorities = certificates.iter().map(|certificate| reqwest::Certificate::from_der(certificate));
    let authorities = authorities.collect::<Result<Vec<_>, _>>().map_err(unusable)?;
    Ok(builder.tls_certs_merge(authorities))
}

/// Adds the certificate authorities in the PEM file `path`, which the setting `field` names.
///
/// # Errors
/// The file cannot be used.
pub(super) fn add_authorities(roots: &mut RootCertStore, field: &str, path: &Path) -> Result<(), String> {
    let certificates = read_pem_file::<CertificateDer<'_>>(path, PemContent::Certificates);
    for certificate in certificates.map_err(|problem| format!("{field}: {problem}"))? {
        let added = roots.add(certificate);
        added.map_err(|error| format!("{field}: {} cannot be used ({error})", path.display()))?;
    }
    Ok(())
}

/// Returns the TLS settings of a client that trusts `further` authorities besides the system's.
pub(super) fn tls_config(further: RootCertStore, protocols: &[&[u8]]) -> ClientConfig {
    install_crypto_provider();
    let verifier = SystemVerifier::new(further);
    let builder = ClientConfig::builder().dangerous().with_custom_certificate_verifier(verifier);
    let mut config = builder.with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    config
}

/// Status and headers of a response.
pub(super) struct FetchedHead {
    pub(super) status: u16,
    pub(super) headers: header::HeaderMap,
}

/// Sends `request` and reads the whole response.
pub(super) async fn send_and_read(
    url: &str,
    request: reqwest::RequestBuilder,
    limits: FetchLimits,
) -> Result<(FetchedHead, Vec<u8>), FetchError> {
    let failed =
        |error: reqwest::Error| FetchError::Failed { url: url.to_owned(), reason: error_chain(&error.without_url()) };
    let mut response = request.timeout(limits.time.get()).send().await.map_err(failed)?;
    let too_large = || FetchError::TooLarge { url: url.to_owned(), limit: limits.size };
    let max_bytes = limits.size.get();
    if response.content_length().is_some_and(|length| length > max_bytes as u64) {
        return Err(too_large());
    }
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(failed)? {
        if body.len() + chunk.len() > max_bytes {
            return Err(too_large());
        }
        body.extend_from_slice(&chunk);
    }
    Ok((FetchedHead { status: response.status().as_u16(), headers: std::mem::take(response.headers_mut()) }, body))
}

/// Checks the text of a URL and parses it.
pub(super) fn parse_allowed_url(url: &str, allow_plaintext: bool) -> Result<Url, String> {
    let parsed = Url::parse(url).map_err(|_| "is not a URL (write https://host/path)".to_owned())?;
    let host = parsed.host_str().ok_or("has no host")?;
    if !parsed.username().is_empty() || parsed.password().is_some() {
        return Err("must not contain a user name or password".to_owned());
    }
    match parsed.scheme() {
        "https" => Ok(parsed),
        "http" if allow_plaintext || is_loopback_host(host) => Ok(parsed),
        "http" => Err("must be https (http only to this machine, or with network.allow_plaintext: true)".to_owned()),
        _ => Err("must be https".to_owned()),
    }
}

/// Checks the text of the base URL of an API and parses it.
pub(super) fn parse_base_url(url: &str, allow_plaintext: bool) -> Result<Url, String> {
    let base = parse_allowed_url(url, allow_plaintext)?;
    if base.query().is_some() || base.fragment().is_some() {
        return Err("must not contain a query or fragment".to_owned());
    }
    Ok(base)
}

/// Returns the URL of a resource of an API: unescaped segments below its base URL, and an unescaped query.
pub(super) fn resource_url(base: &Url, path: &[&str], query: &[(&str, &str)]) -> Url {
    let mut url = base.clone();
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.pop_if_empty().extend(path);
    }
    if !query.is_empty() {
        url.query_pairs_mut().extend_pairs(query);
    }
    url
}

/// Ends `fetched`, with its lookups, after `time`.
pub(super) async fn within<T>(
    time: ConfigDuration,
    url: &str,
    fetched: impl Future<Output = Result<T, FetchError>>,
) -> Result<T, FetchError> {
    let late = |_| FetchError::Failed { url: url.to_owned(), reason: format!("takes longer than {time}") };
    tokio::time::timeout(time.get(), fetched).await.map_err(late)?
}

/// Formats an error with its causes, because the outermost often says only that something failed.
pub fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        text.push_str(": ");
        text.push_str(&source.to_string());
        cause = source.source();
    }
    text
}

/// DNS resolver for reqwest that applies the address policy as far as it does not depend on the port.
pub(super) struct PolicyResolver(pub(super) Arc<AddressPolicy>);

impl dns::Resolve for PolicyResolver {
    fn resolve(&self, name: dns::Name) -> dns::Resolving {
        let policy = Arc::clone(&self.0);
        Box::pin(async move {
            // reqwest sets the port later: `check_host` has checked the same addresses with it.
            let addresses = resolve_host_at_some_port(name.as_str(), &policy).await?;
            Ok(Box::new(addresses.into_iter()) as dns::Addrs)
        })
    }
}
