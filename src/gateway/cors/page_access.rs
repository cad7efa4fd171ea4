//! Which requests of web pages are refused: those that a page of another origin makes with what its visitor's browser
//! brings by itself (a client certificate, or nothing for an open agent), and those to agents on this machine. Requests
//! with an API key or a bearer token need no check, because a page cannot send these headers to another origin without a
//! preflight.

use super::{super::api::ApiHosts, cors_policy::CorsPolicy};
use crate::{
    agent::AuthenticationMethod,
    fault::{Fault, FaultCode, Result},
    values::{host_without_port, is_loopback_authority, parse_ip_literal},
};
use http::{HeaderMap, HeaderName, HeaderValue, header};

/// Fetch Metadata: how the page that causes a request relates to its target. Pages cannot set it.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");

/// A request that may come from a web page.
#[derive(Clone, Copy)]
pub(in crate::gateway) struct PageRequest<'a> {
    pub(in crate::gateway) cors: Option<&'a CorsPolicy>,
    pub(in crate::gateway) headers: &'a HeaderMap,
    /// Whether the client reached the gateway over TLS.
    pub(in crate::gateway) is_secure: bool,
    /// Whether the client is on this machine, whose browser trusts names that resolve to it.
    pub(in crate::gateway) is_on_this_machine: bool,
    /// The hosts at which agents' own APIs are.
    pub(in crate::gateway) api_hosts: &'a ApiHosts,
    /// The host that the client requested of a trusted proxy, which may have sent another one in `Host`.
    pub(in crate::gateway) forwarded_host: Option<&'a str>,
    /// The configured URL of the gateway.
    pub(in crate::gateway) external_url: Option<&'a str>,
}

impl PageRequest<'_> {
    /// Refuses a request of a page of another origin, if a browser makes it without a credential that the page sends.
    ///
    /// # Errors
    /// 403.
    pub(in crate::gateway) fn check_ambient_access(&self, method: AuthenticationMethod) -> Result<()> {
        self.check_host(method)?;
        if !is_ambient(method) || !self.is_from_foreign_page() {
            return Ok(());
        }
        let fault = Fault::new(
            FaultCode::PermissionDenied,
            "Web pages of other origins may not make this request (an API key or a bearer token is required)",
        );
        Err(fault
            .with_detail("a page of an origin that is not in cors.allowed_origins")
            .with_setting("cors.allowed_origins"))
    }

    /// Refuses a request of a browser on this machine for a name that is not the gateway's, if it has no credential that
    /// a page sends: the name may be that of a page, which resolves to this machine (DNS rebinding), and whose requests
    /// then have one origin with the gateway.
    ///
    /// # Errors
    /// 403.
    pub(in crate::gateway) fn check_host(&self, method: AuthenticationMethod) -> Result<()> {
        if self.is_secure || !self.is_on_this_machine || !is_ambient(method) {
            return Ok(());
        }
        if !self.is_from_browser() || self.has_own_host() {
            return Ok(());
        }
        let message = "The Host header is not a name of this gateway";
        let detail =
            "a request of a browser on this machine (add the name to cors.allowed_hosts if it is the gateway's)";
        Err(Fault::new(FaultCode::PermissionDenied, message).with_detail(detail).with_setting("cors.allowed_hosts"))
    }

    /// Whether a browser sent the request. Requests of one origin may lack `Origin`, and plain HTTP lacks Fetch Metadata.
    fn is_from_browser(&self) -> bool {
        let names_page = [header::ORIGIN, header::REFERER, SEC_FETCH_SITE, SEC_FETCH_MODE];
        names_page.iter().any(|name| self.headers.contains_key(name))
            || self.headers.get(header::USER_AGENT).is_some_and(|agent| agent.as_bytes().starts_with(b"Mozilla/"))
    }

    /// For agents on this machine, refuses pages whose origin is not allowed, and `Host` names that are not the
    /// gateway's (DNS rebinding).
    ///
    /// # Errors
    /// 403.
    pub(in crate::gateway) fn check_local_access(&self) -> Result<()> {
        let refuse = |detail: &str| {
            let message = "Pages of this origin may not call this agent";
            let fault = Fault::new(FaultCode::PermissionDenied, message).with_detail(detail);
            Err(fault.with_setting("cors.allowed_origins"))
        };
        let is_from_page = self.headers.contains_key(header::ORIGIN)
            || self.headers.get(SEC_FETCH_SITE).is_some_and(|site| !is_own_site(site));
        match self.cors {
            None if is_from_page => {
                refuse("web pages may not call agents on this machine (the configuration has no section cors)")
            }
            Some(cors) if is_from_page && cors.allowed_origin(self.headers).is_none() => {
                refuse("the origin is not in cors.allowed_origins")
            }
            _ if !self.has_own_host() => {
                refuse("the Host header is not a name of this gateway (add it to cors.allowed_hosts if it is)")
            }
            _ => Ok(()),
        }
    }

    /// Whether the request is for a name of this gateway. A page whose host name resolves to this gateway sends that
    /// name; over TLS its browser has compared the name with the certificate, and an IP address is no name.
    fn has_own_host(&self) -> bool {
        if self.is_secure {
            return true;
        }
        // A page can set the field that the proxy forwards, so each name must be the gateway's.
        let hosts = self.headers.get_all(header::HOST).iter().map(|host| host.to_str().ok());
        hosts.chain(self.forwarded_host.map(Some)).all(|host| {
            let Some(host) = host else { return false };
            is_loopback_authority(host)
                || parse_ip_literal(host_without_port(host)).is_some()
                || self.cors.is_some_and(|cors| cors.is_allowed_host(host))
                || self.api_hosts.agent_at(|| Some(host)).is_some()
                || self.external_url.is_some_and(|url| {
                    let authority = url.split_once("://").map_or(url, |(_, authority)| authority);
                    host_without_port(authority).eq_ignore_ascii_case(host_without_port(host))
                })
        })
    }

    /// Whether a page of another origin made the request, which `cors` does not allow. Browsers send `Sec-Fetch-Site`
    /// to trustworthy URLs only (https, localhost), `Origin` not with links and images, and `Referer` unless the page
    /// forbids it.
    fn is_from_foreign_page(&self) -> bool {
        if let Some(site) = self.headers.get(SEC_FETCH_SITE) {
            return !is_own_site(site) && self.cors.is_none_or(|cors| cors.allowed_origin(self.headers).is_none());
        }
        if self.headers.contains_key(header::ORIGIN) {
            return self
                .headers
                .get_all(header::ORIGIN)
                .iter()
                .any(|origin| !self.is_known_origin(origin.to_str().ok()));
        }
        let referer = self.headers.get(header::REFERER).filter(|referer| !referer.is_empty());
        referer.is_some_and(|referer| !self.is_known_origin(origin_of(referer)))
    }

    /// Whether pages of `origin` may call: those of the gateway's own host, and of allowed origins.
    fn is_known_origin(&self, origin: Option<&str>) -> bool {
        let Some(origin) = origin else { return false };
        let host = self.forwarded_host.or_else(|| self.headers.get(header::HOST)?.to_str().ok());
        host.is_some_and(|host| is_origin_of_host(origin, host))
            || self.cors.is_some_and(|cors| cors.is_allowed_origin(origin))
    }
}

/// Whether a browser brings what identifies the caller by itself.
fn is_ambient(method: AuthenticationMethod) -> bool {
    matches!(method, AuthenticationMethod::Anonymous | AuthenticationMethod::Mtls)
}

/// Whether `origin` is that of pages of `host`; the default port may be left out.
pub(in crate::gateway) fn is_origin_of_host(origin: &str, host: &str) -> bool {
    origin.split_once("://").is_some_and(|(scheme, authority)| {
        let default_port = if scheme.eq_ignore_ascii_case("https") { ":443" } else { ":80" };
        let without_default_port = |authority: &str| authority.strip_suffix(default_port).unwrap_or(authority).len();
        let (host_end, authority_end) = (without_default_port(host), without_default_port(authority));
        let parts = (host.get(..host_end), authority.get(..authority_end));
        matches!(parts, (Some(host), Some(authority)) if host.eq_ignore_ascii_case(authority))
    })
}

fn is_own_site(site: &HeaderValue) -> bool {
    site == "none" || site == "same-origin"
}

/// Returns the origin of the page in `Referer`.
fn origin_of(referer: &HeaderValue) -> Option<&str> {
    let text = referer.to_str().ok()?;
    let host_at = text.find("://")? + 3;
    let length = text.get(host_at..)?.find(['/', '?', '#']).unwrap_or(text.len() - host_at);
    text.get(..host_at + length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::cors::CorsConfig;

    fn page(headers: &[(&'static str, &str)], is_secure: bool) -> (bool, bool) {
        page_through_proxy(headers, is_secure, None)
    }

    fn page_through_proxy(
        headers: &[(&'static str, &str)],
        is_secure: bool,
        forwarded_host: Option<&str>,
    ) -> (bool, bool) {
        let config: CorsConfig = serde_json::from_value(serde_json::json!({
            "allowed_origins": ["https://app.example.org"], "allowed_hosts": ["agents.test"],
        }))
        .unwrap();
        let cors = CorsPolicy::build(&config).unwrap();
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_str(value).unwrap());
        }
        let external_url = Some("https://agents.example.com:8443");
        let request = PageRequest {
            cors: Some(&cors),
            headers: &map,
            is_secure,
            is_on_this_machine: true,
            api_hosts: &ApiHosts::default(),
            forwarded_host,
            external_url,
        };
        (request.is_from_foreign_page(), request.has_own_host())
    }

    #[test]
    fn pages_of_other_origins_are_recognised_by_each_of_their_headers() {
        for (headers, is_foreign) in [
            (&[("sec-fetch-site", "cross-site")][..], true),
            (&[("sec-fetch-site", "same-site")], true),
            (&[("sec-fetch-site", "anything")], true),
            (&[("sec-fetch-site", "none")], false),
            (&[("sec-fetch-site", "same-origin")], false),
            (&[("sec-fetch-site", "cross-site"), ("origin", "https://app.example.org")], false),
            (&[("sec-fetch-site", "cross-site"), ("origin", "https://evil.example")], true),
            (&[("origin", "https://evil.example")], true),
            (&[("origin", "null")], true),
            (&[("origin", "")], true),
            (&[("origin", "https://app.example.org")], false),
            (&[("origin", "https://app.example.org"), ("origin", "https://evil.example")], true),
            (&[("origin", "http://gate.example:8080"), ("host", "gate.example:8080")], false),
            (&[("origin", "https://gate.example"), ("host", "GATE.example:443")], false),
            (&[("origin", "http://gate.example"), ("host", "gate.example:443")], true),
            (&[("origin", "http://gate.example.evil.example"), ("host", "gate.example")], true),
            (&[("referer", "https://evil.example/page?x=https://app.example.org")], true),
            (&[("referer", "https://app.example.org.evil.example/")], true),
            (&[("referer", "https://app.example.org/page")], false),
            (&[("referer", "")], false),
            (&[("referer", "https://app.example.org")], false),
            (&[("referer", "http://gate.example/x"), ("host", "gate.example")], false),
            (&[("referer", "garbage")], true),
            (&[], false),
        ] {
            assert_eq!(page(headers, false).0, is_foreign, "{headers:?}");
        }
    }

    #[test]
    fn behind_a_proxy_the_host_that_the_client_requested_counts_too() {
        let host = &[("host", "127.0.0.1:8080")];
        for (forwarded, is_own) in [("agents.test", true), ("agents.example.com", true), ("evil.example", false)] {
            assert_eq!(page_through_proxy(host, false, Some(forwarded)).1, is_own, "{forwarded}");
        }
        // A page can send the field that names the host, but not `Host`.
        assert!(!page_through_proxy(&[("host", "evil.example")], false, Some("agents.test")).1);
        let own_page = &[("host", "127.0.0.1:8080"), ("origin", "http://agents.test")];
        assert!(!page_through_proxy(own_page, false, Some("agents.test")).0);
        assert!(page_through_proxy(own_page, false, Some("evil.example")).0);
    }

    #[test]
    fn a_browser_on_this_machine_must_name_the_gateway_unless_its_page_sends_a_credential() {
        let refused = |headers: &[(&'static str, &str)], method, is_secure: bool, is_on_this_machine: bool| {
            let map: HeaderMap = headers
                .iter()
                .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap()))
                .collect();
            let api_hosts = ApiHosts::default();
            let (cors, forwarded_host, external_url) = (None, None, Some("https://gate.example"));
            let headers = &map;
            let request = PageRequest {
                cors,
                headers,
                is_secure,
                is_on_this_machine,
                api_hosts: &api_hosts,
                forwarded_host,
                external_url,
            };
            request.check_ambient_access(method).is_err()
        };
        let foreign = ("host", "evil.example:8080");
        let markers = [
            ("origin", "http://evil.example:8080"),
            ("referer", "http://evil.example:8080/page"),
            ("sec-fetch-site", "same-origin"),
            ("sec-fetch-mode", "cors"),
            ("user-agent", "Mozilla/5.0 (X11; Linux x86_64)"),
        ];
        for marker in markers {
            for method in [AuthenticationMethod::Anonymous, AuthenticationMethod::Mtls] {
                assert!(refused(&[foreign, marker], method, false, true), "{marker:?}");
                // Over TLS the browser has compared the name with the certificate.
                assert!(!refused(&[foreign, marker], method, true, true), "{marker:?}");
                assert!(!refused(&[foreign, marker], method, false, false), "{marker:?}");
            }
            for method in [AuthenticationMethod::ApiKey, AuthenticationMethod::Bearer] {
                assert!(!refused(&[foreign, marker], method, false, true), "{marker:?}");
            }
        }
        let anonymous = AuthenticationMethod::Anonymous;
        assert!(!refused(&[foreign, ("user-agent", "curl/8.5")], anonymous, false, true));
        for own in ["localhost:8080", "127.0.0.1:8080", "[::1]:8080", "gate.example"] {
            let origin = format!("http://{own}");
            assert!(!refused(&[("host", own), ("origin", &origin)], anonymous, false, true), "{own}");
        }
    }

    #[test]
    fn only_names_of_the_gateway_are_its_own_hosts() {
        for (host, is_own) in [
            ("localhost:1", true),
            ("127.0.0.1", true),
            ("10.0.0.7:8080", true),
            ("[2001:db8::7]:8080", true),
            ("agents.test", true),
            ("agents.test:8080", true),
            ("AGENTS.example.com", true),
            ("evil.example", false),
            ("localhost.evil.example", false),
            ("10.0.0.7.evil.example", false),
            ("agents.example.com.evil.example", false),
            ("", false),
        ] {
            assert_eq!(page(&[("host", host)], false).1, is_own, "{host}");
            assert!(page(&[("host", host)], true).1, "the certificate has the name: {host}");
        }
        assert!(!page(&[("host", "localhost"), ("host", "evil.example")], false).1);
    }
}
