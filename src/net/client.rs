//! Fetches with bounds: size while it streams, time in all, no redirects, TLS unless said otherwise.
//! Nothing of a reply is believed here; a body is bytes until its asker has read it.

use super::{AddressPolicy, Config, FetchError, install_crypto, resolve};
use crate::unit::{Secret, Size, Span};
use reqwest::{Url, dns, header, redirect};
use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

/// What is said of an address that the policy refuses.
const INSIDE: &str = "is at an address that may not be reached";

/// Who chose the address to fetch from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// The operator, in the configuration: any address may be reached, this machine's among them.
    Named,
    /// Somebody else's document: the address policy decides.
    Told,
}

/// How much and how long one fetch may take.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The longest body.
    pub size: Size,
    /// From the first look-up of the name to the last byte of the body.
    pub time: Span,
}

/// A form to post (RFC 7662 §2.1), with the client's own credential.
#[derive(Debug)]
pub struct Form<'a> {
    /// The fields.
    pub fields: &'a [(&'a str, &'a str)],
    /// The user and password for HTTP Basic authentication, already in the form that the server wants.
    pub basic: (&'a str, &'a Secret),
}

/// What came back: always complete, never longer than asked.
#[derive(Debug)]
pub struct Reply {
    /// The HTTP status.
    pub status: u16,
    /// The body.
    pub body: Vec<u8>,
}

/// Fetches documents. Cheap to clone; connections are pooled.
#[derive(Clone, Debug)]
pub struct Client {
    named: reqwest::Client,
    told: reqwest::Client,
    pub(super) policy: Arc<AddressPolicy>,
    insecure: bool,
}

impl Client {
    /// A client that believes the system's certificate authorities and those of `config.ca`.
    ///
    /// # Errors
    /// The file of authorities cannot be read.
    pub fn build(config: &Config, policy: Arc<AddressPolicy>) -> Result<Self, Vec<String>> {
        install_crypto();
        let vetted = Vetted(Arc::clone(&policy));
        let (named, told) = (with_authorities(config)?, with_authorities(config)?.dns_resolver(vetted));
        let finish = |builder: reqwest::ClientBuilder| {
            builder.build().map_err(|why| vec![format!("net: no TLS client can be made ({})", chain(&why))])
        };
        Ok(Self { named: finish(named)?, told: finish(told)?, policy, insecure: config.insecure })
    }

    /// Whether `url` may be fetched from as far as its text tells: https, or http to this machine, or
    /// http anywhere where that was spelled out; no user or password in it.
    ///
    /// # Errors
    /// What would be right.
    pub fn vet(&self, url: &str) -> Result<Url, String> {
        vetted(url, self.insecure)
    }

    /// The JSON document at `url`.
    ///
    /// # Errors
    /// Whatever keeps a complete document with status 200 from coming back in bounds.
    pub async fn fetch_json<T>(&self, url: &str, trust: Trust, bounds: Bounds) -> Result<T, FetchError>
    where
        T: serde::de::DeserializeOwned,
    {
        let reply = self.get(url, trust, bounds).await?;
        if reply.status != 200 {
            return Err(FetchError::Status { url: url.to_owned(), status: reply.status });
        }
        let read = serde_json::from_slice(&reply.body);
        read.map_err(|why| FetchError::Unreadable {
            url: url.to_owned(),
            why: format!("is not the JSON expected ({why})"),
        })
    }

    /// Whatever answers a GET of `url`.
    ///
    /// # Errors
    /// The address is refused, or no complete answer came in bounds.
    pub async fn get(&self, url: &str, trust: Trust, bounds: Bounds) -> Result<Reply, FetchError> {
        let request = self.client(trust).get(self.admit(url, trust)?).header(header::ACCEPT, "application/json");
        complete(url, request, bounds).await
    }

    /// Whatever answers a POST of `form` to `url`, which the operator named.
    ///
    /// # Errors
    /// The address is refused, or no complete answer came in bounds.
    pub async fn post(&self, url: &str, form: &Form<'_>, bounds: Bounds) -> Result<Reply, FetchError> {
        let (user, password) = form.basic;
        let request = self.client(Trust::Named).post(self.admit(url, Trust::Named)?);
        let request = request.header(header::ACCEPT, "application/json");
        complete(url, request.basic_auth(user, Some(password.expose())).form(form.fields), bounds).await
    }

    /// The status with which `url`, which somebody else chose, answers a POST of JSON; its body is not read.
    ///
    /// # Errors
    /// The address is refused, or nothing answered in time.
    pub async fn deliver(
        &self,
        url: &str,
        headers: header::HeaderMap,
        body: Vec<u8>,
        time: Span,
    ) -> Result<u16, FetchError> {
        let failed = |why: String| FetchError::Failed { url: url.to_owned(), why };
        let parsed = self.admit(url, Trust::Told)?;
        let port = parsed.port_or_known_default().unwrap_or(443);
        // The resolver of the client knows no port, and so not the gateway's own listeners.
        let host = parsed.host_str().unwrap_or_default().to_owned();
        resolve::resolve(&host, port, &self.policy).await.map_err(|why| failed(why.to_string()))?;
        let request = self.told.post(parsed).headers(headers).body(body).timeout(time.get());
        let response = request.send().await.map_err(|why| failed(chain(&why.without_url())))?;
        Ok(response.status().as_u16())
    }

    /// Whether `url` may be delivered to, as far as its text tells.
    ///
    /// # Errors
    /// What would be right.
    pub fn vet_told(&self, url: &str) -> Result<(), String> {
        let parsed = self.admit(url, Trust::Told).map_err(|why| match why {
            FetchError::Refused { why, .. } => why,
            other => other.to_string(),
        })?;
        // The one name that everybody knows the addresses of (RFC 6761 §6.3).
        let here = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
        let host = parsed.host_str().unwrap_or_default().trim_end_matches('.');
        let is_here = host == "localhost" || host.ends_with(".localhost");
        match is_here && !here.into_iter().any(|ip| self.permits(ip, &parsed)) {
            true => Err(INSIDE.to_owned()),
            false => Ok(()),
        }
    }

    /// A GET of `url`, vetted and not sent yet.
    pub(super) fn request(&self, url: &Url, trust: Trust) -> Result<reqwest::RequestBuilder, FetchError> {
        Ok(self.client(trust).get(self.admit(url.as_str(), trust)?))
    }

    fn client(&self, trust: Trust) -> &reqwest::Client {
        match trust {
            Trust::Named => &self.named,
            Trust::Told => &self.told,
        }
    }

    /// An address in the URL itself never meets the resolver, so it is vetted here.
    fn admit(&self, url: &str, trust: Trust) -> Result<Url, FetchError> {
        let refuse = |why| FetchError::Refused { url: url.to_owned(), why };
        let parsed = self.vet(url).map_err(refuse)?;
        let literal = parsed.host_str().and_then(resolve::literal);
        match literal {
            Some(ip) if trust == Trust::Told && !self.permits(ip, &parsed) => Err(refuse(INSIDE.to_owned())),
            _ => Ok(parsed),
        }
    }

    fn permits(&self, ip: IpAddr, url: &Url) -> bool {
        self.policy.permits_socket((ip, url.port_or_known_default().unwrap_or(443)).into())
    }
}

pub(super) fn with_authorities(config: &Config) -> Result<reqwest::ClientBuilder, Vec<String>> {
    let builder = reqwest::Client::builder()
        .no_proxy()
        .referer(false)
        .redirect(redirect::Policy::none())
        .user_agent(concat!("gatepost/", env!("CARGO_PKG_VERSION")));
    let Some(path) = &config.ca else {
        return Ok(builder);
    };
    let unusable = |why: String| vec![format!("net.ca: {} cannot be used ({why})", path.display())];
    let pem = std::fs::read(path).map_err(|why| unusable(why.to_string()))?;
    let authorities = reqwest::Certificate::from_pem_bundle(&pem).map_err(|why| unusable(chain(&why)))?;
    if authorities.is_empty() {
        return Err(unusable("it holds no certificate in PEM".to_owned()));
    }
    Ok(builder.tls_certs_merge(authorities))
}

async fn complete(url: &str, request: reqwest::RequestBuilder, bounds: Bounds) -> Result<Reply, FetchError> {
    let (head, body) = read(url, request, bounds).await?;
    Ok(Reply { status: head.status, body })
}

/// What stands before a body.
pub(super) struct Head {
    pub(super) status: u16,
    pub(super) headers: header::HeaderMap,
}

/// Sends `request` and reads the whole answer.
pub(super) async fn read(
    url: &str,
    request: reqwest::RequestBuilder,
    bounds: Bounds,
) -> Result<(Head, Vec<u8>), FetchError> {
    let failed = |why: reqwest::Error| FetchError::Failed { url: url.to_owned(), why: chain(&why.without_url()) };
    let mut response = request.timeout(bounds.time.get()).send().await.map_err(failed)?;
    let too_long = || FetchError::TooLong { url: url.to_owned(), most: bounds.size };
    let most = bounds.size.get();
    if response.content_length().is_some_and(|length| length > most as u64) {
        return Err(too_long());
    }
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(failed)? {
        if body.len() + chunk.len() > most {
            return Err(too_long());
        }
        body.extend_from_slice(&chunk);
    }
    Ok((Head { status: response.status().as_u16(), headers: std::mem::take(response.headers_mut()) }, body))
}

/// Whether `url` may be fetched from as far as its text tells.
pub(super) fn vetted(url: &str, insecure: bool) -> Result<Url, String> {
    let parsed = Url::parse(url).map_err(|_| "is not a URL (write https://host/path)".to_owned())?;
    let host = parsed.host_str().ok_or("has no host")?;
    if !parsed.username().is_empty() || parsed.password().is_some() {
        return Err("must not hold a user or password".to_owned());
    }
    match parsed.scheme() {
        "https" => Ok(parsed),
        "http" if insecure || is_this_machine(host) => Ok(parsed),
        "http" => Err("must be https (plain http is for this machine, or spell net.insecure: true)".to_owned()),
        _ => Err("must be https".to_owned()),
    }
}

fn is_this_machine(host: &str) -> bool {
    host == "localhost" || resolve::literal(host).is_some_and(|ip| ip.to_canonical().is_loopback())
}

/// An error with its causes: the outermost often says only that something failed.
pub fn chain(why: &dyn std::error::Error) -> String {
    let mut text = why.to_string();
    let mut cause = why.source();
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}

/// reqwest's resolver for addresses that somebody else chose.
struct Vetted(Arc<AddressPolicy>);

impl dns::Resolve for Vetted {
    fn resolve(&self, name: dns::Name) -> dns::Resolving {
        let policy = Arc::clone(&self.0);
        Box::pin(async move {
            // The port of the URL is filled in later; only the address is known and vetted here.
            let found = resolve::resolve(name.as_str(), 0, &policy).await?;
            Ok(Box::new(found.into_iter()) as dns::Addrs)
        })
    }
}
