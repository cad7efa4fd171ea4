//! HTTP client for bounded fetches: limits on size and total time, a bounded number of redirects, TLS unless configured otherwise.
//! Bodies are untrusted bytes.

use super::{
    AddressPolicy, FetchError, NetworkConfig,
    bounded_fetch::{
        FetchLimits, PolicyResolver, builder_with_authorities, error_chain, parse_allowed_url, send_and_read, within,
    },
    dns::{ResolveError, check_host},
    install_crypto_provider,
    redirect::{self, FinalReply},
};
use crate::values::{ConfigDuration, Secret, parse_ip_literal};
use reqwest::{Url, header};
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

/// Form to post (RFC 7662 §2.1), with the client's own credential.
#[derive(Debug)]
pub struct FormRequest<'a> {
    /// Form fields.
    pub fields: &'a [(&'a str, &'a str)],
    /// User and password for HTTP Basic authentication, already encoded as the server requires.
    pub basic: Option<(&'a str, &'a Secret)>,
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
    /// Header fields of requests to URLs that the operator chose.
    operator_headers: header::HeaderMap,
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
        Ok(Self {
            trusted: build(trusted)?,
            vetted: build(vetted)?,
            policy,
            allow_plaintext: config.allow_plaintext,
            operator_headers: header::HeaderMap::new(),
        })
    }

    /// Returns a client that sends `credential` in the header `name`, to URLs that the operator chose only.
    ///
    /// # Errors
    /// The credential is not valid in a header.
    pub fn with_credential(mut self, name: header::HeaderName, credential: &Secret) -> Result<Self, String> {
        let value = header::HeaderValue::from_str(credential.expose());
        let mut value = value.map_err(|_| "the credential has characters that a header cannot carry".to_owned())?;
        value.set_sensitive(true);
        self.operator_headers.insert(name, value);
        Ok(self)
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
        let fetched = async {
            let permitted = self.check_url_and_address(url, trust).await?;
            let request = self.client(trust).get(permitted).header(header::ACCEPT, "application/json");
            let request = match trust {
                UrlTrust::Operator => request.headers(self.operator_headers.clone()),
                UrlTrust::Untrusted => request,
            };
            fetch(url, request, limits).await
        };
        within(limits.time, url, fetched).await
    }

    /// Posts `form` to `url`, which the operator configured, and returns the response, regardless of its status.
    ///
    /// # Errors
    /// The URL is denied, or there was no complete response within the limits.
    pub async fn post(&self, url: &str, form: &FormRequest<'_>, limits: FetchLimits) -> Result<FetchReply, FetchError> {
        let permitted = self.check_url_and_address(url, UrlTrust::Operator).await?;
        let request = self.trusted.post(permitted).header(header::ACCEPT, "application/json");
        let request = match form.basic {
            Some((user, password)) => request.basic_auth(user, Some(password.expose())),
            None => request,
        };
        fetch(url, request.form(form.fields), limits).await
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
        let posted = async {
            let permitted = self.check_url_and_address(url, UrlTrust::Untrusted).await?;
            let request = self.vetted.post(permitted).headers(headers).body(body);
            let response = request.send().await.map_err(|error| failed(error_chain(&error.without_url())))?;
            Ok(response.status().as_u16())
        };
        within(time, url, posted).await
    }

    /// Posts JSON to `url`, which the operator chose, and returns the response, regardless of its status.
    ///
    /// # Errors
    /// The URL is denied, or there was no complete response within the limits.
    pub async fn ask_json(&self, url: &str, body: Vec<u8>, limits: FetchLimits) -> Result<FetchReply, FetchError> {
        let asked = async {
            let permitted = self.check_url_and_address(url, UrlTrust::Operator).await?;
            let request = self.trusted.post(permitted).header(header::CONTENT_TYPE, "application/json").body(body);
            let request = request.headers(self.operator_headers.clone());
            fetch(url, request.header(header::ACCEPT, "application/json"), limits).await
        };
        within(limits.time, url, asked).await
    }

    /// Checks the text of a URL that another party chose.
    ///
    /// # Errors
    /// Describes what is wrong.
    pub fn check_untrusted_url(&self, url: &str) -> Result<(), String> {
        let parsed = self.check_url(url)?;
        let literal = parsed.host_str().and_then(parse_ip_literal);
        if literal.is_some_and(|ip| !self.permits(ip, &parsed)) {
            return Err(ADDRESS_DENIED.to_owned());
        }
        // `localhost` is the one name whose addresses are known without a lookup (RFC 6761 §6.3).
        let loopback = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
        let host = parsed.host_str().unwrap_or_default().trim_end_matches('.');
        let is_localhost = host == "localhost" || host.ends_with(".localhost");
        if is_localhost && !loopback.into_iter().any(|ip| self.permits(ip, &parsed)) {
            return Err(ADDRESS_DENIED.to_owned());
        }
        Ok(())
    }

    /// Sends a GET with these headers to `url`, follows redirects, and returns the final response. `limits` applies to
    /// all requests together.
    ///
    /// # Errors
    /// One of the URLs is denied, or there was no complete response within the limits.
    pub async fn get_following_redirects(
        &self,
        url: &Url,
        fields: &header::HeaderMap,
        limits: FetchLimits,
    ) -> Result<FinalReply, FetchError> {
        within(limits.time, url.as_str(), self.follow_redirects(url, fields, limits)).await
    }

    async fn follow_redirects(
        &self,
        start: &Url,
        fields: &header::HeaderMap,
        limits: FetchLimits,
    ) -> Result<FinalReply, FetchError> {
        let mut url = start.clone();
        for _ in 0..=redirect::MAX_REDIRECTS {
            let reply = self.get_once(&url, fields, limits).await?;
            let Some(next) = redirect::redirect_target(&reply)? else { return Ok(reply) };
            url = next;
        }
        Err(redirect::too_many_redirects(start))
    }

    /// Checks that `url` and its addresses may be fetched from.
    ///
    /// # Errors
    /// The URL or its addresses are denied, or it has no address.
    pub async fn check_address(&self, url: &Url) -> Result<(), FetchError> {
        self.check_url_and_address(url.as_str(), UrlTrust::Untrusted).await.map(drop)
    }

    /// Fetches once, without following a redirect.
    pub(super) async fn get_once(
        &self,
        url: &Url,
        fields: &header::HeaderMap,
        limits: FetchLimits,
    ) -> Result<FinalReply, FetchError> {
        self.check_address(url).await?;
        redirect::read_uncompressed(url, self.vetted.get(url.clone()).headers(fields.clone()), limits).await
    }

    fn client(&self, trust: UrlTrust) -> &reqwest::Client {
        match trust {
            UrlTrust::Operator => &self.trusted,
            UrlTrust::Untrusted => &self.vetted,
        }
    }

    /// Checks a URL, and with [`UrlTrust::Untrusted`] the addresses of its host at its port: all of them, because the
    /// client connects to any.
    async fn check_url_and_address(&self, url: &str, trust: UrlTrust) -> Result<Url, FetchError> {
        let denied = |reason| FetchError::Denied { url: url.to_owned(), reason };
        let parsed = self.check_url(url).map_err(denied)?;
        if trust == UrlTrust::Untrusted {
            let port = parsed.port_or_known_default().unwrap_or(443);
            let checked = check_host(parsed.host_str().unwrap_or_default(), port, &self.policy).await;
            checked.map_err(|error| match error {
                ResolveError::NoAddress { .. } => FetchError::Failed { url: url.to_owned(), reason: error.to_string() },
                ResolveError::Denied { .. } | ResolveError::SocketDenied { .. } => denied(error.to_string()),
            })?;
        }
        Ok(parsed)
    }

    fn permits(&self, ip: IpAddr, url: &Url) -> bool {
        self.policy.permits_address((ip, url.port_or_known_default().unwrap_or(443)).into())
    }
}

async fn fetch(url: &str, request: reqwest::RequestBuilder, limits: FetchLimits) -> Result<FetchReply, FetchError> {
    let (head, body) = send_and_read(url, request, limits).await?;
    Ok(FetchReply { status: head.status, body })
}
