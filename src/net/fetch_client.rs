//! HTTP client for bounded fetches: limits on size and total time, no redirects, TLS unless configured otherwise.
//! Bodies are untrusted bytes.

use super::{AddressPolicy, FetchError, NetworkConfig, dns::resolve_host, install_crypto_provider};
use crate::values::{ByteSize, ConfigDuration, Secret, is_loopback_host, parse_ip_literal};
use reqwest::{Url, dns, header, redirect};
use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

/// Error text for an address that the policy denies.
const ADDRESS_DENIED: &str = "is at an address that may not be reached";

/// Who chose the URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UrlTrust {
    /// The operator, in the configuration: any address may be reached, this machine included.
    Operator,
    /// Another party, for example in a document: the address policy applies.
    Untrusted,
}

/// Limits of one fetch.
#[derive(Clone, Copy, Debug)]
pub struct FetchLimits {
    /// Maximum size of the body.
    pub size: ByteSize,
    /// Maximum time from the DNS lookup to the last byte of the body.
    pub time: ConfigDuration,
}

/// Form to post (RFC 7662 §2.1), with the client's own credential.
#[derive(Debug)]
pub struct FormRequest<'a> {
    /// Form fields.
    pub fields: &'a [(&'a str, &'a str)],
    /// User and password for HTTP Basic authentication, already encoded as the server requires.
    pub basic: (&'a str, &'a Secret),
}

/// Complete response within the limits.
#[derive(Debug)]
pub struct FetchReply {
    /// HTTP status.
    pub status: u16,
    /// Body.
    pub body: Vec<u8>,
}

/// Client for fetching documents. Cheap to clone; connections are pooled.
#[derive(Clone, Debug)]
pub struct FetchClient {
    /// For URLs that the operator chose.
    trusted: reqwest::Client,
    /// For URLs that other parties chose: its DNS resolver applies the address policy.
    vetted: reqwest::Client,
    pub(super) policy: Arc<AddressPolicy>,
    allow_plaintext: bool,
}

impl FetchClient {
    /// Builds a client that trusts the system's certificate authorities and those of `config.ca`.
    ///
    /// # Errors
    /// The file of certificate authorities cannot be read.
    pub fn build(config: &NetworkConfig, policy: Arc<AddressPolicy>) -> Result<Self, Vec<String>> {
        install_crypto_provider();
        let vetted = PolicyResolver(Arc::clone(&policy));
        let (trusted, vetted) =
            (builder_with_authorities(config)?, builder_with_authorities(config)?.dns_resolver(vetted));
        let build = |builder: reqwest::ClientBuilder| {
            builder.build().map_err(|error| vec![format!("ca: cannot build a TLS client ({})", error_chain(&error))])
        };
        Ok(Self { trusted: build(trusted)?, vetted: build(vetted)?, policy, allow_plaintext: config.allow_plaintext })
    }

    /// Checks the text of a URL: https, or http to this machine, or http anywhere if the configuration allows it; no
    /// user and no password.
    ///
    /// # Errors
    /// Describes what is wrong.
    pub fn check_url(&self, url: &str) -> Result<Url, String> {
        parse_allowed_url(url, self.allow_plaintext)
    }

    /// Fetches the JSON document at `url`.
    ///
    /// # Errors
    /// The URL is denied, or there was no complete JSON document with status 200 within the limits.
    pub async fn fetch_json<T>(&self, url: &str, trust: UrlTrust, limits: FetchLimits) -> Result<T, FetchError>
    where
        T: serde::de::DeserializeOwned,
    {
        let reply = self.get(url, trust, limits).await?;
        if reply.status != 200 {
            return Err(FetchError::Status { url: url.to_owned(), status: reply.status });
        }
        let document = serde_json::from_slice(&reply.body);
        document.map_err(|error| FetchError::Invalid {
            url: url.to_owned(),
            reason: format!("is not the expected JSON ({error})"),
        })
    }

    /// Sends a GET to `url` and returns the response, regardless of its status.
    ///
    /// # Errors
    /// The URL is denied, or there was no complete response within the limits.
    pub async fn get(&self, url: &str, trust: UrlTrust, limits: FetchLimits) -> Result<FetchReply, FetchError> {
        let request =
            self.client(trust).get(self.check_url_and_ip(url, trust)?).header(header::ACCEPT, "application/json");
        fetch(url, request, limits).await
    }

    /// Posts `form` to `url`, which the operator configured, and returns the response, regardless of its status.
    ///
    /// # Errors
    /// The URL is denied, or there was no complete response within the limits.
    pub async fn post(&self, url: &str, form: &FormRequest<'_>, limits: FetchLimits) -> Result<FetchReply, FetchError> {
        let (user, password) = form.basic;
        let request = self.client(UrlTrust::Operator).post(self.check_url_and_ip(url, UrlTrust::Operator)?);
        let request = request.header(header::ACCEPT, "application/json");
        fetch(url, request.basic_auth(user, Some(password.expose())).form(form.fields), limits).await
    }

    /// Posts JSON to `url`, which another party chose, and returns the status; the body is not read.
    ///
    /// # Errors
    /// The URL is denied, or there was no response in time.
    pub async fn post_json(
        &self,
        url: &str,
        headers: header::HeaderMap,
        body: Vec<u8>,
        time: ConfigDuration,
    ) -> Result<u16, FetchError> {
        let failed = |reason: String| FetchError::Failed { url: url.to_owned(), reason };
        let parsed = self.check_url_and_ip(url, UrlTrust::Untrusted)?;
        let port = parsed.port_or_known_default().unwrap_or(443);
        // The client's DNS resolver does not know the port, so it cannot detect the gateway's own listeners.
        let host = parsed.host_str().unwrap_or_default().to_owned();
        resolve_host(&host, port, &self.policy).await.map_err(|error| failed(error.to_string()))?;
        let request = self.vetted.post(parsed).headers(headers).body(body).timeout(time.get());
        let response = request.send().await.map_err(|error| failed(error_chain(&error.without_url())))?;
        Ok(response.status().as_u16())
    }

    /// Checks the text of a URL that another party chose.
    ///
    /// # Errors
    /// Describes what is wrong.
    pub fn check_untrusted_url(&self, url: &str) -> Result<(), String> {
        let parsed = self.check_url_and_ip(url, UrlTrust::Untrusted).map_err(|error| match error {
            FetchError::Denied { reason, .. } => reason,
            other => other.to_string(),
        })?;
        // `localhost` is the one name whose addresses are known without a lookup (RFC 6761 §6.3).
        let loopback = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
        let host = parsed.host_str().unwrap_or_default().trim_end_matches('.');
        let is_localhost = host == "localhost" || host.ends_with(".localhost");
        match is_localhost && !loopback.into_iter().any(|ip| self.permits(ip, &parsed)) {
            true => Err(ADDRESS_DENIED.to_owned()),
            false => Ok(()),
        }
    }

    /// Builds a GET request to `url` after checking the URL.
    pub(super) fn build_get(&self, url: &Url, trust: UrlTrust) -> Result<reqwest::RequestBuilder, FetchError> {
        Ok(self.client(trust).get(self.check_url_and_ip(url.as_str(), trust)?))
    }

    fn client(&self, trust: UrlTrust) -> &reqwest::Client {
        match trust {
            UrlTrust::Operator => &self.trusted,
            UrlTrust::Untrusted => &self.vetted,
        }
    }

    /// Checks a URL. An IP address in the URL never reaches the DNS resolver, so the policy is applied here.
    fn check_url_and_ip(&self, url: &str, trust: UrlTrust) -> Result<Url, FetchError> {
        let refuse = |reason| FetchError::Denied { url: url.to_owned(), reason };
        let parsed = self.check_url(url).map_err(refuse)?;
        let literal = parsed.host_str().and_then(parse_ip_literal);
        match literal {
            Some(ip) if trust == UrlTrust::Untrusted && !self.permits(ip, &parsed) => {
                Err(refuse(ADDRESS_DENIED.to_owned()))
            }
            _ => Ok(parsed),
        }
    }

    fn permits(&self, ip: IpAddr, url: &Url) -> bool {
        self.policy.permits_address((ip, url.port_or_known_default().unwrap_or(443)).into())
    }
}

pub(super) fn builder_with_authorities(config: &NetworkConfig) -> Result<reqwest::ClientBuilder, Vec<String>> {
    let builder = reqwest::Client::builder()
        .no_proxy()
        .referer(false)
        .redirect(redirect::Policy::none())
        .user_agent(concat!("gatepost/", env!("CARGO_PKG_VERSION")));
    let Some(path) = &config.ca else {
        return Ok(builder);
    };
    let unusable = |reason: String| vec![format!("ca: {} cannot be used ({reason})", path.display())];
    let pem = std::fs::read(path).map_err(|error| unusable(error.to_string()))?;
    let authorities = reqwest::Certificate::from_pem_bundle(&pem).map_err(|error| unusable(error_chain(&error)))?;
    if authorities.is_empty() {
        return Err(unusable("it contains no certificate in PEM".to_owned()));
    }
    Ok(builder.tls_certs_merge(authorities))
}

async fn fetch(url: &str, request: reqwest::RequestBuilder, limits: FetchLimits) -> Result<FetchReply, FetchError> {
    let (head, body) = send_and_read(url, request, limits).await?;
    Ok(FetchReply { status: head.status, body })
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

/// DNS resolver for reqwest that applies the address policy.
struct PolicyResolver(Arc<AddressPolicy>);

impl dns::Resolve for PolicyResolver {
    fn resolve(&self, name: dns::Name) -> dns::Resolving {
        let policy = Arc::clone(&self.0);
        Box::pin(async move {
            // reqwest sets the port later; only the address is checked here.
            let addresses = resolve_host(name.as_str(), 0, &policy).await?;
            Ok(Box::new(addresses.into_iter()) as dns::Addrs)
        })
    }
}
