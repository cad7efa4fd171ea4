//! Endpoint URLs of agents. The parser refuses every address that the gateway cannot call.

use super::{
    AgentId, AgentUri, MatrixAddress,
    endpoint_scheme::{AddressSyntax, EndpointScheme, SchemeSplit},
};
use http::Uri;
use std::{fmt, net::Ipv6Addr, path::PathBuf, str::FromStr};

/// The address of an agent's own server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentEndpoint {
    /// A URL with a host: `https://`, `wss://` (R51, RFC 6455 §3), `mqtts://` (R107).
    Url(EndpointUrl),
    /// `agent+unix:///socket/path#/http/path`: HTTP over a unix socket (R51).
    Unix {
        /// The absolute path of the socket.
        socket: PathBuf,
        /// The HTTP path; `/` by default.
        path: String,
    },
    /// `agent://name/path`: resolved when a call is made (R52).
    AgentUri(AgentUri),
    /// `agent+matrix://`: a user and a room (R51).
    Matrix(MatrixAddress),
    /// `agent+local://name`: a runtime on this machine that registers itself (R51).
    Local(AgentId),
}

/// A URL with a host, an optional port, a path and a query, without the prefix `agent+`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointUrl {
    scheme: EndpointScheme,
    uri: Uri,
}

impl EndpointUrl {
    /// The scheme.
    pub fn scheme(&self) -> EndpointScheme {
        self.scheme
    }

    /// The whole URL.
    pub fn uri(&self) -> &Uri {
        &self.uri
    }
}

impl AgentEndpoint {
    /// The scheme, which determines the transport.
    pub fn scheme(&self) -> EndpointScheme {
        match self {
            Self::Url(url) => url.scheme,
            Self::Unix { .. } => EndpointScheme::Unix,
            Self::AgentUri(_) => EndpointScheme::AgentUri,
            Self::Matrix(_) => EndpointScheme::Matrix,
            Self::Local(_) => EndpointScheme::Local,
        }
    }

    /// Returns the URL of an endpoint that speaks HTTP at a network address; `None` for every other endpoint.
    pub fn http_url(&self) -> Option<&Uri> {
        match self {
            Self::Url(url) if url.scheme.syntax() == AddressSyntax::HttpUrl => Some(&url.uri),
            _ => None,
        }
    }

    /// Returns whether traffic to the endpoint is encrypted or does not leave the machine.
    pub fn is_encrypted_or_local(&self) -> bool {
        self.scheme().is_encrypted_or_local()
    }
}

impl FromStr for AgentEndpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.len() > 2048 || text.bytes().any(|b| b.is_ascii_control() || b == b' ' || !b.is_ascii()) {
            return Err("the endpoint must have at most 2048 printable ASCII characters and no spaces".to_owned());
        }
        let Some(SchemeSplit { scheme, rest, .. }) = SchemeSplit::parse(text) else {
            return Err(unsupported_scheme(text));
        };
        match scheme.syntax() {
            AddressSyntax::HttpUrl => parse_http(scheme, rest),
            AddressSyntax::WebSocketUrl => parse_websocket(scheme, rest),
            AddressSyntax::TopicUrl => parse_topic_url(scheme, rest),
            AddressSyntax::UnixSocket => parse_unix(rest),
            AddressSyntax::RuntimeName => parse_local(rest),
            AddressSyntax::MatrixRoom => MatrixAddress::parse(rest).map(Self::Matrix),
            AddressSyntax::AgentUri => parse_agent_uri(text),
        }
    }
}

fn unsupported_scheme(text: &str) -> String {
    let supported = EndpointScheme::supported_spellings();
    match text.split_once("://") {
        Some((scheme, _)) => format!("the endpoint scheme '{scheme}' is not supported ({supported})"),
        None => format!("the endpoint must be an absolute URL ({supported})"),
    }
}

fn parse_http(scheme: EndpointScheme, rest: &str) -> Result<AgentEndpoint, String> {
    let (rest, _fragment) = rest.split_once('#').unwrap_or((rest, ""));
    parse_url(scheme, rest).map(AgentEndpoint::Url)
}

/// Parses an `agent://` name without a fragment, which only callers may add.
fn parse_agent_uri(text: &str) -> Result<AgentEndpoint, String> {
    let uri: AgentUri = text.parse().map_err(|why| format!("the endpoint {why}"))?;
    match uri.fragment() {
        None => Ok(AgentEndpoint::AgentUri(uri)),
        Some(_) => Err("an agent:// endpoint must have no fragment".to_owned()),
    }
}

/// Parses a WebSocket URI, which has no fragment (RFC 6455 §3).
fn parse_websocket(scheme: EndpointScheme, rest: &str) -> Result<AgentEndpoint, String> {
    if rest.contains('#') {
        return Err("a WebSocket endpoint must have no fragment (wss://host/path)".to_owned());
    }
    parse_url(scheme, rest).map(AgentEndpoint::Url)
}

/// Parses an MQTT URL. A topic name has no wildcard (`+`, `#`), and a query has no meaning.
fn parse_topic_url(scheme: EndpointScheme, rest: &str) -> Result<AgentEndpoint, String> {
    if rest.contains(['#', '?', '+']) {
        return Err(
            "an MQTT endpoint must end with a topic without wildcards (mqtts://host/control/agents/id/input)".into()
        );
    }
    let url = parse_url(scheme, rest)?;
    if url.uri.path().split('/').all(str::is_empty) {
        return Err("an MQTT endpoint must name a topic (mqtts://host/control/agents/id/input)".to_owned());
    }
    Ok(AgentEndpoint::Url(url))
}

/// Parses a URL that has a host and no userinfo.
fn parse_url(scheme: EndpointScheme, rest: &str) -> Result<EndpointUrl, String> {
    let text = format!("{}://{rest}", scheme.as_str());
    let uri: Uri = text.parse().map_err(|why| format!("the endpoint is not a URL ({why})"))?;
    let authority = uri.authority().ok_or("the endpoint has no host")?;
    if authority.as_str().contains('@') {
        return Err(
            "the endpoint must not contain a user or password (configure the credential in the gateway)".to_owned()
        );
    }
    if authority.host().is_empty() || authority.port_u16() == Some(0) || authority.as_str().ends_with(':') {
        return Err("the endpoint's host or port is invalid".to_owned());
    }
    if let Some(address) = authority.host().strip_prefix('[')
        && address.trim_end_matches(']').parse::<Ipv6Addr>().is_err()
    {
        return Err("the endpoint's host in brackets must be an IPv6 address without a zone".to_owned());
    }
    Ok(EndpointUrl { scheme, uri })
}

fn parse_unix(rest: &str) -> Result<AgentEndpoint, String> {
    let (socket, path) = rest.split_once('#').unwrap_or((rest, "/"));
    if !socket.starts_with('/') || socket.len() > 107 || socket.split('/').any(|part| part == "..") {
        return Err(
            "a unix endpoint must be an absolute socket path of up to 107 bytes (agent+unix:///run/agent.sock#/invoke)"
                .to_owned(),
        );
    }
    if !path.starts_with('/') || path.parse::<http::uri::PathAndQuery>().is_err() {
        return Err("the part after # is the HTTP path and must begin with /".to_owned());
    }
    Ok(AgentEndpoint::Unix { socket: socket.into(), path: path.to_owned() })
}

fn parse_local(name: &str) -> Result<AgentEndpoint, String> {
    let error = |_| "a local endpoint must be letters, digits, '.', '-' and '_' (agent+local://name)".to_owned();
    name.parse().map(AgentEndpoint::Local).map_err(error)
}

impl fmt::Display for AgentEndpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(url) => url.uri.fmt(formatter),
            Self::AgentUri(uri) => uri.fmt(formatter),
            Self::Matrix(address) => address.fmt(formatter),
            Self::Local(name) => write!(formatter, "agent+local://{name}"),
            Self::Unix { socket, path } => write!(formatter, "agent+unix://{}#{path}", socket.display()),
        }
    }
}
