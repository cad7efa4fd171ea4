//! The origin of an endpoint: the server behind it, without the path. Credentials are bound to origins, and a publisher
//! may not name an origin of another owner's agent.

use super::{AddressSyntax, AgentEndpoint, EndpointScheme, SchemeSplit};
use crate::values::{Glob, impl_string_deserialize_and_schema, is_loopback_host, strip_brackets};
use std::{fmt, net::IpAddr, path::PathBuf, str::FromStr};

/// The origin of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointOrigin {
    scheme: EndpointScheme,
    /// The host in lower case; the path of a socket; the room or user on Matrix; the id of a local runtime; the
    /// authority of an `agent://` name.
    host: String,
    /// For URLs with a host.
    port: Option<u16>,
}

impl EndpointOrigin {
    /// Returns a text that is equal for endpoints of the same server, whether they speak HTTP or WebSocket, and by
    /// whichever name of this machine.
    pub fn server(&self) -> String {
        match self.port {
            Some(port) if self.is_loopback() => format!("localhost:{port}"),
            Some(port) => format!("{}:{port}", self.host),
            None => format!("{}:{}", self.scheme.as_str(), self.host),
        }
    }

    fn is_loopback(&self) -> bool {
        is_loopback_name(&self.host)
    }
}

impl From<&AgentEndpoint> for EndpointOrigin {
    fn from(endpoint: &AgentEndpoint) -> Self {
        let scheme = endpoint.scheme();
        let (host, port) = match endpoint {
            AgentEndpoint::Url(url) => {
                let port = url.uri().port_u16().or_else(|| scheme.default_port());
                (canonical_host(url.uri().host().unwrap_or_default()), port)
            }
            // `//` and `/./` are the same path for the operating system.
            AgentEndpoint::Unix { socket, .. } => {
                (socket.components().collect::<PathBuf>().to_string_lossy().into_owned(), None)
            }
            AgentEndpoint::AgentUri(uri) => (uri.authority().to_string().to_ascii_lowercase(), None),
            AgentEndpoint::Matrix(address) => (address.room().unwrap_or_else(|| address.user()).to_owned(), None),
            AgentEndpoint::Local(name) => (name.to_string(), None),
        };
        Self { scheme, host, port }
    }
}

fn is_loopback_name(host: &str) -> bool {
    is_loopback_host(host) || host.ends_with(".localhost")
}

/// Returns a host in the one spelling that is compared: lower case, without a trailing dot; of an address the canonical
/// form, and of an IPv4-mapped IPv6 address the IPv4 address.
fn canonical_host(host: &str) -> String {
    let host = host.strip_suffix('.').unwrap_or(host);
    match strip_brackets(host).parse::<IpAddr>().map(|address| address.to_canonical()) {
        Ok(IpAddr::V4(address)) => address.to_string(),
        Ok(IpAddr::V6(address)) => format!("[{address}]"),
        Err(_) => host.to_ascii_lowercase(),
    }
}

/// The ports of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum PortPattern {
    Any,
    /// The port; `None` for endpoints without a port.
    Exactly(Option<u16>),
}

/// A pattern for origins, such as `https://*.example.com:8443`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OriginPattern {
    text: Box<str>,
    /// `None` for `*`, which matches every origin.
    matcher: Option<OriginMatcher>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct OriginMatcher {
    scheme: &'static str,
    host: Glob,
    port: PortPattern,
}

impl OriginPattern {
    /// Returns whether the pattern matches `origin`.
    pub fn matches(&self, origin: &EndpointOrigin) -> bool {
        let Some(OriginMatcher { scheme, host, port }) = &self.matcher else { return true };
        let matches_port = match port {
            PortPattern::Any => true,
            PortPattern::Exactly(port) => *port == origin.port,
        };
        *scheme == origin.scheme.as_str() && matches_port && host.matches(&origin.host)
    }

    /// Returns whether an origin that the pattern matches may be at the server of `origin`, by whichever protocol.
    pub fn matches_server(&self, origin: &EndpointOrigin) -> bool {
        let Some(OriginMatcher { host, port, .. }) = &self.matcher else { return true };
        let matches_port = match (port, origin.port) {
            (PortPattern::Any, Some(_)) => true,
            (PortPattern::Exactly(listed), port) => *listed == port,
            (PortPattern::Any, None) => false,
        };
        matches_port && (host.matches(&origin.host) || origin.is_loopback() && is_loopback_name(host.as_str()))
    }

    /// Returns whether the pattern matches every origin.
    pub fn is_unrestricted(&self) -> bool {
        self.matcher.is_none()
    }
}

impl FromStr for OriginPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "*" {
            return Ok(Self { text: text.into(), matcher: None });
        }
        let invalid = |why: &str| format!("'{text}' is not an origin: {why}");
        let SchemeSplit { scheme, rest, .. } = SchemeSplit::parse(text)
            .ok_or_else(|| invalid("write a scheme and a host, such as https://*.example.com, or '*' for all"))?;
        let rest = match scheme.syntax() {
            AddressSyntax::UnixSocket => rest,
            _ => rest.strip_suffix('/').unwrap_or(rest),
        };
        let (host, port) = match scheme.syntax() {
            AddressSyntax::HttpUrl | AddressSyntax::WebSocketUrl | AddressSyntax::TopicUrl => {
                if rest.contains(['/', '?', '#', '@']) {
                    return Err(invalid("it ends with the host or port, without a path"));
                }
                let (host, port) = split_port(rest).map_err(invalid)?;
                let port = port.unwrap_or_else(|| PortPattern::Exactly(scheme.default_port()));
                (canonical_host(host), port)
            }
            AddressSyntax::AgentUri => (rest.to_ascii_lowercase(), PortPattern::Exactly(None)),
            AddressSyntax::UnixSocket | AddressSyntax::RuntimeName | AddressSyntax::MatrixRoom => {
                (rest.to_owned(), PortPattern::Exactly(None))
            }
        };
        let host = host.parse().map_err(|why: String| invalid(&why))?;
        Ok(Self { text: text.into(), matcher: Some(OriginMatcher { scheme: scheme.as_str(), host, port }) })
    }
}

/// Splits the port, if there is one, from a host that may be an IPv6 address in brackets.
fn split_port(rest: &str) -> Result<(&str, Option<PortPattern>), &'static str> {
    let Some((host, port)) = rest.rsplit_once(':').filter(|(_, port)| !port.contains(']')) else {
        return Ok((rest, None));
    };
    let port = match port {
        "*" => PortPattern::Any,
        port => match port.parse::<u16>() {
            Ok(port) if port > 0 => PortPattern::Exactly(Some(port)),
            _ => return Err("the port must be 1 to 65535, or *"),
        },
    };
    Ok((host, Some(port)))
}

impl fmt::Display for OriginPattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl serde::Serialize for OriginPattern {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl_string_deserialize_and_schema!(
    OriginPattern,
    "Servers: a scheme, a host and perhaps a port, such as https://*.example.com:8443, mqtts://broker.example.com, \
     agent+unix:///run/agents/*.sock or agent+matrix://!room:example.com. In host, path and room * matches any run of \
     characters; :* is any port; * alone is every server.",
    r"^(\*|[a-z+]+://.+)$"
);

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(endpoint: &str) -> EndpointOrigin {
        EndpointOrigin::from(&endpoint.parse::<AgentEndpoint>().unwrap())
    }

    #[test]
    fn patterns_match_scheme_host_and_port() {
        for (pattern, endpoint, expected) in [
            ("https://api.example.com", "https://API.example.com./v1/invoke", true),
            ("https://api.example.com", "https://api.example.com:443/", true),
            ("https://api.example.com", "https://api.example.com:8443/", false),
            ("https://api.example.com", "wss://api.example.com/", false),
            ("https://api.example.com", "https://api.example.com.evil.net/", false),
            ("https://api.example.com:*", "https://api.example.com:8443/", true),
            ("https://*.example.com", "https://a.b.example.com/x", true),
            ("https://*.example.com", "https://example.com/x", false),
            ("https://*.example.com", "https://evilexample.com/x", false),
            ("https://[2001:db8::1]:8443", "https://[2001:db8::1]:8443/x", true),
            ("https://[2001:db8::1]", "https://[2001:db8::1]/x", true),
            ("agent+https://api.example.com", "https://api.example.com/", true),
            ("mqtts://broker.example.com", "mqtts://broker.example.com:8883/control/agents/a/input", true),
            ("agent+unix:///run/agents/*.sock", "agent+unix:///run/agents/a.sock#/invoke", true),
            ("agent+unix:///run/agents/*.sock", "agent+unix:///run/docker.sock", false),
            ("agent+matrix://*:example.com", "agent+matrix://@bot:evil.net/!room:example.com", true),
            ("agent+matrix://!room:example.com", "agent+matrix://@bot:example.com/!other:example.com", false),
            ("agent://*.example.com", "agent://planner.example.com/plan", true),
            ("agent://*.example.com", "https://planner.example.com/plan", false),
            ("*", "agent+local://worker", true),
        ] {
            let parsed: OriginPattern = pattern.parse().unwrap();
            assert_eq!(parsed.matches(&origin(endpoint)), expected, "{pattern} {endpoint}");
        }
    }

    #[test]
    fn patterns_that_are_no_origins_are_refused() {
        for pattern in [
            "",
            "example.com",
            "https://",
            "https://a.com/path",
            "https://u@a.com",
            "https://a.com:0",
            "ftp://a",
            "https://a.com:x",
        ] {
            assert!(pattern.parse::<OriginPattern>().is_err(), "{pattern}");
        }
    }

    #[test]
    fn http_and_websocket_of_one_host_and_port_are_the_same_server() {
        assert_eq!(origin("https://a.com/x").server(), origin("wss://A.com:443/y").server());
        assert_ne!(origin("https://a.com/x").server(), origin("https://a.com:8443/x").server());
        for (one, other) in
            [("http://localhost:8000/", "ws://127.0.0.1:8000/"), ("http://x.localhost/", "http://[::1]/")]
        {
            assert_eq!(origin(one).server(), origin(other).server(), "{one} {other}");
        }
        for (one, other) in [
            ("https://127.0.0.1/", "https://[::ffff:127.0.0.1]/"),
            ("https://127.0.0.1/", "https://[::ffff:7f00:1]/"),
            ("https://[::1]/", "https://[0:0:0:0:0:0:0:1]/"),
            ("https://[2001:db8::1]/", "https://[2001:DB8:0::1]:443/"),
            ("agent+unix:///run/a/x.sock", "agent+unix:///run//a/./x.sock#/y"),
        ] {
            assert_eq!(origin(one), origin(other), "{one} {other}");
        }
        assert!("https://[::ffff:10.0.0.1]".parse::<OriginPattern>().unwrap().matches(&origin("https://10.0.0.1/")));
        assert_ne!(origin("agent+unix:///run/a.sock").server(), origin("agent+local://a").server());
    }
}
