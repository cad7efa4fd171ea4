//! Endpoint URLs of agents. The parser refuses every address that the gateway cannot call.

use super::{AgentId, AgentUri, MatrixAddress};
use http::Uri;
use std::{fmt, path::PathBuf, str::FromStr};

/// The supported endpoint schemes, for error messages.
const SUPPORTED_SCHEMES: &str =
    "http, https, agent, agent+https, agent+unix, agent+local, agent+matrix, ws, wss, agent+ws, agent+wss, mqtt, mqtts";

/// The address of an agent's own server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentEndpoint {
    /// `http://` or `https://`, with a host, an optional port, a path and a query.
    Http(Uri),
    /// `agent+unix:///socket/path#/http/path`: HTTP over a unix socket (R51).
    Unix {
        /// The absolute path of the socket.
        socket: PathBuf,
        /// The HTTP path; `/` by default.
        path: String,
    },
    /// `ws://` or `wss://`, optionally prefixed with `agent+` (R51, RFC 6455 §3). The URI is stored without the prefix.
    WebSocket(Uri),
    /// `mqtt://` or `mqtts://`: a broker, with the agent's input topic as the path (R107).
    Mqtt(Uri),
    /// `agent://name/path`: resolved when a call is made (R52).
    AgentUri(AgentUri),
    /// `agent+matrix://`: a user and a room (R51).
    Matrix(MatrixAddress),
    /// `agent+local://name`: a runtime on this machine that registers itself (R51).
    Local(AgentId),
}

impl AgentEndpoint {
    /// Returns whether traffic to the endpoint is encrypted or does not leave the machine.
    pub fn is_encrypted_or_local(&self) -> bool {
        match self {
            Self::Http(uri) => uri.scheme_str() == Some("https"),
            Self::WebSocket(uri) => uri.scheme_str() == Some("wss"),
            Self::Mqtt(uri) => uri.scheme_str() == Some("mqtts"),
            // `agent://` resolves to https or to an address of the operator. A homeserver is https or local.
            Self::Unix { .. } | Self::Local(_) | Self::Matrix(_) | Self::AgentUri(_) => true,
        }
    }
}

impl FromStr for AgentEndpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.len() > 2048 || text.bytes().any(|b| b.is_ascii_control() || b == b' ' || !b.is_ascii()) {
            return Err("the endpoint must have at most 2048 printable ASCII characters and no spaces".to_owned());
        }
        match text.split_once("://") {
            Some(("agent+unix", rest)) => parse_unix(rest),
            Some(("agent", _)) => parse_agent_uri(text),
            Some(("agent+matrix", rest)) => MatrixAddress::parse(rest).map(AgentEndpoint::Matrix),
            Some(("agent+local", name)) => parse_local(name),
            Some(("agent+https", rest)) => parse_http(&format!("https://{rest}")),
            Some(("http" | "https", _)) => parse_http(text),
            Some(("agent+wss" | "wss", rest)) => parse_websocket(&format!("wss://{rest}")),
            Some(("agent+ws" | "ws", rest)) => parse_websocket(&format!("ws://{rest}")),
            Some(("mqtt" | "mqtts", _)) => parse_mqtt(text),
            Some((scheme, _)) => Err(format!("the endpoint scheme '{scheme}' is not supported ({SUPPORTED_SCHEMES})")),
            None => Err(format!("the endpoint must be an absolute URL ({SUPPORTED_SCHEMES})")),
        }
    }
}

fn parse_http(text: &str) -> Result<AgentEndpoint, String> {
    let (text, _fragment) = text.split_once('#').unwrap_or((text, ""));
    Ok(AgentEndpoint::Http(parse_url(text)?))
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
fn parse_websocket(text: &str) -> Result<AgentEndpoint, String> {
    if text.contains('#') {
        return Err("a WebSocket endpoint must have no fragment (wss://host/path)".to_owned());
    }
    Ok(AgentEndpoint::WebSocket(parse_url(text)?))
}

/// Parses an MQTT URL. A topic name has no wildcard (`+`, `#`), and a query has no meaning.
fn parse_mqtt(text: &str) -> Result<AgentEndpoint, String> {
    if text.contains(['#', '?', '+']) {
        return Err(
            "an MQTT endpoint must end with a topic without wildcards (mqtts://host/control/agents/id/input)".into()
        );
    }
    let uri = parse_url(text)?;
    if uri.path().split('/').all(str::is_empty) {
        Err("an MQTT endpoint must name a topic (mqtts://host/control/agents/id/input)".to_owned())
    } else {
        Ok(AgentEndpoint::Mqtt(uri))
    }
}

/// Parses a URL that has a host and no userinfo.
fn parse_url(text: &str) -> Result<Uri, String> {
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
    Ok(uri)
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
            Self::Http(uri) | Self::WebSocket(uri) | Self::Mqtt(uri) => uri.fmt(formatter),
            Self::AgentUri(uri) => uri.fmt(formatter),
            Self::Matrix(address) => address.fmt(formatter),
            Self::Local(name) => write!(formatter, "agent+local://{name}"),
            Self::Unix { socket, path } => write!(formatter, "agent+unix://{}#{path}", socket.display()),
        }
    }
}
